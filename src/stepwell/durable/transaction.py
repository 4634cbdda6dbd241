"""A step that is a transaction of the user's: its writes and its saved step are committed together, or not at all.

If an earlier run committed it, the first use of the transaction leaves its block, so that nothing is done twice.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

import msgspec

from stepwell.durable.backend import OpenTransaction, Sessions
from stepwell.durable.effects import Effects, ThreadEffects, finish, saved_text
from stepwell.durable.saved_error import saved_error
from stepwell.durable.step import note_failure
from stepwell.errors import StepwellError
from stepwell.values.json import encode_value
from stepwell.values.step import NewStep

if TYPE_CHECKING:
    import psycopg

    AsyncConnection: TypeAlias = psycopg.AsyncConnection[Any]
    AsyncCursor: TypeAlias = psycopg.AsyncCursor[Any]
    Connection: TypeAlias = psycopg.Connection[Any]
    Cursor: TypeAlias = psycopg.Cursor[Any]
else:
    # Psycopg takes long to import: a program that only defines tasks starts without it.
    AsyncConnection = AsyncCursor = Connection = Cursor = Any

E = TypeVar("E", bound=Effects)
S = TypeVar("S")


class _Leave(BaseException):
    """Leaves the block of a transaction that an earlier run committed."""


class _TransactionStep(Generic[E]):
    def __init__(self, effects: E, key: str, sessions: Sessions | None = None) -> None:
        self._effects = effects
        self._sessions = sessions
        self._name = self.key = key
        self.entered = False
        self._block: Any = None
        self._opened: OpenTransaction | None = None
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

    def _given(self) -> Any:
        self._refuse_if_done()
        return None if self._opened is None else self._opened.given

    async def _enter(self) -> None:
        journal = self._effects.journal
        self.entered = True
        entry = self._entry = journal.enter("transaction", self._name, self._name)
        if entry.saved is None:
            journal.stop_if_undoing()
            block = self._effects.transaction(self._sessions)
            self._opened = await block.__aenter__()
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
        block, opened, self._block, self._opened = self._block, self._opened, None, None
        assert opened is not None
        handed_over = False
        if error is not None:
            self._failed(error)
        try:
            if error is None:
                try:
                    steps = await self._steps(opened)
                    handed_over = True
                    await self._effects.backend.save_in(opened, self._effects.job, steps)
                except BaseException as own:
                    await block.__aexit__(type(own), own, own.__traceback__)
                    raise
            await block.__aexit__(kind, error, trace)
        except BaseException as own:
            # A commit in doubt is looked up, never guessed.
            in_doubt = handed_over and opened.leaves_in_doubt(own)
            if not in_doubt or not await self._effects.was_saved(self._entry.key):
                self._failed(own)
                raise
        if error is None:
            self._committed()
        return False

    async def _steps(self, opened: OpenTransaction) -> list[NewStep]:
        if opened.aborted:
            raise StepwellError(
                f"the transaction {self._name!r} was aborted by an error that its block has caught: let the error out, "
                "or put what may fail in a savepoint, 'with tx.connection.transaction()'"
            )
        if await opened.ended():
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
        sealer = self._effects.backend.sealer
        return encode_value(value, most, "App(max_result_size=...)", what, self._name, task, sealer=sealer)

    def _failed(self, error: BaseException) -> None:
        note_failure(self._effects.journal, self._entry, "transaction", error)

    def _committed(self) -> None:
        self.done = True
        encoded = self._encoded(self._saved)
        self._saved = msgspec.json.decode(self._effects.backend.sealer.open(encoded))
        journal = self._effects.journal
        if journal.tells_saved:
            journal.tell_saved([NewStep(self._entry.key, self._entry.n, "transaction", encoded)])
        journal.was_saved()


class _AsyncBlock(_TransactionStep[Effects]):
    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._exit(kind, error, trace)


class _Block(_TransactionStep[ThreadEffects]):
    def __enter__(self) -> Self:
        finish(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return finish(self._exit(kind, error, trace))


class Transaction(_AsyncBlock):
    """`async with ctx.transaction("key") as tx`: a psycopg connection in a transaction that commits with its step."""

    @property
    def connection(self) -> AsyncConnection:
        """The connection: give it to `using(connection=...)`."""
        given = self._given()
        assert given is not None, "used outside its block"
        return given

    async def execute(self, query: Any, params: Any = None) -> AsyncCursor:
        """Run a statement in the transaction."""
        return await self.connection.execute(query, params)


class SyncTransaction(_Block):
    """The same for plain functions: `with ctx.transaction("key") as tx`."""

    @property
    def connection(self) -> Connection:
        """The connection: give it to `using(connection=...)`."""
        given = self._given()
        assert given is not None, "used outside its block"
        return given

    def execute(self, query: Any, params: Any = None) -> Cursor:
        """Run a statement in the transaction."""
        return self.connection.execute(query, params)


class SessionTransaction(_AsyncBlock, Generic[S]):
    """`async with ctx.transaction("key", Sessions) as tx`: a session of SQLAlchemy that commits with its step."""

    @property
    def session(self) -> S:
        """The session: give it to `using(connection=...)`, too."""
        given = self._given()
        assert given is not None, "used outside its block"
        return given


class SyncSessionTransaction(_Block, Generic[S]):
    """The same for plain functions: `with ctx.transaction("key", Sessions) as tx`."""

    @property
    def session(self) -> S:
        """The session: give it to `using(connection=...)`, too."""
        given = self._given()
        assert given is not None, "used outside its block"
        return given
