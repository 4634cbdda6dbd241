"""What happens, as values, and all the wording for it.

Code emits an event; this file says how it reads and how loud it is. Tests and metrics subscribe to the same events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar

import msgspec
from msgspec.structs import asdict

from stepwell.error_text import error_line, user_place
from stepwell.values.duration import describe

logger = logging.getLogger("stepwell")


class Event(msgspec.Struct, frozen=True):
    """Something that happened. `level` is how loud it is logged."""

    level: ClassVar[int] = logging.INFO

    @property
    def own_level(self) -> int:
        """How loud this one is logged, where not all of a kind are equal."""
        return self.level

    def text(self) -> str:
        raise NotImplementedError

    def detail(self) -> str | None:
        """What to log below the text: a traceback."""
        return None


class WorkerStarted(Event, frozen=True):
    worker_id: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    concurrency: int
    database: str
    slots: tuple[int, ...] = ()
    """Each queue's own; empty: they share them all."""

    def text(self) -> str:
        queues = [f"{queue} ({slots})" for queue, slots in zip(self.queues, self.slots, strict=False)] or self.queues
        return (
            f"worker {self.worker_id} claims from {', '.join(queues)} in {self.database}, {self.concurrency} at "
            f"once; it knows the tasks {', '.join(self.tasks)}"
        )


class TasksShared(Event, frozen=True):
    """Workers of another app may take the same jobs."""

    level = logging.WARNING
    owner: str
    other: str
    tasks: tuple[str, ...]
    named: bool
    """Whether this app was given its name; if so, the other was not."""

    def text(self) -> str:
        tasks = ", ".join(self.tasks)
        if not self.named:
            return (
                f"this app has no name, and workers of app {self.other!r} run {tasks} from the same queue, too: they "
                "may take each other's jobs; name it with App(name=...), or use other task names or queues"
            )
        return (
            f"workers of app {self.other!r}, which has no name, run {tasks} from the same queue as this app, "
            f"{self.owner!r}: they may take each other's jobs; name that app with App(name=...), or use other task "
            "names or queues"
        )


class WorkerStopping(Event, frozen=True):
    running: int
    grace: float

    def text(self) -> str:
        return f"stopping: waiting up to {self.grace:g} s for {_counted(self.running, 'running job')}"


class WorkerStopped(Event, frozen=True):
    succeeded: int
    failed: int

    def text(self) -> str:
        return f"stopped: {self.succeeded} jobs succeeded, {self.failed} attempts failed"


class HookFailed(Event, frozen=True):
    level = logging.ERROR
    kind: str
    """on_worker_start or on_worker_stop."""
    hook: str
    error: str
    traceback: str

    def text(self) -> str:
        return f"{self.kind} hook {self.hook} failed: {' '.join(self.error.split())}"

    def detail(self) -> str | None:
        return self.traceback


class HookSlow(Event, frozen=True):
    level = logging.WARNING
    hook: str
    seconds: float

    def text(self) -> str:
        return (
            f"on_worker_start hook {self.hook} has not ended after {describe(self.seconds)}: the worker claims nothing "
            "before it has"
        )


class JobStarted(Event, frozen=True):
    level = logging.DEBUG
    job_id: str
    task: str
    attempt: int

    def text(self) -> str:
        return f"{self.task} {self.job_id} started, attempt {self.attempt}"


class JobSucceeded(Event, frozen=True):
    level = logging.DEBUG
    job_id: str
    task: str
    seconds: float

    def text(self) -> str:
        return f"{self.task} {self.job_id} succeeded in {self.seconds * 1000:.1f} ms"


