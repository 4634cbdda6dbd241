"""Checks of the fleet: dead workers, pauses, and apps that share the name of a task."""

from __future__ import annotations

from typing import Any

import psycopg

from stepwell.doctor.finding import Finding, listed
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import local_time


def check_leases(connection: psycopg.Connection[Any], _: Database) -> Finding:
    workers = fetch(connection, queries.reads.workers())
    alive = sum(worker.alive for worker in workers)
    dead = [worker for worker in workers if not worker.alive]
    if not dead:
        return Finding("ok", f"{alive} alive, no lease has expired")
    who = listed([f"{worker.id} (pid {worker.pid} on {worker.host})" for worker in dead])
    if alive:
        return Finding("warning", f"the lease of {who} has expired: a live worker rescues its jobs in seconds", dead)
    return Finding(
        "problem", f"the lease of {who} has expired and no worker is alive: start one, it rescues their jobs", dead
    )


def check_pauses(connection: psycopg.Connection[Any], _: Database) -> Finding:
    paused = fetch(connection, queries.fleet.pauses())
    if not paused:
        return Finding("ok", "nothing is paused")
    option = {"everything": "--all", "queue": "", "task": "--task ", "worker": "--worker "}
    shown = listed(
        [
            f"{pause.scope} {pause.name}".rstrip()
            + f' since {local_time(pause.asked_at)} ("stepwell resume {option[pause.scope]}{pause.name}")'
            for pause in paused
        ]
    )
    return Finding("warning", shown, paused)


def check_shared_tasks(connection: psycopg.Connection[Any], _: Database) -> Finding:
    shared = fetch(connection, queries.health.shared_tasks())
    if not shared:
        return Finding("ok", "no two apps have a task of the same name")
    unnamed = [found for found in shared if not found.named]
    shown = listed([f"{found.task} ({', '.join(found.owners)})" for found in unnamed or shared])
    if unnamed:
        return Finding(
            "warning",
            f"live workers of several apps have {shown}: where they claim from the same queue they may run each "
            "other's jobs; give each app a name, App(name=...), or give the tasks different names",
            shared,
        )
    return Finding(
        "ok",
        f"several named apps have {shown}: each runs its own jobs, but a job enqueued without an owner may run in any "
        "of them",
        shared,
    )
