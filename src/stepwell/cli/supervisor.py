"""The supervisor: keeps worker processes running, and passes on when they are to stop. Knows no app and no database.

Each place is a number that one process after another takes; what their exit codes mean is in `exits`. The first signal
drains, the second has jobs handed back, the third kills. Nothing else kills: a process that does not end when it is
asked to is somebody's running job; only after a change in the code one that holds on is told to end itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stepwell.cli import exits, reload
from stepwell.cli.backoff import Backoff
from stepwell.cli.child import Child
from stepwell.cli.lifeline import Order
from stepwell.error_text import describe_exit
from stepwell.errors import StepwellError
from stepwell.telemetry.bus import log
from stepwell.telemetry.supervisor import (
    CodeChanged,
    ProcessDied,
    ProcessDiedAtEnd,
    ProcessEnded,
    ProcessesStopping,
    ProcessNotStarted,
    ProcessRecycled,
    ProcessRefused,
    ProcessStarted,
    ProcessWaitsForChange,
)

# What a change in the code leaves to running jobs, in seconds: until they are handed back, and until a process that has
# not ended even so, because a job blocks it, is told to end on the spot.
_RELOAD_GRACE = 2.0
_RELOAD_PATIENCE = 10.0
_CANNOT_START = (exits.MISCONFIGURED, exits.REFUSED)


def supervise(command: Sequence[str], processes: int, *, reloading: bool = False) -> int:
    """Run so many processes of a `stepwell` command until they have ended, and return the exit code."""
    if reloading:
        reload.check_installed()
    # Without the current directory in sys.path, as the console script is: what is in it must not hide our own modules.
    program = [sys.executable, "-P", "-m", "stepwell", *command]
    here = Path.cwd()
    return asyncio.run(Supervisor(program, processes, reload.changes(here) if reloading else None).run())


class Place:
    """The place of one process after another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        self.backoff = Backoff()
        # Whoever waits to start another need not wait any longer.
        self.hurry = asyncio.Event()


class Supervisor:
    """So many processes of one command. `changes` are bursts of changed files, after each of which all start anew."""

    def __init__(self, command: Sequence[str], processes: int, changes: AsyncIterator[list[str]] | None = None) -> None:
        self._command = command
        self._places = [Place(number) for number in range(1, processes + 1)]
        self._changes = changes
        self._signals = 0
        self._stopping = False
        self._proved = False
        self._code = exits.DONE

    async def run(self) -> int:
        """Run until all have ended, and return the exit code: 0 if all ended because they were asked to."""
        with self._listening():
            watching = asyncio.create_task(self._follow_changes()) if self._changes else None
            async with asyncio.TaskGroup() as group:
                for place in self._places:
                    group.create_task(self._keep(place))
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
        return self._code

    def receive(self, number: int) -> None:
        """A signal to stop."""
        self._signals += 1
        order: Order = "drain" if self._signals == 1 else "hand back" if self._signals == 2 else "end"
        if children := self._children():
            log(ProcessesStopping(len(children), order))
        self._stop(order)
        if order == "end":
            self._code = 128 + number
            for child in children:
                child.kill()

    def start_anew(self) -> None:
        """Replace all processes, and start those that wait."""
        loop = asyncio.get_running_loop()
        for place in self._places:
            place.hurry.set()
            if place.child is not None:
                place.child.order("drain")
                loop.call_later(_RELOAD_GRACE, place.child.order, "hand back")
                loop.call_later(_RELOAD_PATIENCE, place.child.order, "end")

    def _stop(self, order: Order) -> None:
        self._stopping = True
        for place in self._places:
            place.hurry.set()
        for child in self._children():
            child.order(order)

    def _children(self) -> list[Child]:
        return [place.child for place in self._places if place.child is not None]

    async def _keep(self, place: Place) -> None:
        """Have a process in this place until none is wanted any more."""
        while not self._stopping:
            place.hurry.clear()
            try:
                child = place.child = Child(self._command)
            except OSError as error:
                delay = place.backoff.after(0)
                log(ProcessNotStarted(place.number, str(error), delay))
                await self._pause(place, delay)
                continue
            log(ProcessStarted(place.number, child.pid))
            code = await child.ended
            place.child = None
            # Whatever ended one that could start, neither the app nor its settings are to blame.
            self._proved = self._proved or code not in _CANNOT_START
            if self._stopping:
                self._judge(place, child, code)
            elif place.hurry.is_set():
                place.backoff = Backoff()  # it ended for the new code, which has not failed yet
            elif not await self._follow(place, child, code):
                return

    async def _follow(self, place: Place, child: Child, code: int) -> bool:
        """After a process has ended by itself, wait until it is time for the next. False: there is to be none."""
        number, pid = place.number, child.pid
        if code == exits.DONE:
            log(ProcessEnded(number, pid))
            return False
        if code == exits.USAGE:
            log(ProcessRefused(number, pid))
            self._code = exits.USAGE
            self._stop("drain")
            return False
        if code in _CANNOT_START and self._changes is None and not self._proved:
            # As it stands none will start: better an end that somebody sees than one try after the other.
            log(ProcessRefused(number, pid))
            self._code = exits.TROUBLE
            self._stop("drain")
            return False
        if code == exits.RECYCLE:
            log(ProcessRecycled(number, pid))
        elif code == exits.MISCONFIGURED and self._changes is not None:
            log(ProcessWaitsForChange(number, pid))
            await place.hurry.wait()
        else:
            delay = place.backoff.after(child.age)
            log(ProcessDied(number, pid, describe_exit(code), delay))
            await self._pause(place, delay)
        return True

    def _judge(self, place: Place, child: Child, code: int) -> None:
        """See whether one ended as it should when all were to end."""
        # Somebody else's SIGTERM may have met it before it could listen for it; and what one refuses, all do.
        as_asked = code in (exits.DONE, exits.RECYCLE, -signal.SIGTERM)
        refused_like_others = code == self._code == exits.USAGE or (code in _CANNOT_START and self._code)
        if as_asked or self._signals > 2 or refused_like_others:
            return
        log(ProcessDiedAtEnd(place.number, child.pid, describe_exit(code)))
        self._code = self._code or exits.TROUBLE

    async def _pause(self, place: Place, delay: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await place.hurry.wait()

    async def _follow_changes(self) -> None:
        assert self._changes is not None
        try:
            async for files in self._changes:
                if not self._stopping:
                    log(CodeChanged(tuple(files)))
                    self.start_anew()
        except Exception as error:
            self._stop("drain")
            raise StepwellError(f"changes in the code cannot be watched any longer: {error}") from error

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Listen for signals; before the first process is started, so that none is left behind."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.receive, number)
        loop.add_signal_handler(signal.SIGCHLD, self._look)
        try:
            yield
        finally:
            for number in (*numbers, signal.SIGCHLD):
                loop.remove_signal_handler(number)

    def _look(self) -> None:
        for child in self._children():
            child.look()
