"""The embedded Postgres, as an application has it: start, dsn, stop."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from stepwell.embedded import keeper, shelter
from stepwell.embedded.account import server_user
from stepwell.embedded.place import Place, claim, settle
from stepwell.embedded.server import open_log, run_server
from stepwell.embedded.user import User, current_user
from stepwell.embedded.wheel import wheel_bin_dir
from stepwell.errors import EmbeddedError


class EmbeddedPostgres:
    """A real Postgres of one's own, shared by the processes that name the same path, stopped by the last.

    A process that is killed, or that ends without `stop()`, has left it just as well. A forked child has not:
    it counts as a user for as long as it lives, because it may be one.
    """

    def __init__(self, path: Path | None = None, *, bin_dir: Path | None = None) -> None:
        self.path = Path(path or ".stepwell").resolve()
        self._bin_dir = bin_dir
        self._users: int | None = None
        self._dsn: str | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether one was ever started in this place."""
        return (self.path / keeper.MUTEX).exists()

    @property
    def dsn(self) -> str:
        """How to connect, in the form that libpq takes. The same for as long as the server lives."""
        if self._dsn is None:
            raise EmbeddedError(f"the Postgres in {self.path} is not in use here: call start() first")
        return self._dsn

    def start(self) -> str:
        """Use the server, starting it if it does not run, and return its dsn. Call it again whenever the
        server may have crashed: that brings it back, and costs a few milliseconds if nothing is wrong."""
        with self._one_at_a_time:
            try:
                self._dsn = self._start()
            except OSError as error:
                raise EmbeddedError(
                    f"cannot use {self.path} for an embedded Postgres: {error}. Put that right, or choose another path"
                ) from error
            return self._dsn

    def stop(self) -> None:
        """Use the server no longer. If nobody else does, it is stopped when this returns."""
        with self._one_at_a_time:
            if self._users is None:
                return
            self._leave()
            with suppress(FileNotFoundError):  # somebody removed the directory; the keeper cleans up
                keeper.stop_unused(self.path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> str:
        installed = _installed(self._bin_dir or wheel_bin_dir())
        current_user()  # raises if we are nobody that Postgres could let in
        claim(self.path)
        mutex = keeper.hold(self.path / keeper.MUTEX)
        try:
            # With the mutex held, so that nobody else makes the database meanwhile, as another user.
            user = server_user(keeper.home_of(self.path) / "data")
            bin_dir = _reachable(installed, user)
            place = settle(self.path, user)
            joined = self._join()
            try:
                # First the keeper, so that there is no moment at which we could die and leave a server alone.
                keeper_is_new = _start_keeper(place)
                master = run_server(place, bin_dir, user)
                if keeper_is_new:
                    _check_keeper(place)
            except BaseException:
                if joined:
                    self._leave()
                raise
        finally:
            keeper.release(mutex)
        # With its port, or libpq would take the one in PGPORT.
        return f"postgresql://postgres@/postgres?host={quote(os.fsencode(master.socket.parent))}&port=5432"

    def _join(self) -> bool:
        """Become a user, unless we are one: of this directory, not of one that was here and was removed."""
        users = self.path / keeper.USERS
        if self._users is not None:
            if keeper.is_still(users, self._users):
                return False
            self._leave()
        self._users = keeper.hold(users, fcntl.LOCK_SH)
        return True

    def _leave(self) -> None:
        if self._users is not None:
            keeper.release(self._users)
        self._users = self._dsn = None


def _installed(bin_dir: Path) -> Path:
    if not (bin_dir / "initdb").exists():
        raise EmbeddedError(f"{bin_dir} holds no Postgres: name a directory with initdb and postgres in it")
    return bin_dir


def _reachable(bin_dir: Path, user: User) -> Path:
    if not user.is_another or user.reaches(bin_dir):
        return bin_dir
    return shelter.binaries(bin_dir)


def _start_keeper(place: Place) -> bool:
    """Start a keeper unless there is one; a former one may have been killed."""
    lock = keeper.try_hold(place.path / keeper.KEEPER)
    if lock is None:
        return False
    log = open_log(place)
    try:
        script = [sys.executable, "-I", "-S", keeper.__file__, str(place.path), str(lock)]
        # It ends when its users have ended. To end before would only leave the server without a keeper.
        current_user().spawn(script, output=log, keep=[lock], deaf=True)
    finally:
        os.close(log)
        keeper.release(lock)
    return True


def _check_keeper(place: Place) -> None:
    lock = keeper.try_hold(place.path / keeper.KEEPER)
    if lock is not None:
        keeper.release(lock)
        keeper.stop(place.home)
        raise EmbeddedError(
            f"the process that would stop the Postgres in {place.path} does not run: "
            f"see the end of {place.log}, and whether {sys.executable!r} is a Python"
        )
