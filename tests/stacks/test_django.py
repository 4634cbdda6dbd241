"""The backend for Django's tasks, on a real site with a real Postgres and real workers."""
# pyright: basic

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import timedelta
from typing import Any

import pytest
from stacks.django_shop.site import open_connections, site

from stepwell import JobExists, Unique, Worker
from stepwell.testing import drain, eager

__all__ = ["site"]


@pytest.fixture
def tasks(site: Any) -> Any:
    from stacks.django_shop import tasks

    return tasks


def done(app: Any, result: Any) -> Any:
    """Run all jobs, and return the result as it is then."""
    drain(app)
    result.refresh()
    return result


def test_the_backend_supports_all_that_a_backend_can(tasks: Any) -> None:
    backend = tasks.add.get_backend()
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_result_is_read_back(site: Any, tasks: Any) -> None:
    result = tasks.add.enqueue(1, 2, 3, x=4)
    assert (result.status, result.args, result.kwargs, result.attempts) == ("READY", [1, 2, 3], {"x": 4}, 0)
    done(site, result)
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 10, 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    read = tasks.add.get_result(result.id)
    assert (read.task.func, read.args, read.kwargs, read.backend) == (tasks.add.func, [1, 2, 3], {"x": 4}, "default")
    assert len(result.id) <= 64


def test_a_job_commits_with_atomic_and_its_savepoints(site: Any, tasks: Any) -> None:
    from django.db import transaction
    from stacks.django_shop.models import Order

    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        Order.objects.create(customer="Ada")
        gone = tasks.add.enqueue(1)
        gone.refresh()  # the transaction sees its own job
        raise ZeroDivisionError
    assert Order.objects.count() == 0
    with transaction.atomic():
        kept = tasks.add.enqueue(2)
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            undone = tasks.add.enqueue(3)
            raise ZeroDivisionError
    assert drain(site) == 1
    assert tasks.add.get_result(kept.id).return_value == 2
    for lost in (gone, undone):
        with pytest.raises(missing()):
            lost.refresh()


def missing() -> type[Exception]:
    from stepwell.contrib.django.tasks_api import TaskResultDoesNotExist

    return TaskResultDoesNotExist


def test_queue_priority_and_run_after_are_stored(site: Any, tasks: Any) -> None:
    from django.utils import timezone

    later = timezone.now() + timedelta(hours=1)
    result = tasks.send_mail.enqueue("ada@example.org")
    delayed = tasks.send_mail.using(priority=-100, queue_name="default", run_after=later).enqueue("x")
    anywhere = tasks.add.using(backend="any", queue_name="nightly").enqueue(1)
    info, held = site.job(result.id).info(), site.job(delayed.id).info()
    assert (info.queue, info.priority, info.state, info.owner) == ("mail", 7, "ready", "stacks")
    assert (held.queue, held.priority, held.state, held.run_at) == ("default", -100, "scheduled", later)
    delayed.refresh()
    assert (delayed.status, delayed.task.priority) == ("READY", -100)
    read = tasks.send_mail.get_result(delayed.id)
    assert (read.task.priority, read.task.queue_name, read.task.run_after) == (-100, "default", later)
    assert drain(site) == 2
    assert tasks.called == [("ada@example.org", tasks.called[0][1])]
    assert tasks.called[0][1].startswith("stepwell-task")
    anywhere.refresh()
    assert (anywhere.return_value, anywhere.task.queue_name, anywhere.backend) == (1, "nightly", "any")


def test_wrong_options_and_arguments_are_refused_where_they_are_given(tasks: Any) -> None:
    from stepwell.contrib.django.tasks_api import InvalidTask

    for options in ({"priority": 101}, {"queue_name": "unknown"}, {"timeout": "soon"}, {"unique": ""}):
        with pytest.raises(InvalidTask):
            tasks.add.using(**options)
    with pytest.raises(TypeError, match=r"send_mail.* takes .to: str.: missing a required argument: 'to'"):
        tasks.send_mail.enqueue()
    with pytest.raises(TypeError, match="Unsupported type"):
        tasks.add.enqueue(object())


def test_a_failed_attempt_is_an_error_of_the_result(site: Any, tasks: Any) -> None:
    again, never = tasks.fail_until.enqueue(2), tasks.fail.enqueue("no such order")
    drain(site)
    again.refresh()
    assert again.return_value == [2, "RUNNING", 1]
    assert (again.attempts, [error.exception_class for error in again.errors]) == (2, [ValueError])
    never.refresh()
    assert (never.status, never.attempts, len(never.errors)) == ("FAILED", 2, 2)
    assert never.errors[0].exception_class is LookupError
    assert "LookupError: no such order" in never.errors[0].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = never.return_value


