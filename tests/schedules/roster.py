"""Fifty schedules for a day, drawn by lot: of each kind of overlap, catch-up and queue one, and two with jitter."""

from __future__ import annotations

import random
from itertools import product
from typing import Literal, get_args

from .oracle import Rule
from .program import QUEUES

Catchup = Literal["skip", "once"] | int
Overlap = Literal["skip", "allow", "queue", "replace"]

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
CATCHUPS: tuple[Catchup, ...] = ("skip", "once", 3, 9)
ZONES = (
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Pacific/Chatham",
)
# Every time is a multiple of 15 seconds: the test's clock stands still in between.
ALL_THE_TIME: tuple[str | int, ...] = ("* * * * *", "*/1 * * * *", 75)
OFTEN: tuple[str | int, ...] = ("*/2 * * * *", "*/3 * * * *", "0-59/4 * * * *", 105, 135)
NOW_AND_THEN: tuple[str | int, ...] = (
    "*/10 * * * *",
    "*/7 * * * *",
    "5,25,45 * * * *",
    "10-20/5,50 * * * *",
    "*/15 1-4,12 * * *",
    "*/20 */2 * * *",
    "*/30 0-3 * * *",
    "0,20 0-23 * * *",
    "*/12 * * MAR,APR,OCT,NOV sat,sun,mon",
    600,
    660,
    1335,
    2715,
)
SELDOM: tuple[str | int, ...] = (
    "0 0 * * *",
    "30 1 * * *",
    "0 2 * * *",
    "15,45 2 * * *",
    "30 2 * * sun",
    "59 1,2,3 * * *",
    "0 3 * * *",
    "0 */2 * * *",
    "0 * * * *",
    "30 * * * *",
    "17 8-18/3 * * *",
    "0 9-17 * * mon-fri",
    "0 6 1,25 * SUN",
    "*/5 2 * * 0,6",
    "@hourly",
    "@daily",
    3600,
    5400,
    14415,
)


def draw_timing(dice: random.Random, zone: str, *pools: tuple[str | int, ...]) -> tuple[str | int, str | None]:
    """When, and in which zone: rather in the one whose clocks turn."""
    when = dice.choice(dice.choice(pools))
    return when, None if isinstance(when, int) else zone if dice.random() < 0.5 else dice.choice(ZONES)


def draw_catchup(dice: random.Random, when: str | int) -> Catchup:
    # Of each schedule the newest thousand ticks are kept: with more of them there would be nothing to compare with.
    return dice.choice(CATCHUPS[:2] if when in ALL_THE_TIME else CATCHUPS)


def draw_rules(dice: random.Random, zone: str) -> list[Rule]:
    rules: list[Rule] = []
    kinds: list[tuple[Overlap, Catchup, str]] = list(product(OVERLAPS, CATCHUPS, QUEUES))
    for number, (overlap, catchup, queue) in enumerate(kinds):
        pools = [NOW_AND_THEN, SELDOM]
        if queue == "main":
            pools.append(OFTEN if catchup in CATCHUPS[2:] else ALL_THE_TIME + OFTEN)
        when, tz = draw_timing(dice, zone, *pools)
        rules.append(Rule(f"{number:02} {queue} {overlap} {catchup}", when, tz, overlap, catchup, queue))
    rules += [
        Rule("48 jitter", "*/10 * * * *", zone, "allow", 2, "main", jitter=240),
        Rule("49 jitter", 900, None, "allow", "once", "main", jitter=3600),
    ]
    dice.shuffle(rules)
    return rules
