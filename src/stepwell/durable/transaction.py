"""A step that is a transaction of the user's: its writes and the saved step are committed together, or not at all.

When it was saved in an earlier run, its block is left at the first use of the transaction: nothing is done again.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Self

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from stepwell.durable.effects import Store
from stepwell.durable.journal import Journal
from stepwell.durable.saved_error import saved_error
from stepwell.durable.step import note_failure
from stepwell.errors import StepwellError
from stepwell.values.json import encode_value
from stepwell.values.step import NewStep


class _Leave(BaseException):
    """Leaves the block of a transaction that was committed before."""


class _TransactionStep:
    def __init__(self, journal: Journal, store: Store, key: str) -> None:
        self._journal = journal
        self._store = store
        self._name = self.key = key
        self.entered = False
        self._stack: Any = None
        self._leave = _Leave()
        self._saved: Any = None
        self.done = False
        """Whether it was committed, in this run or in an earlier one."""

    @property
    def value(self) -> Any:
        """What was kept of it by `save`, as plain JSON values; None: nothing."""
        return self._saved

    def save(self, value: Any) -> None:
        """Keep a value with the step: after the block, and in each run to come, it is `value`."""
        self._refuse_if_done()
        self._encoded(value)
        self._saved = value

    def _refuse_if_done(self) -> None:
        if self.done:
            raise self._leave

    def _enter(self) -> bool:
        """Come to the step. True: it has still to be done."""
        self.entered = True
        place = self._place = self._journal.enter("transaction", self._name, self._name)
        if place.saved is not None:
            if place.saved.error is not None:
                raise saved_error(place.key, place.saved.error)
            self.done = True
            return False
        self._journal.stop_if_undoing()
        return True

    def _step(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> list[NewStep]:
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise StepwellError(
                f"the transaction {self._name!r} was aborted by an error that its block has caught: let the error out, "
                "or put what may fail in a savepoint, 'with tx.connection.transaction()'"
            )
        if connection.info.transaction_status != TransactionStatus.INTRANS:
            raise StepwellError(
                f"the transaction {self._name!r} was ended by a statement of its own block: it is committed at its end"
            )
        encoded = self._encoded(self._saved)
        self._journal.weigh(encoded, self._name)
        step = NewStep(self._place.key, self._place.n, "transaction", encoded)
        # What was noted stays so, too, for this may yet be rolled back.
        return [*self._journal.noted(), step]

    def _encoded(self, value: Any) -> str:
        most, task = self._store.max_value_size, self._journal.job.task
        what = "transaction {!r} of task {!r} saves"
        return encode_value(value, most, "App(max_result_size=...)", what, self._name, task)

    def _failed(self, error: BaseException) -> None:
        """Note that it was rolled back: should the handler catch why, it must meet that again in each run to come."""
        note_failure(self._journal, self._place, "transaction", error)

    def _committed(self) -> None:
        self.done = True
        self._saved = msgspec.json.decode(self._encoded(self._saved))
        self._journal.was_saved()


class Transaction(_TransactionStep):
    """`async with ctx.transaction("key") as tx`: a psycopg connection in a transaction that commits with its step."""

    @property
    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection: give it to an ORM, or to `using(connection=...)`."""
        self._refuse_if_done()
        assert self._connection is not None, "used outside its block"
        return self._connection

    async def execute(self, query: Any, params: Any = None) -> psycopg.AsyncCursor[Any]:
        """Run a statement in the transaction."""
        return await self.connection.execute(query, params)

    async def __aenter__(self) -> Self:
        self._connection: psycopg.AsyncConnection[Any] | None = None
        if self._enter():
            self._stack = contextlib.AsyncExitStack()
            self._connection = await self._stack.enter_async_context(self._store.atransaction())
        elif self._place.saved is not None:
            saved = self._place.saved
            text = await self._store.read_large(saved.key) if saved.large else bytes(saved.value)
            self._saved = msgspec.json.decode(text)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._stack is None:
            return error is self._leave
        stack, connection, self._stack, self._connection = self._stack, self._connection, None, None
        assert connection is not None
        handed_over = False
        if error is not None:
            self._failed(error)
        try:
            if error is None:
                try:
                    steps = self._step(connection)
                    handed_over = True
                    await self._store.asave_in(connection, steps)
                except BaseException as own:
                    await stack.__aexit__(type(own), own, own.__traceback__)
                    raise
            await stack.__aexit__(kind, error, trace)
        except BaseException as own:
            # If the commit is in doubt: look, and never guess.
            in_doubt = handed_over and isinstance(own, psycopg.OperationalError | OSError)
            if not in_doubt or not await self._store.was_saved(self._place.key):
                self._failed(own)
                raise
        if error is None:
            self._committed()
        return False


class SyncTransaction(_TransactionStep):
    """The same for plain functions: `with ctx.transaction("key") as tx`."""

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection: give it to an ORM, or to `using(connection=...)`."""
        self._refuse_if_done()
        assert self._connection is not None, "used outside its block"
        return self._connection

    def execute(self, query: Any, params: Any = None) -> psycopg.Cursor[Any]:
        """Run a statement in the transaction."""
        return self.connection.execute(query, params)

    def __enter__(self) -> Self:
        self._connection: psycopg.Connection[Any] | None = None
        if self._enter():
            self._stack = contextlib.ExitStack()
            self._connection = self._stack.enter_context(self._store.transaction())
        elif self._place.saved is not None:
            saved = self._place.saved
            text = (
                self._store.run_async(lambda: self._store.read_large(saved.key)) if saved.large else bytes(saved.value)
            )
            self._saved = msgspec.json.decode(text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._stack is None:
            return error is self._leave
        stack, connection, self._stack, self._connection = self._stack, self._connection, None, None
        assert connection is not None
        handed_over = False
        if error is not None:
            self._failed(error)
        try:
            if error is None:
                try:
                    steps = self._step(connection)
                    handed_over = True
                    self._store.save_in(connection, steps)
                except BaseException as own:
                    stack.__exit__(type(own), own, own.__traceback__)
                    raise
            stack.__exit__(kind, error, trace)
        except BaseException as own:
            in_doubt = handed_over and isinstance(own, psycopg.OperationalError | OSError)
            if not in_doubt or not self._store.run_async(lambda: self._store.was_saved(self._place.key)):
                self._failed(own)
                raise
        if error is None:
            self._committed()
        return False
