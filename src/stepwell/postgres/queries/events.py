"""Calls that emit events and send signals."""

from __future__ import annotations

from stepwell.postgres.queries.query import Act, Query, once


def emit(name: str, key: str | None, value: str | None, keep: float) -> Query[int]:
    return Query(
        "select stepwell.emit(%s::text, %s::text, %s::json, %s::double precision * interval '1 second')",
        (name, key, value, keep),
        act=Act("emit", f"event {name}" + ("" if key is None else f" with key {key}"), once),
    )


def send(job_id: str, name: str, value: str | None) -> Query[bool]:
    act = Act("signal", f"{name} to job {job_id}")
    return Query("select stepwell.send(%s::uuid, %s::text, %s::json)", (job_id, name, value), act=act)
