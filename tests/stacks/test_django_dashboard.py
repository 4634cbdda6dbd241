"""The dashboard for the staff of a Django site, beside the admin, over HTTP, by WSGI and by ASGI."""
# pyright: basic

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from stacks.django_shop.site import site
from web.site import PAGES, served, served_by_wsgi

__all__ = ["site"]

OURS = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(params=["wsgi", "asgi"])
def url(site: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    from django.contrib.auth import get_user_model
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    people: Any = get_user_model().objects
    people.all().delete()
    people.create_superuser("ada", password="secret")
    people.create_user("eve", password="secret", is_staff=True)
    people.create_user("bob", password="secret")
    serve, make = {"wsgi": (served_by_wsgi, get_wsgi_application), "asgi": (served, get_asgi_application)}[
        request.param
    ]
    with serve(make()) as found:
        yield f"http://127.0.0.1:{found.port}"


def log_in(client: httpx.Client, name: str) -> httpx.Response:
    """Log in where the dashboard sends everybody who is not."""
    page = client.get("/admin/jobs/queues", follow_redirects=True)
    assert page.url.path == "/admin/login/"
    token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)[0]
    form = {"username": name, "password": "secret", "csrfmiddlewaretoken": token, "next": "/admin/jobs/queues"}
    return client.post(page.url, data=form, follow_redirects=True)


@pytest.mark.slow
def test_superusers_act_and_other_staff_look(site: Any, url: str) -> None:
    from stacks.django_shop import tasks

    with httpx.Client(base_url=url, timeout=30) as ada, httpx.Client(base_url=url, timeout=30) as eve:
        page = log_in(ada, "ada")
        assert page.url.path == "/admin/jobs/queues"
        assert 'href="/admin/jobs/workers"' in page.text
        assert "data-poll=" in page.text
        assert "unsafe" not in page.headers["content-security-policy"]
        job = tasks.native.using(delay="1h").enqueue("Ada")
        for path in (*PAGES, f"/jobs/{job.id}", "/static/style.css"):
            assert ada.get(f"/admin/jobs{path}").status_code == 200, path
        assert "stacks.django_shop.tasks.add" in ada.get("/admin/jobs/tasks").text
        act = f"/admin/jobs/jobs/{job.id}/cancel"
        assert ada.post(act).status_code == 403
        done = ada.post(act, headers=OURS, data={"reason": "enough"}, follow_redirects=True)
        assert "The job is cancelled" in done.text
        assert "The job is cancelled" not in ada.get("/admin/jobs/").text
        info = job.info()
        assert info is not None
        assert (info.state, info.error) == ("cancelled", "enough")
        assert ada.get("/admin/jobs/live").json()["state"] == "changed"

        assert log_in(eve, "eve").status_code == 200
        assert (
            eve.get(f"/admin/jobs/jobs/{job.id}", headers={"Accept": "application/json"}).json()["state"] == "cancelled"
        )
        assert eve.post(f"/admin/jobs/jobs/{job.id}/retry", headers=OURS).status_code == 403


def test_an_export_is_streamed(site: Any, url: str) -> None:
    from django.contrib.auth import get_user_model
    from django.test import Client
    from stacks.django_shop import tasks

    tasks.native.using(delay="1h", queue="export").enqueue_many([{"customer": "Ada"}] * 300)
    known = Client()
    known.force_login(get_user_model().objects.get(username="eve"))
    path = "/admin/jobs/jobs/export?queue=export&format=json"
    cookies = {"sessionid": known.cookies["sessionid"].value}
    with httpx.Client(base_url=url, timeout=30, cookies=cookies) as eve:
        answer = eve.get(path)
        assert len(answer.json()["jobs"]) == 300
        assert "content-length" not in answer.headers
        assert "content-length" in eve.get("/admin/jobs/jobs").headers
        with eve.stream("GET", path) as broken_off:
            assert next(broken_off.iter_raw())
    assert known.get(path, headers={"host": "127.0.0.1"}).streaming


def test_others_are_refused(site: Any, url: str) -> None:
    from django.contrib.auth import get_user_model
    from django.test import Client

    with httpx.Client(base_url=url, timeout=30) as anybody:
        assert anybody.post("/admin/jobs/queues/pause", headers=OURS, data={"queue": "mail"}).status_code == 403
        assert "Log in" in log_in(anybody, "bob").text
    known = Client()
    known.force_login(get_user_model().objects.get(username="bob"))
    with httpx.Client(base_url=url, timeout=30, cookies={"sessionid": known.cookies["sessionid"].value}) as bob:
        assert bob.get("/admin/jobs/").status_code == 403


def test_manage_py_serves_it(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    with pytest.raises(SystemExit):
        call_command("stepwell", "web", "--host", "0.0.0.0")
    assert "the dashboard would be open to everybody" in capsys.readouterr().err
