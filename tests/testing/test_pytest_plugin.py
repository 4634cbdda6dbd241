"""The pytest plugin and the parts of stepwell.testing that need no database."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_stepwell.databases import DatabaseServer
from stepwell import App, BadArgs, BadValue, ConfigError, Context, Injected, JobProgress, SyncContext
from stepwell.testing import assert_enqueued, context, eager, sync_context

pytest_plugins = "pytester"

ROOT = Path(__file__).parent.parent.parent

SHOP = """
from stepwell import App, Context

app = App("postgresql:///nowhere")


@app.task
async def remind(ctx: Context, order: int) -> str:
    await ctx.sleep("30d")
    return f"reminded of {order}"


def buy(order: int) -> None:
    remind.enqueue(order)
"""

TESTS = """
import pytest
from shop_under_test import app, buy, remind
from stepwell.testing import assert_enqueued


def test_plain(stepwell_app, stepwell_clock, drain):
    assert stepwell_app is app
    buy(7)
    [job] = assert_enqueued(remind, {"order": 7})
    drain()
    stepwell_clock.advance("30d")
    drain()
    assert app.job(job.id).result() == "reminded of 7"


async def test_async(stepwell_app, stepwell_clock, adrain):
    assert_enqueued(remind, count=0)  # each test has a database of its own
    job = await remind.aenqueue(8)
    await adrain()
    stepwell_clock.advance("30d")
    await adrain()
    assert await job.aresult() == "reminded of 8"


def test_wrong(stepwell_app):
    buy(1)
    assert_enqueued(remind, {"order": 2})
"""


@pytest.mark.slow
def test_the_fixtures_give_each_test_a_database_a_clock_and_drain(
    pytester: pytest.Pytester, server_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_TEST_DATABASE_URL", server_dsn)
    pytester.makepyfile(shop_under_test=SHOP, test_shop_under_test=TESTS)
    pytester.makeini(
        "[pytest]\nstepwell_app = shop_under_test:app\npythonpath = .\n"
        "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    result = pytester.inline_run("-p", "no:randomly")  # pyright: ignore[reportUnknownMemberType]
    passed, _, [failed] = result.listoutcomes()
    assert [report.nodeid.rpartition(":")[2] for report in passed] == ["test_plain", "test_async"]
    assert "no job remind(order=2) was enqueued; jobs of this task:" in failed.longreprtext
    assert "remind(order=1) in queue 'default'" in failed.longreprtext


@pytest.mark.slow
def test_the_database_of_the_tests_may_be_an_embedded_one() -> None:
    with tempfile.TemporaryDirectory(prefix="sw") as made:
        place = Path(made)
        place.chmod(0o755)  # root's Postgres runs as another user
        app = App()
        with DatabaseServer.open(f"embedded:{place / 'pg'}") as server, server.used_by(app):
            assert app.count_jobs() == 0


def test_a_url_that_names_no_database_for_tests_is_explained() -> None:
    with pytest.raises(ConfigError, match='no "\\+driver"'), DatabaseServer.open("postgresql+psycopg:///shop"):
        pass


def test_the_plugin_is_declared_and_loads_nothing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"stepwell": "pytest_stepwell"}
    code = "import pytest_stepwell, sys; assert not {'psycopg', 'stepwell', 'asyncio'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})


class Client:
    def ask(self) -> str:
        return "asked"


app = App("postgresql:///nowhere")


@app.task
async def charge(ctx: Context, order: int) -> list[str]:
    async def pay(n: int) -> int:
        return n * 2

    ctx.progress(1, 2)
    said = [str(await ctx.step(pay, order))]
    await ctx.sleep("1h")
    said.append(str((await ctx.wait_for("paid", key="7")).value))
    said.append(str((await ctx.receive("late", timeout="1d")).timed_out))
    said += [await ctx.spawn(ship, order), ctx.resource(Client).ask()]
    said += [str(n) for n in await ctx.gather(ctx.step(pay, 1, key="a"), ctx.step(pay, 2, key="b"))]
    return [*said, (await ctx.now()).isoformat()]


@app.task
def ship(ctx: SyncContext, order: int, client: Client = Injected) -> str:
    ctx.sleep("1h")
    return f"{client.ask()} {ctx.step(abs, -order)} {ctx.gather(lambda: 1, lambda: 2)}"


@app.task(batch=10)
def many(numbers: list[int]) -> list[float]:
    return [n / 2 for n in numbers]


@app.task
async def odd(when: datetime) -> object:
    return object()


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_a_handler_runs_with_a_context_of_the_test() -> None:
    ctx = context(events={"paid": 5}, children={"ship": "shipped"}, resources=[Client()], now=NOON)
    assert await charge(ctx, 3) == ["6", "5", "True", "shipped", "asked", "2", "4", NOON.isoformat()]
    assert ctx.slept == [3600.0]
    assert ctx.reported == [JobProgress(1, 2)]
    for given, said in (
        (context(), "the handler waits for 'paid' without a timeout: give events="),
        (context(events={"paid": 1}), "the handler spawns 'ship': give children="),
        (context(events={"paid": 1}, children={"ship": "x"}), r"asks for a Client: give resources="),
    ):
        with pytest.raises(AssertionError, match=said):
            await charge(given, 3)


def test_a_plain_handler_runs_with_a_context_of_the_test() -> None:
    ctx = sync_context()
    assert ship(ctx, 3, Client()) == "asked 3 [1, 2]"
    assert ctx.slept == [3600.0]
    with pytest.raises(ConfigError, match="needs a database"):
        ctx.transaction("x")


@pytest.mark.slow
def test_eager_runs_the_handler_with_the_decoding_of_a_worker() -> None:
    with eager(app, resources=[Client()]):
        assert ship.enqueue(3).result() == "asked 3 [1, 2]"
        assert [job.result() for job in many.enqueue_many([{"numbers": 3}, {"numbers": 4}])] == [1.5, 2.0]
        assert asyncio.run(_aenqueue()) == 2.5
        with pytest.raises(BadArgs, match="'order'"):
            ship.enqueue("three")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(BadValue, match="does not encode"):
            odd.enqueue(NOON)
        with pytest.raises(AssertionError, match="waits for 'paid'"):
            charge.enqueue(3)
    # Afterwards a job is enqueued again, here in a database that is not there.
    with pytest.raises(Exception, match="nowhere"):
        assert_enqueued(ship)


async def _aenqueue() -> float:
    return await (await many.aenqueue(5)).aresult()
