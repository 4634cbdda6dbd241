"""The field, side by side: every system by the same harness, on the same server, in the same run.

`python -m benchmarks.peers`, or with the names of some. Each has its own virtual environment, its own best documented
settings (its program in `systems/` says which and why), and of two numbers of slots, 100 and 500, the one that it did
better with. Rounds go through all systems in turn, so that what disturbs the machine disturbs them alike.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from benchmarks import redis_server, report, venvs
from benchmarks.figure import Measured, number
from benchmarks.interrupt import interruptible
from benchmarks.run import STEPWELL, Run
from benchmarks.scenarios.latency import percentile
from benchmarks.scenarios.snapshot import drain_beside_snapshot
from benchmarks.scenarios.soak import RATE, record_soak, soak
from benchmarks.server import running
from benchmarks.system import SYSTEMS, System

_ON_REDIS = {"arq", "celery", "dramatiq", "rq"}
_ON_POSTGRES = {"absurd", "awa", "chancy", "dbos", "pgqueuer", "procrastinate", "saq"}
_CONCURRENCIES = (100, 500)
_FEW_JOBS = 2_000
_MOST_JOBS = 500_000
_TRIAL_SECONDS = 2
_SECONDS = 3
_PINGS = 100
_SNAPSHOT_JOBS = 300_000
_SNAPSHOT_SECONDS = 60
# How many times the peer's rate is to be reached, for those where a figure was set.
_DRAIN_TIMES = {
    "pgqueuer": 1.5,
    "awa": 3,
    "chancy": 8,
    "absurd": 10,
    "saq": 10,
    "procrastinate": 10,
    "dbos": 10,
    "celery": 10,
}
# Those that have durable steps, and how many times their rate is to be reached.
_STEP_TIMES = {"dbos": 100, "absurd": 30}
_STEPS = 5
_FEW_WORKFLOWS = 500
# Jobs a second, of which each can run several times as many when nothing holds it up.
_SOAK_RATES = {"pgqueuer": RATE, "procrastinate": 100}
# It runs one job in a process, so as many processes as there are cores.
_ONE_PER_CORE = {"rq"}


@dataclass
class Peer:
    """A system, and what was found of it."""

    system: System
    version: str
    environment: dict[str, str]
    concurrency: int = 500
    jobs: int = _FEW_JOBS
    one: list[float] = field(default_factory=list[float])
    two: list[float] = field(default_factory=list[float])
    p50: list[float] = field(default_factory=list[float])
    p99: list[float] = field(default_factory=list[float])
    few: int = _FEW_JOBS
    """A first trial, to learn how fast it is about."""

    @property
    def name(self) -> str:
        return self.system.name


def main() -> None:
    """Measure, print, and write `results/peers.*`; `steps-peers.*` with `--steps`, `soak.*` with `--soak`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(venvs.names())}")
    parser.add_argument("--steps", action="store_true", help="only workflows of steps, of those that have them")
    parser.add_argument("--soak", action="store_true", help="only a steady load beside a held snapshot, half an hour")
    parser.add_argument("--quick", action="store_true", help="with --soak: a minute for each system, not ten")
    parser.add_argument("--rounds", type=int, default=3, help="3 if not given; of fewer the results are kept as a part")
    given = parser.parse_args()
    for name in given.names:
        if name not in venvs.names():
            parser.error(f"{name!r} is no peer: choose from {', '.join(venvs.names())}")
        if given.soak and name not in _SOAK_RATES:
            parser.error(f"{name!r} is not soaked: with --soak choose from {', '.join(_SOAK_RATES)}")
        if given.steps and name not in _STEP_TIMES:
            parser.error(f"{name!r} has no steps: with --steps choose from {', '.join(_STEP_TIMES)}")
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    with running() as server, tempfile.TemporaryDirectory() as place, _redis() as redis:
        run = Run(server, Path(place), quick=False)
        if isinstance(redis, str) and not given.steps:
            run.note(f"Redis: {redis_server.version()}, its default settings: no fsync per write")
        run.rounds = given.rounds
        whole = not given.names and given.rounds >= 3
        # What is published is a whole run; of any other what there is.
        name = "part"
        if given.soak:
            run.quick = given.quick
            try:
                _soak(run, [_ours(), *_installed(run, given.names or list(_SOAK_RATES), redis)])
                name = "soak" if not given.names and not given.quick else "part"
            finally:
                report.write(run, name)
            return
        if given.steps:
            try:
                _steps(run, [_ours(), *_installed(run, given.names or list(_STEP_TIMES), redis)])
                name = "steps-peers" if whole else "part"
            finally:
                report.write(run, name)
            return
        peers = [_ours(), *_installed(run, given.names or venvs.names(), redis)]
        peers = [peer for peer in peers if _tried(run, peer)]
        try:
            for round_number in range(run.rounds):
                for peer in random.sample(peers, len(peers)):
                    print(f"-- round {round_number + 1} of {run.rounds}: {peer.name}", flush=True)
                    _measure(run, peer)
            peers = [peer for peer in peers if peer.one]
            _record(run, peers)
            _snapshots(run, peers)
            _steps(run, peers)
            name = "peers" if whole else "part"
        finally:
            report.write(run, name, table=_table([peer for peer in peers if peer.one]))


