"""The dashboard as an ASGI app, and the gate that every request passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

import psycopg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from stepwell.app import App
from stepwell.errors import ConfigError, DatabaseError, JobNotFound, ScheduleNotFound, SchemaMismatch, StepwellError
from stepwell.postgres.acting import acting
from stepwell.postgres.errors import in_short
from stepwell.values.redaction import Redaction
from stepwell.web.access import ADMIN, Access, Auth, Right, User
from stepwell.web.body import check_known
from stepwell.web.live import Pulse, is_polled
from stepwell.web.mounting import with_prefix
from stepwell.web.origin import comes_from_here, has_readable_host, is_local
from stepwell.web.render import static_files
from stepwell.web.visit import Refused, Visit, json_response
from stepwell.web.wording import brief

Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ELSEWHERE = (
    "an act must be asked for on a page of this dashboard; a program sends a bearer token, or the header "
    "Sec-Fetch-Site: same-origin"
)
_GONE = (JobNotFound, ScheduleNotFound)


class Dashboard:
    """Pages about an app's jobs, as an ASGI app: `Mount("/jobs", Dashboard(app, auth=("ada", "secret")))`.

    `auth` is a token (sent as a bearer token, or as the password of any name), a name and a password, or a function
    that takes the request and returns a `User`, or None to refuse; it may be `async def`. Without it, only this
    machine is let in. `rights` are those of everybody who comes with the token or the password, or without `auth`:
    `VIEWER`, `OPERATOR`, `ADMIN` or a set of your own. A function gives each `User` their own.

    The values of fields named in `redact` are hidden in args, results, metadata, progress and steps. They cannot be
    searched for either. Error messages and tracebacks are shown as they are.

    `trusted_proxy` says that a proxy of yours sets X-Forwarded-Prefix and X-Forwarded-Host, and that nobody else can.

    Connections are opened with the first request. To open them at the start of the app around it, and to close them at
    its end, enter `dashboard.lifespan()` in that app's own lifespan.
    """

    def __init__(
        self,
        app: App,
        *,
        auth: Auth = None,
        rights: Iterable[Right] = ADMIN,
        redact: Iterable[str] = (),
        trusted_proxy: bool = False,
        title: str = "Stepwell",
    ) -> None:
        if not isinstance(app, App):
            raise ConfigError(f"Dashboard takes an App, not {app!r}")
        if isinstance(redact, str):
            raise ConfigError(f"redact is {redact!r}: give a list of names, such as [{redact!r}]")
        self.app = app
        self.title = title
        self.access = Access(auth, frozenset(rights))
        self.redaction = Redaction(redact, app.sealer)
        self.pulse = Pulse(app)
        self._trusted_proxy = trusted_proxy
        self._site = Starlette(routes=self._routes(), lifespan=self._served)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._site(with_prefix(scope), receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Check the database at once, and close the connections at the end."""
        async with self.app:
            yield

    @asynccontextmanager
    async def _served(self, _: Starlette) -> AsyncGenerator[None]:
        # Served by itself. A database that is away must not stop the server: the pages say so, and come back.
        try:
            yield
        finally:
            await self.app.aclose()

    def _routes(self) -> list[Route]:
        from stepwell.web.routes import ACTS, PAGES

        pages = [Route(path, self._endpoint(handler, takes), methods=["GET"]) for path, takes, handler in PAGES]
        acts = [
            Route(path, self._endpoint(handler, takes, right), methods=["POST"]) for path, right, takes, handler in ACTS
        ]
        static = Route("/static/{name}", self._static, methods=["GET"])
        live = Route("/live", self._live, methods=["GET"])
        anything = Route("/{path:path}", self._endpoint(_nowhere), methods=["GET", "POST"])
        return [static, live, *pages, *acts, anything]

    def _endpoint(
        self, handler: Handler, takes: Collection[str] = (), right: Right = "view"
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return _guarded(await self._answer(request, handler, takes, right))

        return endpoint

    async def _answer(self, request: Request, handler: Handler, takes: Collection[str], right: Right) -> Response:
        passed = await self._enter(request)
        if isinstance(passed, Response):
            return passed
        visit = Visit(self, request, passed, self._root(request), takes)
        try:
            if request.method == "POST" and not comes_from_here(request, trusted_proxy=self._trusted_proxy):
                raise Refused(403, _ELSEWHERE)
            if not passed.may(right):
                raise Refused(403, f"{passed.name} may not do this: it needs the right {right!r}")
            if handler is not _nowhere:
                query = Counter(name for name, _ in request.query_params.multi_items())
                # An act takes its fields in the body.
                check_known(query, () if request.method == "POST" else takes, "parameter of this URL")
            await visit.look()
            if request.method == "POST" and visit.pulse["read_only"]:
                raise Refused(409, "the database takes no writes: this is a replica, or it is read-only")
            if request.method != "POST":
                return await handler(visit)
            with acting(passed.name, "web"):
                return await handler(visit)
        except (StepwellError, psycopg.Error, OSError) as error:
            return _explain(visit, error)

    async def _enter(self, request: Request) -> User | Response:
        """Return the user, or the answer to somebody who is not let in."""
        if not has_readable_host(request):
            return PlainTextResponse("The header Host cannot be read.\n", 400)
        if self.access.is_open and not is_local(request):
            return PlainTextResponse(
                "This dashboard has no auth, so it is for this machine only: give Dashboard(app, auth=...) a token, a "
                "name and a password, or a function.\n",
                403,
            )
        user = await self.access.user(request)
        if user is not None and user.may("view"):
            return user
        if user is None and self.access.by_password:
            challenge = {"WWW-Authenticate": 'Basic realm="Stepwell", charset="UTF-8"'}
            return PlainTextResponse("Give a name and a password, or a token.\n", 401, challenge)
        return PlainTextResponse("You may not look at this.\n", 401 if user is None else 403)

    def _root(self, request: Request) -> str:
        """The path under which this dashboard is mounted, without a slash at its end."""
        root = str(request.scope.get("root_path", ""))
        if self._trusted_proxy:
            prefix = request.headers.get("x-forwarded-prefix", "").split(",")[0].strip().rstrip("/")
            if prefix.startswith("/") and not prefix.startswith("//") and prefix.isprintable() and "\\" not in prefix:
                root = prefix + root
        return root.rstrip("/")

    async def _static(self, request: Request) -> Response:
        passed = await self._enter(request)
        if isinstance(passed, Response):
            return _guarded(passed)
        file = static_files().get(request.path_params["name"])
        if file is None:
            return _guarded(PlainTextResponse("There is no such file.\n", 404))
        # A page asks for a file by its digest, so it may be kept for as long as one likes.
        headers = {"Cache-Control": "private, max-age=31536000, immutable"}
        return _guarded(Response(file.content, media_type=file.media_type, headers=headers), cached=True)

    async def _live(self, request: Request) -> Response:
        passed = await self._enter(request)
        if isinstance(passed, Response):
            return _guarded(passed)
        if is_polled(request):
            return _guarded(json_response(await self.pulse.now()))
        seen = request.headers.get("last-event-id") or request.query_params.get("seen")
        return _guarded(self.pulse.stream(seen), cached=True)


async def _nowhere(_: Visit) -> Response:
    raise Refused(404, "there is no such page")


def _guarded(response: Response, *, cached: bool = False) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    if not cached:
        response.headers["Cache-Control"] = "no-store"
        response.headers["Vary"] = "Accept, Cookie"
    return response


def _explain(visit: Visit, error: Exception) -> Response:
    status, away, said = 400, False, brief(error)
    title: str | None = None
    if isinstance(error, Refused):
        status = error.status
    elif isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
        status = 403  # of the role in the database: the message says how to grant it
    elif isinstance(error, SchemaMismatch):
        status, away, title = 503, True, "The schema is missing, or does not fit"
    elif isinstance(error, DatabaseError | OSError | psycopg.OperationalError | psycopg.InterfaceError):
        status, away = 503, True
    elif isinstance(error, psycopg.Error):
        status, said = 500, brief(in_short(error))
    elif isinstance(error, _GONE):
        status = 404
    return visit.page("error.html", {"error": said}, status, code=status, away=away, heading=title)
