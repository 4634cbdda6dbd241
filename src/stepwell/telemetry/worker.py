"""Events of a worker: its life, its lease, its database, and the upkeep it does for all workers."""

from __future__ import annotations

import logging

from stepwell.telemetry.bus import Telemetry, counted, first_few
from stepwell.values.duration import describe


class WorkerStarted(Telemetry, frozen=True):
    worker_id: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    concurrency: int
    database: str
    slots: tuple[int, ...] = ()
    """The slots of each queue; empty: the queues share all slots."""
    retired: tuple[str, ...] = ()
    """Those of its tasks that are retired."""

    def text(self) -> str:
        queues = [f"{queue} ({slots})" for queue, slots in zip(self.queues, self.slots, strict=False)] or self.queues
        tasks = ", ".join(f"{task} (retired)" if task in self.retired else task for task in self.tasks)
        return (
            f"worker {self.worker_id} claims from {', '.join(queues)} in {self.database}, {self.concurrency} at "
            f"once; its tasks are {tasks}"
        )


class MetricsServed(Telemetry, frozen=True):
    url: str
    line = "metrics are on {0.url}; beside them are /healthz and /readyz"


class RetiredDrained(Telemetry, frozen=True):
    """Jobs of a retired task were ended without running anything."""

    task: str
    count: int

    def text(self) -> str:
        return f"ended {counted(self.count, 'job')} of the retired task {self.task!r} as cancelled, without running any"


class TasksShared(Telemetry, frozen=True):
    """Workers of another app may claim the same jobs."""

    level = logging.WARNING
    owner: str
    other: str
    tasks: tuple[str, ...]
    named: bool
    """Whether this app has a name; if so, the other app has none."""

    def text(self) -> str:
        tasks = ", ".join(self.tasks)
        if not self.named:
            return (
                f"this app has no name, and workers of app {self.other!r} also run {tasks} from the same queue: each "
                "may claim the other's jobs; name this app with App(name=...), or use other task names or queues"
            )
        return (
            f"workers of app {self.other!r}, which has no name, run {tasks} from the same queue as this app, "
            f"{self.owner!r}: each may claim the other's jobs; name that app with App(name=...), or use other task "
            "names or queues"
        )


class QueueUnknown(Telemetry, frozen=True):
    """The worker claims from a queue that no task of its app has."""

    level = logging.WARNING
    name: str
    hint: str
    line = "no task of this app has the queue {0.name!r}, and no job is ready in it{0.hint}"


class WorkerStopping(Telemetry, frozen=True):
    running: int
    grace: float
    """0: it does not wait."""
    jobs: tuple[str, ...] = ()
    """The tasks and ids of the first few."""

    def text(self) -> str:
        if not self.running:
            return "stopping: no job is running"
        jobs = f"{counted(self.running, 'running job')}: {first_few(self.jobs, self.running)}"
        if not self.grace:
            return f"stopping: handing back {jobs}"
        back = "hands it back" if self.running == 1 else "hands them back"
        wait = f"stopping: waiting up to {describe(self.grace)} for {jobs}"
        return f"{wait}; a second Ctrl-C {back} and ends the worker within seconds"


class WorkerStopped(Telemetry, frozen=True):
    succeeded: int
    failed: int

    def text(self) -> str:
        return f"stopped: {counted(self.succeeded, 'job')} succeeded, {counted(self.failed, 'attempt')} failed"


class OutcomesUnwritten(Telemetry, frozen=True):
    """The worker stopped before it could write the outcomes of these jobs."""

    level = logging.ERROR
    count: int
    locked: int
    """How many of the jobs are locked by other sessions."""

    def text(self) -> str:
        jobs = "its job" if self.count == 1 else "their jobs"
        said = f"stopped with {counted(self.count, 'outcome')} that could not be written in time"
        if not self.locked:
            return f"{said}, the database being away: {jobs} will run again"
        return (
            f"{said}, {jobs} being locked by other sessions, which the log names: {jobs} will run again when those let "
            "go"
        )


class StopAsked(Telemetry, frozen=True):
    line = "stopping: a stop command asked for it"


class PauseChanged(Telemetry, frozen=True):
    everything: bool
    queues: tuple[str, ...]
    tasks: tuple[str, ...]

    def text(self) -> str:
        if self.everything:
            return "paused: this worker claims nothing until it is resumed"
        paused = [
            f"{kind} {', '.join(names)}" for kind, names in (("queues", self.queues), ("tasks", self.tasks)) if names
        ]
        return f"paused: {' and '.join(paused)}" if paused else "resumed: nothing is paused"


