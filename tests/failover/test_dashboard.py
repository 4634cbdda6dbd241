"""The dashboard on a hot standby: every page works, no act does, and both servers show the replication."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from waiting import until
from web.site import OURS, PAGES, Site, served

from stepwell import App, Context
from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.testing import drain
from stepwell.values.log_line import LogLine
from stepwell.web import Dashboard

from .server import Server


@pytest.mark.slow
def test_a_standby_shows_every_page_and_takes_no_act(primary: Server, standby: Server) -> None:
    app = App(primary.dsn, name="shop")

    @app.task
    async def approve(ctx: Context, order: int) -> None:
        await ctx.step(price)
        await ctx.receive("approved")

    async def price() -> int:
        return 7

    job = approve.enqueue(1)
    app.schedule_task(approve, "1h", name="hourly", args={"order": 1})
    drain(app)
    with psycopg.connect(primary.dsn, autocommit=True) as conn:
        line = LogLine(str(job.id), 1, 0.0, 20, "shop", "from the primary")
        assert fetch(conn, queries.logs.write_logs([line], {})) == [1]
        here = conn.execute("select pg_current_wal_lsn()::text").fetchone()
    with psycopg.connect(standby.dsn, autocommit=True) as conn:
        until(lambda: conn.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", here).fetchone() == (True,))
    copy = App(standby.dsn, name="shop")
    with served(Dashboard(copy)) as site:
        found = site.json(f"/jobs/{job.id}")
        assert (found["state"], found["steps"], found["why"]["cause"]) == ("waiting", 2, "signal")
        page = site.get(f"/jobs/{job.id}").text
        assert 'id="read-only"' in page
        assert "from the primary" in page
        for path in (
            *PAGES,
            f"/jobs/{job.id}/steps",
            f"/jobs/{job.id}/logs",
            "/database/listener",
        ):
            assert site.get(path).status == 200, path
        assert "Backfill" not in site.get("/schedules?owner=shop&name=hourly").text
        for act in (f"/jobs/{job.id}/cancel", f"/jobs/{job.id}/stack", "/schedules/backfill"):
            refused = site.post(
                act, {"owner": "shop", "name": "hourly", "since": "1d"}, {**OURS, "Accept": "application/json"}
            )
            assert (refused.status, "takes no writes" in refused.json["error"]) == (409, True), act
        database = site.json("/database")
        assert database["in_recovery"]
        assert database["receiver"]["status"] == "streaming"
        assert "This is a replica" in site.get("/database").text
    copy.close()
    with served(Dashboard(app)) as site:
        _shows_standby(site)
    app.close()


def _shows_standby(site: Site) -> None:
    database: dict[str, Any] = site.json("/database")
    [replica] = database["replicas"]
    assert replica["state"] == "streaming"
    assert replica["behind"] >= 0
    assert all(slot["held"] >= 0 for slot in database["slots"])
    assert 'id="standby-1"' in site.get("/database").text
