"""Chains and machines: work in steps whose place is kept on the job itself. The output of one is the input of the next.

A chain knows its order; of a machine each state says what comes next. Neither has a determinism rule: a step that was
left is never run again, and where a job stands is a name, so a deploy may add steps before or after it.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, Union, cast, overload

import msgspec

from stepwell.base_context import BaseContext
from stepwell.codec import Codec
from stepwell.context import Context
from stepwell.duration import Duration, seconds
from stepwell.errors import BadArgs, ConfigError
from stepwell.journal import check_key
from stepwell.moves import Done, Next
from stepwell.retry import Retry
from stepwell.sync_context import SyncContext
from stepwell.task import Task, check_name
from stepwell.values import encode_value, new_decoder

StateClass = TypeVar("StateClass", bound=type[Any])


@dataclass(frozen=True, slots=True)
class Step:
    """A function of a chain with a policy of its own: `app.chain("name", fetch, Step(parse, retry=Retry(...)))`."""

    fn: Callable[..., Any]
    name: str | None = None
    retry: Retry | None = None
    timeout: Duration | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A step of a chain, or a state of a machine, ready to be run."""

    name: str
    retry: Retry
    timeout: float | None
    queue: str | None
    is_async: bool
    begin: Callable[[str, BaseContext], Callable[[], Any]]
    """From what was stored, and a context, make the call."""
    begin_first: Callable[[str, BaseContext], Callable[[], Any]] | None = None
    """The same from the args of the job, for the first of a chain."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What comes after a step: its name, and its input as JSON."""

    name: str
    input: str
    after: float | None


class Flow(Protocol):
    """What the executor must know of a chain or machine."""

    def first(self, args: str) -> FlowStep: ...
    def find(self, name: str) -> FlowStep | None: ...
    def follow(self, step: FlowStep, result: Any, most: int) -> Moved | Done[Any]: ...


class Chain(Task[..., Any]):
    """A task whose work is a chain of functions. Made by `app.chain`."""

    def __init__(self, sink: Any, name: str, given: tuple[Any, ...], **options: Any) -> None:
        if not given:
            raise ConfigError(f"chain {name!r} has no steps: app.chain(name, first, second, ...)")
        policies = [step if isinstance(step, Step) else Step(step) for step in given]
        for policy in policies:
            fn: object = policy.fn
            if not callable(fn) or isinstance(fn, Task):
                raise ConfigError(f"chain {name!r}: a step is a function, not {policy.fn!r}")
        if policies[0].queue is not None:
            raise ConfigError(
                f"chain {name!r}: its first step runs in the chain's own queue: app.chain(..., queue=...)"
            )
        default: Retry = options["retry"]
        self.steps = [
            _chain_step(name, place, policy, default, options["timeout"]) for place, policy in enumerate(policies)
        ]
        names = [step.name for step in self.steps]
        for own in names:
            if names.count(own) > 1:
                raise ConfigError(f"chain {name!r} has two steps named {own!r}: give one Step(fn, name=...)")
        hints = [_hints(policy.fn) for policy in policies]
        for before, after, at, output in zip(policies, policies[1:], hints[1:], hints, strict=False):
            _check_fits(name, before.fn, output.get("return", Any), after.fn, at.get(_input_of(name, after.fn), Any))
        super().__init__(sink, policies[0].fn, name=name, process=False, transaction=False,
                         codec=Codec(name, policies[0].fn, result=_output(hints[-1].get("return", Any), last=True)),
                         **options)  # fmt: skip
        self.kind = "async"
        self.codec.wants_sync_context = False

    def __repr__(self) -> str:
        return f"<Chain {self.name}: {' > '.join(step.name for step in self.steps)}>"

    @property
    def queues(self) -> set[str]:
        """The queues that its jobs come to: its own, and those of its steps."""
        return {self.queue, *(step.queue for step in self.steps if step.queue is not None)}

    @property
    def flow(self) -> Flow:
        """Itself: it is more than a function."""
        return self

    def first(self, args: str) -> FlowStep:  # noqa: ARG002 a machine's tell
        """The step that a job begins with."""
        return self.steps[0]

    def find(self, name: str) -> FlowStep | None:
        """The step of that name."""
        return next((step for step in self.steps if step.name == name), None)

    def follow(self, step: FlowStep, result: Any, most: int) -> Moved | Done[Any]:
        """What comes after a step that returned this."""
        if isinstance(result, Done):
            return result  # pyright: ignore[reportUnknownVariableType]
        going_on = cast("Next[Any]", result) if isinstance(result, Next) else Next(result)
        value, after = going_on.value, going_on.after
        place = self.steps.index(step) + 1
        if place == len(self.steps):
            return Done(value)
        what = "step {!r} of chain {!r} returned"
        encoded = encode_value(value, most, "App(max_result_size=...)", what, step.name, self.name)
        return Moved(self.steps[place].name, encoded, after)


