"""The MCP server, asked by a real client over standard input and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from cli.commands import Jobs
from web.assistant import assistant

from stepwell.postgres import queries
from stepwell.postgres.fetch import fetch
from stepwell.values.log_line import LogLine


def enqueue(conn: psycopg.Connection[Any], args: Any) -> str:
    row = conn.execute("select stepwell.enqueue('add', %s::json)", (json.dumps(args),)).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.slow
async def test_an_assistant_reads_jobs_and_can_change_none(dsn: str, conn: psycopg.Connection[Any]) -> None:
    job_id = enqueue(conn, {"x": 2**53 + 1, "password": "hunter2"})
    failed = Jobs(conn).failed(task="break")
    lines = [LogLine(failed, 1, 0.0, 20, "shop", "<b>one</b>"), LogLine(failed, 1, 0.0, 40, "shop", "two")]
    fetch(conn, queries.logs.write_logs(lines, {}))
    large = enqueue(conn, {"x": 1, "text": "y" * 60_000})
    async with assistant(dsn, "--redact", "password") as (client, call):
        tools = (await client.list_tools()).tools
        assert {"overview", "list_jobs", "job", "why", "failures", "queues", "workers"} <= {tool.name for tool in tools}
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        for tool in tools:
            if not {"job_id", "failure_id"} & set(tool.input_schema.get("properties", {})):
                assert isinstance(await call(tool.name), dict), tool.name
        assert [job["id"] for job in (await call("list_jobs", limit=1))["jobs"]] == [large]
        soon = await call("list_jobs", state="ready", sort="priority", limit=1)
        assert (soon["sorted"]["whole"], soon["sorted"]["next"]) == (True, 1)
        later = await call("list_jobs", state="ready", sort="priority", limit=1, offset=1)
        assert {soon["jobs"][0]["id"], later["jobs"][0]["id"]} == {job_id, large}
        # Each list goes on after a given row.
        assert (await call("queues"))["queues"]
        assert (await call("queues", after="zzz"))["queues"] == []
        assert (await call("tasks"))["tasks"]
        assert (await call("tasks", after="zzz"))["tasks"] == []
        assert (await call("limits", after="zzz"))["limits"] == []
        assert (await call("workers", before=1))["workers"] == []
        assert (await call("schedules", after_owner="zzz", after="zzz"))["schedules"] == []
        [found] = (await call("list_jobs", state="ready", argument=f"x={2**53 + 1}"))["jobs"]
        assert (found["id"], found["args"]) == (job_id, {"x": 2**53 + 1, "password": "[redacted]"})
        assert "hunter2" not in json.dumps(await call("job", job_id=job_id))
        assert (await call("why", job_id=job_id))["why"]["cause"]
        assert "were cut" in json.dumps(await call("job", job_id=large))
        for wrong in ("no id", str(uuid4())):
            assert "job" in await call("job", job_id=wrong)
        assert "password" in await call("list_jobs", argument="password=hunter2")
        [group] = (await call("failures"))["groups"]
        assert (await call("failures", limit=1, after=group["id"]))["groups"] == []
        assert (await call("failures", state="resolved"))["groups"] == []
        one = await call("failure", failure_id=group["id"])
        assert (one["task"], one["count"]) == ("break", 1)
        assert [job["id"] for job in (await call("list_jobs", failure=group["id"]))["jobs"]] == [failed]
        assert (await call("list_jobs", failure=str(uuid4())))["jobs"] == []
        for wrong in ("no id", str(uuid4())):
            assert "failure" in await call("failure", failure_id=wrong)
            assert "job" in await call("logs", job_id=wrong)
        logged = await call("logs", job_id=failed)
        assert [line["message"] for line in logged["lines"]] == ["<b>one</b>", "two"]
        assert [line["line"] for line in (await call("logs", job_id=failed, level="error"))["lines"]] == [2]
        assert [line["line"] for line in (await call("logs", job_id=failed, before=2))["lines"]] == [1]
    assert conn.execute("select count(*) from stepwell.jobs where state = 'ready'").fetchone() == (2,)


@pytest.mark.slow
async def test_what_the_app_prints_is_no_message_and_fields_are_hidden(
    dsn: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    (tmp_path / "loud.py").write_text(
        "import os, subprocess\n"
        "from stepwell import App\n"
        "print('not JSON', flush=True)\n"
        "print('nor this')\n"
        "subprocess.run(['echo', 'nor that'])\n"
        "app = App()\n"
    )
    job_id = enqueue(conn, {"password": "hunter2", "card": "hunter2", "x": 1})
    refused: list[Exception] = []

    async def heard(message: Any) -> None:
        if isinstance(message, Exception):
            refused.append(message)

    options = ("--redact", "card")
    async with assistant(dsn, *options, app="loud:app", cwd=tmp_path, heard=heard, STEPWELL_REDACT="password") as (
        _,
        call,
    ):
        found = await call("job", job_id=job_id)
    assert found["args"] == {"password": "[redacted]", "card": "[redacted]", "x": 1}
    assert refused == []