def test_a_value_that_is_not_json_fails_at_once(site: Any, tasks: Any) -> None:
    result = done(site, tasks.return_a_set.enqueue())
    assert (result.status, result.attempts) == ("FAILED", 1)
    assert "returned a value that is not JSON" in result.errors[0].traceback


def test_a_cancelled_job_is_a_failed_task(site: Any, tasks: Any) -> None:
    from stepwell import JobCancelled

    result = tasks.add.enqueue(1)
    assert site.job(result.id).cancel("out of stock")
    result.refresh()
    assert (result.status, result.attempts) == ("FAILED", 0)
    assert (result.errors[0].exception_class, result.errors[0].traceback) == (JobCancelled, "out of stock")


def test_a_task_takes_options_of_stepwell(site: Any, tasks: Any) -> None:
    first = tasks.bill.enqueue("Ada")
    assert tasks.bill.enqueue(customer="Ada", month=2).id == first.id
    other = tasks.bill.using(metadata={"by": "cron"}, max_attempts=3).enqueue("Bea")
    info = site.job(other.id).info()
    assert (info.metadata, info.max_attempts) == ({"by": "cron"}, 3)
    assert site.tasks["stacks.django_shop.tasks.bill"].timeout == 60
    drain(site)
    first.refresh()
    other.refresh()
    assert (first.attempts, other.attempts, first.args) == (1, 3, ["Ada"])
    once = tasks.add.using(unique=Unique("nightly", on_conflict="raise"))
    once.enqueue(1)
    with pytest.raises(JobExists):
        once.enqueue(2)


def test_a_unique_key_of_a_job_without_a_result_gives_a_result_with_its_id(site: Any, tasks: Any) -> None:
    from django.db import connection

    daily = tasks.add.using(unique=Unique("daily", period="24h"))
    first = daily.enqueue(1)
    drain(site)
    with connection.cursor() as cursor:
        cursor.execute("delete from stepwell.history")  # as pruning does, before the period of the key is over
    again = daily.enqueue(2)
    assert (again.id, again.status, again.args) == (first.id, "READY", [2])
    assert again.task.module_path == tasks.add.module_path

    wide = Unique("shared", scope="database")
    native = tasks.native.using(unique=wide).enqueue("Ada")
    assert tasks.add.using(unique=wide).enqueue(1).id == str(native.id)


def test_acts_of_a_person_on_jobs_of_django_tasks_are_recorded_with_them(site: Any, tasks: Any) -> None:
    from django.db import connection, transaction

    django_task = site.tasks[tasks.add.module_path]

    job, kept = django_task.enqueue(1), django_task.enqueue(2)

    def recorded() -> list[Any]:
        # Only of these jobs: other tests of Django have the same database.
        targets = [f"job {job.id}", f"job {kept.id}"]
        with connection.cursor() as cursor:
            cursor.execute("select who, act, target from stepwell.audit where target = any (%s) order by id", [targets])
            return cursor.fetchall()

    with site.acting_as("ada"):
        assert job.cancel()
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            assert kept.cancel()
            raise ZeroDivisionError
    assert recorded() == [("ada", "cancel", f"job {job.id}")]
    assert kept.info().state == "ready"


async def test_a_limit_names_the_parameters_of_the_function(site: Any, tasks: Any) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections

    try:
        results = [await tasks.pack.aenqueue("north", order=order) for order in range(3)]
        async with Worker(site):
            alone = [await site.job(result.id).aresult(timeout="20s") for result in results]
        assert alone == [True, True, True]
    finally:
        await sync_to_async(connections.close_all)()
        await site.aclose()


def test_a_durable_step_runs_once(site: Any, tasks: Any) -> None:
    result = done(site, tasks.checkout.enqueue(7))
    assert (result.return_value, tasks.called) == ("charge-7", [7])


@pytest.mark.slow
async def test_a_django_task_has_a_schedule(site: Any, tasks: Any) -> None:
    async with Worker(site):
        job = await site.schedule_named("stacks.django_shop.tasks.add").atrigger()
        assert await job.aresult(timeout="20s") == 7
    await site.aclose()


