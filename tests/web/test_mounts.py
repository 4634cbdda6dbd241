"""The dashboard within sites of others, under a prefix: FastAPI, Litestar, Flask, behind a proxy, and nested."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import Event
from typing import Any
from urllib.parse import urljoin

import pytest
from fastapi import FastAPI
from flask import Flask
from flask import request as flask_request
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount
from waiting import until
from web.site import OURS, PAGES, Site, served, served_by_wsgi

from stepwell import App, ConfigError
from stepwell.contrib.flask import Stepwell
from stepwell.web import ADMIN, VIEWER, Dashboard, User
from stepwell.web.wsgi import WsgiDashboard

TOKEN = {"Authorization": "Bearer secret"}


def fastapi(dashboard: Dashboard) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with dashboard.lifespan():
            yield

    site = FastAPI(lifespan=lifespan)
    site.mount("/desk", dashboard)
    return site


def starlette(dashboard: Dashboard) -> Any:
    return Starlette(routes=[Mount("/staff", Starlette(routes=[Mount("/desk", dashboard)]))])


def litestar(dashboard: Dashboard) -> Any:
    @asgi("/desk", is_mount=True, copy_scope=True)
    async def desk(scope: Any, receive: Any, send: Any) -> None:
        await dashboard(scope, receive, send)

    return Litestar([desk], openapi_config=None)


def check(site: Site, root: str, shop: App) -> None:
    """All links and forms of all pages stay below the prefix, lead somewhere, and acts come back."""
    site.headers |= TOKEN
    job = shop.tasks["greet"].using(delay="1h").enqueue("Ada")
    seen: set[str] = set()
    for path in (*PAGES, f"/jobs/{job.id}", "/tasks/enqueue?task=greet"):
        page = site.get(root + path)
        assert page.status == 200, (path, page.text)
        seen |= {
            urljoin(f"{root}{path}", link.replace("&amp;", "&"))
            for link in re.findall(r'(?:href|src|hx-get|data-live)="([^"#]+)"', page.text)
        }
        assert all(link.startswith(root + "/") or link == root for link in seen), seen
        assert all(act.startswith(root + "/") for act in re.findall(r'action="([^"]+)"', page.text))
    for link in seen - {link for link in seen if "/live" in link}:
        assert site.get(link).status == 200, link
    acted = site.post(f"{root}/jobs/{job.id}/cancel", {"back": "/jobs?queue=a%2Fb"}, {**OURS, **TOKEN})
    assert acted.headers["location"] == f"{root}/jobs?queue=a%2Fb", acted.text
    assert f"path={root};" in acted.headers["set-cookie"].lower() + ";"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "root"),
    [(fastapi, "/desk"), (starlette, "/staff/desk"), (litestar, "/desk")],
    ids=["fastapi", "starlette", "litestar"],
)
def test_it_is_mounted_in_an_asgi_site(shop: App, make: Callable[[Dashboard], Any], root: str) -> None:
    with served(make(Dashboard(shop, auth="secret"))) as site:
        check(site, root, shop)


def test_it_is_mounted_behind_a_proxy_that_takes_a_part_of_the_path(shop: App) -> None:
    with served(litestar(Dashboard(shop, auth="secret", trusted_proxy=True))) as site:
        site.headers |= {**TOKEN, "X-Forwarded-Prefix": "/ops"}
        page = site.get("/desk/queues").text
        assert 'href="/ops/desk/jobs"' in page
        assert 'hx-get="/ops/desk/queues"' in page


@pytest.fixture
def flask_site() -> Flask:
    return Flask("shop")


@pytest.mark.slow
def test_it_is_mounted_in_flask_and_pages_poll(shop: App, flask_site: Flask) -> None:
    Stepwell(flask_site, shop).mount_dashboard("/desk", auth="secret", redact=["password"])
    with served_by_wsgi(flask_site) as site:
        assert site.get("/desk/").status == 401
        check(site, "/desk", shop)
        # No stream: it would hold one of the threads of the server.
        page = site.get("/desk/").text
        assert 'data-poll="' in page
        live = site.get("/desk/live", Accept="text/event-stream")
        assert live.headers["content-type"] == "application/json"
        seen = live.json["seen"]
        shop.tasks["greet"].using(delay="1h").enqueue("Ada")
        assert live.json["state"] == "changed"
        until(lambda: site.get("/desk/live").json["seen"] != seen)


def test_an_export_is_streamed_by_flask(shop: App, flask_site: Flask) -> None:
    shop.tasks["greet"].using(delay="1h", queue="flask export").enqueue_many([{"name": "Ada"}] * 300)
    view = Stepwell(flask_site, shop).mount_dashboard("/desk", auth="secret")
    with flask_site.test_request_context("/desk/jobs/export?queue=flask+export&format=json", headers=TOKEN):
        file = view()
        assert file.is_streamed
        assert len(file.get_json()["jobs"]) == 300
    with flask_site.test_request_context("/desk/jobs", headers=TOKEN):
        assert not view().is_streamed


def test_an_answer_that_is_not_read_to_its_end_ends_its_request() -> None:
    sent, ended = Event(), Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                sent.set()
        finally:
            ended.set()

    environ = {"REQUEST_METHOD": "GET", "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.input": io.BytesIO()}
    started: list[Any] = []
    body = WsgiDashboard(endless)(environ, lambda *given: started.append(given))
    assert started[0][0] == "200 OK"
    assert [next(body), next(body)] == [b"x", b"x"]
    assert sent.wait(20)
    body.close()
    assert ended.wait(20)


def test_rights_in_flask_are_those_of_the_token(shop: App, flask_site: Flask) -> None:
    extension = Stepwell(flask_site, shop)
    with pytest.raises(ConfigError, match="rights"):
        extension.mount_dashboard("/desk", auth=lambda: None, rights=VIEWER)
    extension.mount_dashboard("/desk", auth="secret", rights=VIEWER)
    with served_by_wsgi(flask_site) as site:
        assert site.get("/desk/jobs", **TOKEN).status == 200
        assert site.post("/desk/queues/pause", {"queue": "flask"}, {**OURS, **TOKEN}).status == 403


def test_a_flask_site_has_several_dashboards_at_several_paths(shop: App, flask_site: Flask) -> None:
    extension = Stepwell(flask_site, shop)
    extension.mount_dashboard("/desk", auth="secret")
    extension.mount_dashboard("/board", auth="another")
    with pytest.raises(ConfigError, match="pages there already"):
        extension.mount_dashboard("/desk", auth="another")
    with served_by_wsgi(flask_site) as site:
        assert [site.get(f"/{path}/jobs", **TOKEN).status for path in ("desk", "board")] == [200, 401]
        assert site.get("/board/jobs", Authorization="Bearer another").status == 200


def test_the_flask_site_says_who_it_is(shop: App, flask_site: Flask) -> None:
    def who() -> User | None:
        name = flask_request.headers.get("X-User")
        return User(name, ADMIN if name == "ada" else VIEWER) if name else None

    with pytest.raises(ConfigError, match="init_app"):
        Stepwell(jobs=App("postgresql:///x")).mount_dashboard("/desk", auth=who)
    extension = Stepwell(flask_site, shop)
    with pytest.raises(ConfigError, match="auth"):
        extension.mount_dashboard("/desk", auth="")
    with pytest.raises(ConfigError, match="slash"):
        extension.mount_dashboard("desk/", auth=who)
    extension.mount_dashboard("/desk", auth=who)
    with served_by_wsgi(flask_site) as site:
        assert site.get("/desk/jobs").status == 401
        assert ">eve<" in site.get("/desk/jobs", X_User="eve").text
        act = ("/desk/queues/pause", {"queue": "flask"})
        assert site.post(*act, {**OURS, "X-User": "eve"}).status == 403
        assert site.post(*act, {"X-User": "ada"}).status == 403
        assert site.post(*act, {**OURS, "X-User": "ada"}).status == 303


def test_the_dashboard_without_its_extra_names_it() -> None:
    program = "import sys; sys.modules['starlette'] = None; from stepwell.web import Dashboard"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "the dashboard needs starlette: run pip install 'stepwell[web]', or in a checkout of" in ended.stderr
