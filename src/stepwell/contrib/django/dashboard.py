"""The dashboard in a Django site, for its staff: `path("admin/jobs/", include(dashboard_urls()))`."""
# pyright: basic

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt

if TYPE_CHECKING:
    from stepwell.web import User


def dashboard_urls(
    *,
    user: Callable[[HttpRequest], User | None] | None = None,
    redact: Iterable[str] = (),
    title: str = "Stepwell",
) -> list[URLPattern]:
    """Return URL patterns for `include`, which show the dashboard of this site.

    By default superusers may do everything, and other staff may look. `user` takes the request and returns a
    `stepwell.web.User` with rights of its own, or None to refuse. Somebody who is not logged in is sent to the login of
    the admin, or to LOGIN_URL. `redact` and `title` are those of `stepwell.web.Dashboard`. Pages poll for changes.
    """
    redacted = redact if isinstance(redact, str) else tuple(redact)

    @cache
    def dashboard() -> Any:
        # Made with the first request: a worker imports the URLs of the site, too, and needs no dashboard.
        from stepwell.web import Dashboard
        from stepwell.web.wsgi import WsgiDashboard, user_of_site

        proxy = bool(getattr(settings, "USE_X_FORWARDED_HOST", False))
        made = Dashboard(_all_tasks(), auth=user_of_site, redact=redacted, title=title, trusted_proxy=proxy)
        return WsgiDashboard(made)

    # The dashboard checks Sec-Fetch-Site and Origin of each act by itself.
    @csrf_exempt
    def view(request: HttpRequest, path: str) -> HttpResponseBase:
        found = (user or staff)(request)
        if found is None:
            return _refuse(request)
        return _answer(dashboard(), request, path, found)

    return [re_path(r"^(?P<path>.*)$", view, name="stepwell-dashboard")]


def staff(request: HttpRequest) -> User | None:
    """The user of a request, if it is one of the staff: a superuser with all rights, others to look."""
    from stepwell.web import ADMIN, VIEWER, User

    person: Any = getattr(request, "user", None)
    if person is None or not (person.is_active and person.is_staff):
        return None
    return User(person.get_username(), ADMIN if person.is_superuser else VIEWER)


def _all_tasks() -> Any:
    """The app of the site, with the tasks of all modules, for the forms."""
    from stepwell.contrib.django.project import app

    return app


def _refuse(request: HttpRequest) -> HttpResponse:
    person: Any = getattr(request, "user", None)
    if request.method != "GET" or (person is not None and person.is_authenticated):
        raise PermissionDenied
    login = "admin:login" if apps.is_installed("django.contrib.admin") else settings.LOGIN_URL
    return redirect_to_login(request.get_full_path(), resolve_url(login))


def _answer(dashboard: Any, request: HttpRequest, path: str, user: User) -> HttpResponseBase:
    from stepwell.web.wsgi import is_file, with_user

    started: list[Any] = []
    body = dashboard(with_user(_environ(request, path), user), lambda *given: started.append(given))
    status, headers = started[0][:2]
    code = int(status.split()[0])
    response: HttpResponseBase
    if is_file(next((value for name, value in headers if name.lower() == "content-disposition"), None)):
        response = StreamingHttpResponse(_AsgiParts(body) if hasattr(request, "scope") else body, status=code)
    else:
        response = HttpResponse(b"".join(body), status=code)
    for name, value in headers:
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        else:
            response[name] = value
    return response


class _AsgiParts:
    """The parts of an answer for ASGI. There, Django would read all of a plain iterator before it sends anything."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            while part := await asyncio.to_thread(self._next):
                yield part
        finally:
            # Not awaited: a client that is gone cancels this, and a part may still be on its way in another thread.
            asyncio.get_running_loop().run_in_executor(None, self._body.close)

    def _next(self) -> bytes:
        """The next part that is not empty; b"": there is none."""
        return next((part for part in self._body if part), b"")

    def close(self) -> None:
        self._body.close()


def _environ(request: HttpRequest, path: str) -> dict[str, Any]:
    """The request as WSGI has it, also if the site is served by ASGI."""
    root = request.path[: len(request.path) - len(path)].rstrip("/")
    known = {
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        **{name: value for name, value in request.META.items() if isinstance(value, str)},
    }
    return known | {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": _as_wsgi(root),
        "PATH_INFO": _as_wsgi("/" + path),
        "CONTENT_LENGTH": str(len(request.body)),
        "SERVER_PROTOCOL": known.get("SERVER_PROTOCOL", "HTTP/1.1"),
        "wsgi.url_scheme": request.scheme,
        "wsgi.input": io.BytesIO(request.body),
    }


def _as_wsgi(text: str) -> str:
    return text.encode().decode("latin-1")
