"""Children: jobs that a job spawns, once each, and whose results or failures it receives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

import msgspec

from stepwell.durable.effects import Effects, saved_text
from stepwell.durable.exits import Suspend
from stepwell.durable.saved_error import tag_error
from stepwell.errors import BadValue, ConfigError, JobCancelled, JobFailed, StepwellError
from stepwell.values.duration import Duration
from stepwell.values.step import NewStep, SavedStep

if TYPE_CHECKING:
    from stepwell.durable.run_state import RunState
    from stepwell.values.job import NewJob

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _Codec(Protocol):
    def decode_result(self, encoded: str | None) -> Any: ...


class _Task(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def codec(self) -> _Codec: ...


class SpawnCall(Protocol):
    """A call of a task, as `task.call(...)` makes it."""

    @property
    def task(self) -> _Task: ...
    @property
    def job(self) -> NewJob: ...


class _HandleOf(Protocol[R]):
    def result(self, timeout: Duration | None = None) -> R: ...


class Spawnable(Protocol[P, R]):
    """A task, or `task.using(...)`."""

    @property
    def connection(self) -> object | None: ...
    def call(self, *args: P.args, **kwargs: P.kwargs) -> SpawnCall: ...
    def calls(self, items: list[Any]) -> Iterable[SpawnCall]: ...
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> _HandleOf[R]: ...


class Spawned(msgspec.Struct):
    """A child by the step that spawns it: its saved record, its id once enqueued, and how to decode its result."""

    key: str
    task: str
    decode: Callable[[str | None], Any]
    saved: SavedStep | None
    child_id: str | None = None


class Child(Generic[R]):
    """A job that this job spawned. `await` it for its result, alone or in `ctx.gather`.

    That raises `JobFailed` or `JobCancelled` if the child failed or was cancelled.
    """

    __slots__ = ("_run", "_spawned")

    def __init__(self, run: RunState, spawned: Spawned) -> None:
        self._run = run
        self._spawned = spawned

    def __repr__(self) -> str:
        return f"<Child {self._spawned.key} of {self._run.job.id}>"

    def __await__(self) -> Generator[Any, Any, R]:
        return _result(self._run, self._spawned).__await__()


def spawned_by(child: Child[Any]) -> Spawned:
    return child._spawned  # pyright: ignore[reportPrivateUsage]


class Spawner:
    """Enqueues the children of a run: all of one turn of the event loop together, in a task of its own, so that none
    waits until the handler awaits it."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._waiting: list[tuple[Spawned, NewStep, NewJob]] = []
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self.spawned: list[Spawned] = []
        """All children that this run enqueued."""

    def add(self, child: Spawned, step: NewStep, job: NewJob) -> None:
        self.spawned.append(child)
        self._waiting.append((child, step, job))
        if self._task is None:
            self._task = asyncio.create_task(self._enqueue())

    async def finished(self) -> None:
        while self._task is not None or self._waiting:
            if self._task is None:
                self._task = asyncio.create_task(self._enqueue())
            await asyncio.shield(self._task)
        if self._failed is not None:
            raise self._failed

    async def _enqueue(self) -> None:
        effects = self._effects
        try:
            while self._waiting:  # the handler may spawn more meanwhile
                waiting, self._waiting = self._waiting, []
                if notes := effects.journal.notes.and_steps():
                    await effects.save(notes)
                ids = await effects.backend.spawn(effects.job, [(step, job) for _, step, job in waiting])
                for (child, _, _), child_id in zip(waiting, ids, strict=True):
                    child.child_id = child_id
                if effects.journal.tells_saved:
                    effects.journal.tell_saved([step for _, step, _ in waiting])
        except BaseException as error:
            self._failed = error
        finally:
            self._task = None


def spawn(run: RunState, call: SpawnCall) -> Child[Any]:
    """Reach a child: enqueue it, unless an earlier run did."""
    journal = run.journal
    # By its first name, so that workers with the code from before and after a rename find each other's children.
    first, *later = call.task.names
    entry = journal.enter("child", first, later_names=later)
    spawned = Spawned(entry.key, call.task.name, call.task.codec.decode_result, entry.saved)
    if entry.saved is not None:
        spawned.child_id = entry.saved.child_id
    else:
        journal.stop_if_undoing()
        run.spawner.add(spawned, NewStep(entry.key, entry.n, "child", pending=True), call.job)
    return Child(run, spawned)


def check_spawnable(task: Spawnable[P, Any]) -> Spawnable[P, Any]:
    """Raise `ConfigError` if this is no task, or has a connection of its own."""
    if getattr(task, "call", None) is None:
        raise ConfigError(f"ctx.spawn takes a task, as @app.task makes it, not {task!r}; ctx.step runs a function here")
    if task.connection is not None:
        raise ConfigError("a child is enqueued with the step that spawns it: leave out using(connection=...)")
    return task


def spawn_calls(task: Spawnable[..., Any], items: Iterable[Any]) -> Sequence[SpawnCall]:
    return list(check_spawnable(task).calls(list(items)))


async def _result(run: RunState, child: Spawned) -> Any:
    await run.all_spawned()
    try:
        return await child_result(run.effects, child)
    except Suspend as suspend:
        await run.effects.leave(suspend)


async def child_result(effects: Effects, child: Spawned) -> Any:
    """The result of a child, or the error it failed with. Raises `Suspend` if the child has not ended."""
    saved = child.saved
    if saved is None or saved.pending:
        raise Suspend([[child.key]])
    if saved.error is not None:
        job_id, error = child.child_id or "?", saved.error
        failed = (
            JobCancelled(job_id, child.task, error.message)
            if error.state == "cancelled"
            else JobFailed(job_id, child.task, error.type or "Error", error.message or "", None)
        )
        # If it leaves the handler, the next attempt spawns the child anew.
        tag_error(failed, child.key, final=False)
        raise failed
    text = await saved_text(effects, saved)
    try:
        return child.decode(text)
    except RecursionError:
        raise BadValue(f"the result of child {child.key!r} is nested too deep") from None
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the result of child {child.key!r} does not fit the return annotation of {child.task!r}: {error}"
        ) from None
