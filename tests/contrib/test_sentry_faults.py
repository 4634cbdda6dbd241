"""Sentry when something goes wrong: it must neither harm a job nor miss the next error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope

from stepwell import App, ConfigError, Context, JobFailed, Retry, Worker
from stepwell.contrib.sentry import Sentry
from stepwell.telemetry.worker import LeaseLost
from stepwell.testing import adrain

from .kept import Kept


class Flaky(Kept):
    """Fails with every transaction, and with the first message."""

    failed = False

    def capture_envelope(self, envelope: Envelope) -> None:
        event: Any = envelope.get_event()
        if event is None or ("message" in event and not self.failed):
            self.failed = event is not None
            raise OSError("no network")
        super().capture_envelope(envelope)


def _no_rate(_: Any) -> float:
    raise OSError("no rate")


def _no_event(*_: Any) -> Any:
    raise OSError("no event")


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture(params=["works", "sampler", "before_send", "transport"])
def transport(request: pytest.FixtureRequest) -> Iterator[Kept]:
    made = Flaky() if request.param == "transport" else Kept()
    options: dict[str, Any] = {
        "works": {"traces_sample_rate": 1.0},
        "sampler": {"traces_sampler": _no_rate},
        "before_send": {"traces_sample_rate": 1.0, "before_send": _no_event, "before_send_transaction": _no_event},
        "transport": {"traces_sample_rate": 1.0},
    }[request.param]
    sentry_sdk.init("http://key@127.0.0.1:1/1", transport=made, **options)
    yield made
    sentry_sdk.init()


async def test_an_sdk_that_fails_harms_no_job(dsn: str, transport: Kept, request: pytest.FixtureRequest) -> None:
    app = App(dsn, plugins=[Sentry()], retry=Retry(max_attempts=1))

    @app.task
    async def works() -> int:
        return 1

    @app.task
    async def fails(n: int) -> None:
        raise LookupError(f"its own error {n}")

    @app.task
    async def hostile() -> None:
        raise Hostile

    @app.task(batch=2, batch_wait="0s")
    async def together(ns: list[int]) -> list[int]:
        return ns

    async with app:
        job = await works.aenqueue()
        failed = [await fails.aenqueue(n) for n in range(3)]
        odd = await hostile.aenqueue()
        app.events.emit(LeaseLost("w1", 1))
        batch = await together.aenqueue_many([{"ns": 1}, {"ns": 2}])
        await adrain(app)
        assert await job.aresult(timeout="5s") == 1
        assert [await one.aresult(timeout="5s") for one in batch] == [1, 2]
        for one in failed:
            with pytest.raises(JobFailed, match="LookupError: its own error"):
                await one.aresult(timeout="5s")
        with pytest.raises(JobFailed, match="Hostile"):
            await odd.aresult(timeout="5s")
    of_jobs = [error for error in transport.errors if "stepwell.task" in error.get("tags", {})]
    # The SDK drops an event for which before_send fails.
    assert len(of_jobs) == (0 if request.node.callspec.params["transport"] == "before_send" else 4)


async def test_tags_and_breadcrumbs_of_one_run_are_not_those_of_another(dsn: str, kept: Kept) -> None:
    app = App(dsn, plugins=[Sentry()], retry=Retry(max_attempts=1))
    logging.getLogger("shop").setLevel(logging.INFO)

    def note(n: int) -> None:
        sentry_sdk.set_tag("n", n)
        logging.getLogger("shop").info("job %d", n)
        raise LookupError(n)

    @app.task
    async def on_loop(n: int) -> None:
        await asyncio.sleep(0)
        note(n)

    @app.task
    def in_thread(n: int) -> None:
        note(n)

    async with app:
        for n in range(12):
            await (on_loop if n % 2 else in_thread).aenqueue(n)
        await adrain(app)
    assert len(kept.errors) == 12
    for error in kept.errors:
        n = error["exception"]["values"][-1]["value"]
        assert str(error["tags"]["n"]) == n
        assert [crumb["message"] for crumb in error["breadcrumbs"]["values"]] == [f"job {n}"]
    assert "n" not in sentry_sdk.get_isolation_scope()._tags  # pyright: ignore[reportPrivateUsage]


async def test_a_replay_a_suspension_and_a_shutdown_are_no_errors(dsn: str, kept: Kept) -> None:
    plugin = Sentry()
    app = App(dsn, plugins=[plugin], retry=Retry(max_attempts=1))
    begun = asyncio.Event()

    async def one() -> int:
        return 1

    @app.task
    async def durable(ctx: Context) -> int:
        return await ctx.step(one) + await ctx.step(one)

    @app.task
    async def hangs() -> None:
        begun.set()
        await asyncio.sleep(60)

    async with app, Worker(app, always_replay=True, grace="0s"):
        assert await (await durable.aenqueue()).aresult(timeout="20s") == 2
        await hangs.aenqueue()
        await begun.wait()
    assert kept.errors == []
    assert plugin._scopes == {}, "nothing is kept of a run that was cut off"  # pyright: ignore[reportPrivateUsage]
    states = {made["transaction"]: made["contexts"]["trace"]["status"] for made in kept.transactions}
    assert states == {"durable": "ok", "hangs": "cancelled"}


async def test_one_plugin_is_for_one_app(dsn: str) -> None:
    plugin = Sentry()
    async with App(dsn, plugins=[plugin]):
        with pytest.raises(ConfigError, match="make one for each app"):
            async with App(dsn, plugins=[plugin]):
                pass