class AttemptFailed(Event, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    attempt: int
    max_attempts: int
    """The job's own, else its step's, else the task's."""
    reason: str
    type: str
    message: str
    traceback: str | None
    delay: float | None

    @property
    def final(self) -> bool:
        """Whether the job fails for good."""
        return self.delay is None or self.attempt >= self.max_attempts

    @property
    def own_level(self) -> int:
        return logging.ERROR if self.final else self.level

    def text(self) -> str:
        said = f"{self.task} {self.job_id} attempt {self.attempt} of {self.max_attempts} failed ({self.reason}): "
        said += error_line(self.type, self.message)
        if self.final:
            return f"{said}; it is not tried again"
        place = user_place(self.traceback or "")
        return f"{said}{f' at {place}' if place else ''}; next try in {self.delay:.3g} s"

    def detail(self) -> str | None:
        return self.traceback if self.final else None


class JobMisfit(Event, frozen=True):
    """A job was made for other code than this worker has."""

    level = logging.WARNING
    job_id: str
    task: str
    message: str
    grace: float

    def text(self) -> str:
        return (
            f"{self.task} {self.job_id} does not fit the code of this worker: {self.message}; it waits up to "
            f"{describe(self.grace)} for a worker whose code takes it, then fails"
        )


class OutcomeRefused(Event, frozen=True):
    level = logging.WARNING
    job_id: str

    def text(self) -> str:
        return f"the outcome of {self.job_id} came too late: the job was given to somebody else"


class OutcomeKept(Event, frozen=True):
    level = logging.ERROR
    job_id: str
    error: str
    delay: float

    def text(self) -> str:
        return f"the outcome of {self.job_id} could not be written, trying again in {self.delay:g} s: {self.error}"


class JobLocked(Event, frozen=True):
    """What a worker wants to write of a job waits for a lock. `what` is "outcome", "step" or "transaction"."""

    level = logging.WARNING
    job_id: str
    what: str
    pid: int | None
    """The session that holds the lock; None: it cannot be told, or is a prepared transaction."""
    role: str | None
    application: str | None
    since: str | None
    """When that session's transaction began."""

    def text(self) -> str:
        waits = f"the {self.what} of {self.job_id} waits for a lock"
        if self.role is None:
            return f"{waits}; nothing says who holds it: look into pg_locks and pg_stat_activity"
        session = self.application if self.pid is None else f"session {self.pid} ({self.role}, {self.application!r})"
        since = f" since {self.since}" if self.since else ""
        end = "" if self.pid is None else f", or select pg_terminate_backend({self.pid})"
        return f"{waits} that {session} holds, in a transaction{since}: end that transaction{end}"


class OutcomesHeldUp(Event, frozen=True):
    level = logging.WARNING
    count: int

    def text(self) -> str:
        return (
            f"{self.count} outcomes wait for a lock that is not on their jobs: look in pg_locks for who has locked a "
            "table of schema stepwell"
        )


class JobStopAsked(Event, frozen=True):
    job_id: str
    task: str
    why: str

    def text(self) -> str:
        return f"{self.task} {self.job_id} is asked to stop: {self.why}"


class HandlerAbandoned(Event, frozen=True):
    level = logging.ERROR
    job_id: str
    task: str

    def text(self) -> str:
        return (
            f"{self.task} {self.job_id} did not stop when asked: its outcome is written, but it keeps a slot until it "
            "ends; look at ctx.cancelled in it, or declare the task with process=True so that it can be killed"
        )


class JobsHandedBack(Event, frozen=True):
    count: int

    def text(self) -> str:
        return f"{self.count} jobs handed back unstarted, no attempt used"


class JobsRescued(Event, frozen=True):
    level = logging.WARNING
    count: int

    def text(self) -> str:
        return f"rescued {self.count} jobs from dead workers"


class RescuedJobFailed(Event, frozen=True):
    """A job has failed for good because a worker died on its last attempt. Its own worker cannot say so any more."""

    level = logging.ERROR
    job_id: str
    task: str
    message: str

    def text(self) -> str:
        return (
            f"{self.task} {self.job_id} has failed for good: {self.message}, and it has no attempt left; if the job "
            f'did not cause that, run "stepwell jobs retry {self.job_id}"'
        )


class LeaseLost(Event, frozen=True):
    level = logging.ERROR
    worker_id: str
    running: int

    def text(self) -> str:
        return (
            f"worker {self.worker_id} could not renew its lease: its {self.running} jobs are stopped, others run them"
        )


class LoopBlocked(Event, frozen=True):
    level = logging.WARNING
    seconds: float
    task: str | None
    job_id: str | None
    stack: str

    def text(self) -> str:
        who = f"{self.task} {self.job_id}" if self.task else "something"
        return (
            f"{who} has blocked the event loop for {self.seconds:.1f} s: make it a plain 'def' task, which runs in a "
            f"thread, or await what it waits for. It stands here:\n{self.stack}"
        )


class ListenerDeaf(Event, frozen=True):
    level = logging.WARNING

    def text(self) -> str:
        return (
            "notifications do not arrive, as behind a pooler in transaction mode: polling instead; connect the worker "
            "to Postgres directly to have them"
        )


class ListenerHears(Event, frozen=True):
    def text(self) -> str:
        return "notifications arrive again"


class DatabaseAwaited(Event, frozen=True):
    """A worker was started while its database is away."""

    level = logging.WARNING
    database: str
    error: str

    def text(self) -> str:
        return f"waiting for {self.database}, which cannot be used yet: {self.error}"


class DatabaseLost(Event, frozen=True):
    level = logging.WARNING
    what: str
    error: str

    def text(self) -> str:
        return f"{self.what}: the database is away, trying again: {self.error}"


class DatabaseBack(Event, frozen=True):
    what: str

    def text(self) -> str:
        return f"{self.what}: the database is back"


class UpkeepFailed(Event, frozen=True):
    level = logging.WARNING
    duty: str
    error: str

    def text(self) -> str:
        return f"upkeep: {self.duty} failed, to be tried again: {self.error}"


class JobBroken(Event, frozen=True):
    level = logging.ERROR
    job_id: str
    why: str

    def text(self) -> str:
        return f"job {self.job_id} has failed: {self.why}"


class LoopFailed(Event, frozen=True):
    level = logging.ERROR
    loop: str
    error: str
    pause: float
    traceback: str

    def text(self) -> str:
        return f"{self.loop} failed, and goes on in {self.pause:g} s: {' '.join(self.error.split())}"

    def detail(self) -> str | None:
        return self.traceback


class LeaderChanged(Event, frozen=True):
    level = logging.DEBUG
    leads: bool

    def text(self) -> str:
        return "this worker does the upkeep for all now" if self.leads else "another worker does the upkeep now"


class SchedulesRemoved(Event, frozen=True):
    names: tuple[str, ...]

    def text(self) -> str:
        return f"removed schedules that no longer stand in code: {', '.join(self.names)}"


class PauseChanged(Event, frozen=True):
    everything: bool
    queues: tuple[str, ...]
    tasks: tuple[str, ...]

    def text(self) -> str:
        if self.everything:
            return "paused: nothing is claimed until it is resumed"
        what = [
            f"{kind} {', '.join(names)}" for kind, names in (("queues", self.queues), ("tasks", self.tasks)) if names
        ]
        return f"paused: {' and '.join(what)}" if what else "resumed: nothing is paused"


class StopAsked(Event, frozen=True):
    def text(self) -> str:
        return "asked to stop, by a command to the fleet"


class BackoffFailed(Event, frozen=True):
    level = logging.ERROR
    job_id: str | None
    task: str
    queue: str | None
    attempt: int
    of: str
    """The task, or the step and its task."""
    error: str
    delay: float

    def text(self) -> str:
        return f"the backoff function of {self.of} failed, so its next try is in {self.delay:g} s: {self.error}"


class ManySteps(Event, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    queue: str
    attempt: int
    steps: int
    most: int

    def text(self) -> str:
        return (
            f"job {self.job_id} ({self.task}) has {self.steps} steps, each of which is read whenever it is resumed; "
            f"at {self.most} it fails: return Restart(...) before"
        )


class StepDrifted(Event, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    queue: str
    attempt: int
    key: str
    drift: str

    def text(self) -> str:
        then = "it is run again" if self.drift == "rerun" else "its saved value is taken"
        return f"step {self.key} of job {self.job_id} ({self.task}) was saved with other arguments: {then}"


class SuspensionCaught(Event, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    queue: str
    attempt: int

    def text(self) -> str:
        return (
            f"{self.task} {self.job_id} caught what suspends it, and is left at its next step all the same: "
            "write 'except Exception', or raise it again"
        )


class ErrorNotKept(Event, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    queue: str
    attempt: int
    key: str
    type: str

    def text(self) -> str:
        return (
            f"step {self.key} of job {self.job_id} ({self.task}) failed with {self.type}, which was caught, and cannot "
            "be made again from what is saved: in another run it is only a StepFailed. Catch that, too, or catch it in "
            "the step"
        )


class UndoFailed(Event, frozen=True):
    level = logging.ERROR
    job_id: str
    task: str
    queue: str
    attempt: int
    key: str
    error: str

    def text(self) -> str:
        return f"step {self.key} of job {self.job_id} ({self.task}) could not be undone, and is left so: {self.error}"


class StepSaved(Event, frozen=True):
    level = logging.DEBUG
    job_id: str
    task: str
    queue: str
    attempt: int
    key: str
    kind: str
    seconds: float | None
    failed: bool

    def text(self) -> str:
        how = "its error" if self.failed else "its value"
        return f"step {self.key} of job {self.job_id} ({self.task}) was saved with {how}"


class JobResumed(Event, frozen=True):
    level = logging.DEBUG
    job_id: str
    task: str
    queue: str
    attempt: int
    steps: int

    def text(self) -> str:
        return f"job {self.job_id} ({self.task}) resumes with {_counted(self.steps, 'saved step')}"


class PolicyUnreadable(Event, frozen=True):
    level = logging.WARNING
    job_id: str
    task: str
    queue: str
    attempt: int
    error: str

    def text(self) -> str:
        return f"the policy of job {self.job_id} ({self.task}) cannot be read, and that of its task holds: {self.error}"


class JobSuspended(Event, frozen=True):
    level = logging.DEBUG
    job_id: str
    task: str

    def text(self) -> str:
        return f"job {self.job_id} ({self.task}) is suspended"


class ProcessStarted(Event, frozen=True):
    level = logging.DEBUG
    number: int
    pid: int

    def text(self) -> str:
        return f"worker process {self.number} is pid {self.pid}"


class ProcessNotStarted(Event, frozen=True):
    level = logging.ERROR
    number: int
    error: str
    delay: float

    def text(self) -> str:
        return f"worker process {self.number} could not be started, trying again in {self.delay:.1f} s: {self.error}"


class ProcessDied(Event, frozen=True):
    level = logging.WARNING
    number: int
    pid: int
    how: str
    delay: float

    def text(self) -> str:
        return f"worker process {self.number} (pid {self.pid}) {self.how}: starting another in {self.delay:.1f} s"


class ProcessDiedAtEnd(Event, frozen=True):
    level = logging.ERROR
    number: int
    pid: int
    how: str

    def text(self) -> str:
        return f"worker process {self.number} (pid {self.pid}) {self.how} while it was stopping"


class ProcessEnded(Event, frozen=True):
    number: int
    pid: int

    def text(self) -> str:
        return f"worker process {self.number} (pid {self.pid}) was asked to end, not by us: it is not replaced"


class ProcessRecycled(Event, frozen=True):
    number: int
    pid: int

    def text(self) -> str:
        return f"worker process {self.number} (pid {self.pid}) has reached its limit and ended: starting another"


class ProcessRefused(Event, frozen=True):
    level = logging.ERROR
    number: int
    pid: int

    def text(self) -> str:
        return f"worker process {self.number} (pid {self.pid}) cannot run as it was told to, nor could another: ending"


class ProcessWaitsForChange(Event, frozen=True):
    level = logging.WARNING
    number: int
    pid: int

    def text(self) -> str:
        return (
            f"worker process {self.number} (pid {self.pid}) could not use the app, as said above: waiting for a change "
            "in the code"
        )


class ProcessesStopping(Event, frozen=True):
    running: int
    order: str

    def text(self) -> str:
        processes = _counted(self.running, "worker process", "worker processes")
        match self.order:
            case "drain":
                return f"stopping {processes}; after another signal running jobs are handed back"
            case "hand back":
                return f"handing back the jobs of {processes}; another signal kills"
            case _:
                return f"killing {processes}"


class CodeChanged(Event, frozen=True):
    files: tuple[str, ...]

    def text(self) -> str:
        others = f" and {len(self.files) - 3} others" if len(self.files) > 3 else ""
        return f"{', '.join(self.files[:3])}{others} changed: starting anew"


class SupervisorGone(Event, frozen=True):
    level = logging.WARNING

    def text(self) -> str:
        return "the supervisor is gone: stopping"


class RunLimitReached(Event, frozen=True):
    ended: int
    most: int

    def text(self) -> str:
        return f"{self.ended} jobs have ended here, of {self.most} that may: stopping, to be replaced"


class MemoryLimitReached(Event, frozen=True):
    held: int
    most: int

    def text(self) -> str:
        return f"this process holds {_megabytes(self.held)}, over {_megabytes(self.most)}: stopping, to be replaced"


class MemoryLimitTooLow(Event, frozen=True):
    level = logging.WARNING
    held: int
    most: int

    def text(self) -> str:
        return (
            f"this process holds {_megabytes(self.held)} before its first job has ended, over {_megabytes(self.most)}: "
            "allow it more, or it is replaced again and again"
        )


class EmbeddedAsNobody(Event, frozen=True):
    """The embedded Postgres of root runs as an account that other programs run as, too."""

    level = logging.WARNING
    data: str
    user: str
    account: str
    existing: bool

    def text(self) -> str:
        return f"the embedded Postgres runs as user {self.user!r}, whose other processes can read {self.data}: " + (
            "the database was made so, and stays so; dump it and load it at another path to change that"
            if self.existing
            else f"no account {self.account!r} could be made; make it as a system account, or run as a user other "
            "than root"
        )


def log(event: Event, error: BaseException | None = None) -> None:
    """Log an event, where there is nobody else to tell; with the exception that it tells of, if that is at hand."""
    if not logger.isEnabledFor(event.own_level):
        return
    fields = asdict(event)
    about = {name: fields[name] for name in ("job_id", "task", "attempt") if fields.get(name) is not None}
    file, line, function, _ = logger.findCaller()
    record = logger.makeRecord(
        logger.name, event.own_level, file, line, event.text(), (), _exc_info(error), function,
        {"event": type(event).__name__, "fields": fields, **about},
    )  # fmt: skip
    # Formatters take this as it is: it is bounded, and every encoding can write it, whatever the exception says.
    record.exc_text = (event.detail() or "").rstrip() or None
    logger.handle(record)


def _exc_info(error: BaseException | None) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    return None if error is None else (type(error), error, error.__traceback__)


class Events:
    """Hands each event to the log and to whoever subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []

    def subscribe(self, receive: Callable[[Event], None]) -> None:
        """Call `receive` with every event from now on. It must not block; it may be called from any thread."""
        self._subscribers.append(receive)

    def wanted(self, kind: type[Event]) -> bool:
        """Whether anybody would hear such an event: asked on the hot path before one is made."""
        return bool(self._subscribers) or logger.isEnabledFor(kind.level)

    def emit(self, event: Event, error: BaseException | None = None) -> None:
        log(event, error)
        for receive in list(self._subscribers):
            try:
                receive(event)
            except Exception:
                # It must not hurt the worker, and would most likely fail again with the next event.
                self._subscribers.remove(receive)
                logger.exception("a subscriber to events failed, and gets no more of them: %r", receive)


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:.0f} MB"


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"1 {one}" if count == 1 else f"{count} {many or one + 's'}"