class Machine(Task[[Any], Any]):
    """A task whose work is a machine of states. Made by `app.machine`; `@machine.state` adds a state."""

    def __init__(self, sink: Any, name: str, **options: Any) -> None:
        async def run(state: Any) -> Any:  # noqa: ARG001
            raise AssertionError("a machine's states are run, not the machine")

        self._default: Retry = options["retry"]
        self._timeout: float | None = options["timeout"]
        self.states: dict[str, FlowStep] = {}
        self._classes: dict[str, type[Any]] = {}
        self._starts: set[str] = set()
        super().__init__(sink, run, name=name, process=False, transaction=False,
                         codec=_MachineCodec(name, run, self), **options)  # fmt: skip

    def __repr__(self) -> str:
        return f"<Machine {self.name}: {', '.join(self.states)}>"

    @property
    def queues(self) -> set[str]:
        """The queues that its jobs come to: its own, and those of its states."""
        return {self.queue, *(state.queue for state in self.states.values() if state.queue is not None)}

    @property
    def flow(self) -> Flow:
        """Itself: it is more than a function."""
        return self

    @overload
    def state(self, state: StateClass, /) -> StateClass: ...
    @overload
    def state(
        self,
        *,
        start: bool = False,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
    ) -> Callable[[StateClass], StateClass]: ...
    def state(
        self,
        state: Any = None,
        *,
        start: bool = False,
        name: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        queue: str | None = None,
    ) -> Any:
        """Add a state: a dataclass whose `run` returns `Next(State(...))` or `Done(value)`. Jobs begin with one that
        has `start`. It is known by its class's name unless `name` says otherwise: that is where a job stands."""

        def add(state: Any) -> Any:
            if not isinstance(state, type):
                raise ConfigError(f"machine {self.name!r}: a state is a class, not {state!r}")
            own = check_key(state.__name__ if name is None else name, "name")
            if start and queue is not None:
                raise ConfigError(f"state {own!r}: jobs begin in the machine's own queue: app.machine(..., queue=...)")
            _check_policy(f"state {own!r}", retry, queue)
            if own in self.states:
                raise ConfigError(f"machine {self.name!r} has two states named {own!r}: give one another name=")
            self.states[own] = _machine_state(
                self.name, own, state, retry or self._default, _seconds(timeout, self._timeout), queue
            )
            self._classes[own] = state
            if start:
                self._starts.add(own)
            return state

        return add if state is None else add(state)

    def first(self, args: str) -> FlowStep:
        """The state that a job begins with."""
        try:
            name = next(iter(msgspec.json.decode(args, type=_Args).state), "")
        except msgspec.DecodeError as error:
            raise BadArgs(f'machine {self.name!r}: its args are {{"state": {{"Name": {{...}}}}}}: {error}') from None
        step = self.find(name)
        if step is None:
            raise BadArgs(f"machine {self.name!r} has no state {name!r}: it has {', '.join(self.states)}")
        return step

    def find(self, name: str) -> FlowStep | None:
        """The state of that name."""
        return self.states.get(name)

    def follow(self, step: FlowStep, result: Any, most: int) -> Moved | Done[Any]:
        """What comes after a step that returned this."""
        if isinstance(result, Done):
            return result  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(result, Next):
            raise TypeError(
                f"state {step.name!r} of machine {self.name!r} returned {result!r}: return Next(State(...)) or "
                "Done(value)"
            )
        going_on = cast("Next[Any]", result)
        name = self.name_of(going_on.value)
        what = "state {!r} of machine {!r} goes on with"
        encoded = encode_value(going_on.value, most, "App(max_result_size=...)", what, step.name, self.name)
        return Moved(name, encoded, going_on.after)

    def name_of(self, state: Any) -> str:
        """The name under which a state's class was added."""
        for name, known in self._classes.items():
            if type(state) is known:
                return name
        raise TypeError(
            f"{state!r} is not a state of machine {self.name!r}: add its class with @machine.state; it has "
            f"{', '.join(self.states) or 'none yet'}"
        )

    def start_name_of(self, state: Any) -> str:
        """The same for a state that jobs may begin with."""
        name = self.name_of(state)
        if name not in self._starts:
            starts = ", ".join(sorted(self._starts)) or "none yet: say @machine.state(start=True)"
            raise TypeError(f"machine {self.name!r} does not begin with {name!r}, but with {starts}")
        return name


