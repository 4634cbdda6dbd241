"""A step that is a transaction of the user's: its writes and its saved step are committed together, or not at all.

If an earlier run committed it, the first use of the transaction leaves its block, so that nothing is done twice.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from stepwell.durable.backend import Connection
from stepwell.durable.effects import Effects, ThreadEffects, finish, saved_text
from stepwell.durable.saved_error import saved_error
from stepwell.durable.step import note_failure
from stepwell.errors import StepwellError
from stepwell.values.json import encode_value
from stepwell.values.step import NewStep

E = TypeVar("E", bound=Effects)


class _Leave(BaseException):
    """Leaves the block of a transaction that an earlier run committed."""


class _TransactionStep(Generic[E]):
    def __init__(self, effects: E, key: str) -> None:
        self._effects = effects
        self._name = self.key = key
        self.entered = False
        self._block: Any = None
        self._connection: Connection | None = None
        self._leave = _Leave()
        self._saved: Any = None
        self.done = False
        """Whether this run or an earlier one committed the transaction."""

    @property
    def value(self) -> Any:
        """The value that `save` kept with the step, as plain JSON values, or None."""
        return self._saved

    def save(self, value: Any) -> None:
        """Keep a value with the step: after the block, and in every later run, it is `value`."""
        self._refuse_if_done()
        self._encoded(value)
        self._saved = value

    def _refuse_if_done(self) -> None:
        if self.done:
            raise self._leave

    async def _enter(self) -> None:
        journal = self._effects.journal
        self.entered = True
        entry = self._entry = journal.enter("transaction", self._name, self._name)
        if entry.saved is None:
            journal.stop_if_undoing()
            block = self._effects.transaction()
            self._connection = await block.__aenter__()
            self._block = block
        elif entry.saved.error is not None:
            raise saved_error(entry.key, entry.saved.error)
        else:
            self.done = True
            self._saved = msgspec.json.decode(await saved_text(self._effects, entry.saved))

    async def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._block is None:
            return error is self._leave
        block, connection, self._block, self._connection = self._block, self._connection, None, None
        assert connection is not None
        handed_over = False
        if error is not None:
            self._failed(error)
        try:
            if error is None:
                try:
                    steps = self._steps(connection)
                    handed_over = True
                    await self._effects.backend.save_in(connection, self._effects.job, steps)
                except BaseException as own:
                    await block.__aexit__(type(own), own, own.__traceback__)
                    raise
            await block.__aexit__(kind, error, trace)
        except BaseException as own:
            # A commit in doubt is looked up, never guessed.
            in_doubt = handed_over and isinstance(own, psycopg.OperationalError | OSError)
            if not in_doubt or not await self._effects.was_saved(self._entry.key):
                self._failed(own)
                raise
        if error is None:
            self._committed()
        return False

    def _steps(self, connection: Connection) -> list[NewStep]:
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise StepwellError(
                f"the transaction {self._name!r} was aborted by an error that its block has caught: let the error out, "
                "or put what may fail in a savepoint, 'with tx.connection.transaction()'"
            )
        if connection.info.transaction_status != TransactionStatus.INTRANS:
            raise StepwellError(
                f"the transaction {self._name!r} was ended by a statement of its own block: Stepwell commits it when "
                "the block ends"
            )
        encoded = self._encoded(self._saved)
        journal = self._effects.journal
        journal.count_bytes(encoded, self._name)
        # The notes stay noted, since this transaction may yet be rolled back.
        return [*journal.notes.all(), NewStep(self._entry.key, self._entry.n, "transaction", encoded)]

    def _encoded(self, value: Any) -> str:
        most, task = self._effects.backend.max_value_size, self._effects.job.task
        what = "transaction {!r} of task {!r} saves"
        return encode_value(value, most, "App(max_result_size=...)", what, self._name, task)

    def _failed(self, error: BaseException) -> None:
        note_failure(self._effects.journal, self._entry, "transaction", error)

    def _committed(self) -> None:
        self.done = True
        encoded = self._encoded(self._saved)
        self._saved = msgspec.json.decode(encoded)
        journal = self._effects.journal
        if journal.tells_saved:
            journal.tell_saved([NewStep(self._entry.key, self._entry.n, "transaction", encoded)])
        journal.was_saved()


class Transaction(_TransactionStep[Effects]):
    """`async with ctx.transaction("key") as tx`: a psycopg connection in a transaction that commits with its step."""

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection: give it to an ORM, or to `using(connection=...)`."""
        self._refuse_if_done()
        assert isinstance(self._connection, psycopg.AsyncConnection), "used outside its block"
        return self._connection

    async def execute(self, query: Any, params: Any = None) -> psycopg.AsyncCursor[Any]:
        """Run a statement in the transaction."""
        return await self.connection.execute(query, params)

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._exit(kind, error, trace)


class SyncTransaction(_TransactionStep[ThreadEffects]):
    """The same for plain functions: `with ctx.transaction("key") as tx`."""

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection: give it to an ORM, or to `using(connection=...)`."""
        self._refuse_if_done()
        assert isinstance(self._connection, psycopg.Connection), "used outside its block"
        return self._connection

    def execute(self, query: Any, params: Any = None) -> psycopg.Cursor[Any]:
        """Run a statement in the transaction."""
        return self.connection.execute(query, params)

    def __enter__(self) -> Self:
        finish(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return finish(self._exit(kind, error, trace))
