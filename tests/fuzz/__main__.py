"""Play round after round: `python -m tests.fuzz --minutes 60`; `--seed N` plays one round again."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from stepwell.embedded import EmbeddedPostgres
from stepwell.postgres.migrate import migrate
from tests.conftest import make_open_dir, postgres_bin_dir

from .findings import Findings
from .round import play

_ROUND = 45.0


def main() -> int:
    """Play, and say at the end what every seed has found. Returns 1 if anything was."""
    told = _read_options()
    deadline = time.monotonic() + told.minutes * 60
    found: dict[int, Findings] = {}
    calls: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    progress = Progress(told.minutes * 60)
    seeds: list[int] = []
    with _server() as dsn:
        while not seeds or (told.seed is None and time.monotonic() < deadline):
            seed = secrets.randbelow(2**32) if told.seed is None else told.seed
            seeds.append(seed)
            progress.say(f"round {len(seeds)}, seed {seed}, {len(found)} with findings")
            with _database(dsn) as database:
                findings = play(database, seed, told.round, patience=40)
            calls += findings.calls
            refused += findings.errors
            if findings.titles:
                found[seed] = findings
                progress.tell(f"seed {seed} found:\n{findings}")
    progress.tell(f"{len(seeds)} rounds, {calls.total()} calls, {refused.total()} of them refused; seeds {seeds}")
    if told.verbose:
        for what, times in sorted(calls.items()):
            errors = {key.rpartition(" ")[2]: n for key, n in refused.items() if key.rpartition(" ")[0] == what}
            print(f"  {what}: {times} {errors}")
    for seed, findings in found.items():
        print(f"seed {seed}:", *findings.titles, sep="\n  ")
    print(f"{len(found)} rounds found something" if found else "nothing was found")
    return bool(found)


class Progress:
    """On a terminal one line that is written over; else a line for each round."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = time.monotonic()
        self._on_terminal = sys.stdout.isatty()

    def say(self, what: str) -> None:
        done = time.monotonic() - self._begun
        line = f"{done / 60:.1f} of {self._seconds / 60:g} min: {what}"
        print(f"\r\033[K{line}" if self._on_terminal else line, end="" if self._on_terminal else "\n", flush=True)

    def tell(self, what: str) -> None:
        """What stays on the screen."""
        print(f"\r\033[K{what}" if self._on_terminal else what, flush=True)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=60.0, help="go on for so long")
    parser.add_argument("--round", type=float, default=_ROUND, help="seconds of noise in each round")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("--verbose", action="store_true", help="count calls and errors by function")
    return parser.parse_args()


@contextmanager
def _server() -> Generator[str]:
    place = make_open_dir()
    server = EmbeddedPostgres(place / "pg", bin_dir=postgres_bin_dir())
    try:
        dsn = server.start()
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("alter system set fsync = off")
            conn.execute("select pg_reload_conf()")
        yield dsn
    finally:
        server.stop()
        shutil.rmtree(Path(place), ignore_errors=True)


@contextmanager
def _database(dsn: str) -> Generator[str]:
    name = sql.Identifier("fuzz")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("drop database if exists {} with (force)").format(name))
        conn.execute(sql.SQL("create database {}").format(name))
        database = make_conninfo(dsn, dbname="fuzz")
        with psycopg.connect(database, autocommit=True) as own:
            migrate(own)
        yield database


if __name__ == "__main__":
    sys.exit(main())