def _ours() -> Peer:
    return Peer(STEPWELL, f"stepwell=={version('stepwell')}", {})


def _installed(run: Run, names: list[str], redis: str | Exception) -> Generator[Peer]:
    for name in names:
        if name in _ON_REDIS and isinstance(redis, Exception):
            run.note(f"{name}: not run, for there is no Redis: {redis}")
            continue
        print(f"-- installing {name}", flush=True)
        try:
            system = venvs.system(name)
        except Exception as error:
            run.note(f"{name}: not run: {error}")
            continue
        package = (SYSTEMS / name / "requirements.txt").read_text().split()[0]
        yield Peer(system, package, {"BENCH_REDIS": str(redis)} if name in _ON_REDIS else {})


def _tried(run: Run, peer: Peer) -> bool:
    """Find the better number of slots, and how many jobs keep the system busy for some seconds."""
    rates: dict[int, float] = {}
    problem: Exception | None = None
    for concurrency in _CONCURRENCIES:
        try:
            about = _drain(run, peer, peer.few, concurrency)
            rates[concurrency] = _drain(run, peer, _jobs(peer, about, _TRIAL_SECONDS), concurrency)
        except Exception as error:
            print(f"{peer.name} with {concurrency} slots: {error}", flush=True)
            problem = error
    if not rates:
        run.note(f"{peer.name}: installed, but does not run: {problem}")
        return False
    peer.concurrency = max(rates, key=lambda concurrency: rates[concurrency])
    peer.jobs = _jobs(peer, rates[peer.concurrency], _SECONDS)
    print(f"{peer.name}: {peer.concurrency} slots, {peer.jobs} jobs", flush=True)
    return True


def _jobs(peer: Peer, rate: float, seconds: float) -> int:
    return int(min(_MOST_JOBS, max(peer.few, rate * seconds)))


def _measure(run: Run, peer: Peer) -> None:
    try:
        one = _drain(run, peer, peer.jobs, peer.concurrency)
        two = _drain(run, peer, 2 * peer.jobs, peer.concurrency, 2)
        with run.stage(peer.system, environment=peer.environment) as stage:
            latencies = stage.ping(_PINGS)
    except Exception as error:
        run.note(f"{peer.name}: a round failed: {error}")
        return
    peer.one.append(one)
    peer.two.append(two)
    peer.p50.append(percentile(latencies, 50))
    peer.p99.append(percentile(latencies, 99))
    print(f"   {peer.one[-1]:,.0f} jobs/s, with two {peer.two[-1]:,.0f}, p50 {peer.p50[-1]:.1f} ms", flush=True)


def _drain(run: Run, peer: Peer, jobs: int, concurrency: int, processes: int = 1) -> float:
    with run.stage(peer.system, jobs, peer.environment) as stage:
        return stage.drain(jobs, concurrency, processes).rate


def _record(run: Run, peers: list[Peer]) -> None:
    ours = next((peer for peer in peers if peer.system is STEPWELL), None)
    if ours is None:
        run.note("nothing is compared: none of our own rounds went through")
        return
    for peer in peers:
        if peer is not ours:
            times = _DRAIN_TIMES.get(peer.name)
            run.record("peers", "drain, one process", ours.one, "jobs/s", peer.name, peer.one, at_least=times)
            wanted = 1.2 if peer.name == "pgqueuer" else None
            run.record("peers", "drain, two processes", ours.two, "jobs/s", peer.name, peer.two, at_least=wanted)
            at_most = 1.1 if peer.name in _ON_POSTGRES else None
            run.record("peers", "idle latency, p50", ours.p50, "ms", peer.name, peer.p50, at_most=at_most)
            run.record("peers", "idle latency, p99", ours.p99, "ms", peer.name, peer.p99, at_most=at_most)


