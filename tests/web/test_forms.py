"""Forms to enqueue and to clone jobs: a clone that nobody changes has the same arguments and settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any, Literal

import pytest
from web.site import Answer, Site, served

from stepwell import App, JobHandle, JobInfo, Retry
from stepwell.web import Dashboard


class Form(HTMLParser):
    """What a browser would send of the form with the id `enqueue`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.options: dict[str, list[str]] = {}
        self._inside = False
        self._text: str | None = None
        self._choice: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = given.get("id") == "enqueue"
        if not self._inside:
            return
        if tag == "input" and (given.get("type") != "checkbox" or "checked" in given):
            self.fields[given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._text = given["name"]
            self.fields[self._text] = ""
        elif tag == "select":
            self._choice = given["name"]
            self.options[self._choice] = []
        elif tag == "option" and self._choice is not None:
            self.options[self._choice].append(given["value"])
            if "selected" in given or self._choice not in self.fields:
                self.fields[self._choice] = given["value"]

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self.fields[self._text] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._text is not None:
            # A browser drops the first line break, knows one kind of them, and sends another.
            text = self.fields[self._text].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\n")
            self.fields[self._text] = text.replace("\n", "\r\n")
            self._text = None
        elif tag == "select":
            self._choice = None


@pytest.fixture(scope="module")
def shop(module_dsn: str) -> Iterator[App]:
    app = App(module_dsn, name="shop")

    @app.task
    def letter(
        body: str,
        to: str | None,
        copies: int | None,
        note: str = "none",
        closing: str | None = "yours",
        weight: float | None = 1.5,
        tone: Literal["wärm", "cold"] | None = "cold",
        stamped: bool | None = None,
        at: datetime | None = datetime(2030, 1, 1, tzinfo=UTC),
        extra: dict[str, Any] | None = None,
        pages: int = 1,
    ) -> None: ...

    yield app
    app.close()


@pytest.fixture(scope="module")
def site(shop: App) -> Iterator[Site]:
    with served(Dashboard(shop, redact=["password"])) as found:
        yield found


def info_of(shop: App, answer: Answer) -> JobInfo:
    assert answer.status == 303, answer.text
    found = shop.job(answer.headers["location"].rpartition("/")[2]).info()
    assert found is not None
    return found


def form_of(site: Site, job: JobHandle[Any]) -> Form:
    return Form(site.get(f"/tasks/enqueue?task=letter&like={job.id}").text)


@pytest.mark.parametrize(
    "args",
    [
        {"body": "a\nb", "to": "", "copies": 2},
        {"body": "\n a\r\nb\r", "to": None, "copies": None},
        {"body": "", "to": "x", "copies": 0, "note": "", "closing": "", "pages": 3},
        {"body": "null", "to": "null", "copies": 1, "note": "default", "closing": None, "weight": None, "tone": None},
        {"body": " ", "to": "\t", "copies": 1, "tone": "wärm", "stamped": False, "at": None, "extra": {"a": ["\r\n"]}},
        {"body": "<b>", "to": '"', "copies": 1, "weight": 0.1, "at": "2031-02-03T04:05:06Z", "extra": {}},
    ],
)
def test_a_clone_that_nobody_changes_is_the_same(site: Site, shop: App, args: dict[str, Any]) -> None:
    job = shop.tasks["letter"].using(delay="1h").enqueue(**args)
    clone = info_of(shop, site.post("/tasks/enqueue", form_of(site, job).fields))
    assert clone.args == args


def test_an_argument_is_given_as_its_default_as_a_value_or_as_null(site: Site, shop: App) -> None:
    form = Form(site.get("/tasks/enqueue?task=letter").text)
    assert {name: ways for name, ways in form.options.items() if name.startswith("as.")} == {
        "as.to": ["value", "null"],
        "as.copies": ["value", "null"],
        "as.note": ["default", "value"],
        "as.closing": ["default", "value", "null"],
        "as.weight": ["default", "value", "null"],
        "as.at": ["default", "value", "null"],
    }
    assert form.options["arg.tone"] == ["", "null", '"wärm"', '"cold"']
    assert form.options["arg.stamped"] == ["", "true", "false"]
    typed = {**form.fields, "arg.body": "x", "as.to": "null", "arg.copies": "2"}
    assert info_of(shop, site.post("/tasks/enqueue", typed)).args == {"body": "x", "to": None, "copies": 2}
    chosen = {"as.note": "value", "as.closing": "null", "arg.tone": "null"}
    clone = info_of(shop, site.post("/tasks/enqueue", {**typed, **chosen}))
    assert clone.args == {"body": "x", "to": None, "copies": 2, "note": "", "closing": None, "tone": None}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"as.note": "default", "arg.note": "typed"}, "argument &#39;note&#39; is to be default, but has a value"),
        ({"as.closing": "null", "arg.closing": "typed"}, "argument &#39;closing&#39; is to be null, but has a value"),
        ({"as.weight": "value", "arg.weight": ""}, "argument &#39;weight&#39; is &#39;&#39;: it must be a number"),
        ({"as.note": "maybe"}, "as.note is &#39;maybe&#39;: it must be one of default, value, null, json"),
    ],
)
def test_a_choice_that_contradicts_the_value_is_refused(site: Site, wrong: dict[str, str], said: str) -> None:
    form = Form(site.get("/tasks/enqueue?task=letter").text)
    answer = site.post("/tasks/enqueue", {**form.fields, "arg.body": "x", "arg.copies": "1", **wrong})
    assert answer.status == 400
    assert said in answer.text


