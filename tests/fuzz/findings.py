"""What a round has found, and which errors are none: those that a caller must expect of a function."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

import psycopg

_EXPECTED = {
    "40P01",  # a deadlock, as transactions of several calls may cause them
    "40001",  # a serialization failure, where that isolation was asked for
    "55P03",  # a lock was not to be had in time
    "57014",  # cancelled, by a time-out or by the round
    "54001",  # JSON nested deeper than the server's stack
}
_KILLED = {"57P01", "57P02", "57P05", "25P03"}
_SHOWN = 3


@dataclass
class Findings:
    """Safe for threads. Each finding is kept under a title, with the first few of its kind in full."""

    calls: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    _found: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, title: str, detail: str) -> None:
        with self._lock:
            self._found.setdefault(title, []).append(detail)

    def count(self, what: str, error: str | None = None) -> None:
        with self._lock:
            self.calls[what] += 1
            if error is not None:
                self.errors[f"{what} {error}"] += 1

    @property
    def titles(self) -> list[str]:
        with self._lock:
            return sorted(self._found)

    def __str__(self) -> str:
        with self._lock:
            return "\n".join(
                f"{title} ({len(details)})\n" + "\n".join(f"    {detail}" for detail in details[:_SHOWN])
                for title, details in sorted(self._found.items())
            )


def is_expected(error: psycopg.Error, *, allowed: bool, killed: bool, isolated: bool) -> bool:
    """Whether a caller must reckon with this error. `allowed`: the role has the right to make the call. `killed`: the
    round has ended the connection. `isolated`: the transaction is not at read committed."""
    state = error.sqlstate
    if state == "42501":
        return not allowed
    if state == "23514":
        # The functions that save steps leave the lengths of names to the table, because they are called so often.
        return error.diag.constraint_name == "step_names"
    if state == "0A000":
        return isolated or "multidimensional" in str(error)
    if state is None or state in _KILLED:
        # Of its own psycopg refuses text that it cannot send: whoever calls Python must hear of that from Stepwell.
        return (killed or state == "25P03") and not isinstance(error, psycopg.DataError)
    # Class 22 is a value that does not do, SW is what Stepwell says itself.
    return state in _EXPECTED or state.startswith(("22", "SW"))