class _Args(msgspec.Struct):
    state: dict[str, msgspec.Raw]


class _MachineCodec(Codec):
    """The args of a machine's job: {"state": {"Name": {...}}}."""

    def __init__(self, name: str, fn: Callable[..., Any], machine: Machine) -> None:
        super().__init__(name, fn)
        self._machine = machine

    def encode_args(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], most: int) -> str:
        if len(args) == 1 and not kwargs:
            state = args[0]
        elif not args and set(kwargs) == {"state"}:
            state = kwargs["state"]
        else:
            raise BadArgs(f"machine {self._machine.name!r} is enqueued with one state")
        try:
            named = {self._machine.start_name_of(state): state}
        except TypeError as error:
            raise BadArgs(str(error)) from None
        return super().encode_args((), {"state": named}, most)


def _chain_step(chain: str, place: int, policy: Step, retry: Retry, timeout: float | None) -> FlowStep:
    fn = policy.fn
    name = check_key(policy.name or getattr(fn, "__name__", type(fn).__name__), "name")
    if name == "<lambda>":
        raise ConfigError(f"chain {chain!r}: a lambda has no name to find its step by: give Step(fn, name=...)")
    _check_policy(f"step {name!r} of chain {chain!r}", policy.retry, policy.queue)
    is_async = inspect.iscoroutinefunction(fn)
    codec = Codec(f"{chain}.{name}", fn, result=Any)
    if is_async and codec.wants_sync_context:
        raise ConfigError(f"step {name!r} of chain {chain!r} is 'async def': its parameter is 'ctx: Context'")
    common = (policy.retry or retry, _seconds(policy.timeout, timeout), policy.queue, is_async)

    def begin_first(args: str, ctx: BaseContext) -> Callable[[], Any]:
        positional, named = codec.decode_args(args)
        if codec.context_parameter is not None:
            named[codec.context_parameter] = ctx
        return lambda: fn(*positional, **named)

    def begin(stored: str, ctx: BaseContext) -> Callable[[], Any]:
        return begin_first(f'{{"{_input_of(chain, fn)}":{stored}}}', ctx)

    return FlowStep(name, *common, begin, begin_first if place == 0 else None)


