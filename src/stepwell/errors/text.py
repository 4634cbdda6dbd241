"""Turn errors into text that Postgres can store: names, messages, tracebacks and exit codes.

Every program imports this, and most never need it. So it loads what only errors need with the first error.
"""

from __future__ import annotations

import os
import re
import signal
import traceback
from collections.abc import Iterable
from functools import cache
from heapq import nlargest
from itertools import takewhile
from types import FrameType, TracebackType
from typing import cast

_FRAME = re.compile(r'^[ |+-]*File "([^"]+)", line (\d+), in ', re.MULTILINE)
_OWN_CODE = __file__.removesuffix(f"errors{os.sep}text.py")
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_COMPARED = 20
_FRAMES = 4
_LONGEST_MESSAGE = 10_000
_LONGEST_TRACEBACK = 60_000
_LONGEST_FRAME = 300
_LONGEST_QUOTED = 200


def error_name(error: BaseException) -> str:
    """Return the name of the error's class, with its module unless that is builtins or __main__."""
    kind = type(error)
    bare = kind.__module__ in ("builtins", "__main__")
    return storable(kind.__qualname__ if bare else f"{kind.__module__}.{kind.__qualname__}")


def error_message(error: BaseException) -> str:
    """Return the error's message, cut to a length that can be stored."""
    try:
        return storable(str(error))[:_LONGEST_MESSAGE]
    except Exception as own:
        return f"(the message cannot be shown: str() raised {type(own).__name__})"


def error_line(kind: str, message: str | None) -> str:
    """Format an error in one line, as Python does: its name, and its message if it has one."""
    return f"{kind}: {message}" if message else kind


def error_line_of(error: BaseException) -> str:
    return error_line(error_name(error), error_message(error))


def frames_of_handler(frames: TracebackType | None) -> TracebackType | None:
    """Leave out the frames by which Stepwell called the handler; None: there are no others."""
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_callers()):
        frames = frames.tb_next
    return frames


def format_traceback(error: BaseException, frames: TracebackType | None) -> str:
    """Format the traceback from these frames on, with chained errors. The middle of a very long one is left out."""
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:
        text = "".join(traceback.format_tb(frames))
    if len(text) > _LONGEST_TRACEBACK:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return storable(text)


def describe_exit(code: int) -> str:
    """Say how a process ended, from an exit code as in `subprocess`: negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def quoted(value: object) -> str:
    """Return a value as Python writes it, cut: somebody gave it, and may have given a megabyte."""
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}... ({len(text):,} characters)"


def storable(text: str) -> str:
    """Replace characters that Postgres cannot store: NUL and lone surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def user_location(traceback: str) -> str | None:
    """Return the file and line of the innermost frame of user code; None: there is none."""
    frames: list[tuple[str, str]] = _FRAME.findall(traceback)
    return next((f"{file}:{line}" for file, line in reversed(frames) if not file.startswith(_not_user_code())), None)


def user_frame(error: BaseException, frames: TracebackType | None) -> str | None:
    """Return the innermost function of user code in these frames, as "module:name": it stays the same when lines move,
    and in another directory. Without user code, the innermost function that is not Stepwell's; None: there is none. Of
    an exception group, as `asyncio.TaskGroup` raises it, the frame is that of its first exception."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        first = group.exceptions[0]
        if (found := user_frame(first, first.__traceback__)) is not None:
            return found
    own: FrameType | None = None
    other: FrameType | None = None
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith(_not_user_code()) and not any(part in file for part in _INSTALLED):
            own = frames.tb_frame
        elif not file.startswith(_OWN_CODE):
            other = frames.tb_frame
        frames = frames.tb_next
    frame = own or other
    return None if frame is None else _function(frame)


def _function(frame: FrameType) -> str:
    module: object = frame.f_globals.get("__name__")
    if not isinstance(module, str) or module in ("__main__", "__mp_main__"):
        from pathlib import Path

        # Run as a program, the same module has another name.
        module = Path(frame.f_code.co_filename).stem
    return storable(f"{module}:{frame.f_code.co_qualname}")[:_LONGEST_FRAME]


@cache
def _not_user_code() -> tuple[str, ...]:
    """How the files of Stepwell, of Python itself and of installed packages begin."""
    import sysconfig

    folders = (sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    return (_OWN_CODE, *(f"{folder}{os.sep}" for folder in folders), "<")


@cache
def _callers() -> tuple[str, ...]:
    """The code by which Stepwell calls a handler."""
    library = _not_user_code()[1]
    return (_OWN_CODE, *(f"{library}{name}{os.sep}" for name in ("asyncio", "concurrent")))


def user_stack(frame: FrameType) -> str:
    """Format the innermost few frames of user code that our own code has called; without any, of all code."""
    stack = traceback.extract_stack(frame)
    called = takewhile(lambda one: not one.filename.startswith(_OWN_CODE), reversed(stack))
    users = [one for one in called if not one.filename.startswith(_not_user_code())]
    return "".join(traceback.format_list(users[:_FRAMES][::-1] or stack[-_FRAMES:]))


def nearest(name: str, known: Iterable[str]) -> str:
    """A question to end a sentence with, if a known name resembles this one. Queue patterns are not suggested."""
    from difflib import SequenceMatcher, get_close_matches

    matcher = SequenceMatcher(b=name, autojunk=False)

    def likeness(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.quick_ratio()

    # Fully comparing thousands of long names would take half a minute.
    likely = nlargest(_COMPARED, sorted(other for other in known if not other.endswith("*")), likeness)
    found = get_close_matches(name, likely, n=1)
    return f": did you mean {found[0]!r}?" if found else ""


def how_to_install(extras: str) -> str:
    """The next act where extras of Stepwell are missing, by their names: "mcp,web"."""
    return f"run pip install 'stepwell[{extras}]', or in a checkout of Stepwell pip install '.[{extras}]'"
