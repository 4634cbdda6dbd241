"""The benchmarks run, and say what they found. How fast it was is not for a test to say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks import report
from benchmarks.figure import Figure, Measured
from benchmarks.kit.tally import Reading, Tally
from benchmarks.run import BARE, STEPWELL, Run
from benchmarks.scenarios.groups import group_rate
from benchmarks.scenarios.lateness import DUE, RETRIED, bare_loop, due, scheduled, worker
from benchmarks.scenarios.snapshot import drain_beside_snapshot
from benchmarks.scenarios.steps import STEPS, held_rate, put_to_sleep, round_trips, step_rate, wake
from benchmarks.server import Server
from benchmarks.stage import Drained
from benchmarks.system import System


@pytest.fixture
def run(server_dsn: str, tmp_path: Path) -> Run:
    return Run(Server(server_dsn), tmp_path, quick=True)


@pytest.mark.parametrize("system", [STEPWELL, BARE], ids=lambda system: system.name)
def test_a_system_is_drained_and_pinged(run: Run, system: System) -> None:
    with run.stage(system, 300) as stage:
        drained = stage.drain(300, 10, patience=60)
        assert (drained.jobs, drained.counts[-1][1]) == (300, 300)
        assert drained.seconds > 0
        assert len(stage.ping(3)) == 3
        with psycopg.connect(stage.dsn) as connection:
            done = connection.execute("select count(*) from stepwell.history").fetchone()
        assert done == (308,)  # five more pings warm it up


def test_two_workers_share_a_queue(run: Run) -> None:
    with run.stage(STEPWELL, 4000) as stage:
        drained = stage.drain(4000, 10, processes=2, patience=60)
    assert 0 < drained.jobs <= 4000
    assert drained.counts[-1][1] == 4000


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_groups_are_drained(run: Run, groups: int) -> None:
    assert group_rate(run, 300, groups, 10) > 0


def test_a_snapshot_is_held_while_jobs_pass(run: Run) -> None:
    drained = drain_beside_snapshot(run, STEPWELL, 500, patience=60)
    assert drained.counts[-1][1] == 500


def test_lateness_is_told_of_jobs_retries_and_schedules(run: Run) -> None:
    with run.stage(BARE) as bare, run.stage(STEPWELL) as ours, worker(ours):
        with bare_loop(bare, "jobs"):
            lates = due([(bare, DUE), (ours, DUE), (ours, RETRIED)], 3, longest=0.1)
        assert [len(late) for late in lates] == [3, 3, 3]
        with bare_loop(bare, "schedules"):
            lates += [scheduled(stage, 1) for stage in (bare, ours)]
    assert all(lates)
    assert all(0 <= each < 60 for late in lates for each in late)


def test_steps_are_saved_by_the_worker_and_by_the_bare_loops(run: Run) -> None:
    assert held_rate(run, batch=10, batches=2, loops=2) > 0
    for system in (STEPWELL, BARE):
        assert step_rate(run, system, 20, 10) > 0
        with run.stage(system, 20, {"BENCH_TASK": "ten_steps", "BENCH_STEPS": str(STEPS)}) as stage:
            stage.drain(20, 10, patience=60)
            with psycopg.connect(stage.dsn) as connection:
                saved = connection.execute("select count(*), sum(json_array_length(steps)) from stepwell.history")
                assert saved.fetchone() == (20, 20 * STEPS)


def test_the_round_trips_of_a_job_are_told(run: Run) -> None:
    with run.stage(STEPWELL) as stage:
        assert round_trips(stage, "ten_steps") == [["claim", *["save_steps"] * STEPS, "finish"]]
        assert round_trips(stage, "replayed") == [["claim", *["save_steps"] * STEPS, "fail"], ["claim", "finish"]]


def test_jobs_sleep_beside_others_and_wake_by_events(run: Run) -> None:
    with run.stage(STEPWELL) as stage:
        assert put_to_sleep(stage, 20) > 0
        stage.run("fill", 300)
        assert stage.drain(300, 10, patience=60).counts[-1][1] == 300
        with psycopg.connect(stage.dsn) as connection:
            left = connection.execute("select task, state::text, count(*) from stepwell.job group by task, state")
            assert left.fetchall() == [("sleeper", "waiting", 20)]
    with run.stage(STEPWELL) as stage:
        assert len(wake(stage, 3)) == 3


def test_a_worker_that_ends_by_itself_is_no_measurement(run: Run) -> None:
    with run.stage(STEPWELL) as stage, pytest.raises(RuntimeError, match="a worker ended with"):  # noqa: SIM117
        with stage.workers(0) as workers:  # refused by the command line
            workers[0].wait(60)


def test_the_tally_counts_every_process_apart(tmp_path: Path) -> None:
    ran = Reading.new(tmp_path / "tally")
    tally = Tally(tmp_path / "tally")
    tally.hit()
    child = os.fork()
    if not child:
        tally.hit()
        tally.hit_after(0)
        os._exit(0)
    os.waitpid(child, 0)
    tally.hit()
    assert (ran.count, ran.processes, len(ran.latencies)) == (4, 2, 1)


def test_rates_of_the_best_and_the_last_second() -> None:
    # A thousand a second for two seconds, then a hundred a second, then nothing.
    counts = [(at / 100, at * 10 if at <= 200 else 1800 + at) for at in range(401)] + [(4.5, 2200)]
    drained = Drained(2200, 4.5, counts)
    assert drained.best_second == pytest.approx(1000)
    assert drained.last_second == pytest.approx(100)
    assert [round(rate) for _, rate in drained.over_time()] == [1000] * 4 + [100] * 4


@pytest.mark.parametrize(
    ("options", "reached", "words"),
    [
        ({"at_least": 0.7}, True, "at least 0.7"),
        ({"at_least": 0.9}, False, "at least 0.9"),
        ({"at_most": 0.9}, True, "at most 0.9"),
        ({"at_most": 0.5}, False, "at most 0.5"),
        ({"limit": 79.0}, False, "at most 79 jobs/s"),
        ({}, None, ""),
    ],
)
def test_a_figure_knows_whether_it_was_reached(options: dict[str, float], reached: bool | None, words: str) -> None:
    figure = Figure(
        "drain", "x", Measured.of([80.0]), "jobs/s", "ceiling", Measured.of([100.0, 90.0, 110.0]), **options
    )
    assert figure.ratio == pytest.approx(0.8)
    assert (figure.reached, figure.to_reach) == (reached, words)


def test_what_was_found_is_written_down(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.record("drain", "concurrency 500", [700.0, 650.0, 800.0], "jobs/s", "bare loop", [1000.0], at_least=0.7)
    run.series["snapshot: stepwell"] = [(0.5, 10.0), (1.0, 12.0)]
    run.note("steps: not measured")
    report.write(run, "tried", place=tmp_path)
    assert "0.70 of" in capsys.readouterr().out
    found: dict[str, Any] = json.loads((tmp_path / "tried.json").read_text())
    assert found["figures"][0]["ratio"] == pytest.approx(0.7)
    assert found["figures"][0]["reached"] is True
    assert "fsync" in found["about"]["postgres"]
    table = (tmp_path / "tried.md").read_text()
    assert (
        "| drain | concurrency 500 | 700 jobs/s (650 to 800) | bare loop: 1,000 | 0.70 | at least 0.7: reached |"
        in table
    )
    assert "- steps: not measured" in table
    for plot in ("tried-drain.svg", "tried-snapshot.svg"):
        assert "<svg" in (tmp_path / plot).read_text()
