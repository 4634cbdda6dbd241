"""The crash sweep finds what it is there to find, and says where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from stepwell import App, ConfigError, JobHandle
from stepwell.testing import CrashPoint, CrashSweep, SweepFailed, crash_sweep

from .shop import make_app

pytestmark = pytest.mark.crash

PROGRAM = "tests.testing.shop:app"


@pytest.fixture
def shop(dsn: str, conn: psycopg.Connection[Any]) -> Iterator[App]:
    conn.execute("create table payment (job_id text)")
    with make_app(dsn) as app:
        yield app


@pytest.mark.slow
def test_a_careful_job_passes_at_every_point(shop: App, conn: psycopg.Connection[Any]) -> None:
    def payments(job: JobHandle[Any]) -> Any:
        return conn.execute("select count(*) from payment where job_id = %s", (str(job.id),)).fetchone()

    sweep = crash_sweep(shop, shop.tasks["careful"].call(7), program=PROGRAM, effects=payments)
    # The claim, the transaction, the suspension, the second claim, and the end.
    assert sweep.writes == 5
    assert {point for (point,) in sweep.killed} >= {CrashPoint(2, "before"), CrashPoint(5, "committed")}
    assert sweep.ending.state == "succeeded"
    assert sweep.ending.effects == (1,)
    assert conn.execute("select count(*) from stepwell.clock").fetchone() == (0,)
    assert conn.execute("select count(*) from stepwell.job").fetchone() == (0,)


@pytest.mark.slow
def test_a_careless_job_is_told_at_which_write(shop: App, conn: psycopg.Connection[Any]) -> None:
    def payments(job: JobHandle[Any]) -> Any:
        return conn.execute("select count(*) from payment where job_id = %s", (str(job.id),)).fetchone()

    with CrashSweep(shop, program=PROGRAM) as sweep:
        careless = shop.tasks["careless"].call(7)
        with pytest.raises(SweepFailed) as failed:
            sweep.run(careless, effects=payments, points=[CrashPoint(2, "before")])
        assert failed.value.differences[0].splitlines() == [
            "  write 2, before it was sent (save_steps):",
            "    effects: without a fault (1,)",
            "             but here      (2,)",
        ]
        # When it was committed it is safe; and the sweep can be used again.
        assert sweep.run(careless, effects=payments, points=[CrashPoint(2, "committed")]).killed


@pytest.mark.slow
def test_a_result_that_depends_on_the_run_is_found(shop: App) -> None:
    with pytest.raises(SweepFailed, match="result: without a fault"):
        crash_sweep(shop, shop.tasks["forgetful"].call(), program=PROGRAM)


def test_a_job_that_waits_for_nothing_is_told_so(shop: App) -> None:
    with pytest.raises(SweepFailed, match=r"(?s)'lost' does not end.*lost is waiting"):
        crash_sweep(shop, shop.tasks["lost"].call(), program=PROGRAM)


@pytest.mark.slow
def test_a_job_that_takes_its_time_is_waited_for_and_one_that_does_nothing_is_not(shop: App) -> None:
    in_all = [0.7] * 5
    assert crash_sweep(shop, shop.tasks["slow"].call(in_all), program=PROGRAM, sample=0, patience=3).writes > 5
    with pytest.raises(SweepFailed, match=r"(?s)does not end.*nothing was written for 3 s: slow is running"):
        crash_sweep(shop, shop.tasks["slow"].call([60]), program=PROGRAM, sample=0, patience=3)


@pytest.mark.slow
def test_what_does_not_end_is_not_in_the_way_of_what_is_swept_next(shop: App) -> None:
    with CrashSweep(shop, program=PROGRAM) as sweep:
        with pytest.raises(SweepFailed, match="nothing was written for 2 s: slow is running"):
            sweep.run(shop.tasks["slow"].call([60]), sample=0, patience=2)
        assert sweep.run(shop.tasks["slow"].call([0]), sample=0).ending.state == "succeeded"


def test_an_app_that_no_process_could_import_is_refused(shop: App) -> None:
    with pytest.raises(ConfigError, match='give program="module:app"'):
        crash_sweep(shop, shop.tasks["lost"].call())
