"""What the MCP server answers when there is much, little, or no database."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from cli.commands import Jobs
from mcp import Client
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from waiting import auntil
from web.assistant import Call, asking

from stepwell import App
from stepwell.postgres import queries, rights
from stepwell.postgres.fetch import fetch
from stepwell.values.log_line import LogLine
from stepwell.web.mcp.bounds import MOST, bounded
from stepwell.web.mcp.server import make_mcp_server


@pytest.fixture
def jobs(conn: psycopg.Connection[Any]) -> Jobs:
    return Jobs(conn)


def test_an_answer_is_cut_to_fit_and_says_so() -> None:
    assert bounded({"a": [1, 2]}) == {"a": [1, 2]}
    for large in (
        ["x" * 90] * 5000,
        {"a": "y" * 10**6},
        {str(n): "z" * 50 for n in range(9000)},
        [[["w" * 99] * 99] * 99],
    ):
        cut = bounded(large)
        assert len(json.dumps(cut)) <= MOST
        assert "cut" in json.dumps(cut) or "fields in all" in json.dumps(cut)


@pytest.mark.parametrize("long", ["", "x" * 50_000])
def test_what_is_nested_deep_is_cut(long: str) -> None:
    deep: Any = 1
    for _ in range(900):
        deep = {"a": [deep]}
    cut = bounded({"id": 7, "args": deep, "long": long})
    assert cut["id"] == 7
    assert "nested too deep" in json.dumps(cut)


def nested(wide: int, deep: int) -> Any:
    return {f"k{n}": nested(wide, deep - 1) for n in range(wide)} if deep else 7


async def test_why_a_job_with_large_args_does_not_run_is_told(app: App, jobs: Jobs) -> None:
    async with asking(app) as call:
        for args in (nested(18, 3), nested(6, 5)):
            job = jobs.ready(args=json.dumps(args))
            found = await call("why", job_id=job)
            assert (found["state"], found["why"]["cause"]) == ("ready", "no_worker")
            shown = await call("job", job_id=job)
            assert (shown["id"], shown["state"], shown["why"]) == (job, "ready", found["why"])


async def test_a_job_whose_args_are_nested_deep_is_shown(app: App, jobs: Jobs) -> None:
    async with asking(app) as call:
        job = jobs.ready(args='{"a": ' * 600 + "1" + "}" * 600, metadata=json.dumps({"long": "x" * 50_000}))
        found = await call("job", job_id=job)
        assert (found["id"], found["state"]) == (job, "ready")
        assert [each["id"] for each in (await call("list_jobs"))["jobs"]] == [job]


async def every_page(call: Call, tool: str, rows: str, name: str, **arguments: Any) -> list[Any]:
    """The rows of all pages of a tool, which is given `next` as `name`."""
    found, following = list[Any](), None
    while True:
        page = await call(tool, **arguments, **({} if following is None else {name: following}))
        assert all(isinstance(row, dict) for row in page[rows]), "no row of a page is cut off"
        found += page[rows]
        following = page["next"]
        if following is None:
            return found


async def test_no_worker_is_skipped_however_much_each_runs(app: App, jobs: Jobs) -> None:
    async with asking(app) as call:
        known = [f"a task with a rather long name, number {n}" for n in range(30)]
        made = [jobs.worker(*known) for _ in range(50)]
        found = await every_page(call, "workers", "workers", "before")
        assert [worker["id"] for worker in found] == list(reversed(made))
        assert len((await call("workers", limit=2))["workers"]) == 2


async def test_no_row_of_other_lists_is_skipped_either(app: App, jobs: Jobs) -> None:
    async with asking(app) as call:
        long = "x" * 900
        made = [jobs.ready(f"task{n:03}", queue=f"queue{n:03}", args=json.dumps({"a": [long] * 4})) for n in range(60)]
        for n in range(60, 120):
            app.task(name=f"task{n:03}")(lambda_of(n))
        assert [job["id"] for job in await every_page(call, "list_jobs", "jobs", "before", limit=50)] == made[::-1]
        assert [q["name"] for q in await every_page(call, "queues", "queues", "after")] == [
            f"queue{n:03}" for n in range(60)
        ]
        tasks = await every_page(call, "tasks", "tasks", "after", limit=7)
        assert [task["name"] for task in tasks] == [f"task{n:03}" for n in range(120)]


def lambda_of(n: int) -> Any:
    async def handler(x: int) -> int:
        return x + n

    return handler


async def test_steps_and_log_lines_are_read_in_windows_of_any_size(app: App, jobs: Jobs) -> None:
    async with asking(app) as call:
        job = jobs.failed()
        lines = [LogLine(job, 1, 0.0, 20, "shop", f"line {n} " + "y" * 900) for n in range(60)]
        fetch(jobs.connection, queries.logs.write_logs(lines, {}))
        found = await every_page(call, "logs", "lines", "before", job_id=job)
        assert {line["line"] for line in found} == set(range(1, 61))
        assert [line["line"] for line in (await call("logs", job_id=job, limit=2))["lines"]] == [59, 60]
        assert (await call("steps", job_id=job, limit=1))["steps"] == []
        assert (await call("children", job_id=job, limit=1))["children"] == []


async def test_a_database_that_is_away_is_an_error_and_comes_back(
    dsn: str, jobs: Jobs, server: psycopg.Connection[Any]
) -> None:
    name = str(conninfo_to_dict(dsn)["dbname"])
    async with App(dsn, call_timeout="1s") as app, asking(app) as call:
        assert (await call("overview"))["states"]["ready"] == 0
        server.execute(sql.SQL("alter database {} with allow_connections false").format(sql.Identifier(name)))
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
        assert "gave no connection" in await call("overview")
        assert "gave no connection" in await call("why", job_id=str(uuid4()))
        server.execute(sql.SQL("alter database {} with allow_connections true").format(sql.Identifier(name)))

        async def is_back() -> bool:
            return isinstance(await call("overview"), dict)

        await auntil(is_back)


async def test_a_role_that_may_only_view_is_enough(dsn: str, jobs: Jobs) -> None:
    job, role = jobs.failed(), f"viewer{uuid4().hex[:8]}"
    jobs.connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    rights.grant(jobs.connection, role, ["viewer"])
    try:
        async with App(make_conninfo(dsn, options=f"-c role={role}")) as app, asking(app) as call:
            for tool in ("overview", "list_jobs", "failures", "queues", "tasks", "schedules", "workers", "limits"):
                assert isinstance(await call(tool), dict), tool
            assert isinstance(await call("database"), dict)
            for tool in ("job", "why", "steps", "children", "logs"):
                assert (await call(tool, job_id=job))["id"] == job, tool
    finally:
        jobs.connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
        jobs.connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


async def test_an_argument_with_a_wrong_name_is_refused_by_name(app: App, jobs: Jobs) -> None:
    jobs.ready()
    async with Client(make_mcp_server(app)) as client:
        tools = (await client.list_tools()).tools
        assert all(tool.input_schema["additionalProperties"] is False for tool in tools)
    async with asking(app) as call:
        assert "'status' is no argument here: it takes state, queue" in await call("list_jobs", status="scheduled")
        assert "'name' is no argument here: it takes after, limit" in await call("tasks", name="add")
        assert "'state' is no argument here: it takes none" in await call("overview", state="ready")
        assert (await call("list_jobs", state="scheduled"))["jobs"] == []


async def test_an_error_quotes_no_more_than_the_beginning_of_a_value(app: App) -> None:
    long = "x" * 1_000_000
    async with asking(app) as call:
        for tool, given in [
            ("list_jobs", {name: long}) for name in ("queue", "state", "metadata", "since", "before", long)
        ] + [("job", {"job_id": long}), (long, {})]:
            said = await call(tool, **given)
            assert isinstance(said, str)
            assert len(said) < 5000, (tool[:20], str(given)[:20])
        assert "(1,000,002 characters)" in await call("list_jobs", queue=long)