class HookFailed(Telemetry, frozen=True):
    level = logging.ERROR
    kind: str
    """on_worker_start, on_worker_stop, or resource."""
    hook: str
    error: str
    traceback: str

    def text(self) -> str:
        what = self.kind if self.kind == "resource" else f"{self.kind} hook"
        return f"{what} {self.hook} failed: {' '.join(self.error.split())}"


class ResourceNotClosed(Telemetry, frozen=True):
    """The worker was stopped while a plain resource opened in a thread, and no longer waits for it."""

    level = logging.WARNING
    resource: str
    seconds: float

    def text(self) -> str:
        return (
            f"the resource {self.resource} still opens {describe(self.seconds)} after the worker was asked to stop: "
            "the worker does not close it"
        )


class HookSlow(Telemetry, frozen=True):
    level = logging.WARNING
    hook: str
    seconds: float

    def text(self) -> str:
        return (
            f"on_worker_start hook {self.hook} still runs after {describe(self.seconds)}: the worker claims no jobs "
            "until it returns"
        )


class LeaseLost(Telemetry, frozen=True):
    level = logging.ERROR
    worker_id: str
    running: int

    def text(self) -> str:
        return (
            f"worker {self.worker_id} lost its lease: it stops {counted(self.running, 'running job')}, which other "
            "workers will run"
        )


class LoopBlocked(Telemetry, frozen=True):
    level = logging.WARNING
    seconds: float
    job_id: str | None
    """The job whose handler the loop runs, with its task, queue and attempt; None: it runs none."""
    task: str | None
    queue: str | None
    attempt: int | None
    stack: str

    def text(self) -> str:
        culprit = f"{self.task} {self.job_id}" if self.task else "something"
        return (
            f"{culprit} has blocked the event loop for {self.seconds:.1f} s: make the task a plain 'def', which runs "
            f"in a thread, or use async calls in it. The loop is at:\n{self.stack}"
        )


class LoopFailed(Telemetry, frozen=True):
    """One of the worker's background loops raised, and is run again."""

    level = logging.ERROR
    loop: str
    error: str
    pause: float
    traceback: str

    def text(self) -> str:
        return f"{self.loop} failed, trying again in {self.pause:g} s: {' '.join(self.error.split())}"


class ListenerDeaf(Telemetry, frozen=True):
    level = logging.WARNING
    line = (
        "notifications do not arrive, so the worker polls; a pooler in transaction mode drops them: connect the "
        "worker to Postgres directly"
    )


class ListenerHears(Telemetry, frozen=True):
    line = "notifications arrive again"


class DatabaseAwaited(Telemetry, frozen=True):
    """The worker was started before its database could be used."""

    level = logging.WARNING
    database: str
    error: str
    line = "waiting for {0.database}, which cannot be used yet: {0.error}"


class DatabaseLost(Telemetry, frozen=True):
    """The first part of the worker that cannot use the database says so, for all parts."""

    level = logging.WARNING
    part: str
    error: str
    line = "the database cannot be used ({0.part}), trying again: {0.error}"


class DatabaseBack(Telemetry, frozen=True):
    line = "the database can be used again"


class UpkeepFailed(Telemetry, frozen=True):
    level = logging.WARNING
    duty: str
    error: str
    line = "upkeep: {0.duty} failed, trying again: {0.error}"


class LogLinesLost(Telemetry, frozen=True):
    """Log lines of handlers that were to be kept with their jobs."""

    level = logging.WARNING
    lines: int
    why: str | None = None
    """The last error of a line that Postgres refused; None: the database was away for too long."""

    def text(self) -> str:
        said = f"{self.lines} log lines of jobs could not be written, and are lost"
        return f"{said}: {self.why}" if self.why else said


class LeaderChanged(Telemetry, frozen=True):
    level = logging.DEBUG
    leads: bool

    def text(self) -> str:
        return "this worker now leads the upkeep" if self.leads else "another worker now leads the upkeep"


class SchedulesRemoved(Telemetry, frozen=True):
    names: tuple[str, ...]

    def text(self) -> str:
        return f"removed schedules that are no longer in code: {', '.join(self.names)}"
