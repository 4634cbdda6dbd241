"""Hooks: functions that each worker of an app calls when it starts and stops."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from stepwell.errors import ConfigError
from stepwell.jobs.task import Task

WorkerHook: TypeAlias = Callable[[], object]
"""A function that a worker calls. If it returns an awaitable, the worker awaits it."""


def check_hook(who: str, hook: Any) -> WorkerHook:
    """Return the function, if it can be a hook of `@app.who`. Raises `ConfigError` if it cannot."""
    if isinstance(hook, Task):
        raise ConfigError(f"@app.{who} takes a function, and {hook.name!r} is a task: write one around it")
    if not callable(hook) or isinstance(hook, type):
        raise ConfigError(f"@app.{who} takes a function without arguments, not {hook!r}")
    if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        raise ConfigError(
            f"@app.{who}: {name_of(hook)} is a generator: open in a start hook, and close in a stop hook of its own"
        )
    try:
        inspect.signature(hook).bind()
    except TypeError:
        raise ConfigError(f"@app.{who}: {name_of(hook)} takes arguments: it is called without any") from None
    except ValueError:
        pass  # a builtin without a signature
    return hook


def name_of(hook: WorkerHook) -> str:
    name = getattr(hook, "__qualname__", None)
    return repr(hook) if name is None else f"{getattr(hook, '__module__', '?')}.{name}"
