"""Machines: states are dataclasses, and each one returns the state that follows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar, cast, overload

import msgspec

from stepwell.durable.job_context import JobContext
from stepwell.errors import BadArgs, ConfigError, MisfitArgs, StepNotFound
from stepwell.flows.flow import Flow, FlowStep, check_step_options, enter_step, seconds_or
from stepwell.jobs.codec import Codec
from stepwell.jobs.task import StepInput, Task
from stepwell.values.bounds import check_name
from stepwell.values.directives import Done, Next
from stepwell.values.duration import Duration
from stepwell.values.json import encode_value, new_decoder, shape_of, wrong_names
from stepwell.values.policy import JobPolicy
from stepwell.values.retry import Retry
from stepwell.values.sealing import Sealer

StateClass = TypeVar("StateClass", bound=type[Any])


class Machine(Task[[Any], Any]):
    """A task whose work is a machine of states. Made by `app.machine`; `@machine.state` adds a state."""

    def __init__(self, job_store: Any, name: str, **options: Any) -> None:
        async def run(state: Any) -> Any:  # noqa: ARG001
            raise AssertionError("a worker runs the states of a machine, not this function")

        self._default: Retry = options["retry"]
        self._timeout: float | None = options["timeout"]
        self.states: dict[str, FlowStep] = {}
        self._classes: dict[str, type[Any]] = {}
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._starts: set[str] = set()
        super().__init__(job_store, run, name=name, process=False, transaction=False,
                         codec=_MachineCodec(name, run, self), **options)  # fmt: skip

    def __repr__(self) -> str:
        return f"<Machine {self.name}: {', '.join(self.states)}>"

    @property
    def queues(self) -> set[str]:
        """The queues of its jobs: the machine's, and those of its states."""
        return {self.queue, *(state.queue for state in self.states.values() if state.queue is not None)}

    @property
    def starts(self) -> frozenset[str]:
        """The states that jobs may begin with."""
        return frozenset(self._starts)

    @property
    def shape(self) -> str:
        """The names of its states and of their fields."""
        fields = {name: _fields_of(state) for name, state in self._classes.items()}
        return ";".join(f"{name}({shape_of(known, needed)})" for name, (known, needed) in sorted(fields.items()))

    @property
    def flow(self) -> Flow:
        """The machine itself."""
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
        """Add a state: a dataclass whose `run` returns `Next(State(...))` or `Done(value)`. Jobs may begin with a state
        that has `start`. The job stores the state's `name`, by default that of its class."""

        def add(state: Any) -> Any:
            if not isinstance(state, type):
                raise ConfigError(f"machine {self.name!r}: a state is a class, not {state!r}")
            own = check_name(state.__name__ if name is None else name, "name")
            if start and queue is not None:
                raise ConfigError(f"state {own!r}: jobs begin in the machine's own queue: app.machine(..., queue=...)")
            check_step_options(f"state {own!r}", retry, queue)
            if own in self.states:
                raise ConfigError(f"machine {self.name!r} has two states named {own!r}: give one another name=")
            self.states[own] = _machine_state(
                self.name,
                own,
                state,
                retry or self._default,
                seconds_or(timeout, self._timeout),
                queue,
                self.job_store.sealer,
            )
            self._classes[own] = state
            if start:
                self._starts.add(own)
            return state

        return add if state is None else add(state)

    def state_from(self, value: Any) -> Any:
        """Make a state from {"Name": {...}}, as args store it. Raises `BadArgs` if that does not fit."""
        named = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        [name] = named if len(named) == 1 else [""]
        if name not in self._classes:
            raise BadArgs(
                f'machine {self.name!r} is enqueued with one state, as {{"Name": {{...}}}}, where Name is '
                f"{', '.join(sorted(self.starts))}"
            )
        try:
            return msgspec.convert(named[name], self._classes[name])
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadArgs(f"state {name!r} of machine {self.name!r}: {error}") from None

    def _with_policy(self, policy: JobPolicy) -> Self:
        made = super()._with_policy(policy)
        made.states = {name: state.with_policy(policy) for name, state in self.states.items()}
        return made

    def first(self, args: str, cursor: str | None) -> FlowStep:  # noqa: ARG002 the args name it
        """The state that a job begins with, or has begun with."""
        try:
            name = next(iter(msgspec.json.decode(self.job_store.sealer.open(args), type=_Args).state), "")
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadArgs(f'machine {self.name!r}: its args are {{"state": {{"Name": {{...}}}}}}: {error}') from None
        step = self.find(name)
        if step is None:
            raise MisfitArgs(f"machine {self.name!r} has no state {name!r}: it has {', '.join(self.states)}")
        return step

    def start_of(self, stored: dict[str, Any]) -> dict[str, Any]:
        """The state that a job begins with and its name, for the keys of the job."""
        [(name, fields)] = stored.items()
        if name not in self._decoders:
            self._decoders[name] = new_decoder(self._classes[name])
        return {"state": self._decoders[name].decode(msgspec.json.encode(fields)), "name": name}

    def find(self, name: str) -> FlowStep | None:
        """The state of that name."""
        return self.states.get(name)

    def follow(self, step: FlowStep, result: Any, most: int) -> StepInput | Done[Any]:
        """The next state after one returned `result`, or the result of the job."""
        if isinstance(result, Done):
            return result  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(result, Next):
            if inspect.iscoroutine(result):
                # No value, and this says how to make it one.
                encode_value(result, most, "", "state {!r} of machine {!r} returned", step.name, self.name)
            raise TypeError(
                f"state {step.name!r} of machine {self.name!r} returned {result!r}: return Next(State(...)) or "
                "Done(value)"
            )
        going_on = cast("Next[Any]", result)
        name = self.name_of(going_on.value)
        what = "state {!r} of machine {!r} goes on with"
        encoded = encode_value(
            going_on.value, most, "App(max_result_size=...)", what, step.name, self.name, sealer=self.job_store.sealer
        )
        return StepInput(name, encoded, going_on.after)

    def enter(self, step: str | None, value: Any) -> StepInput:
        """Go on with any state: an instance, or its name and a dict of its fields."""
        try:
            name = step if step is not None and isinstance(value, Mapping) else self.name_of(value)
        except TypeError as error:
            raise BadArgs(str(error)) from None
        if step is not None and step != name:
            raise BadArgs(f"machine {self.name!r}: step is {step!r}, but the input is a state {name!r}: leave step out")
        found = self.find(name)
        if found is None:
            raise StepNotFound(f"machine {self.name!r} has no state {name!r}: it has {', '.join(self.states)}")
        return enter_step(found, cast("Any", value), f"machine {self.name!r}", self.job_store.sealer)

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
        """The same, but raises `TypeError` unless jobs may begin with the state."""
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

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == 1 and not kwargs:
            state = args[0]
        elif not args and set(kwargs) == {"state"}:
            state = kwargs["state"]
        else:
            raise BadArgs(f"machine {self._machine.name!r} is enqueued with one state")
        try:
            return {"state": {self._machine.start_name_of(state): state}}
        except TypeError as error:
            raise BadArgs(str(error)) from None

    def _named(self, values: Any) -> dict[str, Any]:
        return self._machine.start_of(values.state)

    def typed_arguments(self) -> list[tuple[str, Any, Any]]:
        """One argument: a state that jobs may begin with, by its name."""
        starts = ", ".join(sorted(self._machine.starts))
        return [("state", f'{{"Name": {{...}}}}, where Name is {starts}', inspect.Parameter.empty)]

    def call_with(self, named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Make the state from its name and its fields."""
        return (self._machine.state_from(named.get("state")),), {}


def _machine_state(
    machine: str,
    name: str,
    state: type[Any],
    retry: Retry,
    timeout: float | None,
    queue: str | None,
    sealer: Sealer,
) -> FlowStep:
    run = getattr(state, "run", None)
    if not callable(run):
        raise ConfigError(f"state {name!r} of machine {machine!r} has no method run(self, ctx)")
    try:
        decoder = new_decoder(state)
    except TypeError as error:
        raise ConfigError(f"state {name!r} of machine {machine!r} cannot be stored as JSON: {error}") from None
    _, needed = _fields_of(state)
    takes_ctx = len(inspect.signature(run).parameters) > 1

    def begin(stored: str, ctx: JobContext) -> Callable[[], Any]:
        try:
            value: Any = decoder.decode(sealer.open(stored))
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"state {name!r} of machine {machine!r}: the stored fields do not fit"
            # A state ignores fields that it does not know.
            if wrong := wrong_names(sealer.open(stored), None, needed):
                raise MisfitArgs(f"{what}: {wrong}", reason=wrong) from None
            raise BadArgs(f"{what}: {error}", reason=str(error)) from None
        return lambda: value.run(ctx) if takes_ctx else value.run()

    def begin_first(args: str, ctx: JobContext) -> Callable[[], Any]:
        return begin(bytes(msgspec.json.decode(sealer.open(args), type=_Args).state[name]).decode(), ctx)

    return FlowStep(name, retry, timeout, queue, inspect.iscoroutinefunction(run), begin, begin_first)


def _fields_of(state: type[Any]) -> tuple[list[str], list[str]]:
    """The names of a state's fields in JSON, and of those that are required. Both are empty if its class has none."""
    fields: tuple[msgspec.inspect.Field, ...] = getattr(msgspec.inspect.type_info(state), "fields", ())
    return [field.encode_name for field in fields], [field.encode_name for field in fields if field.required]
