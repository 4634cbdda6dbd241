"""Groups of jobs: make one, wait until all its members have ended, read their results, and cancel them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID, uuid4

import msgspec

from stepwell.errors import BadArgs, ConfigError, GroupNotFound, JobExists
from stepwell.jobs.cancelled import tell_cancelled
from stepwell.jobs.check import check_reason, to_job_id
from stepwell.jobs.enqueue_chunks import naming_the_item, size_chunks
from stepwell.jobs.enqueuer import Call, Enqueuer, check_calls
from stepwell.jobs.handle import JobHandle
from stepwell.postgres import queries
from stepwell.postgres.callers.on_connection import afetch_on, fetch_on
from stepwell.postgres.queries import Query
from stepwell.postgres.query_plan import QueryPlan, arun, run_call
from stepwell.postgres.threads import refuse_in_event_loop
from stepwell.telemetry.enqueue import GroupCancelAsked, GroupEnqueued
from stepwell.values.bounds import check_whole
from stepwell.values.duration import Duration, describe, seconds
from stepwell.values.group import GroupProgress, GroupResult, GroupSummary
from stepwell.values.job import Ended, NewJob
from stepwell.values.policy import DEFAULT_KEEPS

if TYPE_CHECKING:
    from stepwell.jobs.enqueue import JobStore
    from stepwell.postgres.queries.groups import FoundGroup

R = TypeVar("R", covariant=True)

_SHORTEST_KEEP = 86400.0
_LARGEST_PAGE = 100_000
_summary = msgspec.json.Decoder(GroupSummary)


class Group(Generic[R]):
    """Jobs that were enqueued together, and a callback that starts once, when all of them have ended. `R` is the type
    that the callback returns."""

    __slots__ = ("_id", "_store", "_then")

    def __init__(self, group_id: str, store: JobStore, then: JobHandle[R] | None) -> None:
        self._id = group_id
        self._store = store
        self._then = then

    @property
    def id(self) -> UUID:
        """The group's id: `app.get_group(id)` finds it again."""
        return UUID(self._id)

    @property
    def then(self) -> JobHandle[R]:
        """The callback. Its job exists from the beginning, and is blocked until all members have ended."""
        if self._then is None:
            raise ConfigError(f"group {self._id} has no callback: give app.group(..., then=task)")
        return self._then

    def __repr__(self) -> str:
        return f"<Group {self._id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    def progress(self) -> GroupProgress:
        """Read how many members have ended. Raises `GroupNotFound` if the group is no longer kept."""
        return run_call("progress", _find(self._id), self._store.database).progress

    async def aprogress(self) -> GroupProgress:
        """The same as `progress`, for async code."""
        return (await arun(_find(self._id), self._store.database)).progress

    def result(self, timeout: Duration | None = None) -> GroupSummary:
        """Wait until all members have ended, in whichever way, and return the summary. It does not wait for the
        callback: `group.then.result()` does.

        Raises `TimeoutError` if they have not ended in time, `GroupNotFound` if the group does not exist or is no
        longer kept, and `DatabaseTimeout` if the database has not answered for `App(call_timeout=)`.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        refuse_in_event_loop("result", "aresult")
        waiter = self._store.waiter
        future = waiter.wait(self._id)
        try:
            return _summary_of(waiter.wait_for(future, limit))
        except TimeoutError:
            raise self._timed_out(limit) from None
        finally:
            waiter.forget(self._id, future)

    async def aresult(self, timeout: Duration | None = None) -> GroupSummary:
        """The same as `result`, for async code."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        waiter = self._store.waiter
        future = waiter.wait(self._id)
        try:
            return _summary_of(await waiter.await_for(future, limit))
        except TimeoutError:
            raise self._timed_out(limit) from None
        finally:
            waiter.forget(self._id, future)

    def _timed_out(self, limit: float | None) -> TimeoutError:
        return TimeoutError(
            f"group {self._id} has not ended within {describe(limit or 0)}: progress() says how many members have"
        )

    def results(self, *, after: GroupResult | UUID | str | None = None, limit: int = 1000) -> list[GroupResult]:
        """List how members ended, in the order in which they were enqueued: the next `limit` after `after`, which is
        the last one of the previous page. Members that are live or no longer kept are left out."""
        return run_call("results", self._results(after, limit), self._store.database)

    async def aresults(self, *, after: GroupResult | UUID | str | None = None, limit: int = 1000) -> list[GroupResult]:
        """The same as `results`, for async code."""
        return await arun(self._results(after, limit), self._store.database)

    def _results(self, after: GroupResult | UUID | str | None, limit: int) -> QueryPlan[list[GroupResult]]:
        last = None if after is None else to_job_id(after.id if isinstance(after, GroupResult) else after)
        found = yield queries.groups.group_results(self._id, last, check_whole(limit, "limit", 1, _LARGEST_PAGE))
        if not found:
            yield from _find(self._id)
        return [replace(one, result=self._store.sealer.shown(one.result)) for one in found]

    def cancel(self, reason: str | None = None, *, then: bool = False, connection: object | None = None) -> int:
        """Cancel all live members, as `JobHandle.cancel` does, and return how many: running ones are asked to stop.
        When all have ended, the callback starts as usual, with the summary. With `then` it is cancelled, too.

        Each chunk is committed: if the call is interrupted, call it again. With `connection`, all are cancelled if and
        only if your transaction commits.
        """
        return run_call("cancel", self._cancel(reason, then), self._store.database, connection)

    async def acancel(self, reason: str | None = None, *, then: bool = False, connection: object | None = None) -> int:
        """The same as `cancel`, for async code."""
        return await arun(self._cancel(reason, then), self._store.database, connection)

    def _cancel(self, reason: str | None, then: bool) -> QueryPlan[int]:
        reason = check_reason(reason)
        found = yield from _find(self._id)
        if then and found.then_id is not None:
            # First, so that the callback cannot start when the last member has ended.
            tell_cancelled(self._store.events, (yield queries.jobs.cancel([str(found.then_id)], reason)), reason)
        cancelled = 0
        after: str | None = None
        while True:
            [(count, looked_to)] = yield queries.groups.cancel_group(self._id, reason, after)
            cancelled += count
            if looked_to is None:
                if self._store.events.wanted(GroupCancelAsked):
                    self._store.events.emit(GroupCancelAsked(self._id, cancelled, reason))
                return cancelled
            after = str(looked_to)


