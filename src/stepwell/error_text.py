"""An error in words, as Postgres can keep them."""

from __future__ import annotations

import os
import re
import signal
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

_FRAME = re.compile(r'^[ |+-]*File "([^"]+)", line (\d+), in ', re.MULTILINE)
# The frames of stepwell, of Python itself and of what is installed are not the user's.
_NOT_THE_USERS = (
    *(
        f"{place}{os.sep}"
        for place in (Path(__file__).parent, *(sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib")))
    ),
    "<",
)
_LONGEST_MESSAGE = 10_000
_LONGEST_TRACEBACK = 60_000


def error_name(error: BaseException) -> str:
    """The name of its class, with the module unless that says nothing."""
    kind = type(error)
    bare = kind.__module__ in ("builtins", "__main__")
    return storable(kind.__qualname__ if bare else f"{kind.__module__}.{kind.__qualname__}")


def error_message(error: BaseException) -> str:
    """What it says."""
    try:
        return storable(str(error))[:_LONGEST_MESSAGE]
    except Exception as own:
        return f"(its message cannot be shown: str() raised {type(own).__name__})"


def error_line(kind: str, message: str | None) -> str:
    """An error in one line, as Python shows it: its name, and its message if it has one."""
    return f"{kind}: {message}" if message else kind


def error_line_of(error: BaseException) -> str:
    """The same, of an exception."""
    return error_line(error_name(error), error_message(error))


def format_traceback(error: BaseException, frames: TracebackType | None) -> str:
    """Its traceback from these frames on, with the errors behind it. The middle of a very long one is left out."""
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:
        text = "".join(traceback.format_tb(frames))
    if len(text) > _LONGEST_TRACEBACK:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return storable(text)


def describe_exit(code: int) -> str:
    """How a process ended, by the code that `subprocess` gives: negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def storable(text: str) -> str:
    """Text as Postgres can keep it: no NUL, no half surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def user_place(traceback: str) -> str | None:
    """The file and line of the user's code through which an error came last; None: through none."""
    frames: list[tuple[str, str]] = _FRAME.findall(traceback)
    return next((f"{file}:{line}" for file, line in reversed(frames) if not file.startswith(_NOT_THE_USERS)), None)
