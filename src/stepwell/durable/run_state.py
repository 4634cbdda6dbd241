"""One run of a job, as the worker and the executor see it. A context keeps it private from its handler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from stepwell.durable.backend import Durability
from stepwell.durable.children import Spawned, Spawner
from stepwell.durable.effects import Effects
from stepwell.durable.journal import Journal
from stepwell.durable.unawaited import Unawaited, Unentered, is_open, note_branches
from stepwell.errors import BadValue, ConfigError
from stepwell.values.job import ClaimedJob

T = TypeVar("T")


class RunState:
    """The state of one run: its job, its journal, its connection, and whether it was asked to stop."""

    __slots__ = (
        "_durability", "_effects", "_journal", "_latest", "_spawner", "_stop_event", "_unawaited", "deadline", "job",
        "own_attempt", "report", "saw_cancelled", "stop_asked", "transaction",
    )  # fmt: skip

    def __init__(
        self,
        job: ClaimedJob,
        timeout: float | None,
        report: Callable[[ClaimedJob, str], None],
        durability: Durability | None = None,
    ) -> None:
        # One is made for every job, so it copies nothing, and makes the rest when it is first used.
        self.job = job
        self.deadline = None if timeout is None else time.time() + timeout
        self.report = report
        self._durability = durability
        self._journal: Journal | None = None
        self._effects: Effects | None = None
        self._spawner: Spawner | None = None
        self._latest: Coroutine[Any, Any, Any] | Unentered | None = None
        self._unawaited: Unawaited | None = None
        self.own_attempt = job.attempt
        """The attempt of the job, or of a step of a chain, which counts its own."""
        self.transaction: Any = None
        """The connection or session of a transactional task, while its handler runs."""
        self.stop_asked = False
        self._stop_event: threading.Event | None = None
        self.saw_cancelled = False
        """Whether the handler has read `ctx.cancelled` after it was asked to stop."""

    @property
    def attempt(self) -> int:
        """The attempt as the handler sees it. A durable job counts from the last step saved before this run."""
        if self.job.journal is None or self._durability is None or self.transaction is not None:
            return self.own_attempt
        try:
            return self.journal.first_attempt
        except BadValue:  # raised again by the first step
            return self.own_attempt

    @property
    def counted_attempt(self) -> int:
        """The attempt that counts if this run fails now: a step that it saved itself is progress, too."""
        return self.attempt if self._journal is None else self._journal.attempt

    def ask_to_stop(self) -> None:
        self.stop_asked = True
        if self._stop_event is not None:
            self._stop_event.set()

    def wait_until_asked_to_stop(self, timeout: float | None) -> None:
        """Block this thread until the run is asked to stop, or for `timeout` seconds."""
        # The event is made before the flag is read, and the flag is set before the event: neither can be missed.
        if self._stop_event is None:
            self._stop_event = threading.Event()
        if not self.stop_asked:
            self._stop_event.wait(timeout)

    @property
    def took_steps(self) -> bool:
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        """The saved steps of the job. Raises `ConfigError` if it has none here."""
        if self._journal is None:
            if self.transaction is not None:
                raise ConfigError(
                    f"task {self.job.task!r} has transaction=...: it is one transaction, and would be rolled back at "
                    "each wait; for steps and waits leave that out, and use ctx.transaction"
                )
            durability = self._durability
            if durability is None:
                raise ConfigError(
                    f"task {self.job.task!r} has no steps here: they are for functions that a worker runs, not for "
                    "process=True, chains and machines"
                )
            self._journal = Journal(self.job, durability)
        return self._journal

    @property
    def effects(self) -> Effects:
        if self._effects is None:
            journal = self.journal
            assert self._durability is not None
            self._effects = Effects(journal, self._durability.backend)
        return self._effects

    @property
    def spawner(self) -> Spawner:
        if self._spawner is None:
            self._spawner = Spawner(self.effects)
        return self._spawner

    @property
    def spawned(self) -> Sequence[Spawned]:
        return () if self._spawner is None else self._spawner.spawned

    async def all_spawned(self) -> None:
        if self._spawner is not None:
            await self._spawner.finished()

    def track(self, coroutine: Coroutine[Any, Any, T], branches: Sequence[object] = ()) -> Coroutine[object, None, T]:
        """Expect the handler to await this coroutine, which awaits `branches` itself."""
        # Not a Coroutine[Any, Any, T]: where overloads are given an Any, mypy gives up.
        self.expect(coroutine)
        if branches:
            note_branches(coroutine, branches)
            if self._unawaited is not None:
                self._unawaited.hand_over(branches)
        return coroutine

    def expect(self, made: Coroutine[Any, Any, Any] | Unentered) -> None:
        """Expect the handler to await this coroutine, or to enter this transaction."""
        # Mostly the handler has awaited its latest step before it makes another: then only this one need be kept. No
        # call comes between reading and writing the attribute, so two threads do not replace the same one.
        latest, self._latest = self._latest, made
        if latest is not None and is_open(latest):
            if self._unawaited is None:
                self._unawaited = Unawaited()
            self._unawaited.add(latest)

    @property
    def unawaited(self) -> Unawaited | None:
        """The steps, waits and transactions that the handler has made and that have not ended; None: all have."""
        latest = self._latest
        if latest is not None and is_open(latest):
            self._unawaited = self._unawaited or Unawaited()
            self._unawaited.add(latest)
        return self._unawaited
