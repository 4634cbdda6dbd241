"""Code written for Celery, on Stepwell: each thing that the shim offers, and what it refuses."""
# pyright: basic, reportCallIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
from waiting import auntil

from stepwell import App, ConfigError, JobFailed, Worker
from stepwell.contrib.celery import Celery, chain, chord, group, shared_task
from stepwell.testing import drain


class Shop:
    """Tasks as a program has them that comes from Celery."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.celery = Celery(app)
        self.called: list[Any] = []

        @self.celery.task
        def add(x: int, y: int) -> int:
            return x + y

        @self.celery.task(name="shop.total", queue="sums")
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        @self.celery.task(bind=True, max_retries=2, default_retry_delay=0)
        def flaky(this: Any, good_at: int) -> list[Any]:
            self.called.append(this.request.retries)
            try:
                if this.request.retries < good_at:
                    raise LookupError("not yet")
            except LookupError as error:
                raise this.retry(exc=error, countdown=0)  # noqa: B904 as Celery's manual has it
            return [this.request.retries, this.request.args or this.request.kwargs, this.name]

        @self.celery.task(autoretry_for=(OSError,), retry_kwargs={"max_retries": 1, "countdown": 0})
        def away(kind: str) -> None:
            self.called.append(kind)
            raise OSError("away") if kind == "os" else ValueError("wrong")

        @shared_task(ignore_result=True)
        async def note(text: str) -> None:
            self.called.append(text)

        self.add, self.total, self.flaky, self.away, self.note = add, total, flaky, away, note


@pytest.fixture
def shop(dsn: str) -> Iterator[Shop]:
    app = App(dsn, name="shop")
    yield Shop(app)
    app.close()


def ran(shop: Shop, result: Any) -> Any:
    drain(shop.app)
    return result.get(timeout=60)


def test_delay_and_apply_async_make_jobs(shop: Shop) -> None:
    soon, kept = shop.add.delay(1, y=2), shop.add.apply_async((3,), {"y": 4}, queue="sums", priority=5)
    info = kept.handle.info()
    assert (info.task, info.queue, info.priority) == (f"{__name__}.add", "sums", 5)
    assert (soon.state, soon.ready(), soon.result) == ("PENDING", False, None)
    assert ran(shop, soon) == 3
    assert kept.get() == 7
    assert (soon.status, soon.successful(), shop.celery.AsyncResult(soon.id)) == ("SUCCESS", True, soon)
    assert shop.add(5, 6) == 11
    assert ran(shop, shop.celery.send_task("shop.total", [[1, 2]])) == 3


def test_countdown_and_eta_delay_a_job(shop: Shop) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    later = shop.add.apply_async((1, 2), countdown=3600).handle.info()
    then = shop.add.apply_async((1, 2), eta=at.replace(tzinfo=None)).handle.info()
    assert timedelta(minutes=59) < later.run_at - later.enqueued_at <= timedelta(hours=1)
    assert (then.state, then.run_at) == ("scheduled", at)
    with pytest.raises(ConfigError, match="exclude each other"):
        shop.add.apply_async((1, 2), countdown=1, eta=at)


def test_a_job_is_part_of_the_callers_transaction(shop: Shop, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        gone = shop.add.apply_async((1, 2), connection=connection)
        chain(shop.add.s(1, 2), shop.add.s(3)).apply_async(connection=connection)
        connection.rollback()
    assert shop.app.count_jobs() == 0
    assert gone.state == "PENDING"


def test_a_bound_task_retries_itself(shop: Shop) -> None:
    name = f"{__name__}.flaky"
    assert ran(shop, shop.flaky.delay(2)) == [2, {"good_at": 2}, name]
    never = shop.flaky.delay(9)
    with pytest.raises(JobFailed, match="LookupError: not yet"):
        ran(shop, never)
    assert shop.called == [0, 1, 2, 0, 1, 2]
    assert isinstance(never.result, JobFailed)
    assert "LookupError" in never.traceback


def test_only_errors_of_autoretry_for_are_retried(shop: Shop) -> None:
    shop.away.delay("os")
    shop.away.delay("value")
    drain(shop.app)
    assert sorted(shop.called) == ["os", "os", "value"]


def test_a_shared_task_belongs_to_the_current_app(shop: Shop) -> None:
    result = shop.note.delay("hello")
    drain(shop.app)
    assert shop.called == ["hello"]
    assert result.state == "PENDING"  # nothing is kept of it


def test_a_chain_passes_results_on(shop: Shop) -> None:
    assert ran(shop, chain(shop.add.s(2, 2), shop.add.s(4), shop.add.s(8))()) == 16
    assert ran(shop, (shop.add.s(1, 1) | shop.add.si(5, 5)).apply_async()) == 10
    assert ran(shop, shop.add.s(1, 2).apply_async()) == 3
    assert shop.add.s(2)(1) == 3


def test_a_call_takes_further_arguments_before_its_own(shop: Shop) -> None:
    @shop.celery.task
    def minus(x: int, y: int, z: int = 0) -> int:
        return x - y - z

    assert ran(shop, minus.s(1).delay(5)) == 4
    assert ran(shop, minus.s(1, z=9).apply_async((5,), {"z": 1}, countdown=0)) == 3
    assert ran(shop, minus.si(7, 1).delay(5)) == minus.si(7, 1)(5) == 6
    assert ran(shop, chain(minus.s(1), minus.s(2)).delay(5)) == 2
    assert ran(shop, group(minus.s(1), minus.s(2))(5)) == [4, 3]


def test_a_group_gives_a_list_in_order(shop: Shop) -> None:
    result = group(shop.add.s(n, n) for n in range(5)).apply_async(queue="many")
    assert ran(shop, result) == [0, 2, 4, 6, 8]
    assert result.completed_count() == 5
    assert {job.queue for job in shop.app.jobs()} == {"many"}


def test_a_canvas_inside_another_inherits_queue_and_priority(shop: Shop) -> None:
    inner = chain(shop.add.s(1, 1), group(shop.add.s(2), chain(shop.add.s(3), shop.add.s(4))))
    result = group(inner, shop.add.s(5, 5)).apply_async(queue="many", priority=3)
    assert ran(shop, result) == [[4, 9], 10]
    jobs = shop.app.jobs()
    assert len(jobs) == 8
    assert {job.queue for job in jobs} == {"many"}
    assert len({job.priority for job in jobs}) == 1


def test_a_chord_calls_its_body_with_all_results(shop: Shop) -> None:
    assert ran(shop, chord([shop.add.s(n, n) for n in range(4)])(shop.total.s())) == 12
    nested = chain(shop.add.s(1, 1), group(shop.add.s(1), chain(shop.add.s(2), shop.add.s(3))), shop.total.s())
    assert ran(shop, nested()) == 10
    assert ran(shop, chord(group(shop.add.s(1, 1)), shop.total.s() | shop.add.s(5)).apply_async()) == 7


def test_a_failed_header_keeps_the_body_from_running(shop: Shop) -> None:
    result = chord([shop.away.s("value"), shop.add.s(1, 1)])(shop.total.s())
    with pytest.raises(JobFailed, match="ValueError: wrong"):
        ran(shop, result)
    assert shop.app.count_jobs(task="shop.total") == 0
    assert shop.app.count_jobs(task=f"{__name__}.add", state="succeeded") == 1


def test_a_revoked_job_does_not_run(shop: Shop) -> None:
    result = shop.add.delay(1, 2)
    result.revoke()
    assert drain(shop.app) == 0
    assert (result.state, result.failed()) == ("REVOKED", False)


def test_what_has_no_counterpart_is_refused_by_name(shop: Shop) -> None:
    for refused, hint in (
        (lambda: shop.add.apply_async((1, 2), expires=60), "'expires' .*cancel the job"),
        (lambda: shop.add.apply_async((1, 2), link=shop.total.s()), "'link' .*chain"),
        (lambda: shop.add.s(1).set(task_id="x"), "'task_id' .*unique="),
        (lambda: shop.celery.task(rate_limit="10/m"), "'rate_limit' .*rate=Rate"),
        (lambda: shop.celery.task(soft_time_limit=5), "'soft_time_limit' .*time_limit"),
        (lambda: shop.celery.task(acks_late=False)(print), "acks_late=False has no counterpart"),
        (lambda: shop.celery.send_task("shop.unknown"), "no task 'shop.unknown'"),
        (lambda: Celery("shop"), "takes an App"),  # pyright: ignore[reportArgumentType]
        (lambda: chain(), "chain.. has no tasks"),
        (lambda: group(shop.add), "not of <CeleryTask"),
    ):
        with pytest.raises((ConfigError, TypeError), match=hint):
            refused()
    for missing, hint in (
        (lambda: shop.add.delay_on_commit, 'connection="default"'),
        (lambda: shop.add.chunks, "batch="),
        (lambda: shop.celery.conf, "App"),
        (lambda: shop.add.delay(1, 2).forget, "keep="),
    ):
        with pytest.raises(AttributeError, match=hint):
            missing()


def test_wrong_values_are_refused_where_they_are_given(shop: Shop, dsn: str) -> None:
    add, task = shop.add, cast("Any", shop.celery.task)
    other = Celery(App(dsn, name="other"), set_as_current=False)

    @other.task(name="other.add")
    def other_add(x: int, y: int) -> int:
        return x + y

    def fn() -> None: ...

    for refused, hint in (
        (lambda: add.apply_async((1, 2), eta="2026-01-01"), "eta is '2026-01-01': give a datetime"),
        (lambda: add.apply_async("12"), "args is '12': give a list or a tuple"),
        (lambda: add.apply_async({1: 2, 3: 4}), "give a list or a tuple"),
        (lambda: add.apply_async((1,), [("y", 2)]), "give a dict with names"),
        (lambda: add.apply_async((1,), {2: 3}), "give a dict with names"),
        (lambda: shop.celery.send_task("shop.total", "12"), "give a list or a tuple"),
        (lambda: chain(add.s(1, 2).set(eta="soon"), add.s(3)).apply_async(), "eta is 'soon': give a datetime"),
        (lambda: chain(add.s(1, 2).set(queue=5), add.s(3)).apply_async(), "queue is 5"),
        (lambda: chain(add.s(1, 2).set(countdown="soon"), add.s(3)).apply_async(), "delay is 'soon'"),
        (lambda: group(add.s(1, 2), other_add.s(1, 2)).apply_async(), "other.add.* is of another app"),
        (lambda: chain(add.s(1, 2), group(add.s(1), other_add.s(2))).apply_async(), "is of another app"),
        (lambda: task(name="a", max_retries="3")(fn), "max_retries is '3'"),
        (lambda: task(name="a", autoretry_for=["OSError"])(fn), "give a tuple of exception types"),
        (lambda: task(name="a", retry_backoff="fast")(fn), "initial. is 'fast'"),
        (lambda: chain(add.s(1), add.s(2)).delay(x=1), "takes no kwargs"),
        (lambda: Celery(shop.app), "has a Celery.* already"),
        (lambda: task(5), "made of a function, not of 5"),
    ):
        with pytest.raises(ConfigError, match=hint):
            refused()
    assert shop.app.count_jobs() == 0
    other.app.close()
    at = datetime.now(UTC).replace(tzinfo=None)
    early = chain(add.s(1, 2).set(countdown=timedelta(0)), add.s(3).set(eta=at))
    assert ran(shop, early.apply_async()) == 6


def test_attributes_of_a_function_are_not_those_of_its_task(shop: Shop) -> None:
    def marked() -> int:
        return 1

    marked.options = {"bind": True}  # pyright: ignore[reportFunctionMemberAccess]
    marked.fn = None  # pyright: ignore[reportFunctionMemberAccess]
    assert ran(shop, shop.celery.task(name="marked")(marked).delay()) == 1


def test_a_retry_stands_whatever_the_error_and_the_countdown_are(shop: Shop) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @shop.celery.task(bind=True, name="odd")
    def odd(this: Any) -> int:
        if not this.request.retries:
            this.retry(exc=Hostile(), countdown=-1)
        return this.request.retries

    assert ran(shop, odd.delay()) == 1


def test_a_canvas_with_arguments_that_do_not_fit_fails(shop: Shop) -> None:
    with pytest.raises(JobFailed, match="too many positional"):
        ran(shop, chain(shop.add.s(1, 2, 3, 4), shop.add.s(1)).apply_async())


async def test_a_canvas_waits_for_a_worker_that_has_its_tasks(dsn: str) -> None:
    async with App(dsn, name="shop") as old, App(dsn, name="shop") as new:
        Celery(old, set_as_current=False)
        celery = Celery(new, set_as_current=False)

        @celery.task(name="shop.later")
        def later(x: int) -> int:
            return x * 10

        result = await asyncio.to_thread(chain(later.s(1)).apply_async)
        async with Worker(old):

            async def has_failed() -> bool:
                info = await result.handle.ainfo()
                return info is not None and bool(info.failures)

            await auntil(has_failed)
        async with Worker(new):
            assert await result.aget(timeout=20) == 10
