"""The proof: a day of fifty schedules and three workers that join, die and are paused, by a clock that is set.

By default one of the days below, drawn by lot, takes half a minute. STEPWELL_DAY_SEED=<what was printed> draws the same
again, as far as the machine lets it; STEPWELL_DAYS=all lives through all of them, in smaller steps.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest

from .audit import audit_nexts, audit_runs, audit_ticks
from .day import Day
from .oracle import Oracle
from .roster import draw_rules
from .world import World

pytestmark = pytest.mark.crash

# Local days on which clocks turn: on by an hour, back by an hour, and by half an hour each way.
DAYS = {
    "spring in Paris": ("Europe/Paris", (2026, 3, 29)),
    "autumn in Paris": ("Europe/Paris", (2026, 10, 25)),
    "autumn in New York": ("America/New_York", (2026, 11, 1)),
    "spring on Lord Howe": ("Australia/Lord_Howe", (2026, 10, 4)),
    "autumn on Lord Howe": ("Australia/Lord_Howe", (2026, 4, 5)),
    "the end of Ramadan in Casablanca": ("Africa/Casablanca", (2026, 3, 22)),
}
# Of the schedules, so many stand in the workers' code; the others are made at run time, and some of them changed.
DECLARED = 30


@pytest.fixture
def seed() -> int:
    seed = int(os.environ.get("STEPWELL_DAY_SEED") or secrets.randbelow(2**32))
    print(f"STEPWELL_DAY_SEED={seed}")
    return seed


@pytest.mark.slow
@pytest.mark.long
def test_on_a_day_full_of_trouble_every_tick_is_seen_to_once_and_as_the_rules_say(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path, seed: int
) -> None:
    live_through(random.Random(seed).choice(list(DAYS)), 16, dsn, conn, tmp_path, seed)


@pytest.mark.skipif(os.environ.get("STEPWELL_DAYS") != "all", reason="takes minutes: set STEPWELL_DAYS=all")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", DAYS)
def test_so_it_is_on_every_day(title: str, dsn: str, conn: psycopg.Connection[Any], tmp_path: Path, seed: int) -> None:
    live_through(title, 4, dsn, conn, tmp_path, seed)


def live_through(title: str, longest: int, dsn: str, conn: psycopg.Connection[Any], place: Path, seed: int) -> None:
    dice = random.Random(seed)
    zone, date = DAYS[title]
    midnight = datetime(*date, tzinfo=ZoneInfo(zone))
    start, end = midnight.astimezone(UTC), (midnight + timedelta(days=1)).astimezone(UTC)
    print(f"{title}: from {start} to {end}")
    # The last step may end a while after the day.
    horizon = end + timedelta(hours=12)
    oracle = Oracle(start - timedelta(hours=1), horizon)
    rules = draw_rules(dice, zone)
    declared, made = rules[:DECLARED], rules[DECLARED:]
    with closing(World(dsn, conn, place / "gate", oracle, dice, start, declared)) as world:
        world.launch(wait=True)
        for rule in made:
            world.put(rule)
        steps = Day(world, dice, end, zone, [rule.name for rule in made if not rule.jitter], longest).run()
        became = Counter(tick.skipped or tick.fate for name in oracle.names for tick in oracle.ticks(name))
        print(f"{steps} steps, {oracle.count} ticks: {dict(became)}")
        audit_ticks(conn, oracle)
        audit_runs(conn, oracle)
        audit_nexts(conn, oracle, horizon)
    assert world.noise == []
