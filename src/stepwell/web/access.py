"""Who is asking, and what may they do. Rights are checked here, on the server, for every request."""

from __future__ import annotations

import base64
import binascii
import hmac
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from starlette.requests import Request

from stepwell.errors import ConfigError

Right = Literal[
    "view", "retry", "cancel", "run", "move", "signal", "pause", "trigger", "triage", "save", "edit", "enqueue",
    "delete", "worker",
]  # fmt: skip
"""What a user may do: look; retry, cancel, or run a job now, or move it to another queue, priority or time; send it a
signal; pause and resume queues and schedules; trigger a schedule; resolve, ignore and reopen failures; save and
delete views of the list of jobs; edit the args of a job; enqueue a job by hand; delete jobs that have ended; quiet and
stop workers. For all jobs that match, an act needs the same right as for one."""

VIEWER: frozenset[Right] = frozenset({"view"})
"""May look, and change nothing."""
OPERATOR: frozenset[Right] = VIEWER | frozenset[Right](
    {"retry", "cancel", "run", "move", "signal", "pause", "trigger", "triage", "save"}
)
"""May also change what happens to jobs that exist, pause queues and schedules, and save views."""
ADMIN: frozenset[Right] = frozenset(get_args(Right))
"""May do everything."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of the dashboard: the name that is shown, and the rights."""

    name: str
    rights: frozenset[Right] = ADMIN

    def __post_init__(self) -> None:
        _check_rights(self.rights)

    def may(self, right: Right) -> bool:
        return right in self.rights


AuthHook: TypeAlias = Callable[[Request], User | Awaitable[User | None] | None]
Auth: TypeAlias = str | tuple[str, str] | AuthHook | None
"""A token, a name and a password, a function that returns the user of a request or None, or nothing."""


class Access:
    """Finds the user of a request. `rights` are those of everybody who comes with the token or the password."""

    def __init__(self, auth: Auth, rights: frozenset[Right]) -> None:
        self._auth = _check_auth(auth)
        self._rights = _check_rights(rights)

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked who they are. Then only this machine is let in."""
        return self._auth is None

    @property
    def by_password(self) -> bool:
        """Whether a browser can ask for a password."""
        return isinstance(self._auth, str | tuple)

    async def user(self, request: Request) -> User | None:
        """Return the user; None: it is not known who asks."""
        if self._auth is None:
            return User("local", self._rights)
        if isinstance(self._auth, str | tuple):
            known = cast("str | tuple[str, str]", self._auth)
            return self._by_header(request.headers.get("authorization", ""), known)
        found = self._auth(request)
        user = await cast("Awaitable[Any]", found) if inspect.isawaitable(found) else found
        if user is not None and not isinstance(user, User):
            raise ConfigError(f"the auth function returned {type(user).__name__}: return a stepwell.web.User, or None")
        return user

    def _by_header(self, header: str, known: str | tuple[str, str]) -> User | None:
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "bearer" and isinstance(known, str):
            return User("token", self._rights) if _same(given.strip(), known) else None
        if scheme.lower() != "basic":
            return None
        name, password = _basic(given)
        if isinstance(known, str):
            # A browser can send a token as a password, under any name.
            return User(name or "token", self._rights) if _same(password, known) else None
        # Both are compared, so that the time does not tell which one is wrong.
        right = _same(name, known[0]) & _same(password, known[1])
        return User(name, self._rights) if right else None


def is_by_token(request: Request) -> bool:
    """Whether the request has a bearer token, which no browser sends by itself."""
    return request.headers.get("authorization", "").lower().startswith("bearer ")


def _basic(given: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", ""
    return name, password


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), known.encode())


def _check_auth(auth: Any) -> Auth:
    if auth is None or callable(auth):
        return cast("Auth", auth)
    if isinstance(auth, str):
        if not auth:
            raise ConfigError("auth is an empty token: give a secret text, or leave auth out")
        return auth
    pair = cast("tuple[Any, ...]", auth) if isinstance(auth, tuple) else ()
    if len(pair) == 2 and all(isinstance(part, str) and part for part in pair) and ":" not in pair[0]:
        return cast("tuple[str, str]", auth)
    raise ConfigError(
        "auth must be a token (text), a name and a password (a tuple of two), or a function that returns a User"
    )


def _check_rights(rights: Any) -> frozenset[Right]:
    wrong = set(rights) - ADMIN
    if wrong:
        raise ConfigError(f"rights has {sorted(map(str, wrong))}: it may have {', '.join(sorted(ADMIN))}")
    return frozenset(rights)
