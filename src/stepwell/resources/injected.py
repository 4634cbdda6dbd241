"""The default of a parameter that a worker fills in with a resource."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from stepwell.errors import ConfigError


class _UsedHere(ConfigError, AttributeError):
    """Also an `AttributeError`, so that `hasattr` and whoever inspects defaults find nothing, and not an error."""


class _Injected:
    """Stands in for a resource until a worker fills it in. Nothing else can be done with it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Injected"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _UsedHere(
            f"a resource was used (.{name}) that only a worker fills in: where you call the function yourself, pass it "
            "by name"
        )

    def __reduce__(self) -> str:
        return "Injected"


Injected: Final[Any] = _Injected()
"""`client: Client = Injected`: a worker passes the resource of that type. A job is enqueued without it."""
