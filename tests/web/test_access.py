"""Who is let in, from where, and what they may do."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from web.site import OURS, Site, served

from stepwell import App, ConfigError
from stepwell.web import ADMIN, OPERATOR, VIEWER, Dashboard, Right, User
from stepwell.web.routes import ACTS


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def who(request: Request) -> User | None:
    names = {"viewer": VIEWER, "operator": OPERATOR, "nobody": frozenset[str]()}
    name = request.headers.get("x-user", "")
    return User(name, names[name]) if name in names else None  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def host(shop: App) -> Iterator[Site]:
    """An app that has several dashboards, each let in by another way."""
    mounts = [
        Mount("/basic", Dashboard(shop, auth=("ada", "sécret"), trusted_proxy=True)),
        Mount("/token", Dashboard(shop, auth="a token")),
        Mount("/hook", Dashboard(shop, auth=who)),
        Mount("/open", Dashboard(shop)),
    ]
    with served(Starlette(routes=mounts)) as found:
        yield found


def test_a_name_and_a_password_are_asked_for(host: Site) -> None:
    refused = host.get("/basic/")
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Basic")
    for wrong in (basic("ada", "x"), basic("eve", "sécret"), "Basic !", "Basic", "Bearer sécret", "Digest x"):
        assert host.get("/basic/jobs", Authorization=wrong).status == 401, wrong
        assert host.get("/basic/live", Authorization=wrong).status == 401, wrong
        assert host.get("/basic/static/style.css", Authorization=wrong).status == 401, wrong
    assert host.get("/basic/", Authorization=basic("ada", "sécret")).status == 200


def test_a_token_is_asked_for(host: Site) -> None:
    assert host.get("/token/", Authorization="Bearer another").status == 401
    assert host.get("/token/", Authorization="Bearer a token").status == 200
    assert host.get("/token/", Authorization=basic("anybody", "a token")).status == 200


def test_the_host_app_says_who_it_is_and_rights_are_checked_on_the_server(host: Site) -> None:
    assert host.get("/hook/").status == 401
    assert host.get("/hook/", X_User="nobody").status == 403
    act = f"/hook/jobs/{uuid4()}/cancel"
    assert host.post(act, headers={**OURS, "X-User": "viewer"}).status == 403
    assert host.post(act, headers={**OURS, "X-User": "operator"}).status == 303
    assert host.post("/hook/workers/stop", {"worker": "x"}, {**OURS, "X-User": "operator"}).status == 403
    assert host.get("/hook/tasks/enqueue?task=greet", X_User="operator").status == 403
    assert "Enqueue" not in host.get("/hook/tasks", X_User="viewer").text


def test_every_act_needs_its_right_and_a_page_of_ours(shop: App) -> None:
    def who(request: Request) -> User:
        return User("ada", ADMIN - {cast("Right", request.headers["x-without"])})

    with served(Dashboard(shop, auth=who)) as site:
        for path, right, *_ in ACTS:
            act = path.replace("{id:uuid}", str(uuid4()))
            assert site.post(act, headers={"X-Without": "none"}).status == 403, path
            if right != "view":
                refused = site.post(act, headers={**OURS, "X-Without": right, "Accept": "application/json"})
                assert (refused.status, f"the right '{right}'" in refused.text) == (403, True), path


def test_every_act_and_its_fields_are_documented() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text()
    table = docs.partition("| act | fields |")[2].partition("\n\n")[0]
    for path, _, takes, _ in ACTS:
        several = re.fullmatch("/(jobs|bulk)/[a-z]+", path)
        assert f"/{several[1]}/ACT`" in table if several else f"{path.replace('{id:uuid}', 'ID')}`" in table, path
        for name in takes:
            shown = f"{name}NAME" if name.endswith(".") else name
            assert f"`{shown}`" in docs or f"`{name}=" in docs, (path, name)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "http://127.0.0.1:{port}"}, 303),
        ({"X-Forwarded-Host": "jobs.example", "Origin": "https://jobs.example"}, 303),
    ],
)
def test_an_act_comes_from_our_own_pages(host: Site, headers: dict[str, str], status: int) -> None:
    given = {name: value.replace("{port}", str(host.port)) for name, value in headers.items()}
    given["Authorization"] = basic("ada", "sécret")
    assert host.post(f"/basic/jobs/{uuid4()}/retry", headers=given).status == status


def test_a_program_with_a_bearer_token_needs_no_origin(host: Site) -> None:
    path = f"/token/jobs/{uuid4()}/retry"
    assert host.post(path, headers={"Authorization": "Bearer a token"}).status == 303
    assert host.post(path, headers={"Authorization": "Bearer a token", "Sec-Fetch-Site": "cross-site"}).status == 403
    assert host.post(path, headers={"Authorization": basic("x", "a token")}).status == 403
    assert host.get(path, Authorization="Bearer a token").status == 404


def test_a_program_with_a_name_and_a_password_names_the_origin(shop: App) -> None:
    with served(Dashboard(shop, auth=("ada", "secret"))) as site:
        site.headers |= {"Authorization": basic("ada", "secret"), "Accept": "application/json"}
        refused = site.post("/queues/pause", {"queue": "by program"}, {})
        assert (refused.status, "Sec-Fetch-Site: same-origin" in refused.json["error"]) == (403, True)
        assert site.post("/queues/pause", {"queue": "by program"}, {"Sec-Fetch-Site": "same-origin"}).status == 200


def test_without_auth_only_this_machine_is_let_in_under_its_own_name(host: Site) -> None:
    assert host.get("/open/").status == 200
    assert host.get("/open/", Host="localhost:99").status == 200
    for headers in ({"Host": "evil.example"}, {"X-Forwarded-For": "10.0.0.1"}, {"Forwarded": "for=10.0.0.1"}):
        answer = host.ask("GET", "/open/", None, headers)
        assert answer.status == 403, headers
        assert "auth=" in answer.text


def test_links_stay_below_the_prefix(host: Site) -> None:
    page = host.get("/open/queues").text
    assert 'href="/open/jobs"' in page
    assert 'hx-get="/open/queues"' in page
    assert 'href="/jobs"' not in page
    # Only a proxy that is trusted may say more.
    assert "/evil" not in host.get("/open/", X_Forwarded_Prefix="/evil").text
    auth = basic("ada", "sécret")
    assert 'href="/ops/basic/jobs"' in host.get("/basic/", X_Forwarded_Prefix="/ops/", Authorization=auth).text
    assert "evil" not in host.get("/basic/", X_Forwarded_Prefix="//evil", Authorization=auth).text
    assert host.post("/open/queues/pause", {"queue": "q"}).headers["location"] == "/open/queues"


def test_what_is_wrong_with_auth_is_said_at_once(shop: App) -> None:
    for wrong in ("", ("ada",), ("a:b", "c"), 5, ("", "x")):
        with pytest.raises(ConfigError, match="auth"):
            Dashboard(shop, auth=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="rights"):
        Dashboard(shop, rights=["fly"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="'retri'"):
        User("ada", frozenset({"view", "retri"}))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="redact"):
        Dashboard(shop, redact="password")
