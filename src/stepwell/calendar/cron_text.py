"""Check cron text as people write it: five fields, or six with the second first; and names of time zones.

cronsim decides which values a field may hold. This module says which field is wrong and how to write it.
"""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError

from stepwell.calendar.wall_time import SOME_WALL_TIME, step
from stepwell.errors import ConfigError

LONGEST_TEXT = 200

_LISTS = "or a list '1,5', an upward range '1-5' or a step '*/5' of these"
_FIELDS = (
    ("second", 59, f"0 to 59, {_LISTS}"),
    ("minute", 59, f"0 to 59, {_LISTS}"),
    ("hour", 23, f"0 to 23, {_LISTS}"),
    ("day of month", 31, f"1 to 31, L for the last day, LW for the last weekday, {_LISTS}"),
    ("month", 12, f"1 to 12, JAN to DEC, {_LISTS}"),
    (
        "day of week",
        7,
        f"0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L for the last Friday, MON#2 for the second Monday, {_LISTS}",
    ),
)
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def check_text(text: str) -> str:
    """Return the text without extra blanks, if it is valid cron text."""
    if not isinstance(text, str):
        raise ConfigError(f"schedule is a {type(text).__name__}: give cron text such as '0 3 * * *'")
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"schedule is {text[:40]!r}...: it has {len(text)} characters, {LONGEST_TEXT} is the most")
    for char in text:
        if char != "\t" and not " " <= char <= "~":
            raise ConfigError(
                f"schedule is {text!r}: {char!r} is not allowed in cron text, write it on one line in ASCII"
            )
    text = " ".join(text.split())
    if text.startswith("@"):
        return _check_nickname(text)
    parts = text.split()
    if len(parts) not in (5, 6):
        raise ConfigError(
            f"schedule is {text!r}: cron has 5 fields (minute, hour, day of month, month, day of week) or 6 (the "
            f"second first), this has {len(parts)}; an interval is written as '90s' or '1h30m'"
        )
    for index, part in enumerate(parts, start=6 - len(parts)):
        _check_field(text, index, part)
    try:
        step(text, SOME_WALL_TIME, back=False)
    except (CronSimError, StopIteration):
        raise ConfigError(
            f"schedule is {text!r}: no such day ever comes, change the day of month, the month or the day of week"
        ) from None
    return text


def _check_nickname(text: str) -> str:
    if text.lower() == "@reboot":
        raise ConfigError(
            "schedule is '@reboot': a schedule follows the clock, not the start of a machine; enqueue the job at start"
        )
    if text.lower() not in NICKNAMES:
        raise ConfigError(f"schedule is {text!r}: it must be one of {', '.join(NICKNAMES)}, or cron fields")
    return text


def _check_field(text: str, index: int, part: str) -> None:
    """cronsim names only the bad field. Asked for each term alone, it tells which term is bad."""
    name, highest, allowed = _FIELDS[index]
    for term in part.split(","):
        if not _is_term(index, term):
            within = "" if term == part else f" with {term!r}"
            raise ConfigError(f"schedule is {text!r}: {name} is {part!r}{within}, it must be {allowed}")
        # cronsim reads "*/90" in the minutes as "0", and "9-9/2" as "9-59/2". Both are surely mistakes.
        span, _, step = term.partition("/")
        low, _, high = span.upper().partition("-")
        if step and int(step) > highest:
            raise ConfigError(f"schedule is {text!r}: {name} is {part!r}, its step must be 1 to {highest}")
        if step and low == high:
            raise ConfigError(f"schedule is {text!r}: {name} is {part!r}, a step needs a wider range than {span!r}")


@lru_cache(maxsize=4096)
def _is_term(index: int, term: str) -> bool:
    """Whether cronsim accepts the term in that field. Cached: thousands of schedules share few terms."""
    alone = ["*"] * 6
    alone[index] = term or "nothing"  # an empty term would shift the next field into its place
    try:
        CronSim(" ".join(alone), SOME_WALL_TIME)
    except CronSimError:
        return False
    return True


def check_tz(tz: str) -> None:
    """Raise `ConfigError` if this is not the name of a time zone."""
    if not isinstance(tz, str):
        raise ConfigError(f"tz is a {type(tz).__name__}: give the name of a time zone such as 'Europe/Paris'")
    if tz == "UTC" or tz in _zones():
        return
    if not _zones():
        raise ConfigError(f"tz is {tz!r}: this machine has no time zones, install the package 'tzdata'")
    shown = tz[:40]
    names = {name.lower(): name for name in _zones()}
    from difflib import get_close_matches  # only for this error

    near = get_close_matches(shown.lower(), names, n=1)
    hint = f"did you mean {names[near[0]]!r}?" if near else "write a name such as 'Europe/Paris' or 'UTC'"
    raise ConfigError(f"tz is {shown!r}: there is no such time zone, {hint}")


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """Return the names of all time zones. `ZoneInfo(name)` itself also accepts other spellings, if the file system
    does; and "localtime" would be another zone on each worker."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})
