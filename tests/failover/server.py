"""Postgres servers that a test can stop, kill, silence, turn read-only, and promote."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from stepwell.embedded.user import User
from stepwell.postgres.migrate import migrate
from tests.conftest import postgres_bin_dir
from tests.waiting import until

_CONF = """
listen_addresses = ''
unix_socket_directories = '{place}'
fsync = off
max_connections = 60
shared_buffers = 32MB
wal_receiver_status_interval = 1s
"""


class Server:
    """One server, whose data and socket are in a directory of its own."""

    def __init__(self, place: Path, user: User) -> None:
        self.place = place
        self.user = user
        self._data = place / "data"

    @property
    def dsn(self) -> str:
        return make_conninfo(host=str(self.place), user="postgres", dbname="postgres", connect_timeout=10)

    def make(self) -> None:
        """Make its database, with the schema."""
        self._own_place()
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", self._data, *options)
        self._configure()
        self.start()
        with self.connect() as connection:
            migrate(connection)
        self.stop("fast")

    def make_from(self, other: Server) -> None:
        """Take over the data of another, which is stopped."""
        self._own_place()
        self._say(self.user.run(["cp", "-a", other._data, self._data]))
        self._configure()

    def make_standby_of(self, primary: Server) -> None:
        """Follow another, which from then on commits only what this one has, too."""
        self._own_place()
        source = make_conninfo(host=str(primary.place), user="postgres", application_name="standby")
        self._run("pg_basebackup", "-d", source, "-D", self._data, "-R", "-c", "fast", "--no-sync")
        self._configure()
        self.start()
        with primary.connect() as connection:
            connection.execute("alter system set synchronous_standby_names = 'standby'")
            connection.execute("select pg_reload_conf()")
            in_sync = "select from pg_stat_replication where sync_state = 'sync'"
            until(lambda: connection.execute(in_sync).rowcount)

    def start(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-l", self.place / "log", "-w", "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it, if it runs."""
        if self._processes():
            self.resume()
            self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def kill(self) -> None:
        """End it as a machine does that loses its power: nobody gets a word."""
        processes = self._processes()
        _each(processes, psutil.Process.kill)
        psutil.wait_procs(processes, timeout=10)

    def promote(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def pause(self) -> None:
        """From now on it says nothing, and keeps all its connections."""
        _each(self._processes(), psutil.Process.suspend)

    def resume(self) -> None:
        _each(self._processes(), psutil.Process.resume)

    def take_writes(self, *, allowed: bool) -> None:
        """Refuse writes, or allow them again, in the sessions that there are and in new ones."""
        with self.connect() as connection:
            connection.execute(f"alter system set default_transaction_read_only = {'off' if allowed else 'on'}")
            connection.execute("select pg_reload_conf()")
        # The server tells its sessions before it opens another.
        until(lambda: self._takes_writes() == allowed)

    def _takes_writes(self) -> bool:
        with psycopg.connect(self.dsn) as connection:
            return connection.info.parameter_status("default_transaction_read_only") == "off"

    def connect(self) -> psycopg.Connection[Any]:
        """A session that may write, whatever the server's default is."""
        options = "-c default_transaction_read_only=off"
        return psycopg.connect(self.dsn, autocommit=True, options=options, application_name="witness")

    def sessions(self) -> int:
        """How many connections Stepwell has to it."""
        with self.connect() as connection:
            return connection.execute("select from pg_stat_activity where application_name = 'stepwell'").rowcount

    def _processes(self) -> list[psutil.Process]:
        """The master first: while it stands still, it starts no others. None, if it does not run."""
        try:
            master = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
            return [master, *master.children(recursive=True)]
        except (FileNotFoundError, psutil.NoSuchProcess):
            return []

    def _own_place(self) -> None:
        self.place.mkdir()
        self.user.own(self.place)

    def _configure(self) -> None:
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.write(_CONF.format(place=self.place))

    def _run(self, program: str, *argv: str | Path) -> None:
        self._say(self.user.run([postgres_bin_dir() / program, *argv]))

    def _say(self, done: Any) -> None:
        if done.returncode:
            log = self.place / "log"
            raise OSError(f"{done.args[0]}: {done.stdout}\n{log.read_text() if log.exists() else ''}")


def _each(processes: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # a session that has just ended
            act(process)
