"""Chains: functions in a fixed order, each of which gets the return value of the one before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    cast,
    overload,
)

from stepwell.durable.context import Context
from stepwell.durable.job_context import JobContext
from stepwell.durable.sync_context import SyncContext
from stepwell.errors import ConfigError, StepNotFound
from stepwell.flows.annotations import ends_of, fits, hints_of, output_of, written
from stepwell.flows.flow import Flow, FlowStep, check_step_options, enter_step, seconds_or
from stepwell.jobs.callable_task import ContextFunction, LooseFunction, SyncContextFunction
from stepwell.jobs.codec import Codec
from stepwell.jobs.options import check_priority
from stepwell.jobs.task import StepInput, Task
from stepwell.postgres.callers.sessions import TransactionOption, sessions_of
from stepwell.resources.injected import Injected
from stepwell.resources.opened import injected
from stepwell.values.bounds import check_name
from stepwell.values.directives import Done, Next
from stepwell.values.duration import Duration
from stepwell.values.json import encode_value, new_decoder
from stepwell.values.policy import JobPolicy
from stepwell.values.public_call import public_value
from stepwell.values.retry import Retry

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Returned = TypeVar("Returned", covariant=True)
Args = ParamSpec("Args")
Given = TypeVar("Given")


class StepOptions(TypedDict, total=False):
    """The keyword arguments of `Step`."""

    retry: Retry | None
    timeout: Duration | None
    queue: str | None
    priority: int | None
    transaction: TransactionOption
    process: bool


@public_value(
    **{
        option: f"it on the chain: app.chain(..., {option}=...)"
        for option in ("keep", "keep_failed", "unique", "on_conflict", "limit", "limits", "rate", "rates", "fair")
    },
    max_retries="retry=Retry(max_attempts=...), which counts the first attempt, too",
)
@dataclass(frozen=True, slots=True)
class Step(Generic[P, Returned]):
    """A function of a chain with a policy of its own: `app.chain("name", fetch, Step(parse, retry=Retry(...)))`."""

    fn: Callable[..., Returned]
    name: str | None = None
    retry: Retry | None = None
    timeout: Duration | None = None
    queue: str | None = None
    priority: int | None = None
    transaction: TransactionOption = False
    process: bool = False

    if TYPE_CHECKING:  # P is the function's parameters without a context

        @overload
        def __init__(
            self: Step[..., Given], fn: LooseFunction[Given], name: str | None = None, **options: Unpack[StepOptions]
        ) -> None: ...
        @overload
        def __init__(
            self: Step[Args, Given],
            fn: ContextFunction[Args, Given] | SyncContextFunction[Args, Given],
            name: str | None = None,
            **options: Unpack[StepOptions],
        ) -> None: ...
        @overload
        def __init__(
            self: Step[Args, Given], fn: Callable[Args, Given], name: str | None = None, **options: Unpack[StepOptions]
        ) -> None: ...
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def given(self, *args: P.args, **kwargs: P.kwargs) -> Returned: ...


class Chain(Task[P, R]):
    """A task whose work is a chain of functions. Made by `app.chain`."""

    made: ClassVar[dict[tuple[str, str], Chain[..., Any]]] = {}
    """Chains with steps that run in processes, by their module and name. `app.chain` adds them."""

    def __init__(self, job_store: Any, name: str, given: tuple[Any, ...], module: str, **options: Any) -> None:
        if not given:
            raise ConfigError(f"chain {name!r} has no steps: app.chain(name, first, second, ...)")
        policies: list[Step[..., Any]] = [step if isinstance(step, Step) else Step(step) for step in given]
        for policy in policies:
            if not inspect.isroutine(policy.fn):
                raise ConfigError(f"chain {name!r}: a step is a function, not {policy.fn!r}: write one around it")
        if policies[0].queue is not None:
            raise ConfigError(
                f"chain {name!r}: its first step runs in the chain's own queue: app.chain(..., queue=...)"
            )
        if policies[0].priority is not None:
            raise ConfigError(
                f"chain {name!r}: its first step has the priority of the job: app.chain(..., priority=...)"
            )
        default: Retry = options["retry"]
        self.steps = [_chain_step(name, policy, default, options["timeout"]) for policy in policies]
        names = [step.name for step in self.steps]
        for own in names:
            if names.count(own) > 1:
                raise ConfigError(f"chain {name!r} has two steps named {own!r}: give one Step(fn, name=...)")
        hints = [hints_of(policy.fn) for policy in policies]
        for before, after, at, output in zip(policies, policies[1:], hints[1:], hints, strict=False):
            _check_fits(name, before.fn, output.get("return", Any), after.fn, at.get(_input_of(name, after.fn), Any))
        codec = Codec(name, policies[0].fn, result=_result_of([hint.get("return", Any) for hint in hints]))
        super().__init__(job_store, policies[0].fn, name=name, process=False, transaction=False, codec=codec, **options)
        for step in self.steps:
            assert step.codec is not None
            step.codec.sealer = job_store.sealer
        self.kind = "async"
        self.codec.wants_sync_context = False
        self.has_apart = any(step.apart for step in self.steps)
        self.module = "__main__" if module == "__mp_main__" else module

    def prepare(self) -> None:
        """Check the annotations and resources of all steps."""
        self.codec.prepare()
        for step in self.steps:
            assert step.codec is not None
            step.codec.prepare()
            self.job_store.resources.check(step.codec.injected, step.codec.name, in_process=step.process)

    def __repr__(self) -> str:
        return f"<Chain {self.name}: {' > '.join(step.name for step in self.steps)}>"

    @property
    def uses_processes(self) -> bool:
        """Whether a step runs in a process of its own."""
        return any(step.process for step in self.steps)

    @property
    def queues(self) -> set[str]:
        """The queues of its jobs: the chain's, and those of its steps."""
        return {self.queue, *(step.queue for step in self.steps if step.queue is not None)}

    @property
    def shape(self) -> str:
        """The parameters of the first step, and the names of all steps. Each later step takes one value."""
        return f"{self.codec.shape()};{','.join(step.name for step in self.steps)}"

    @property
    def flow(self) -> Flow:
        """The chain itself."""
        return self

    def _with_policy(self, policy: JobPolicy) -> Self:
        made = super()._with_policy(policy)
        made.steps = [step.with_policy(policy) for step in self.steps]
        return made

    def first(self, args: str, cursor: str | None) -> FlowStep | None:  # noqa: ARG002 a machine needs them
        """The step that a job begins with, or has begun with: the code may have other steps before it now."""
        return self.steps[0] if cursor is None else self.find(cursor)

    def find(self, name: str) -> FlowStep | None:
        """The step of that name."""
        return next((step for step in self.steps if step.name == name), None)

    def follow(self, step: FlowStep, result: Any, most: int) -> StepInput | Done[Any]:
        """The next step and its input after a step returned `result`, or the result of the job."""
        if isinstance(result, Done):
            return result  # pyright: ignore[reportUnknownVariableType]
        following = cast("Next[Any]", result) if isinstance(result, Next) else Next(result)
        index = self.steps.index(step) + 1
        if index == len(self.steps):
            return Done(following.value)
        what = "step {!r} of chain {!r} returned"
        encoded = encode_value(
            following.value, most, "App(max_result_size=...)", what, step.name, self.name, sealer=self.job_store.sealer
        )
        return StepInput(self.steps[index].name, encoded, following.after)

    def enter(self, step: str | None, value: Any) -> StepInput:
        """Go on with any step and this value as its input."""
        if step is None:
            raise ConfigError(f"chain {self.name!r}: name the step that the input is for: retry(step=..., input=...)")
        found = self.find(step)
        if found is None:
            names = ", ".join(known.name for known in self.steps)
            raise StepNotFound(f"chain {self.name!r} has no step {step!r}: it has {names}")
        if found is self.steps[0] and len(self.codec.arguments) != 1:
            raise ConfigError(
                f"step {step!r} of chain {self.name!r} takes the arguments of the chain: change them with "
                "edit_args(...), and start the job over with retry(from_start=True)"
            )
        return enter_step(found, value, f"chain {self.name!r}", self.job_store.sealer)