def test_a_program_gives_arguments_without_the_choices(site: Site, shop: App) -> None:
    given = {"task": "letter", "arg.body": "", "as.to": "null", "arg.copies": "1", "arg.note": "", "arg.pages": ""}
    found = info_of(shop, site.post("/tasks/enqueue", given))
    assert found.args == {"body": "", "to": None, "copies": 1, "note": ""}


def test_a_clone_has_the_settings_of_the_job_itself(site: Site, shop: App) -> None:
    retry = Retry(max_attempts=3, backoff="linear", initial="2s", cap="1m", factor=3.0, jitter=0.0)
    using = shop.tasks["letter"].using(delay="1h", retry=retry, timeout="10s", keep="forever", keep_failed="2d")
    job = using.enqueue("x", None, 1)
    page = site.get(f"/tasks/enqueue?task=letter&like={job.id}").text
    assert (
        "With the job's own settings: at most 3 attempts, retried after 2s, linear, timeout 10s, kept forever, "
        "kept for 2d after a failure" in page
    )
    form = Form(page).fields
    found = site.json(f"/jobs/{info_of(shop, site.post('/tasks/enqueue', form)).id}")
    original = site.json(f"/jobs/{job.id}")
    assert original["policy"]["retry"]["backoff"] == "linear"
    assert (found["policy"], found["max_attempts"]) == (original["policy"], 3)
    del form["like"]
    found = site.json(f"/jobs/{info_of(shop, site.post('/tasks/enqueue', form)).id}")
    assert (found["policy"], found["max_attempts"]) == (None, None)
    plain = shop.tasks["letter"].using(delay="1h").enqueue("x", None, 1)
    assert "own settings" not in site.get(f"/tasks/enqueue?task=letter&like={plain.id}").text
    assert site.get("/tasks/enqueue?task=letter&like=x").status == 400
    assert site.post("/tasks/enqueue", {**form, "like": "00000000-0000-0000-0000-000000000000"}).status == 404


def test_a_clone_says_what_is_not_copied(site: Site, shop: App) -> None:
    job = shop.tasks["letter"].using(delay="1h", metadata={"password": "x"}).enqueue("x", None, 1, tone="cold")
    args = '{"body": "x", "to": null, "copies": 1, "old": 1, "extra": {"password": 1}, "tone": "rude"}'
    with shop.database.connect() as connection:
        connection.execute("update stepwell.job set args = %s where id = %s", (args, job.id))
    page = site.get(f"/tasks/enqueue?task=letter&like={job.id}").text
    assert "Not copied: old, which is no argument of the task any more." in page
    assert "Not copied: extra, which is hidden here." in page
    assert "Not copied: metadata password, which is hidden here." in page
    # No other choice takes the place of one that the task does not have any more.
    answer = site.post("/tasks/enqueue", Form(page).fields)
    assert (answer.status, "tone" in answer.text) == (400, True)
