"""Calls that are not made yet, and what Celery makes of them: chains, groups and chords.

A canvas is written down as JSON, a tree of nodes, and enqueued as one durable job, which `canvas_job` runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from stepwell.contrib.celery.options import (
    CallOptions,
    call_options,
    check_arguments,
    check_names,
    options_as_json,
    options_from_json,
)
from stepwell.contrib.celery.result import AsyncResult, GroupResult
from stepwell.errors import ConfigError

if TYPE_CHECKING:
    from stepwell.contrib.celery.app import Celery
    from stepwell.contrib.celery.task import CeleryTask

# The options of a whole canvas that its tasks inherit. The others are about the moment at which it starts.
_INHERITED = ("queue", "priority")


class Canvas(ABC):
    """A call, or several, that can be enqueued and be part of another canvas."""

    @property
    @abstractmethod
    def celery(self) -> Celery: ...

    @abstractmethod
    def node(self, inherited: Mapping[str, Any]) -> dict[str, Any]:
        """Write it down. Tasks without options of their own get the inherited ones."""

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> AsyncResult:
        """Enqueue it as one job, which spawns the others. `args` come before the arguments of the first task, or of
        each task of a group. `queue` and `priority` are for all of them."""
        check_arguments("apply_async", args, kwargs)
        if kwargs:
            raise ConfigError(f"apply_async: {self!r} takes no kwargs: give them to its signatures")
        inherited = {name: value for name, value in options.items() if name in _INHERITED}
        enqueuer = self.celery.canvas.using(**call_options("apply_async", options))
        return self._result(enqueuer.enqueue(node=self.node(inherited), given=list(args or ())))

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """The same without options."""
        return self.apply_async(args, kwargs)

    def _result(self, handle: Any) -> AsyncResult:
        return AsyncResult(handle)

    def __or__(self, other: Canvas) -> chain:
        return chain(self, other)


class Signature(Canvas):
    """A call of one task."""

    def __init__(
        self, task: CeleryTask, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, immutable: bool = False
    ) -> None:
        self.task = task
        self.args = args
        self.kwargs = dict(kwargs)
        self.immutable = immutable
        self.options: dict[str, Any] = {}

    @property
    def celery(self) -> Celery:
        return self.task.celery

    def set(self, **options: Unpack[CallOptions]) -> Signature:
        """Add options. It changes this signature and returns it."""
        check_names("a signature", options, CallOptions)
        if "connection" in options:
            raise ConfigError("a signature has no connection of its own: give it to apply_async")
        self.options |= options
        return self

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> AsyncResult:
        """Enqueue the call. `args` come before its own; an immutable signature ignores `args` and `kwargs`."""
        check_arguments("apply_async", args, kwargs)
        given: Any = {**self.options, **options}
        return self.task.apply_async(*self._with(args or (), kwargs or {}), **given)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task here, as Celery does."""
        args, kwargs = self._with(args, kwargs)
        return self.task(*args, **kwargs)

    def _with(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.args, self.kwargs) if self.immutable else ((*args, *self.args), {**self.kwargs, **kwargs})

    def node(self, inherited: Mapping[str, Any]) -> dict[str, Any]:
        options = options_as_json({**inherited, **self.options})
        # As the canvas will use them. A wrong option is refused here, and not in each run of the canvas.
        self.task.stepwell.using(**options_from_json(options))
        made = {"task": self.task.name, "args": self.args, "kwargs": self.kwargs, "options": options}
        return {**made, "immutable": True} if self.immutable else made

    def __repr__(self) -> str:
        return (
            f"{self.task.name}({', '.join([*map(repr, self.args), *(f'{k}={v!r}' for k, v in self.kwargs.items())])})"
        )


class _Several(Canvas):
    tasks: list[Canvas]

    @property
    def celery(self) -> Celery:
        celery = self.tasks[0].celery
        for task in self.tasks[1:]:
            if task.celery is not celery:
                raise ConfigError(f"{task!r} is of another app than {self.tasks[0]!r}: a canvas has tasks of one app")
        return celery

    def __call__(self, *args: Any, **kwargs: Any) -> AsyncResult:
        return self.apply_async(args, kwargs)

    def _nested(self, node: dict[str, Any], inherited: Mapping[str, Any]) -> dict[str, Any]:
        """The node, with the options of its own job: a canvas inside another may be one."""
        return {**node, "options": dict(inherited)} if inherited else node


class chain(_Several):  # noqa: N801 as in Celery
    """Tasks one after the other: each gets the result of the one before as its first argument. The result of the chain
    is that of the last."""

    def __init__(self, *tasks: Canvas | Iterable[Canvas]) -> None:
        self.tasks = [one for task in _listed(tasks) for one in (task.tasks if isinstance(task, chain) else [task])]
        if not self.tasks:
            raise ConfigError("chain() has no tasks: give signatures, such as chain(fetch.s(url), parse.s())")

    def node(self, inherited: Mapping[str, Any]) -> dict[str, Any]:
        return self._nested({"chain": [task.node(inherited) for task in self.tasks]}, inherited)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.tasks))


class group(_Several):  # noqa: N801 as in Celery
    """Tasks side by side. The result is the list of theirs, in order. If one fails, the others go on, and the group
    fails when all have ended."""

    def __init__(self, *tasks: Canvas | Iterable[Canvas]) -> None:
        self.tasks = _listed(tasks)
        if not self.tasks:
            raise ConfigError("group() has no tasks: give signatures, such as group(resize.s(n) for n in pages)")

    def node(self, inherited: Mapping[str, Any]) -> dict[str, Any]:
        return self._nested({"group": [task.node(inherited) for task in self.tasks]}, inherited)

    def _result(self, handle: Any) -> AsyncResult:
        return GroupResult(handle)

    def __repr__(self) -> str:
        return f"group({', '.join(map(repr, self.tasks))})"


def chord(header: group | Iterable[Canvas], body: Canvas | None = None) -> Any:
    """Tasks side by side, and one that gets the list of their results: `chord(header)(body)`, or `chord(header, body)`
    for a canvas that is not enqueued yet. If a task of the header fails, the body does not run."""
    head = header if isinstance(header, group) else group(header)
    if body is not None:
        return chain(head, body)

    def enqueue(body: Canvas) -> AsyncResult:
        return chain(head, body).apply_async()

    return enqueue


def _listed(given: tuple[Canvas | Iterable[Canvas], ...]) -> list[Canvas]:
    listed: list[Canvas] = []
    for one in given:
        listed += list(one) if isinstance(one, Iterable) else [one]
    for one in listed:
        if not isinstance(one, Canvas):
            raise ConfigError(f"a canvas consists of signatures, task.s(...), and other canvases, not of {one!r}")
    return listed
