"""The dashboard of an app with codecs: values are opened before they are shown, edited and cloned."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from typing import Any

import pytest
from cryptography.fernet import Fernet
from web.site import Site, served

from stepwell import App, Context, JobHandle
from stepwell.contrib.codecs import Encrypted, Zlib
from stepwell.testing import drain
from stepwell.web import Dashboard

KEY = Fernet.generate_key()
LONG = "".join(sha256(str(n).encode()).hexdigest() for n in range(80))


def register(app: App) -> App:
    @app.task
    async def charge(ctx: Context, card: str, note: str = "", password: str = "") -> str:
        await ctx.step(price, card)
        return f"charged {card}"

    async def price(card: str) -> dict[str, str]:
        return {"priced": card, "password": "xyz"}

    return app


@pytest.fixture(scope="module")
def shop(module_dsn: str) -> Iterator[App]:
    app = register(App(module_dsn, name="shop", codecs=[Zlib(), Encrypted(KEY)]))
    yield app
    app.close()


@pytest.fixture(scope="module")
def site(shop: App) -> Iterator[Site]:
    with served(Dashboard(shop, redact=["password"])) as found:
        yield found


@pytest.fixture(scope="module")
def blind(module_dsn: str) -> Iterator[Site]:
    """The dashboard of an app with another key."""
    app = register(App(module_dsn, name="shop", codecs=[Zlib(), Encrypted(Fernet.generate_key())]))
    with served(Dashboard(app)) as found:
        yield found


def new(app: App, card: str, **args: Any) -> JobHandle[Any]:
    return app.tasks["charge"].using(delay="1h").enqueue(card, **args)


def stored(app: App, job: JobHandle[Any]) -> str:
    with app.database.connect() as connection:
        row = connection.execute("select args::text from stepwell.jobs where id = %s", (job.id,)).fetchone()
    assert row is not None
    return row[0]


def test_values_are_opened_on_every_page(site: Site, shop: App) -> None:
    job = shop.tasks["charge"].enqueue("4111", password="xyz")
    drain(shop)
    assert "$sealed" in stored(shop, job)
    found = site.json(f"/jobs/{job.id}")
    assert found["args"] == {"card": "4111", "password": "[redacted]"}
    assert found["result"] == "charged 4111"
    [step] = site.json(f"/jobs/{job.id}/steps")["steps"]
    assert step["value"] == {"priced": "4111", "password": "[redacted]"}
    [listed] = site.json("/jobs?task=charge&state=succeeded&limit=1")["jobs"]
    assert listed["args"] == found["args"]
    exported = next(each for each in site.json("/jobs/export?task=charge")["jobs"] if each["id"] == str(job.id))
    assert (exported["args"], exported["result"]) == (found["args"], "charged 4111")
    assert "sealed" not in site.get(f"/jobs/{job.id}").text


def test_a_compressed_value_is_opened_and_a_long_step_says_by_what_it_is_sealed(site: Site, shop: App) -> None:
    job = shop.tasks["charge"].enqueue(LONG)
    drain(shop)
    assert "zlib+fernet" in stored(shop, job)
    assert site.json(f"/jobs/{job.id}")["args"] == {"card": LONG}
    [step] = site.json(f"/jobs/{job.id}/steps")["steps"]
    assert step["value"] == "(sealed by zlib+fernet: too large to be opened here)"
    large = new(shop, "x" * 70_000)
    said = "(sealed by zlib+fernet: 70,011 characters, too large to be shown here)"
    assert site.json(f"/jobs/{large.id}")["args"] == said
    assert "edit-args" not in site.get(f"/jobs/{large.id}").text


def test_numbers_of_a_sealed_value_keep_their_digits(site: Site, shop: App) -> None:
    job = new(shop, "4111")
    text = shop.sealer.seal('{"card": "4111", "n": 12345678901234567890123, "x": 1e400}')
    with shop.database.connect() as connection:
        connection.execute("update stepwell.job set args = %s where id = %s", (text, job.id))
    assert site.json(f"/jobs/{job.id}")["args"] == {"card": "4111", "n": 12345678901234567890123, "x": "1e400"}


def test_an_edit_opens_the_args_and_seals_them_again(site: Site, shop: App) -> None:
    job = new(shop, "4111")
    page = unescape(site.get(f"/jobs/{job.id}").text)
    assert '<textarea id="edit-args" name="args" rows="6" spellcheck="false">{\n  "card": "4111"' in page
    assert site.post(f"/jobs/{job.id}/args", {"args": '{"card": "4222"}'}).said == "The args were changed."
    assert "$sealed" in stored(shop, job)
    info = job.info()
    assert info is not None
    assert info.args == {"card": "4222"}
    hidden = new(shop, "4111", password="xyz")
    assert "Some arguments are hidden" in site.get(f"/jobs/{hidden.id}").text
    assert site.post(f"/jobs/{hidden.id}/args", {"args": '{"card": "4222"}'}).status == 403


def test_a_clone_has_the_opened_args(site: Site, shop: App) -> None:
    job = new(shop, "4111", note="by hand")
    page = site.get(f"/tasks/enqueue?task=charge&like={job.id}").text
    assert "4111" in page
    assert "by hand" in page


def test_a_value_that_cannot_be_opened_is_said_to_be_so(blind: Site, shop: App) -> None:
    job = new(shop, "4111", note="secret")
    assert blind.json(f"/jobs/{job.id}")["args"] == "(sealed by fernet: this app cannot open it)"
    page = blind.get(f"/jobs/{job.id}").text
    assert "(sealed by fernet: this app cannot open it)" in page
    assert "it lacks the codec or the key" in page
    assert "Clone" not in page
    assert "edit-args" not in page
    assert "this app cannot open it" in blind.get("/jobs").text
    for answer in (
        blind.get(f"/tasks/enqueue?task=charge&like={job.id}"),
        blind.post(f"/jobs/{job.id}/args", {"args": '{"card": "4222"}'}),
    ):
        assert answer.status == 409
        assert "could not be opened" in answer.text
