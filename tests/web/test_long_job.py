"""A job with 20,000 steps: its pages stay small and quick, live and finished."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest
from web.site import Site

from stepwell import App, JobHandle

MANY = 20_000
LARGEST = 200 * 1024
SLOWEST = 2.0
"""Seconds. Alone, a page takes a few hundredths; a machine of tests may be busy with others."""


@pytest.fixture(scope="module")
def long_jobs(shop: App, module_dsn: str) -> dict[str, JobHandle[Any]]:
    jobs = {name: shop.tasks["approve"].using(delay="1h").enqueue(1) for name in ("live", "ended")}
    with psycopg.connect(module_dsn, autocommit=True) as conn:
        for job in jobs.values():
            conn.execute("update stepwell.job set durable = true where id = %s", (job.id,))
            conn.execute(
                "insert into stepwell.step (job_id, saved_at, seconds, n, epoch, kind, key, value, child_id)"
                " select %s, now() - (20000 - n) * interval '1 minute', random(), n, 1,"
                " case when n %% 100 = 0 then 'child' when n %% 10 = 0 then 'sleep' else 'step' end,"
                " 'charge the customer#' || n, json_build_object('order', n, 'note', repeat('x', 300)),"
                " case when n %% 100 = 0 then stepwell.uuid7() end"
                " from generate_series(1, %s) n",
                (job.id, MANY),
            )
        conn.execute("vacuum analyze stepwell.step")
    jobs["ended"].cancel()
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["live", "ended"])
def test_a_window_of_many_steps_is_small_and_quick(site: Site, long_jobs: dict[str, JobHandle[Any]], name: str) -> None:
    job_id = long_jobs[name].id
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/steps?offset=19900", f"/jobs/{job_id}/children?offset=100"):
        began = time.perf_counter()
        answer = site.get(path)
        took = time.perf_counter() - began
        assert answer.status == 200
        assert len(answer.text) < LARGEST, path
        assert took < SLOWEST, path
    page = site.get(f"/jobs/{job_id}").text
    assert "20,000" in page
    assert 'id="step-100"' in page
    assert 'id="step-101"' not in page
    last = site.json(f"/jobs/{job_id}/steps?offset=19900")
    assert (len(last["steps"]), last["next"]) == (100, None)