def _snapshots(run: Run, peers: list[Peer]) -> None:
    """Those that run so many jobs in reasonable time, while a snapshot is held."""
    last: dict[str, float] = {}
    for peer in [peer for peer in peers if peer.name in ("stepwell", "pgqueuer", "awa")]:
        print(f"-- held snapshot: {peer.name}", flush=True)
        try:
            drained = drain_beside_snapshot(run, peer.system, _SNAPSHOT_JOBS, _SNAPSHOT_SECONDS)
        except Exception as error:
            run.note(f"{peer.name}: did not run beside a held snapshot: {error}")
            continue
        run.series[f"snapshot: {peer.name}"] = drained.over_time()
        last[peer.name] = drained.last_second
    for name, rate in last.items():
        if name != "stepwell" and "stepwell" in last:
            wanted = 3.0 if name == "pgqueuer" else None
            ours = [last["stepwell"]]
            run.record("peers", "last second beside a snapshot", ours, "jobs/s", name, [rate], at_least=wanted)


def _soak(run: Run, peers: list[Peer]) -> None:
    """A steady load beside a held snapshot, for those that can bear one for so long."""
    for peer in peers:
        print(f"-- soak: {peer.name}", flush=True)
        try:
            if peer.system is STEPWELL:
                soak(run)
            else:
                record_soak(run, peer.system, _SOAK_RATES[peer.name])
        except Exception as error:
            run.note(f"{peer.name}: was not soaked: {error}")


def _steps(run: Run, peers: list[Peer]) -> None:
    """A workflow of five steps that do nothing, by those that have steps, each with the number of slots it does better
    with."""
    durable = [
        Peer(peer.system, peer.version, {"BENCH_TASK": "five_steps"}, few=_FEW_WORKFLOWS)
        for peer in peers
        if peer.system is STEPWELL or peer.name in _STEP_TIMES
    ]
    durable = [peer for peer in durable if len(durable) > 1 and _tried(run, peer)]
    for round_number in range(run.rounds):
        for peer in random.sample(durable, len(durable)):
            print(f"-- steps, round {round_number + 1} of {run.rounds}: {peer.name}", flush=True)
            try:
                peer.one.append(_drain(run, peer, peer.jobs, peer.concurrency) * _STEPS)
            except Exception as error:
                run.note(f"{peer.name}: a round of steps failed: {error}")
    ours = [rate for peer in durable if peer.system is STEPWELL for rate in peer.one]
    for peer in durable:
        if ours and peer.one and peer.system is not STEPWELL:
            what, times = f"workflows of {_STEPS} steps", _STEP_TIMES[peer.name]
            run.record("peers", what, ours, "steps/s", peer.name, peer.one, at_least=times)


def _table(peers: list[Peer]) -> list[str]:
    lines = [
        "| system | slots | jobs/s, one process | two processes | idle latency with 10 slots, p50 | p99 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for peer in sorted(peers, key=lambda peer: -Measured.of(peer.one).median):
        cells = [_spread(rounds) for rounds in (peer.one, peer.two, peer.p50, peer.p99)]
        slots = "1 per core" if peer.name in _ONE_PER_CORE else peer.concurrency
        lines.append(f"| {peer.version} | {slots} | {cells[0]} | {cells[1]} | {cells[2]} ms | {cells[3]} ms |")
    return lines


def _spread(rounds: list[float]) -> str:
    measured = Measured.of(rounds)
    if len(rounds) == 1:
        return number(measured.median)
    return f"{number(measured.median)} ({number(measured.least)} to {number(measured.most)})"


@contextlib.contextmanager
def _redis() -> Generator[str | Exception]:
    with contextlib.ExitStack() as stack:
        try:
            redis: str | Exception = stack.enter_context(redis_server.running())
        except Exception as error:
            redis = error
        yield redis


if __name__ == "__main__":
    began = time.monotonic()
    interruptible(main)
    print(f"{(time.monotonic() - began) / 60:.0f} minutes in all")
