"""Processes to start and to kill: the command line's, and the fleet of the crash tests."""

from __future__ import annotations

from tests.cli.conftest import start
from tests.crash.conftest import fleet, witness

__all__ = ["fleet", "start", "witness"]
