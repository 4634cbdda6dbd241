"""Random values by a seed: mostly what a decent caller sends, now and then what a hostile one does.

Everything is text, as it is cast in SQL: so that also what Python could not write down gets there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

HUGE = "x" * 9_000
"""Longer than a name may be, than a notification may carry, and than an index may hold of what does not compress."""

TEXTS = (
    "", " ", "*", "a*", "%s", "'; drop table stepwell.job; --", "\\", "\u202eabc", "\U0001f9a5" * 50, "é\u0301\u200d",
    "a\nb", "null", "NaN", HUGE, "".join(chr(0x4E00 + n) for n in range(3_000)), "infinity", "\x7f\x01",
)  # fmt: skip
JSON = (
    "null", "{}", "[]", "1", "-0.0", '"\\u0000"', '{"a": "\\ud800"}', '{"a": "\\udc00\\ud800"}', "NaN", "1e400",
    "-1e-400", '{"n": 1, "n": 2}', "[" * 500 + "]" * 500, "[" * 20_000 + "]" * 20_000,
    '{"a":' * 200 + "1" + "}" * 200, "", "{", "nul", '{"":{"":[]}}', '"' + "y" * 70_000 + '"',
    '{"n": ' + "9" * 400 + "}", '{"\\u0000": 1}', '{"n": "x"}', '{"other": 1}', '  {"n": 1}', "\t[1]",
    '{"n": 1} trailing', '{"a": "' + "z" * 5_000 + '"}',
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "2147483647", "-2147483648", "2147483648", "-32768", "32767", "1e308", "NaN", "Infinity",
    "-Infinity", "0.0000001", "3155760000", "99999999999", "",
)  # fmt: skip
TIMES = (
    "infinity", "-infinity", "epoch", "0001-01-01 00:00 BC", "294276-12-31", "1969-12-31 23:59+00", "9999-12-31",
    "yesterday", "", "2000-01-01 00:00+15",
)  # fmt: skip
INTERVALS = ("0", "-1 second", "178000000 years", "1 month -30 days", "infinity", "-infinity", "", "1e12 seconds")
ARRAYS = ("{{a,b},{c,d}}", "[5:6]={1,2}", "{NULL,NULL}", "{", "{}", "[0:0]={x}")


class Dice(random.Random):
    """Chance with a seed, and the odds that all of a run share."""

    def chance(self, share: float) -> bool:
        return self.random() < share

    def one(self, options: Sequence[T]) -> T:
        return options[self.randrange(len(options))]

    def few(self) -> int:
        """How many there are in a batch."""
        return self.one((1, 1, 1, 2, 3, 5, 5, 8, 0, 40) if self.chance(0.2) else (1, 1, 2, 3))

    def seconds(self) -> str:
        """A delay or a lease: short, so that its end comes within the run."""
        return f"{self.random() * self.one((0, 0.02, 0.2, 1, 3)):.3f}"

    def keep(self) -> str:
        """How long something is kept: few values, for each makes partitions of its own."""
        return self.one(("60", "86400", "86400", "2592000", "Infinity", "0"))

    def json(self) -> str:
        """Small and well-formed, or not."""
        if self.chance(0.06):
            return self.one(JSON)
        return self.one(('{"n": 1}', '{"n": 2}', "{}", "null", '"text"', "[1, 2]", "7", '{"a": {"b": null}}'))

    def hostile(self, type_name: str) -> str | None:
        """Something that may be written where this type is wanted; whether it fits is for the database to say."""
        if type_name.endswith("[]"):
            return None if self.chance(0.3) else self.one(ARRAYS)
        if self.chance(0.2):
            return None
        match type_name:
            case "integer" | "bigint" | "smallint" | "double precision" | "numeric":
                return self.one(NUMBERS)
            case "timestamp with time zone":
                return self.one(TIMES)
            case "interval":
                return self.one(INTERVALS)
            case "json" | "jsonb":
                return self.one(JSON)
            case "uuid":
                return self.one(("00000000-0000-0000-0000-000000000000", "f" * 32, "not a uuid", ""))
            case "boolean":
                return self.one(("true", "false", "maybe"))
            case _:
                return self.one(TEXTS + JSON + NUMBERS)