def _result_of(annotations: list[Any]) -> Any:
    """The type of the job's result: from the last step, or from an earlier one that ends the chain."""
    last = output_of(annotations[-1], last=True)
    early = [end for annotation in annotations[:-1] for end in ends_of(annotation)]
    either: Any = Union[(last, *early)]
    try:
        new_decoder(either)
    except TypeError:
        return Any if early else last  # JSON cannot tell the types apart
    return either


def _chain_step(chain: str, policy: Step[..., Any], retry: Retry, timeout: float | None) -> FlowStep:
    fn = policy.fn
    name = check_name(policy.name or getattr(fn, "__name__", type(fn).__name__), "name")
    if name == "<lambda>":
        raise ConfigError(f"chain {chain!r}: a lambda has no name to find its step by: give Step(fn, name=...)")
    check_step_options(f"step {name!r} of chain {chain!r}", policy.retry, policy.queue)
    is_async = inspect.iscoroutinefunction(fn)
    codec = Codec(f"{chain}.{name}", fn, result=Any)
    if is_async and codec.wants_sync_context:
        raise ConfigError(f"step {name!r} of chain {chain!r} is 'async def': its parameter is 'ctx: Context'")
    _check_apart(f"step {name!r} of chain {chain!r}", policy, codec, is_async=is_async)
    common = (policy.retry or retry, seconds_or(policy.timeout, timeout), policy.queue, is_async)

    def begin_first(args: str, ctx: JobContext) -> Callable[[], Any]:
        positional, named = codec.decode_args(args)
        if codec.context_parameter is not None:
            named[codec.context_parameter] = ctx
        # Without a context nothing runs: an input is checked.
        if codec.injected and ctx is not None:  # pyright: ignore[reportUnnecessaryComparison]
            named |= injected(codec.injected, codec.name)
        return lambda: fn(*positional, **named)

    def as_args(stored: str) -> str:
        return f'{{"{_input_of(chain, fn)}":{codec.sealer.open(stored)}}}'

    def begin(stored: str, ctx: JobContext) -> Callable[[], Any]:
        return begin_first(as_args(stored), ctx)

    return FlowStep(
        name, *common, begin, begin_first,
        priority=None if policy.priority is None else check_priority(policy.priority),
        transaction=policy.transaction, process=policy.process, fn=fn, codec=codec, as_args=as_args,
    )  # fmt: skip


