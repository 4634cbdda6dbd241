"""Load the app that MODULE:APP names, or say plainly why that fails."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell.app import App
from stepwell.cli.output import clean
from stepwell.cli.parse import UsageError
from stepwell.errors import ConfigError
from stepwell.errors.text import error_line_of

# Files of Stepwell, and of the import system.
_NOT_USERS = (str(Path(__file__).parent.parent) + os.sep, "<frozen importlib", str(importlib.__file__))


def load_app(path: str) -> App:
    """Import the module, looking in the current directory first, and return its app."""
    module_name, _, name = path.partition(":")
    if not name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        file = Path(path).with_suffix(".py")
        if file.is_file():
            named = ".".join(file.with_suffix("").parts)
            raise UsageError(f"{path!r} is not MODULE:APP: write it as {named}:app, if it is called 'app' in {file}")
        raise UsageError(f"{path!r} is not MODULE:APP: write it as shop.jobs:app, for 'app' in shop/jobs.py")
    here = str(Path.cwd())
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    module = _import(module_name)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"module {module_name!r} has no {name!r}: {_apps_in(module)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise ConfigError(f"{path!r} is of type {type(found).__name__}, not an App: {_apps_in(module)}")
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except SystemExit:
        raise ConfigError(
            f"module {name!r} ends the program when it is imported: put the code that must not run on import under "
            "if __name__ == '__main__'"
        ) from None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module {error.name!r} here ({Path.cwd()}): change to the directory that holds it, or "
                f"install it{_suggestion(name)}"
            ) from None
        sys.stderr.write(clean(_users_traceback(error), lines=True))
        raise ConfigError(
            f"module {name!r} cannot be imported: {error_line_of(error)}; its traceback is above"
        ) from None


def _suggestion(name: str) -> str:
    """A hint for a module typed as the name of its file."""
    last = name.rpartition(".")[2]
    if last == "py" and util.find_spec(name.rpartition(".")[0].partition(".")[0]) is not None:
        return f"; did you mean {name.removesuffix('.py')!r}?"
    return ""


def _apps_in(module: ModuleType) -> str:
    apps = sorted(key for key, value in vars(module).items() if isinstance(value, App))
    if not apps:
        return "there is no App in it; is it in another module?"
    return "did you mean " + " or ".join(f"{module.__name__}:{name}" for name in apps) + "?"


def _users_traceback(error: BaseException) -> str:
    """The traceback without our own frames and those of the import system."""
    whole = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    rest = [whole]
    while rest:
        part = rest.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        kept = [frame for frame in part.stack if not frame.filename.startswith(_NOT_USERS)]
        part.stack = traceback.StackSummary.from_list(kept)
        rest += [other for other in (part.__cause__, part.__context__, *(part.exceptions or ())) if other is not None]
    return "".join(whole.format())
