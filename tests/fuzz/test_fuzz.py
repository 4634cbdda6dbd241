"""Twelve seconds of everybody at once; `make fuzz` takes an hour."""

from __future__ import annotations

import os
import secrets

import pytest

from .round import play

_SECONDS = 8.0


@pytest.mark.slow
@pytest.mark.long
def test_after_everybody_has_called_everything_at_once_nothing_is_lost_stuck_or_orphaned(dsn: str) -> None:
    seed = int(os.environ.get("STEPWELL_FUZZ_SEED") or secrets.randbelow(2**32))
    print(f"STEPWELL_FUZZ_SEED={seed}")
    findings = play(dsn, seed, float(os.environ.get("STEPWELL_FUZZ_SECONDS") or _SECONDS))
    print(f"{findings.calls.total()} calls, {findings.errors.total()} of them refused")
    assert not findings.titles, f"STEPWELL_FUZZ_SEED={seed} found\n{findings}"
