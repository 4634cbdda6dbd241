"""A task: work under a name, with its defaults and its codec. How a task is enqueued is in `enqueuer`."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, Self, TypeVar

import msgspec

from stepwell.durable.backend import Drift, Durability
from stepwell.durable.context import Context
from stepwell.durable.job_context import JobContext
from stepwell.durable.run_state import RunState
from stepwell.durable.sync_context import PlainContext, SyncContext
from stepwell.errors import BadArgs, BadValue, ConfigError, StepwellError
from stepwell.jobs.codec import Codec
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.enqueuer import Enqueuer
from stepwell.jobs.options import Options, check_priority
from stepwell.postgres.callers.sessions import TransactionOption, sessions_of
from stepwell.telemetry.steps import PolicyUnreadable
from stepwell.values.admission import Admission, AdmissionRules, stored_unique
from stepwell.values.bounds import check_name
from stepwell.values.directives import Restart
from stepwell.values.headers import has_headers, only_headers
from stepwell.values.job import ClaimedJob
from stepwell.values.outcome import Outcome, Restarted, Succeeded
from stepwell.values.policy import AS_TASK, JobPolicy, read_policy, without_headers
from stepwell.values.retry import Retry
from stepwell.values.setting import Source

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

# Decoded policies of jobs that a task caches. Each takes a few hundred bytes.
_MOST_POLICIES = 1000

TaskKind = Literal["async", "thread", "process"]


class StepInput(msgspec.Struct, frozen=True):
    """The step of a chain or state of a machine that a job goes on with: its name, its input as JSON, and the delay."""

    name: str
    input: str
    after: float | None


class Task(Enqueuer[P, R]):
    """Work that can be enqueued: a function that `@app.task` was given, which is `fn`, or a chain or a machine.

    `P` are the arguments that a job is enqueued with, `R` is its result. The tasks that `@app.task` returns also know
    the type of their function and can be called like it: see `AsyncTask` and `SyncTask`.
    """

    def __init__(
        self,
        job_store: JobStore,
        fn: Callable[..., Any],
        *,
        name: str,
        queue: str,
        priority: int,
        retry: Retry,
        timeout: float | None,
        timeout_grace: float,
        keep: float,
        keep_failed: float,
        process: bool,
        transaction: TransactionOption,
        drift: Drift = "warn",
        rules: AdmissionRules | None = None,
        codec: Codec | None = None,
        batch: int | None = None,
        batch_wait: float = 0.0,
        sources: Mapping[str, Source] | None = None,
        logs: bool = False,
        maintainer: str | None = None,
        runbook: str | None = None,
        was: Sequence[str] = (),
    ) -> None:
        super().__init__(self, Options())
        self.job_store = job_store
        self.fn = fn
        self.name = check_name(name, "the task's name")
        self.names = (*was, name)
        """The names that it had before, the oldest first, and its own. What outlives a rename belongs to the first."""
        self.queue = check_name(queue, "queue")
        self.priority = check_priority(priority)
        self.retry = retry
        self.timeout = timeout
        self.timeout_grace = timeout_grace
        self.keep = keep
        self.keep_failed = keep_failed
        self.transaction = transaction is not False
        self.drift: Drift = drift
        self._by_policy: dict[str | JobPolicy, Task[P, R]] = {}
        self._set_sources({} if sources is None else sources)
        self.logs = logs
        """Whether what its handlers log is kept with their jobs."""
        self.maintainer = maintainer
        """Who looks after it, for people."""
        self.runbook = runbook
        """Where people read what to do when it fails: mostly a URL."""
        self.retired = False
        """Whether its jobs are ended without a call: see `app.retire`."""
        self.alias_of: str | None = None
        """The present name of the task, if this is a name that it had before."""
        if batch is not None and (self.transaction or process):
            option = "transaction" if self.transaction else "process"
            raise ConfigError(f"task {name!r}: batch= and {option}= exclude each other")
        self.kind: TaskKind = _kind(name, fn, process=process)
        if self.transaction and process:
            raise ConfigError(f"task {name!r}: transaction= and process=True exclude each other")
        self.sessions = sessions_of(transaction, is_async=self.kind == "async", what=f"task {name!r}")
        """Makes the session that its handler runs in; None: there is none."""
        self.batch = batch
        """At most this many jobs share a call of the function; None: each job is a call."""
        self.batch_wait = batch_wait
        """How long a batch that is not full waits for more jobs, in seconds."""
        self.codec = Codec(name, fn) if codec is None else codec
        self.codec.sealer = job_store.sealer
        if self.kind == "async" and self.codec.wants_sync_context:
            raise ConfigError(f"task {name!r} is 'async def': its parameter is 'ctx: Context'")
        self.rules = AdmissionRules(name) if rules is None else rules
        self.rules.check(self.codec.names)
        if self.transaction and self.codec.context_parameter is None:
            used = "connection" if self.sessions is None else "session"
            raise ConfigError(
                f"task {name!r}: with transaction= it needs a first parameter 'ctx: Context' for ctx.{used}"
            )

    def prepare(self) -> None:
        """Check what can only be checked once all modules are imported: its annotations, and its resources."""
        self.codec.prepare()
        self.job_store.resources.check(self.codec.injected, self.name, in_process=self.kind == "process")

    @property
    def queues(self) -> set[str]:
        """The queues that its jobs are claimed from."""
        return {self.queue}

    @property
    def shape(self) -> str:
        """The names of the arguments that its jobs may hold."""
        return self.codec.shape()

    @property
    def signature(self) -> int:
        """A checksum of its name and shape. Workers compare it to find out whether they have the same code."""
        return zlib.crc32(f"{self.name}({self.shape})".encode()) - 2**31

    @property
    def flow(self) -> Any:
        """This task as a chain or machine; None: it is a function."""
        return None

    def enter(self, step: str | None, value: Any) -> StepInput:  # noqa: ARG002
        """Return a step of a chain, or a state of a machine, with this value as its input. A function has no steps."""
        raise ConfigError(
            f"{self.name!r} is neither a chain nor a machine: only a step of a chain or machine takes an input"
        )

    def find(self, name: str) -> object | None:  # noqa: ARG002
        """Return the step of a chain, or the state of a machine, of this name; None: there is none."""
        return None

    @property
    def uses_processes(self) -> bool:
        """Whether its jobs, or steps of them, run in processes of their own."""
        return self.kind == "process"

    def outcome_of_result(self, result: Any, most: int) -> Outcome:
        """Return the outcome of a run whose handler returned this."""
        if isinstance(result, Restart):
            try:
                args = self.codec.encode_args(result.args, result.kwargs, self.job_store.max_args_size)
            except BadArgs as error:
                raise BadValue(f"Restart: {error}") from None
            return Restarted(args)
        return Succeeded(self.codec.encode_result(result, most))

    def stored_policy(self, args: str, options: Options) -> str | None:
        """Return the policy to store with a job that has these args, as JSON. It holds the keys that the rules of the
        task give the job. None: there is nothing to store. Raises `BadArgs` if a template cannot be filled in."""
        return options.policy_with(self.admission(self.codec.named_args(args) if self.rules else None, options))

    def admission(self, arguments: Mapping[str, Any] | None, options: Options) -> Admission | None:
        """Return the keys of a job that has these arguments; None: it has none. A task without rules needs no
        arguments."""
        if arguments is None and options.unique is None:
            return None
        queue = options.queue or self.queue
        admission = Admission() if arguments is None else self.rules.of(arguments, queue)
        if options.unique is not None:
            unique = stored_unique(options.unique, str(options.unique.key), self.rules.lasting_name, queue)
            admission = msgspec.structs.replace(admission, unique=unique)
        return admission

    def with_step(self, outcome: Outcome) -> Outcome:
        """Add the step that failed or snoozed to an outcome, if this task is one step of a chain."""
        return outcome

    def for_job(self, job: ClaimedJob, emit: Callable[[PolicyUnreadable], None]) -> Task[P, R]:
        """Return this task with the job's own policy. A policy that cannot be read, which only plain SQL can store, is
        emitted as an event and ignored."""
        if job.policy is None or only_headers(job.policy):
            return self
        key: str | JobPolicy = job.policy
        known = self._by_policy.get(key)
        if known is None:
            try:
                if has_headers(job.policy):
                    # Each job has other headers, and most have nothing else. They are kept out of the cache.
                    key = without_headers(job.policy)
                    if key == AS_TASK:
                        return self
                    known = self._by_policy.get(key)
                known = known or self._with_policy(read_policy(job.policy))
            except (ValueError, RecursionError, StepwellError) as error:
                emit(PolicyUnreadable(job.id, self.name, job.queue, job.attempt, str(error)))
                return self
            if len(self._by_policy) >= _MOST_POLICIES:
                self._by_policy.clear()
            self._by_policy[key] = known
        return known

    def renamed(self, name: str) -> Self:
        """Return this task under a name that it had before, for jobs that still have that name. Jobs that are enqueued
        with it get the present name."""
        made = copy(self)
        made.name = check_name(name, "was")
        made.alias_of = self.name
        made._by_policy = {}
        return made

    def _with_policy(self, policy: JobPolicy) -> Self:
        made = copy(self)
        made.retry = policy.applied_to(self.retry)
        made.timeout = self.timeout if policy.timeout is None else policy.timeout
        made.keep = self.keep if policy.keep is None else float(policy.keep)
        made.keep_failed = self.keep_failed if policy.keep_failed is None else float(policy.keep_failed)
        own: dict[str, Source] = {
            name: "enqueue" for name in ("retry", "timeout", "keep", "keep_failed") if getattr(policy, name) is not None
        }
        made._set_sources({**self.sources, **own})
        return made

    def _set_sources(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        """Where the value of each option comes from."""
        self.keep_by_queue = sources.get("keep") in ("app", "default")
        """Whether the setting of a job's queue comes before `keep`: neither the job nor its task has its own."""
        self.keep_failed_by_queue = sources.get("keep_failed") in ("app", "default")

    def context_for(
        self, job: ClaimedJob, report: Callable[[ClaimedJob, str], None], durability: Durability | None
    ) -> JobContext:
        """Make the context that its handler gets for a job."""
        kind = Context if self.kind == "async" else SyncContext if self.codec.wants_sync_context else PlainContext
        return kind(RunState(job, self.timeout, report, durability))

    def __repr__(self) -> str:
        return f"<Task {self.name}({self.codec.describe()})>"

    if not TYPE_CHECKING:  # to a type checker a chain or a machine is not callable

        def __call__(self, *_: object, **__: object) -> NoReturn:
            raise TypeError(
                f"{self.name!r} is not one function, and cannot be called: enqueue it with {self.name}.enqueue(...) or "
                f"await {self.name}.aenqueue(...)"
            )


def _kind(name: str, fn: Callable[..., Any], *, process: bool) -> TaskKind:
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(f"task {name!r} is a generator: return a list, or enqueue a job for each item")
    if inspect.iscoroutinefunction(fn):
        if process:
            raise ConfigError(f"task {name!r}: process=True is for plain functions: drop 'async', or the option")
        return "async"
    if process:
        if "<locals>" in getattr(fn, "__qualname__", "<locals>"):
            raise ConfigError(
                f"task {name!r}: with process=True the function must be defined at the top level of its module"
            )
        return "process"
    return "thread"
