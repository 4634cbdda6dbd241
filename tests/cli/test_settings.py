"""`stepwell tasks show`: every setting of a task, and where its value comes from."""

from __future__ import annotations

from cli.commands import Run

from stepwell import App, Fair, Limit, Rate, Retry, Unique, Worker

DAY = 86400.0


async def test_every_setting_is_shown_with_its_source(dsn: str, run: Run) -> None:
    app = App(dsn, retry=Retry(max_attempts=3), keep_failed="4d", limits=[Limit(50, key="shop")])

    @app.task(
        queue="mail",
        timeout="30s",
        unique=Unique("{user}", period="1h"),
        limits=[Limit(2, key="tenant-{tenant}"), Limit(9, key="all")],
        rates=[Rate(60, per="1m", key="slow", smooth=True), Rate(5, key="api")],
        fair=Fair("{tenant}", weights={"gold": 2}),
    )
    async def send(user: str, tenant: str) -> None: ...

    async with app:
        await app.aset_queue("mail", limit=7, keep="1d", keep_failed="2d")
        await app.aset_limit("all", 4)
        job = await send.using(keep="8d", priority=5, retry=Retry(max_attempts=1), delay="1h").aenqueue("a", "b")
        missing = run("tasks", "show", "send")
        assert (missing.code, "has the task 'send'" in missing.err or "start one" in missing.err) == (1, True)
        async with Worker(app):
            shown = run("tasks", "show", "send", "--json").json
            text = run("tasks", "show", "send").out
            of_job = run("tasks", "show", "send", "--job", str(job.id), "--json").json
    assert [(row["name"], row["source"]) for row in shown] == [
        ("queue", "task"),
        ("priority", "default"),
        ("retry", "app"),
        ("timeout", "task"),
        ("timeout_grace", "default"),
        ("keep", "queue"),
        ("keep_failed", "queue"),
        ("unique", "task"),
        ("limit", "task"),
        ("limit", "run time"),
        ("limit", "app"),
        ("rate", "task"),
        ("rate", "task"),
        ("fair", "task"),
        ("batch", "default"),
        ("batch_wait", "default"),
        ("drift", "default"),
        ("logs", "default"),
        ("maintainer", "default"),
        ("runbook", "default"),
        ("queue_limit", "queue"),
    ]
    values = {row["name"]: row["value"] for row in shown}
    assert (values["keep"], values["keep_failed"], values["batch"]) == (DAY, 2 * DAY, None)
    assert (values["limit"], values["retry"]["max_attempts"], values["rate"]["count"]) == (
        {"most": 50, "key": "shop", "hold": False},
        3,
        5,
    )
    lines = {tuple(line.split()[:2]): " ".join(line.split()) for line in text.splitlines()}
    assert lines["keep", "1d"] == "keep 1d queue"
    assert lines["retry", "3"] == "retry 3 attempts, exponential from 1s to 1h app"
    assert lines["limit", "4"] == "limit 4 at once by key all run time"
    assert lines["rate", "5/s,"] == "rate 5/s, up to 5 at once by key api task"
    assert lines["rate", "1/s,"] == "rate 1/s, smooth by key slow task"
    own = {row["name"]: (row["value"], row["source"]) for row in of_job}
    assert (own["keep"], own["priority"], own["retry"][0]["max_attempts"], own["retry"][1]) == (
        (8 * DAY, "enqueue"),
        (5, "enqueue"),
        1,
        "enqueue",
    )
    assert (own["keep_failed"], own["queue"]) == ((2 * DAY, "queue"), ("mail", "task"))


def test_the_settings_of_the_code_need_no_worker(run: Run) -> None:
    shown = {row["name"]: row for row in run("tasks", "show", "greet", "--app", "shop:app", "--json").json}
    assert (shown["keep"]["value"], shown["keep"]["source"]) == ("forever", "task")
    assert (shown["queue"]["value"], shown["drift"]["source"]) == ("mail", "default")
    lines = [line.split() for line in run("tasks", "show", "greet", "--app", "shop:app").out.splitlines()]
    assert ["timeout", "30s", "task"] in lines
    assert ["unique", "none", "default"] in lines
    assert "did you mean 'greet'" in run("tasks", "show", "great", "--app", "shop:app").err
