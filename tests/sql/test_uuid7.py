"""The ids: version 7 uuids, native on Postgres 18 and made by a function before."""

from __future__ import annotations

import time
from uuid import RFC_4122, UUID

from . import calls
from .calls import Connection


def test_an_id_is_a_version_7_uuid_of_now(conn: Connection) -> None:
    before = time.time()
    ids: list[UUID] = calls.one(conn.execute("select array_agg(stepwell.uuid7()) from generate_series(1, 1000)"))
    after = time.time()
    assert {(made.version, made.variant) for made in ids} == {(7, RFC_4122)}
    for made in ids:
        assert before - 0.002 <= (made.int >> 80) / 1000 <= after + 0.002


def test_ids_are_all_different_and_grow_with_time(conn: Connection) -> None:
    rows = [calls.one(conn.execute("select stepwell.uuid7()")) for _ in range(200)]
    assert len(set(rows)) == 200
    assert rows == sorted(rows)


def test_a_batch_of_ids_grows_and_differs_from_the_next(conn: Connection) -> None:
    batches: list[list[UUID]] = [
        calls.one(conn.execute("select stepwell.uuids7(%s)", (count,))) for count in (0, 1, 2, 5000, 5000)
    ]
    assert [len(batch) for batch in batches] == [0, 1, 2, 5000, 5000]
    ids = [made for batch in batches for made in batch]
    assert ids == sorted(set(ids))
    assert {(made.version, made.variant) for made in ids} == {(7, RFC_4122)}