class NewGroup:
    """A group to enqueue: its queries run in one transaction, and Postgres works on one chunk while the next is
    made."""

    def __init__(self, store: JobStore, calls: list[Call[Any]], then: Enqueuer[..., Any] | None) -> None:
        self._store = store
        self._id = str(uuid4())
        self._count = len(calls)
        self._calls: Iterable[Call[Any]] = check_calls(calls, "app.group")
        self._made: list[Call[Any]] = []
        self._then, self._parameter = (
            (None, None) if then is None else callback_of(then, GroupSummary(UUID(self._id), len(calls), 0, 0, 0))
        )

    def enqueue(self, connection: object | None) -> Group[Any]:
        if connection is None:
            refuse_in_event_loop("group", "agroup")
        if not self._store.is_observed:
            return self._enqueue(connection)
        with self._observed(connection):
            return self._enqueue(connection)

    async def aenqueue(self, connection: object | None) -> Group[Any]:
        if not self._store.is_observed:
            return await self._aenqueue(connection)
        with self._observed(connection):
            return await self._aenqueue(connection)

    @contextmanager
    def _observed(self, connection: object | None) -> Generator[None]:
        """Let the plugins see the enqueue. Their headers are for the callback, too."""
        then = [] if self._then is None else [self._then]
        with self._store.observed([*self._calls, *then], connection) as (sent, _):
            if self._then is not None:
                self._then = sent.pop()
            self._calls = sent
            yield

    def _enqueue(self, connection: object | None) -> Group[Any]:
        with naming_the_item(self._made), self._naming_the_job():
            made = self._queries()
            if connection is not None:
                # The caller's transaction survives a bad item, so all items are checked before any is sent.
                rows = [row for query in list(made) for row in fetch_on(self._store.database, connection, query)]
            else:
                rows = self._store.database.fetch_each(_small_or_lazy(made))
        return self._handle(rows, connection)

    async def _aenqueue(self, connection: object | None) -> Group[Any]:
        with naming_the_item(self._made), self._naming_the_job():
            made = self._queries()
            if connection is not None:
                rows = [row for query in list(made) for row in await afetch_on(self._store.database, connection, query)]
            else:
                rows = await self._store.database.afetch_each(_small_or_lazy(made))
        return self._handle(rows, connection)

    @contextmanager
    def _naming_the_job(self) -> Generator[None]:
        try:
            yield
        except JobExists as error:
            # It may have the key of any call, or of the callback.
            error.job = self._store.handle(error.job_id)
            raise

    def _queries(self) -> Iterator[Query[Any]]:
        callback, keep = None, DEFAULT_KEEPS[0]
        if self._then is not None:
            # Its arguments come when the group has ended.
            callback, keep = msgspec.structs.replace(self._then.job, args="{}"), self._then.task.keep
        yield queries.groups.open_group(self._id, max(keep, _SHORTEST_KEEP), callback, self._parameter)
        for chunk in size_chunks(self._jobs()):
            yield queries.groups.add_members(self._id, chunk)
        yield queries.groups.seal_group(self._id)

    def _jobs(self) -> Iterator[NewJob]:
        for call in self._calls:
            self._made.append(call)
            yield call.job

    def _handle(self, rows: list[Any], connection: object | None) -> Group[Any]:
        if self._store.events.wanted(GroupEnqueued):
            self._store.events.emit(GroupEnqueued(self._id, self._count, in_transaction=connection is not None))
        then = None if self._then is None else self._store.handle(str(rows[0]), self._then.task.codec)
        return Group(self._id, self._store, then)


