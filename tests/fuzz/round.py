"""One round: a database of its own, noise for so many seconds, then rest and the oracle."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from .actors import Actor, Caller, Onlooker, Producer, RawWorker, Witness
from .api_caller import ApiCaller
from .dice import Dice
from .disturbances import Clockmaker, Killer, Orderly, Reaper
from .findings import Findings
from .functions import Function, read_functions
from .known import Known
from .rest import bring_to_rest
from .roles import Role, granted_roles
from .session import Session
from .workers import Workers

LEDGER = """
create schema fuzz;
create table fuzz.witness (job_id uuid not null, task text not null);
create table fuzz.effect (job_id uuid not null);
grant usage on schema fuzz to public;
grant insert, select on fuzz.effect to public;

-- Which jobs became ready, and of which places the workers were told in the same transaction.
create table fuzz.ready (transaction xid8 not null, place stepwell.place not null, job_id uuid not null);
create table fuzz.told (transaction xid8 not null, place stepwell.place not null);
create function fuzz.note_ready() returns trigger language plpgsql security definer as $$
begin
  insert into fuzz.ready values (pg_current_xact_id(), row(new.queue, new.rank, new.run_at)::stepwell.place, new.id);
  return null;
end
$$;
create trigger inserted after insert on stepwell.job for each row when (new.state = 'ready')
execute function fuzz.note_ready();
create trigger updated after update on stepwell.job for each row when (new.state = 'ready' and old.state <> 'ready')
execute function fuzz.note_ready();
alter function stepwell.notify_ready set schema fuzz;
create function stepwell.notify_ready(_places stepwell.place[], _due_in double precision) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into fuzz.told select pg_current_xact_id(), p from unnest(_places) p;
  perform fuzz.notify_ready(_places, _due_in);
end
$$;
"""
_VIEWS = "select c.relname from pg_class c where c.relnamespace = 'stepwell'::regnamespace and c.relkind = 'v'"


def play(dsn: str, seed: int, seconds: float, *, workers: int = 2, patience: float = 20) -> Findings:
    """Play one round on this migrated database, and return what it found."""
    findings = Findings()
    # It warns of each transaction whose connection was killed.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    with psycopg.connect(dsn, autocommit=True, application_name="fuzz owner") as conn:
        conn.execute(LEDGER)
        with granted_roles(conn) as roles:
            worker_dsn = make_conninfo(
                dsn, application_name="fuzz worker process", options=f"-c role={roles['worker'].name}"
            )
            fleet = Workers(worker_dsn, findings)
            try:
                Noise(dsn, seed, roles, read_functions(conn), _views(conn), findings, fleet, workers).make(seconds)
                bring_to_rest(dsn, fleet, findings, patience)
            finally:
                fleet.end_all(signal.SIGKILL)
    return findings


class Noise:
    """All actors of a round, each with dice of its own: what one throws does not depend on the others."""

    def __init__(
        self,
        dsn: str,
        seed: int,
        roles: dict[str, Role],
        functions: list[Function],
        views: list[str],
        findings: Findings,
        fleet: Workers,
        workers: int,
    ) -> None:
        self._dsn = dsn
        self._seed = seed
        self._roles = roles
        self._functions = {function.name: function for function in functions}
        self._views = views
        self._findings = findings
        self._fleet = fleet
        self._workers = workers
        self._known = Known()
        self._stop = threading.Event()
        self._to_close: list[Session | ApiCaller] = []

    def make(self, seconds: float) -> None:
        """Have all of them act for so long, and wait until each has done its last."""
        self._fleet.keep(self._workers)
        actors = self._cast()
        for actor in actors:
            actor.start()
        self._stop.wait(seconds)
        self._stop.set()
        deadline = time.monotonic() + 15
        for actor in actors:
            actor.join(max(0.0, deadline - time.monotonic()))
            if actor.is_alive():
                self._findings.add("an actor did not come back from a call", actor.name)
        for each in self._to_close:
            each.close()

    def _cast(self) -> list[Actor]:
        functions, known = self._functions, self._known
        public = [function for function in functions.values() if function.public]
        of_workers = self._granted("worker")
        of_operators = self._granted("operator")
        owner = self._owner("owner")
        api = ApiCaller(self._dsn_as("python", "fuzz python"), self._dice("python"), known, self._findings)
        self._to_close.append(api)
        cast: list[tuple[str, Callable[[], object], float]] = [
            ("producer", Producer(self._session("producer", "producer"), self._owner("backlog"), functions), 0),
            (
                "hostile producer",
                Caller(self._session("hostile producer", "producer"), public, known, hostility=0.3),
                0,
            ),
            (
                "messenger",
                Caller(self._session("messenger", "producer"), [functions["emit"], functions["send"]], known),
                0,
            ),
            ("operator", Caller(self._session("operator", "operator"), of_operators, known), 0.01),
            ("worker by SQL 1", RawWorker(self._session("worker by SQL 1", "worker"), functions, known), 0),
            ("worker by SQL 2", RawWorker(self._session("worker by SQL 2", "worker"), functions, known), 0),
            ("anybody 1", Caller(self._session("anybody 1", "worker"), of_workers, known), 0),
            ("anybody 2", Caller(self._session("anybody 2", "worker"), of_workers, known, hostility=0.2), 0),
            ("intruder", Caller(self._session("intruder", "viewer"), list(functions.values()), known), 0.05),
            ("viewer", Onlooker(self._session("viewer", "viewer"), self._views, self._roles["viewer"]), 0.02),
            ("onlooker", Onlooker(self._session("onlooker", "producer"), self._views, self._roles["producer"]), 0.1),
            ("python", api, 0),
            ("witness", Witness(self._owner("witness")), 0.02),
            ("killer", Killer(self._owner("killer"), known), 0.05),
            ("clockmaker", Clockmaker(self._owner("clockmaker")), 1.0),
            ("orderly", Orderly(owner, known), 0.2),
            ("reaper", Reaper(self._dice("reaper"), self._fleet, self._workers), 0.7),
        ]
        return [Actor(name, act, self._findings, self._stop, pause) for name, act, pause in cast]

    def _granted(self, role: str) -> list[Function]:
        return [self._functions[name] for name in sorted(self._roles[role].functions) if name in self._functions]

    def _dsn_as(self, kind: str, name: str) -> str:
        return make_conninfo(self._dsn, application_name=name, options=f"-c role={self._roles[kind].name}")

    def _dice(self, name: str) -> Dice:
        return Dice(f"{self._seed} {name}")

    def _session(self, name: str, kind: str) -> Session:
        role = self._roles[kind]
        return self._remember(
            Session(self._dsn, role.name, role.functions, self._dice(name), self._known, self._findings, self._stop)
        )

    def _owner(self, name: str) -> Session:
        return self._remember(
            Session(self._dsn, "owner", set(), self._dice(name), self._known, self._findings, self._stop)
        )

    def _remember(self, session: Session) -> Session:
        self._to_close.append(session)
        return session


def _views(conn: psycopg.Connection[Any]) -> list[str]:
    return [row[0] for row in conn.execute(_VIEWS)]