def _check_apart(what: str, policy: Step[..., Any], codec: Codec, *, is_async: bool) -> None:
    in_transaction = policy.transaction is not False
    if in_transaction and policy.process:
        raise ConfigError(f"{what}: transaction= and process=True exclude each other")
    sessions = sessions_of(policy.transaction, is_async=is_async, what=what)
    if in_transaction and codec.context_parameter is None:
        used = "connection" if sessions is None else "session"
        raise ConfigError(f"{what}: with transaction= it needs a parameter 'ctx: Context' for ctx.{used}")
    if policy.process and is_async:
        raise ConfigError(f"{what}: process=True is for plain functions: drop 'async', or the option")
    if policy.process and "<locals>" in getattr(policy.fn, "__qualname__", "<locals>"):
        raise ConfigError(f"{what}: with process=True the function must be defined at the top level of its module")


def _input_of(chain: str, fn: Callable[..., Any]) -> str:
    """The parameter that gets the return value of the step before."""
    hints = hints_of(fn)
    taken = [
        parameter
        for parameter in inspect.signature(fn).parameters.values()
        if hints.get(parameter.name) not in (Context, SyncContext) and parameter.default is not Injected
    ]
    needed = [parameter for parameter in taken if parameter.default is parameter.empty]
    if not taken or len(needed) > 1:
        raise ConfigError(
            f"chain {chain!r}: {fn.__name__!r} must take one argument besides ctx: what the step before returns"
        )
    return taken[0].name


def _check_fits(chain: str, before: Callable[..., Any], output: Any, after: Callable[..., Any], taken: Any) -> None:
    given = output_of(output, last=False)
    if not fits(given, taken):
        raise ConfigError(
            f"chain {chain!r}: {after.__name__!r} takes {written(taken)}, but {before.__name__!r} returns "
            f"{written(given)}"
        )
