"""One run of the suite: its server, how thorough it is, and the figures it has gathered."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Figure, Measured
from benchmarks.server import Server
from benchmarks.stage import Stage
from benchmarks.system import System

STEPWELL = System("stepwell")
BARE = System("bare")


class Run:
    """What a scenario is given. `rounds` is how often each measurement is made; the median counts."""

    def __init__(self, server: Server, place: Path, *, quick: bool) -> None:
        self.server = server
        self.place = place
        self.quick = quick
        self.rounds = 1 if quick else 3
        self.figures: list[Figure] = []
        self.series: dict[str, list[tuple[float, float]]] = {}
        """Lines for the plots, by name."""
        self.notes: list[str] = []

    @contextmanager
    def stage(self, system: System, jobs: int = 0, environment: dict[str, str] | None = None) -> Generator[Stage]:
        """The system on a fresh database, filled with so many jobs."""
        with self.server.database() as dsn, tempfile.TemporaryDirectory(dir=self.place) as place:
            stage = Stage(system, dsn, Path(place), environment or {})
            if jobs:
                stage.fill(jobs)
            yield stage

    def record(
        self,
        scenario: str,
        what: str,
        rounds: Sequence[float],
        unit: str,
        against: str = "",
        other: Sequence[float] | None = None,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        limit: float | None = None,
    ) -> None:
        """Keep a figure, and print it."""
        figure = Figure(
            scenario,
            what,
            Measured.of(rounds),
            unit,
            against,
            Measured.of(other) if other else None,
            at_least=at_least,
            at_most=at_most,
            limit=limit,
        )
        self.figures.append(figure)
        print(figure.line(), flush=True)

    def note(self, text: str) -> None:
        """Say what a reader must know, and print it."""
        self.notes.append(text)
        print(text, flush=True)
