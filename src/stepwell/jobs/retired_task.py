"""A task that the code no longer has, and whose jobs a worker ends without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from stepwell.errors import ConfigError
from stepwell.jobs.codec import Codec
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.task import Task
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Cancelled, Failed, Outcome
from stepwell.values.step import is_undoing


class RetiredTask(Task[..., Any]):
    """A name whose jobs end as cancelled. Made by `app.retire`."""

    def __init__(self, job_store: JobStore, name: str, **options: Any) -> None:
        async def retired() -> None:
            raise AssertionError("a worker ends the jobs of a retired task without a call")

        codec = _RetiredCodec(name, retired)
        super().__init__(job_store, retired, name=name, process=False, transaction=False, codec=codec, **options)
        self.retired = True

    def __repr__(self) -> str:
        return f"<Retired {self.name}>"


async def outcome_of_retired(task: Task[..., Any], job: ClaimedJob) -> Outcome:
    """Return how a job of a retired task ends."""
    why = f"the task {task.name!r} is retired"
    if is_undoing(job.journal):
        # It has failed or was cancelled already. Its undo functions are gone with the task.
        return Failed("retired", "Retired", f"{why}, and its undo functions are gone with it", None, None)
    return Cancelled(why)


class _RetiredCodec(Codec):
    """Encodes nothing: no new jobs of a retired task are wanted."""

    def encode_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int) -> NoReturn:  # noqa: ARG002
        raise ConfigError(f"task {self._name!r} is retired: a worker would end its job without running anything")