def _small_or_lazy(made: Iterator[Query[Any]]) -> list[Query[Any]] | Iterator[Query[Any]]:
    """A list of few queries, which may be sent again, or an iterator. The first chunks are made before a connection is
    opened: bad items need no database."""
    first = list(islice(made, 4))
    return first if len(first) < 4 else chain(first, made)


def callback_of(then: Enqueuer[..., Any], summary: GroupSummary) -> tuple[Call[Any], str | None]:
    """Return the call of the callback, and the name of the argument that gets the summary; None: it takes none.

    The keys of its limits and unique key are made from this, when the group is enqueued: the counts are not known yet.
    """
    if not isinstance(then, Enqueuer):
        raise ConfigError(f"then={then!r}: give a task, such as then=publish, or publish.using(...)")
    if then.connection is not None:
        raise ConfigError("then has no connection of its own: give connection=... to app.group")
    names = then.task.codec.arguments
    if not names:
        return then.call(), None
    try:
        call = then.call(summary)
    except BadArgs as error:
        raise ConfigError(
            f"then={then.task.name!r} is called with a GroupSummary as its only argument: {error}"
        ) from None
    [parameter] = msgspec.json.decode(then.task.codec.sealer.open(call.job.args))
    return call, parameter


def find_group(store: JobStore, group: GroupSummary | UUID | str) -> QueryPlan[Group[Any]]:
    given = group.id if isinstance(group, GroupSummary) else group
    try:
        group_id = str(given if isinstance(given, UUID) else UUID(given))
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"{repr(given)[:200]} is not a group's id: give a uuid") from None
    found = yield from _find(group_id)
    if found.then_id is None:
        return Group(group_id, store, None)
    task = store.tasks.get(found.then_task or "")
    return Group(group_id, store, store.handle(str(found.then_id), None if task is None else task.codec))


def _find(group_id: str) -> QueryPlan[FoundGroup]:
    found = yield queries.groups.group_progress(group_id)
    if not found:
        raise _no_such_group(group_id)
    return found[0]


def _no_such_group(group_id: object) -> GroupNotFound:
    return GroupNotFound(f"there is no group {group_id}: it was never committed, or is no longer kept")


def _summary_of(ended: Ended) -> GroupSummary:
    if ended.state is None or ended.result is None:
        raise _no_such_group(ended.id)
    return _summary.decode(ended.result)