def _machine_state(
    machine: str, name: str, state: type[Any], retry: Retry, timeout: float | None, queue: str | None
) -> FlowStep:
    run = getattr(state, "run", None)
    if not callable(run):
        raise ConfigError(f"state {name!r} of machine {machine!r} has no method run(self, ctx)")
    try:
        decoder = new_decoder(state)
    except TypeError as error:
        raise ConfigError(f"state {name!r} of machine {machine!r} cannot be stored as JSON: {error}") from None
    takes_ctx = len(inspect.signature(run).parameters) > 1

    def begin(stored: str, ctx: BaseContext) -> Callable[[], Any]:
        try:
            value: Any = decoder.decode(stored)
        except msgspec.DecodeError as error:
            raise BadArgs(f"state {name!r} of machine {machine!r}: what was stored does not fit: {error}") from None
        return lambda: value.run(ctx) if takes_ctx else value.run()

    def begin_first(args: str, ctx: BaseContext) -> Callable[[], Any]:
        return begin(bytes(msgspec.json.decode(args, type=_Args).state[name]).decode(), ctx)

    return FlowStep(name, retry, timeout, queue, inspect.iscoroutinefunction(run), begin, begin_first)


def _input_of(chain: str, fn: Callable[..., Any]) -> str:
    """The parameter that is given the output of the step before."""
    hints = _hints(fn)
    taken = [
        parameter
        for parameter in inspect.signature(fn).parameters.values()
        if hints.get(parameter.name) not in (Context, SyncContext)
    ]
    needed = [parameter for parameter in taken if parameter.default is parameter.empty]
    if not taken or len(needed) > 1:
        raise ConfigError(
            f"chain {chain!r}: {fn.__name__!r} must take one argument, what the step before it returns, besides ctx"
        )
    return taken[0].name


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except (NameError, TypeError, AttributeError):
        return {}


def _check_fits(chain: str, before: Callable[..., Any], output: Any, after: Callable[..., Any], taken: Any) -> None:
    given = _output(output, last=False)
    if not _fits(given, taken):
        raise ConfigError(
            f"chain {chain!r}: {after.__name__!r} takes {_written(taken)}, but {before.__name__!r} returns "
            f"{_written(given)}"
        )


def _output(annotation: Any, *, last: bool) -> Any:
    """What a step hands on, or at the end returns: inside Next and Done, or bare."""
    members = list(typing.get_args(annotation)) if _is_union(annotation) else [annotation]
    kept: list[Any] = []
    for member in members:
        origin = typing.get_origin(member) or member
        if origin is Done:
            kept += typing.get_args(member)[:1] or [Any] if last else []
        elif origin is Next:
            kept += typing.get_args(member)[:1] or [Any]
        else:
            kept.append(member)
    return Union[tuple(kept)] if kept else Any  # noqa: UP007


def _fits(given: Any, taken: Any) -> bool:
    """Whether a value of one annotation can be one of the other. What cannot be told is let pass."""
    if given is Any or taken is Any or given == taken or isinstance(given, TypeVar) or isinstance(taken, TypeVar):
        return True
    if _is_union(given):
        return all(_fits(member, taken) for member in typing.get_args(given))
    if _is_union(taken):
        return any(_fits(given, member) for member in typing.get_args(taken))
    own, other = typing.get_origin(given) or given, typing.get_origin(taken) or taken
    if isinstance(own, type) and isinstance(other, type):
        if not issubclass(own, other) and (own, other) != (int, float):
            return False
        inner = list(zip(typing.get_args(given), typing.get_args(taken), strict=False))
        return all(_fits(a, b) for a, b in inner)
    return True


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType)


def _written(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)


def _check_policy(what: str, retry: Retry | None, queue: str | None) -> None:
    if retry is not None and not isinstance(retry, Retry):
        raise ConfigError(f"{what}: retry is {retry!r}: give a Retry, such as Retry(max_attempts=5)")
    if queue is not None:
        check_name(queue, f"{what}: queue")


def _seconds(timeout: Duration | None, default: float | None) -> float | None:
    return default if timeout is None else seconds(timeout, "timeout")
