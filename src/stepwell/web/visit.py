"""One request: who asks, the URLs of this dashboard, reads of the database, and the answer as a page or as JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlencode
from uuid import UUID

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from stepwell.errors import StepwellError
from stepwell.postgres.queries import Query
from stepwell.web.access import Right, User
from stepwell.web.body import check_known, check_storable, read_fields
from stepwell.web.live import POLL_EVERY, is_polled
from stepwell.web.reads import pulse
from stepwell.web.render import environment
from stepwell.web.sendable import sendable, to_json
from stepwell.web.wording import brief

if TYPE_CHECKING:
    from stepwell.web.dashboard import Dashboard

Row = TypeVar("Row")

# A page that has not read its data by then says that the database does not answer.
PATIENCE = 5.0
_MOST_BODY = 2 * 1024 * 1024
_SAID = "stepwell_said"
# A browser ignores a cookie of more than 4,096 bytes, with its name and its attributes.
_MOST_COOKIE = 3800


class Refused(StepwellError):
    """A request that cannot be answered; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Visit:
    """A request that has passed the gate."""

    def __init__(
        self, dashboard: Dashboard, request: Request, user: User, root: str, takes: Collection[str] = ()
    ) -> None:
        self.dashboard = dashboard
        self.app = dashboard.app
        self.request = request
        self.user = user
        self.root = root
        self.takes = takes
        """The names of the fields of an act, as `routes` has them."""
        self.pulse: dict[str, Any] = {"now": None, "read_only": False, "changes": ""}

    @property
    def wants_json(self) -> bool:
        accept = self.request.headers.get("accept", "")
        return "application/json" in accept and "text/html" not in accept

    @property
    def polls(self) -> float | None:
        """How often the page must ask for changes, in seconds; None: it listens to a stream."""
        return POLL_EVERY if is_polled(self.request) else None

    @property
    def here(self) -> str:
        """This page with its filters, relative to the dashboard."""
        query = self.request.url.query
        path = self.request.url.path.removeprefix(self.request.scope.get("root_path", "")) or "/"
        return f"{quote(path)}?{query}" if query else quote(path)

    def url(self, path: str, **query: Any) -> str:
        """The URL of a page of this dashboard. Names go into the query, where every character is safe."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.root}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")

    def may(self, right: Right) -> bool:
        """Whether the user may do this here and now: a database that takes no writes is for looking."""
        return self.user.may(right) and (right == "view" or not self.pulse["read_only"])

    async def look(self) -> None:
        """Read the time of the database, and whether it takes writes."""
        self.pulse = await self.read(pulse.pulse())

    async def read(self, query: Query[Row]) -> Row:
        """Read the one row of a function for the dashboard."""
        [row] = await self.app.database.afetch(query, PATIENCE)
        return row

    def asked(self, name: str) -> str | None:
        """A field of the URL that a function of the database compares with names."""
        given = self.request.query_params.get(name)
        check_storable([(name, given or "")])
        return given

    async def form(self) -> dict[str, list[str]]:
        """Read the fields of a form, or of a JSON object."""
        body = b""
        async for part in self.request.stream():
            body += part
            if len(body) > _MOST_BODY:
                raise Refused(413, f"the form has more than {_MOST_BODY} bytes: enqueue such a job from code")
        fields = read_fields(body, self.request.headers.get("content-type", ""))
        check_known({name: len(values) for name, values in fields.items()}, ("back", *self.takes), "field")
        return fields

    def page(self, template: str, data: Mapping[str, Any], status: int = 200, **shown: Any) -> Response:
        """Answer with a page, or with its data as JSON. `shown` is for the template only."""
        if self.wants_json:
            return json_response(data, status)
        said = _unpack(self.request.cookies.get(_SAID))
        response = HTMLResponse(self._html(template, {**data, **shown, "said": said}), status)
        if said is not None:
            response.delete_cookie(_SAID, path=self.root or "/")
        return response

    def fragment(self, template: str, data: Mapping[str, Any], **shown: Any) -> Response:
        """Answer with a part of a page."""
        if self.wants_json:
            return json_response(data)
        return HTMLResponse(self._html(template, {**data, **shown}))

    def _html(self, template: str, shown: Mapping[str, Any]) -> str:
        ours = {"visit": self, "user": self.user, "now": self.pulse["now"], "title": self.dashboard.title}
        return sendable(environment().get_template(template).render({**shown, **ours}))

    def done(self, said: str, back: str, data: Mapping[str, Any] | None = None, *, ok: bool = True) -> Response:
        """Answer to an act: go back to the page it came from, with its filters, and say there what was done."""
        said = brief(said)
        if self.wants_json:
            return json_response({"ok": ok, "said": said, **(data or {})}, 200 if ok else 409)
        response = RedirectResponse(self.root + inside(back), 303)
        path = self.root or "/"
        packed = pack(ok, said, _MOST_COOKIE - len(path))
        response.set_cookie(_SAID, packed, max_age=60, path=path, httponly=True, samesite="strict")
        return response


def inside(back: str) -> str:
    """A path within this dashboard. Anything else, such as //elsewhere, leads to the first page."""
    fits = back.startswith("/") and not back.startswith("//") and "\\" not in back and back.isprintable()
    return back if fits else "/"


def pack(ok: bool, said: str, most: int) -> str:
    """What the next page will say, as a cookie of this size. Quoted, a character may have twelve."""
    packed = quote(("1" if ok else "0") + sendable(said[:1000]), safe="")
    if len(packed) <= most:
        return packed
    ellipsis = quote("…")
    whole = re.sub("%[0-9A-F]?$", "", packed[: max(most - len(ellipsis), 1)])
    return quote(unquote(whole, errors="ignore"), safe="") + ellipsis


def _unpack(cookie: str | None) -> tuple[bool, str] | None:
    return None if not cookie else (cookie.startswith("1"), unquote(cookie)[1:])


def json_response(data: Mapping[str, Any], status: int = 200) -> Response:
    try:
        text = to_json(data, _plain)
    except (RecursionError, ValueError):
        text = to_json({"error": "a value is nested too deep to be written as JSON here: read it with psql"})
        status = 500
    return Response(text, status, media_type="application/json")


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
