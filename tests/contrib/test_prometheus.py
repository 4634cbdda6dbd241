"""Metrics and health checks over HTTP, as a scraper and a probe get them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import weakref
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from scraping import get, samples_in, scrape

from stepwell import App, ConfigError, Context, JobFailed, Retry, Worker
from stepwell.contrib.prometheus import Prometheus
from stepwell.contrib.prometheus.run_counts import MOST_LABELS, RunCounts
from stepwell.telemetry.enqueue import JobEnqueued
from stepwell.telemetry.jobs import EndedRunFacts, RunsEnded
from stepwell.worker.gauges import DatabaseGauge


async def test_metrics_count_runs_by_task_queue_and_outcome(dsn: str) -> None:
    metrics = Prometheus(port=0)
    app = App(dsn, plugins=[metrics], retry=Retry(max_attempts=1))

    @app.task
    async def works(n: int) -> int:
        return n

    @app.task
    async def fails() -> None:
        raise LookupError

    @app.task(batch=3, batch_wait="10s")
    async def together(ns: list[int]) -> list[int]:
        return ns

    async with app:
        async with Worker(app, concurrency=7):
            jobs = [await works.using(queue="default").aenqueue(n) for n in range(4)]
            jobs += await together.aenqueue_many([{"ns": n} for n in range(3)])
            for job in jobs:
                await job.aresult(timeout="20s")
            with pytest.raises(JobFailed):
                await (await fails.aenqueue()).aresult(timeout="20s")
            # No worker claims from it.
            await works.using(queue="elsewhere").aenqueue_many([{"n": n} for n in range(5)])
            url = metrics.url
            async with asyncio.timeout(60):
                while not (found := await scrape(url))[("stepwell_leader", ())]:
                    pass
            for page in ("healthz", "readyz"):
                assert await asyncio.to_thread(get, url.replace("metrics", page)) == (200, "ok\n")
            assert (await asyncio.to_thread(get, url + "/other"))[0] == 404
        with pytest.raises(ConfigError, match="only while a worker"):
            _ = metrics.url

    def of(name: str, **labels: str) -> float | None:
        return found.get((name, tuple(sorted(labels.items()))))

    assert url.startswith("http://127.0.0.1:")
    assert of("stepwell_jobs_total", task="works", queue="default", outcome="succeeded") == 4
    assert of("stepwell_jobs_total", task="together", queue="default", outcome="succeeded") == 3
    assert of("stepwell_jobs_total", task="fails", queue="default", outcome="failed") == 1
    assert of("stepwell_enqueued_total", task="works", queue="elsewhere") == 5
    for name in ("stepwell_run_seconds", "stepwell_wait_seconds"):
        assert of(f"{name}_count", task="works", queue="default") == 4
        assert of(f"{name}_bucket", task="works", queue="default", le="+Inf") == 4
        assert 0 < (of(f"{name}_sum", task="works", queue="default") or 0) < 60
    assert of("stepwell_slots") == 7
    assert of("stepwell_listener_up") == 1
    assert of("stepwell_registered") == 1
    assert 0 < (of("stepwell_lease_seconds") or 0) <= 20
    assert (of("stepwell_flush_jobs_sum") or 0) >= 7
    assert (of("stepwell_claim_jobs_count") or 0) >= 1
    # The only worker leads, so the numbers of the database are here.
    assert of("stepwell_leader") == 1
    assert of("stepwell_workers") == 1
    assert of("stepwell_queue_depth", queue="elsewhere") == 5
    assert of("stepwell_queue_oldest_seconds", queue="elsewhere") is not None
    assert of("stepwell_queue_depth", queue="default") is None


@pytest.mark.parametrize("transaction", [False, True])
async def test_a_scrape_counts_each_run_that_the_database_has(dsn: str, transaction: bool) -> None:
    metrics = Prometheus(port=0)
    app = App(dsn, plugins=[metrics])
    begin = asyncio.Event()
    rounds = 0
    scraping: list[threading.Thread] = []
    pages: list[str] = []

    @app.task(transaction=transaction)
    async def ends(ctx: Context) -> None:
        await begin.wait()

    @app.task
    async def holds_the_loop(job_id: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            begin.set()
            ended = "select from stepwell.jobs where id = %s and state = 'succeeded'"
            while not other.execute(ended, [job_id]).rowcount:  # noqa: ASYNC110 only the database knows
                await asyncio.sleep(0)
        if metrics.counts().ended["ends", "default", "succeeded"] < rounds:
            # The worker has not read the answer, and cannot while this blocks its event loop.
            scraping.append(threading.Thread(target=lambda: pages.append(get(metrics.url)[1])))
            scraping[0].start()
            scraping[0].join(0.3)

    async with app, Worker(app):
        while not scraping:
            begin.clear()
            rounds += 1
            job = await ends.aenqueue()
            await (await holds_the_loop.aenqueue(str(job.id))).aresult(timeout="20s")
        await asyncio.to_thread(scraping[0].join)
    found = samples_in(pages[0])
    assert found["stepwell_jobs_total", (("outcome", "succeeded"), ("queue", "default"), ("task", "ends"))] == rounds


async def test_a_scrape_does_not_wait_for_long(dsn: str) -> None:
    metrics = Prometheus(port=0)
    app = App(dsn, plugins=[metrics])

    @app.task
    async def works() -> None: ...

    async with app, Worker(app):
        with psycopg.connect(dsn) as other:
            job = await works.using(delay="10ms").aenqueue()
            other.execute("lock table stepwell.history in access exclusive mode")
            async with asyncio.timeout(20):
                while not (await scrape(metrics.url))[("stepwell_unwritten_outcomes", ())]:
                    pass
        await job.aresult(timeout="20s")


async def test_only_the_leader_asks_for_depths(dsn: str) -> None:
    plugins = [Prometheus(port=0), Prometheus(port=0)]
    apps = [App(dsn, name="shop", plugins=[plugin]) for plugin in plugins]
    for app in apps:

        @app.task
        async def works() -> None: ...

    async with apps[0], apps[1], Worker(apps[0]), Worker(apps[1]):
        # On a slow machine the lead may pass on, and for a moment two believe that they have it.
        async with asyncio.timeout(60):
            while True:
                found = [await scrape(plugin.url) for plugin in plugins]
                if sorted(one[("stepwell_leader", ())] for one in found) == [0, 1]:
                    break
    for one in found:
        assert (("stepwell_workers", ()) in one) == bool(one[("stepwell_leader", ())])


async def test_a_worker_that_waits_for_its_database_is_alive_but_not_ready() -> None:
    metrics = Prometheus(port=0)
    app = App("postgresql://127.0.0.1:1/nowhere", plugins=[metrics])

    @app.task
    async def works() -> None: ...

    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    while True:
        try:
            url = metrics.url
            break
        except ConfigError:
            await asyncio.sleep(0)
    assert await asyncio.to_thread(get, url.replace("metrics", "healthz")) == (200, "ok\n")
    status, text = await asyncio.to_thread(get, url.replace("metrics", "readyz"))
    assert (status, text) == (503, "the worker waits for its database\n")
    assert (await scrape(url))[("stepwell_registered", ())] == 0
    worker.stop()
    await running


async def test_a_port_in_use_is_refused_by_name(dsn: str) -> None:
    first = Prometheus(port=0)
    app = App(dsn, plugins=[first])

    @app.task
    async def works() -> None: ...

    async with app, Worker(app):
        port = int(first.url.split(":")[2].split("/")[0])
        other = App(dsn, plugins=[Prometheus(port=port)])
        other.task(works.fn)
        with pytest.raises(ConfigError, match=f"cannot be served on 127.0.0.1:{port}"):
            await Worker(other).run()


@pytest.mark.parametrize("wrong", [{"port": -1}, {"port": 70000}, {"port": "80"}, {"port": 0, "host": ""}])
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Prometheus(**wrong)


def test_a_registry_of_ones_own_has_all_metrics() -> None:
    registry = CollectorRegistry()
    Counter("orders", "Orders.", registry=registry).inc()
    assert Prometheus(registry=registry).registry is registry
    assert {family.name for family in registry.collect()} >= {"orders", "stepwell_jobs"}


async def test_apps_that_share_a_registry_are_added_up(dsn: str) -> None:
    registry = CollectorRegistry()

    def made(name: str) -> App:
        app = App(dsn, name=name, plugins=[Prometheus(registry=registry)])

        @app.task(name="send")
        async def send() -> None: ...  # pyright: ignore[reportUnusedFunction]

        return app

    async with made("one") as one, made("two") as two:
        # An app's worker may be started again, and counts on.
        for app, number in ((one, 1), (two, 2), (one, 3)):
            async with Worker(app):
                for _ in range(number):
                    await (await app.tasks["send"].aenqueue()).aresult(timeout="60s")
                found = await asyncio.to_thread(samples, registry)
                assert found[("stepwell_registered", ())] == 1
    labels = (("queue", "default"), ("task", "send"))
    found = samples(registry)
    assert found[("stepwell_enqueued_total", labels)] == 6
    assert found[("stepwell_jobs_total", (("outcome", "succeeded"), *labels))] == 6
    assert found[("stepwell_run_seconds_count", labels)] == 6
    assert found[("stepwell_flush_jobs_sum", ())] == 6


def samples(registry: CollectorRegistry) -> dict[Any, float]:
    """The values of all series; each may be there once."""
    families = list(registry.collect())
    assert len({family.name for family in families}) == len(families)
    found = [((one.name, tuple(sorted(one.labels.items()))), one.value) for each in families for one in each.samples]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_registry_that_was_cleared_has_only_the_apps_that_come_later() -> None:
    registry = CollectorRegistry()
    Prometheus(registry=registry).on_event(JobEnqueued("1", "old", "default", 0))
    for collector in list(registry._collector_to_names):  # pyright: ignore[reportPrivateUsage]
        registry.unregister(collector)
    Prometheus(registry=registry).on_event(JobEnqueued("2", "new", "default", 0))
    enqueued = [labels for name, labels in samples(registry) if name == "stepwell_enqueued_total"]
    assert enqueued == [(("queue", "default"), ("task", "new"))]


def test_a_registry_and_its_metrics_are_not_kept_for_ever() -> None:
    kept = weakref.ref(Prometheus().registry)
    gc.collect()
    assert kept() is None


def test_apps_on_several_databases_are_added_up() -> None:
    class Leading(Prometheus):
        def database_gauges(self) -> list[DatabaseGauge]:
            return [("workers", None, 2.0), ("ready", "mail", 5.0), ("oldest", "mail", float(leading.index(self)))]

    registry, leading = CollectorRegistry(), list[Prometheus]()
    leading += [Leading(registry=registry) for _ in range(3)]
    found = samples(registry)
    mail = (("queue", "mail"),)
    assert (found["stepwell_workers", ()], found["stepwell_queue_depth", mail]) == (6, 15)
    assert found["stepwell_queue_oldest_seconds", mail] == 2


def test_a_registry_with_a_metric_of_the_same_name_is_refused() -> None:
    registry = CollectorRegistry()
    Gauge("stepwell_worker_info", "Somebody else's.", registry=registry)
    with pytest.raises(ConfigError, match="stepwell_worker_info"):
        Prometheus(registry=registry)


def test_invented_names_do_not_make_new_series() -> None:
    counts = RunCounts()
    for n in range(3 * MOST_LABELS):
        counts.add(JobEnqueued("1", f"task {n}", f'queue "{n}"\n\\', 0))
        counts.add(RunsEnded([EndedRunFacts("known" if n else "task 0", f"tenant {n}", "succeeded", 0.1, 0.0)]))
    assert len(counts.ended) <= 2 * MOST_LABELS
    assert len(counts.run) <= MOST_LABELS + 2
    assert sum(counts.ended.values()) == 3 * MOST_LABELS
    assert ("known", "other", "succeeded") in counts.ended
    plugin = Prometheus()
    plugin.on_event(JobEnqueued("1", 'a "task"\n', "\\queue\N{SNOWMAN}", 0))
    text = plugin._metrics_page("").body.decode()  # pyright: ignore[reportPrivateUsage]
    assert ("stepwell_enqueued_total", (("queue", "\\queue\N{SNOWMAN}"), ("task", 'a "task"\n'))) in samples_in(text)


def test_gauges_are_bounded(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "select stepwell.enqueue_many(array_fill('work'::text, array[30]), array_fill('{}'::text, array[30]),"
        " array(select 'q' || lpad((n % 10)::text, 2, '0') from generate_series(1, 30) n),"
        " array(select n % 3 from generate_series(1, 30) n))"
    )
    rows = conn.execute("select name, queue, value from stepwell.gauges(4, 2)").fetchall()
    assert rows[0] == ("workers", None, 0)
    assert [row for row in rows if row[0] == "ready"] == [("ready", f"q0{n}", 2) for n in range(4)]
    assert len([row for row in rows if row[0] == "oldest" and row[2] >= 0]) == 4


async def test_clients_that_send_slowly_neither_pile_up_nor_keep_others_out(app: App) -> None:
    prometheus = Prometheus(port=0)
    app.plugins.add(prometheus, app)

    @app.task
    async def nothing() -> None: ...

    async with Worker(app):
        port = int(prometheus.url.split(":")[2].split("/")[0])
        clients = [await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 10) for _ in range(100)]
        try:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(b"GET /metrics HTTP/1.1\r\nX: ")
            await asyncio.sleep(0.5)
            assert threading.active_count() < 90
            assert (await asyncio.to_thread(get, prometheus.url))[0] == 200
        finally:
            for client in clients:
                client.close()
