"""The dashboard: pages for people and JSON for programs, in a browser, over the app's own database.

`Dashboard` is an ASGI app, to be mounted in another one or served by `stepwell web`. Every request passes the gate in
`dashboard`: who is it (`access`), does it come from our own pages (`origin`), may they do that. A page in `pages` calls
functions of `reads`, each of which is one SQL function with a bound, and renders a template or the same data as JSON.
An act in `acts` makes one call of the app, or runs one query, and goes back to the page it came from. `live` tells open
pages when to look again. `wsgi` is for sites on Django and Flask. `mcp` gives the same reads to assistants.

It needs the extra `web`, all but `reads`, `wording`, `notices`, `progress` and `sendable`, which other commands use:
they need other extras. So what this exports is imported when it is first used. Nothing here decides about jobs. Only
the command line, `contrib.django` and `contrib.flask` import this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install

if TYPE_CHECKING:
    from stepwell.web.access import ADMIN, OPERATOR, VIEWER, Right, User
    from stepwell.web.dashboard import Dashboard

__all__ = ["ADMIN", "OPERATOR", "VIEWER", "Dashboard", "Right", "User"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{'dashboard' if name == 'Dashboard' else 'access'}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "jinja2"):
            raise
        raise ConfigError(f"the dashboard needs {missing}: {how_to_install('web')}") from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
