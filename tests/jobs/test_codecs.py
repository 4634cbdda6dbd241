"""Codecs: what the database holds is sealed, what programs see is not, and a missing key harms one job only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from cryptography.fernet import Fernet
from waiting import auntil

from stepwell import (
    App,
    BadArgs,
    CodecError,
    ConfigError,
    Context,
    Done,
    GroupSummary,
    JobFailed,
    Limit,
    Next,
    Retry,
    Step,
    Worker,
)
from stepwell.contrib.codecs import Encrypted, Zlib
from stepwell.testing import adrain, assert_enqueued
from stepwell.values.redaction import Redaction
from stepwell.values.sealing import Sealer

OLD, NEW = Fernet.generate_key(), Fernet.generate_key()
SECRET = "4111-1111"


def stored(conn: psycopg.Connection[Any]) -> str:
    """All that the database holds of jobs, steps, events and schedules, but not the keys of limits."""
    tables = ("job", "history", "step", "event", "schedule", "large_value", "job_group")
    parts = [
        row[0]
        for table in tables
        for row in conn.execute(f"select (to_jsonb(t) - 'admission')::text from stepwell.{table} t")  # type: ignore[arg-type]  # pyright: ignore
    ]
    return "\n".join(parts)


class Text:
    """A codec that returns text, in one direction."""

    name = "text"

    def __init__(self, wrong: str) -> None:
        self._wrong = wrong

    def encode(self, data: bytes) -> Any:
        return data.decode() if self._wrong == "encode" else data

    def decode(self, data: bytes) -> Any:
        return data.decode() if self._wrong == "decode" else data


@pytest.mark.parametrize("wrong", ["encode", "decode"])
def test_a_codec_that_returns_text_is_named(wrong: str) -> None:
    sealer = Sealer([Text(wrong)])
    with pytest.raises(CodecError, match=f"codec 'text' could not {wrong} a value: .*returned str"):
        sealer.open(sealer.seal("{}"))


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"not 'int': Fernet\.generate_key\(\) makes a key"):
        Encrypted(123)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def new_app(dsn: str, *codecs: Any) -> App:
    app = App(dsn, codecs=codecs)

    async def echo(card: str) -> str:
        return card

    @app.task(limit=Limit(5, key="{card}"))
    async def pay(ctx: Context, card: str) -> dict[str, str]:
        saved = await ctx.step(echo, card)
        async with ctx.transaction("tx") as tx:
            tx.save({"card": saved})
        signal = await ctx.receive("go")
        event = await ctx.wait_for("paid")
        return {"step": saved, "child": await ctx.spawn(child, card), "signal": signal.value, "event": event.value}

    @app.task
    async def child(card: str) -> str:
        return card

    @app.task(batch=10)
    async def many(cards: list[str]) -> list[str]:
        return cards

    @app.task
    async def after(summary: GroupSummary) -> int:
        return summary.succeeded

    async def one(card: str) -> str:
        return card

    async def two(card: str) -> Done[str]:
        return Done(card)

    app.chain("line", one, Step(two, queue="other"))
    machine = app.machine("machine")

    @machine.state(start=True)
    @dataclass
    class First:
        card: str

        async def run(self) -> Next[Last]:
            return Next(Last(self.card), after="10ms")

    @machine.state
    @dataclass
    class Last:
        card: str

        async def run(self) -> Done[str]:
            return Done(self.card)

    app.__dict__["first_state"] = First
    return app


@pytest.mark.slow
async def test_nothing_is_stored_in_the_clear_and_everything_is_read_as_it_was(
    dsn: str, conn: psycopg.Connection[Any]
) -> None:
    app = new_app(dsn, Zlib(above=50), Encrypted(NEW))
    tasks = app.tasks
    async with app, Worker(app):
        job = await tasks["pay"].aenqueue(SECRET)
        await auntil(lambda: conn.execute("select 1 from stepwell.step where key = 'receive:go'").fetchone())
        await job.asend("go", SECRET)
        await app.aemit("paid", value=SECRET)
        others = [
            await tasks["many"].aenqueue(SECRET),
            await tasks["line"].aenqueue(SECRET),
            await tasks["machine"].aenqueue(app.__dict__["first_state"](SECRET)),
        ]
        everything = {"step": SECRET, "child": SECRET, "signal": SECRET, "event": SECRET}
        assert await job.aresult(timeout="30s") == everything
        assert [await other.aresult(timeout="30s") for other in others] == [SECRET] * 3
        group = await app.agroup([tasks["child"].call(SECRET)], then=tasks["after"])
        assert await group.then.aresult(timeout="30s") == 1
        assert [one.result for one in await group.aresults()] == [SECRET]
        await app.aschedule_task(tasks["child"], timedelta(hours=1), args={"card": SECRET})
        assert [schedule.args for schedule in await app.aschedules()] == [{"card": SECRET}]
        # Whoever reads over the app sees values; one without the codecs sees that they are sealed.
        info = await app.job(job.id).ainfo()
        assert info is not None
        assert (info.args, info.result) == ({"card": SECRET}, everything)
        assert [step.value for step in info.steps][:2] == [SECRET, {"card": SECRET}]
        [*_, last] = [change async for change in app.job(job.id).changes()]
        assert last.result == everything
        assert await app.job(job.id).aresult() == everything
    assert SECRET not in stored(conn)
    async with App(dsn) as blind:
        info = await blind.job(job.id).ainfo()
        assert info is not None
        assert (info.args, info.result) == ({"": "(sealed by fernet)"}, "(sealed by zlib+fernet)")
        with pytest.raises(CodecError, match="this app has no codec 'fernet'"):
            await blind.job(job.id).aresult()


async def test_keys_rotate_and_plain_jobs_run(dsn: str, conn: psycopg.Connection[Any]) -> None:
    async with new_app(dsn, Encrypted(OLD)) as before:
        job = await before.tasks["child"].aenqueue("old")
    conn.execute("""select stepwell.enqueue('child', '{"card": "plain"}')""")
    async with new_app(dsn, Encrypted(NEW, OLD)) as app:
        await adrain(app)
        assert sorted(info.result for info in await app.ajobs(task="child")) == ["old", "plain"]
    # The result is encrypted with the new key.
    async with new_app(dsn, Encrypted(NEW)) as after:
        assert await after.job(job.id).aresult() == "old"


async def test_a_missing_key_fails_the_job_and_not_the_worker(dsn: str) -> None:
    async with new_app(dsn, Encrypted(OLD)) as before:
        jobs = [
            await before.tasks["child"].using(retry=Retry(max_attempts=1)).aenqueue("x"),
            await before.tasks["many"].using(retry=Retry(max_attempts=1)).aenqueue("x"),
            await before.tasks["line"].using(retry=Retry(max_attempts=1)).aenqueue("x"),
        ]
        later = await before.tasks["child"].using(retry=Retry(max_attempts=2, initial="1h")).aenqueue("x")
    app = new_app(dsn, Encrypted(NEW))
    async with app, Worker(app):
        for job in jobs:
            with pytest.raises(JobFailed, match=r"CodecError: .*'fernet' could not be opened: .*lack a key"):
                await app.job(job.id).aresult(timeout="30s")
        assert await (await app.tasks["child"].aenqueue("y")).aresult(timeout="30s") == "y"
        info = await app.job(later.id).ainfo()
        assert info is not None
        assert (info.state, info.attempt) == ("scheduled", 1)


async def test_args_of_a_batch_that_cannot_be_opened_fail_the_job_and_not_the_worker(
    app: App, conn: psycopg.Connection[Any]
) -> None:
    """A worker reads the args of such a job before it calls the function: by the key of its limit."""

    @app.task(batch=5, limit=Limit(2, key="{n}"), retry=Retry(max_attempts=1))
    async def many(n: list[int]) -> list[int]:
        return n

    sealed = '{"$sealed":"unknown","data":""}'
    conn.execute("select stepwell.enqueue_many('{many}', array[%s])", (sealed,))
    [info] = await app.ajobs(task="many")
    async with Worker(app):
        with pytest.raises(JobFailed, match="CodecError"):
            await app.job(info.id).aresult(timeout="30s")
        assert await (await many.aenqueue(7)).aresult(timeout="30s") == 7


def test_sizes_are_those_of_what_is_stored(dsn: str) -> None:
    text = "a" * 5000
    with App(dsn, codecs=[Zlib()], max_args_size=1000) as app:
        task = app.task(name="t")(_length)
        assert len(task.call(text).job.args) < 200
    with App(dsn, codecs=[Encrypted(NEW)], max_args_size=100) as app, pytest.raises(BadArgs, match="more than 100"):
        app.task(name="t")(_length).call("a" * 50)


def _length(text: str) -> int:
    return len(text)


def test_what_is_no_codec_is_refused() -> None:
    class Broken:
        name = "broken"

        def encode(self, data: bytes) -> bytes:
            raise OSError("the key server is away")

        def decode(self, data: bytes) -> bytes:
            return data

    for codecs, said in (([Zlib], "give objects"), ([Zlib(), Zlib()], "names must differ"), ([1], "give objects")):
        with pytest.raises(ConfigError, match=said):
            App("postgresql:///x", codecs=codecs)  # type: ignore[arg-type]  # pyright: ignore
    with pytest.raises(CodecError, match=r"codec 'broken' could not encode a value: OSError: the key server is away"):
        App("postgresql:///x", codecs=[Broken()]).task(name="t")(_length).call("x")
    with pytest.raises(ConfigError, match=r"generate_key"):
        Encrypted("short")


def test_named_fields_are_hidden_at_any_depth() -> None:
    value = {"Password": "x", "users": [{"token": 1, "name": "ada"}], "n": None}
    hidden = {"Password": "[redacted]", "users": [{"token": "[redacted]", "name": "ada"}], "n": None}
    assert Redaction(["password", "token"]).apply(value) == hidden
    assert Redaction(()).apply(value) is value


def test_assert_enqueued_compares_opened_arguments(dsn: str) -> None:
    with App(dsn, codecs=[Encrypted(NEW)]) as app:

        @app.task
        def pay(card: str) -> None: ...

        pay.enqueue(SECRET)
        [job] = assert_enqueued(pay, {"card": SECRET})
        assert job.args == {"card": SECRET}


def test_the_keys_of_a_machine_are_read_from_opened_arguments(dsn: str) -> None:
    with App(dsn, codecs=[Encrypted(NEW)]) as app:
        machine = app.machine("subscription", unique="{state.customer}")

        @machine.state(start=True)
        @dataclass
        class Trial:
            customer: str

            async def run(self) -> Done[None]:
                return Done(None)

        first, again = machine.enqueue(Trial("ada")), machine.enqueue(Trial("ada"))
        assert again.id == first.id
        app.schedule_task(machine, "@daily", args={"state": Trial("bob")})
