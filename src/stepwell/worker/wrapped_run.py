"""Run a handler inside the plugins' `wrap_run`, and decide how the run ended.

The handler's exception is raised to the plugins, though its outcome is known by then. The outcome counts unless a
plugin raises another exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from stepwell.errors import ConfigError, JobFailed
from stepwell.plugins.plugin import Plugin
from stepwell.plugins.run import Run
from stepwell.plugins.run_plugins import RunPlugins
from stepwell.values.outcome import Failed, HandedBack, Misfit, NothingToWrite, Outcome, Succeeded

T = TypeVar("T")


async def execute_wrapped(
    plugins: RunPlugins, wanting: Sequence[Plugin], run: Run, execute: Callable[[T], Awaitable[Outcome]], given: T
) -> Outcome:
    """Await `execute(given)` inside `wrap_run` of the plugins that want the run."""
    handler = _Handler(plugins, run, execute, given)
    try:
        await plugins.around_run(run, handler.call, wanting)
    except BaseException as raised:
        if not _is_known(raised, handler, plugins):
            raise
    if handler.outcome is None or handler.error is not None:
        _check(plugins, run, handler)
    assert handler.outcome is not None
    return handler.outcome


async def execute_batch_wrapped(
    plugins: RunPlugins, run: Run, execute: Callable[[], Awaitable[list[Outcome]]]
) -> list[Outcome]:
    """The same for a batch, with all plugins."""
    handler = _BatchHandler(plugins, run, execute)
    try:
        await plugins.around_run(run, handler.call)
    except BaseException as raised:
        if not _is_known(raised, handler, plugins):
            raise
    _check(plugins, run, handler)
    assert handler.outcomes is not None
    return handler.outcomes


def _is_known(raised: BaseException, handler: _Handler[Any] | _BatchHandler, plugins: RunPlugins) -> bool:
    """Whether the outcome of the handler counts, although the plugins have raised this."""
    if raised is handler.error:
        return True
    if handler.is_written:
        plugins.log_ignored("wrap_run", raised)
    return handler.is_written


def _check(plugins: RunPlugins, run: Run, handler: _Handler[Any] | _BatchHandler) -> None:
    if run.outcome is None:
        raise ConfigError(f"{plugins.names} returned without 'await call()': raise Cancel or Snooze to skip the run")
    if handler.error is not None:
        # Without the frames of the plugins, through which it has passed.
        BaseException.with_traceback(handler.error, handler.frames)


class _Handler(Generic[T]):
    """A handler that plugins call, and how it ended."""

    __slots__ = ("_called", "_execute", "_given", "_plugins", "_run", "error", "frames", "outcome")

    def __init__(self, plugins: RunPlugins, run: Run, execute: Callable[[T], Awaitable[Outcome]], given: T) -> None:
        self._plugins = plugins
        self._run = run
        self._execute = execute
        self._given = given
        self._called = False
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.frames: TracebackType | None = None

    @property
    def is_written(self) -> bool:
        return isinstance(self.outcome, NothingToWrite)

    async def call(self) -> None:
        if self._called:
            _refuse_twice(self._plugins)
        self._called = True
        outcome = self.outcome = await self._execute(self._given)
        if type(outcome) is Succeeded:
            self._run.outcome = "succeeded"
            return
        self._run.outcome = _name(outcome)
        if (error := _error_of(self._run, [outcome])) is not None:
            self.error, self.frames = error, error.__traceback__
            raise error


class _BatchHandler:
    """The same for a batch."""

    __slots__ = ("_called", "_execute", "_plugins", "_run", "error", "frames", "outcomes")

    def __init__(self, plugins: RunPlugins, run: Run, execute: Callable[[], Awaitable[list[Outcome]]]) -> None:
        self._plugins = plugins
        self._run = run
        self._execute = execute
        self._called = False
        self.outcomes: list[Outcome] | None = None
        self.error: BaseException | None = None
        self.frames: TracebackType | None = None

    @property
    def is_written(self) -> bool:
        return False

    async def call(self) -> None:
        if self._called:
            _refuse_twice(self._plugins)
        self._called = True
        self.outcomes = await self._execute()
        self._run.outcome = _name(self.outcomes[0])
        if (error := _error_of(self._run, self.outcomes)) is not None:
            self.error, self.frames = error, error.__traceback__
            raise error


def _refuse_twice(plugins: RunPlugins) -> None:
    # Also while the first call goes on, or after it was cancelled: the handler has begun.
    raise RuntimeError(f"{plugins.names} called the handler twice: write 'await call()' once")


def _name(outcome: Outcome) -> str:
    if isinstance(outcome, NothingToWrite) and outcome.written is not None:
        outcome = outcome.written
    return _NAMES.get(type(outcome)) or type(outcome).__name__.lower()


_NAMES: dict[type[Outcome], str] = {Succeeded: "succeeded", NothingToWrite: "refused", HandedBack: "handed_back"}


def _error_of(run: Run, outcomes: Sequence[Outcome]) -> BaseException | None:
    """The exception that the handler ended with; of a batch, only if all of its jobs failed with the same one."""
    first = outcomes[0]
    failed = first.failed if isinstance(first, Misfit) else first
    if not isinstance(failed, Failed):
        return None
    if failed.error is None:  # it was raised in a process, and only its text came back
        return JobFailed(run.job_id, run.task, failed.type, failed.message, failed.traceback)
    if any(not isinstance(other, Failed) or other.error is not failed.error for other in outcomes[1:]):
        return None
    return failed.error