@pytest.mark.slow
def test_signals_tell_of_the_beginning_and_the_end(site: Any, tasks: Any) -> None:
    from stepwell.contrib.django import StepwellBackend
    from stepwell.contrib.django.tasks_api import signals

    heard: list[Any] = []

    def hear(name: str) -> Any:
        def receive(sender: Any, task_result: Any, **_: Any) -> None:
            assert sender is StepwellBackend
            heard.append((name, task_result.task.name, str(task_result.status), task_result.attempts))
            raise RuntimeError("a receiver that fails harms nothing")

        getattr(signals, name).connect(receive, weak=False, dispatch_uid=name)
        return receive

    names = ("task_enqueued", "task_started", "task_finished")
    for name in names:
        hear(name)
    try:
        result = done(site, tasks.fail_until.enqueue(2))
        counted = done(site, tasks.count_orders.enqueue("Ada"))
        lost = done(site, tasks.fail.using(max_attempts=1).enqueue("x"))
    finally:
        for name in names:
            getattr(signals, name).disconnect(dispatch_uid=name)
    assert (result.status, counted.return_value, lost.status) == ("SUCCESSFUL", 0, "FAILED")
    assert heard == [
        ("task_enqueued", "fail_until", "READY", 0),
        ("task_started", "fail_until", "RUNNING", 1),
        ("task_started", "fail_until", "RUNNING", 2),
        ("task_finished", "fail_until", "SUCCESSFUL", 2),
        ("task_enqueued", "count_orders", "READY", 0),
        ("task_started", "count_orders", "RUNNING", 1),
        ("task_finished", "count_orders", "SUCCESSFUL", 1),
        ("task_enqueued", "fail", "READY", 0),
        ("task_started", "fail", "RUNNING", 1),
        ("task_finished", "fail", "FAILED", 1),
    ]


def test_no_run_leaves_a_connection_of_django_open(site: Any, tasks: Any) -> None:
    from django.db import connections
    from stacks.django_shop.models import Order

    Order.objects.create(customer="Ada")
    results = [tasks.count_orders.enqueue("Ada"), tasks.make_order.enqueue("Bea")]
    own = [tasks.native.enqueue("Ada"), tasks.anative.enqueue("Ada")]
    connections.close_all()
    drain(site)
    assert open_connections(os.environ["SHOP_DATABASE"]) == 0
    assert [tasks.count_orders.get_result(results[0].id).return_value, *(job.info().result for job in own)] == [1, 1, 1]
    assert Order.objects.filter(pk=tasks.make_order.get_result(results[1].id).return_value).exists()


async def test_async_code_enqueues_and_reads(site: Any, tasks: Any) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections, transaction

    from stepwell.testing import adrain

    def roll_back() -> Any:
        with transaction.atomic():
            result = tasks.add.enqueue(1)
            transaction.set_rollback(True)
        return result

    try:
        results = await asyncio.gather(*(tasks.count_orders.aenqueue(name) for name in ("Ada", "Bea")))
        gone = await sync_to_async(roll_back)()
        await adrain(site)
        for result in results:
            await result.arefresh()
        assert [result.return_value for result in results] == [0, 0]
        with pytest.raises(missing()):
            await gone.arefresh()
    finally:
        await sync_to_async(connections.close_all)()
        await site.aclose()


def test_a_job_that_is_no_django_task_has_no_result(site: Any, tasks: Any) -> None:
    from stepwell.contrib.django.tasks_api import task_backends

    for unknown in (str(tasks.native.enqueue("Ada").id), "01a1eabe-3d0c-7b7d-9f96-67397b983722", "no uuid"):
        with pytest.raises(missing()):
            task_backends["default"].get_result(unknown)


class _Reversed:
    name = "reversed"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


def test_the_codecs_of_the_setting_seal_the_arguments_and_results_of_django_tasks(
    site: Any, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import connection
    from django.test import override_settings

    from stepwell.contrib.django import site_app

    with override_settings(STEPWELL={"codecs": [_Reversed()]}):
        sealed = site_app.DjangoApp()
    monkeypatch.setattr(site_app, "_app", sealed)
    try:
        result = tasks.send_mail.enqueue("ada@example.org")
        done(sealed, result)
        assert (result.args, result.return_value) == (["ada@example.org"], {"sent": "ada@example.org"})
        with connection.cursor() as cursor:
            cursor.execute("select args::text, result::text from stepwell.history")
            assert not any("ada" in text for text in cursor.fetchone())
    finally:
        sealed.close()


def test_eager_runs_the_tasks_of_the_app_inline_beside_django_tasks(site: Any, tasks: Any) -> None:
    with eager(site):
        assert tasks.double.enqueue(4).result() == 8
    assert site.count_jobs() == 0
