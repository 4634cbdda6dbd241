"""Children: put in once, with the step that spawns them; their results and failures come to the parent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stepwell.durable.effects import Plan, Save, Spawn, Store, aperform, saved_text
from stepwell.durable.journal import Journal, Suspend
from stepwell.durable.saved_error import tag_error
from stepwell.errors import BadValue, JobCancelled, JobFailed, StepwellError
from stepwell.values.step import NewStep, SavedStep


@dataclass(slots=True)
class Spawned:
    """A child on its way: the step that spawns it, its job, and what its result becomes."""

    key: str
    task: str
    decode: Callable[[str | None], Any]
    saved: SavedStep | None
    step: NewStep | None = None
    job: Any = None
    child_id: str | None = None


class Spawner:
    """Puts in what a run spawns: all of one turn of the loop together, in a task of its own, so that none waits to be
    awaited."""

    def __init__(self, journal: Journal, store: Store) -> None:
        self._journal = journal
        self._store = store
        self._waiting: list[Spawned] = []
        self._task: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self.spawned: list[Spawned] = []
        """All of this run."""

    def add(self, child: Spawned) -> None:
        """Put a child in, soon."""
        self.spawned.append(child)
        self._waiting.append(child)
        if self._task is None:
            self._task = asyncio.create_task(self._put())

    async def finished(self) -> None:
        """Wait until all have been put in."""
        while self._task is not None or self._waiting:
            if self._task is None:
                self._task = asyncio.create_task(self._put())
            await asyncio.shield(self._task)
        if self._failed is not None:
            raise self._failed

    async def _put(self) -> None:
        try:
            while self._waiting:  # more may come while some are on their way
                waiting, self._waiting = self._waiting, []
                await aperform(_put_children(self._journal, waiting), self._store)
        except BaseException as error:
            self._failed = error
        finally:
            self._task = None


def enter_spawn(journal: Journal, call: Any) -> Spawned:
    """Come to a child; one that was not saved has still to be put in."""
    place = journal.enter("child", call.task.name)
    spawned = Spawned(place.key, call.task.name, call.task.codec.decode_result, place.saved)
    if place.saved is not None:
        spawned.child_id = place.saved.child_id
        return spawned
    journal.stop_if_undoing()
    spawned.step = NewStep(place.key, place.n, "child", pending=True)
    spawned.job = call.job
    return spawned


def _put_children(journal: Journal, children: Sequence[Spawned]) -> Plan[None]:
    if notes := journal.with_notes():
        yield Save(notes)
    ids = yield Spawn(children)  # pyright: ignore[reportArgumentType]
    for child, child_id in zip(children, ids, strict=True):
        child.child_id = child_id


def child_result(child: Spawned) -> Plan[Any]:
    """What a child returned, or the error it failed with; if it has not ended, the job waits."""
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
        # Should it leave the handler, the next attempt spawns the child anew.
        tag_error(failed, child.key, final=False)
        raise failed
    text = yield from saved_text(saved)
    try:
        return child.decode(text)
    except RecursionError:
        raise BadValue(f"the result of child {child.key!r} is nested too deep") from None
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the result of child {child.key!r} does not fit the return annotation of {child.task!r}: {error}"
        ) from None
