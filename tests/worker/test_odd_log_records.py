"""Run logs of code that makes records with any values: they are no trouble for the job, nor for the lines of others."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
from waiting import Heard, auntil

from stepwell import App, Retry, Worker
from stepwell.durable.log_filter import LoggedRun, current_run
from stepwell.telemetry.worker import LogLinesLost, UpkeepFailed
from stepwell.values.log_line import LogLine

LONG = "\0" * 5000
NEGATIVE = -62135596800.0 - 5e8
ODD: list[dict[str, Any]] = [
    {"levelno": 2**40},
    {"levelno": 30.5},
    {"levelno": math.inf},
    {"name": "a\0b"},
    {"name": "a\ud800"},
    {"name": LONG},
    {"name": None},
    {"name": 7},
    {"created": math.inf},
    {"created": math.nan},
    {"created": NEGATIVE},
    {"created": time.time() * 1000},
    {"created": 2**2000},
    {"created": None},
    {"msg": "\0\ud800"},
    {"msg": LONG},
    {"exc_info": "no tuple"},
    {"stack_info": 7},
]


class NoText:
    def __str__(self) -> str:
        raise RuntimeError("no text")


# When the tests are collected, nobody has patched it yet. Sentry does for the rest of the process.
_UNPATCHED = logging.Logger.callHandlers


@contextmanager
def no_other_handlers() -> Generator[None]:
    """The handlers of pytest, and Sentry, raise the errors of odd records."""
    root = logging.getLogger()
    others, root.handlers = root.handlers, []
    patched, logging.Logger.callHandlers = logging.Logger.callHandlers, _UNPATCHED
    try:
        yield
    finally:
        root.handlers = others
        logging.Logger.callHandlers = patched


async def test_odd_records_and_lines_cost_only_themselves(app: App, conn: psycopg.Connection[Any]) -> None:
    logger = logging.getLogger("odd")

    @app.task(logs=True, retry=Retry(max_attempts=1))
    async def odd() -> str:
        for given in ODD:
            logger.handle(logging.makeLogRecord({"name": "odd", "levelno": 30, "msg": "odd", **given}))
        logger.warning("%s", NoText())
        logger.warning("%d", "no number")
        logger.warning("last")
        return "done"

    @app.task(logs=True)
    async def sends(job_id: str) -> None:
        """Lines that no record makes, as a fault in Stepwell might."""
        run = current_run()
        assert isinstance(run, LoggedRun)
        assert run.sink is not None
        good = LogLine(job_id, 1, time.time(), 30, "odd", "good")
        bad = [
            LogLine(job_id, 1, math.inf, 30, "odd", "bad"),
            LogLine(job_id, 1, math.nan, 30, "odd", "bad"),
            LogLine(job_id, 1, 1e300, 30, "odd", "bad"),
            LogLine(job_id, 1, time.time(), 2**40, "odd", "bad"),
            LogLine(job_id, 1, time.time(), 30, "a\0b", "bad"),
            LogLine(job_id, 1, time.time(), 30, "odd", "\ud800"),
            LogLine("no uuid", 1, time.time(), 30, "odd", "bad"),
        ]
        for line in bad:
            run.sink(good)
            run.sink(line)
        run.sink(good)

    def rows() -> list[Any]:
        return conn.execute("select message, level, logger, at from stepwell.run_log order by job_id, line").fetchall()

    with no_other_handlers():
        worker = Worker(app)
        heard = Heard(worker)
        async with worker:
            job = await odd.aenqueue()
            assert await job.aresult(timeout=20) == "done"
            # Each try of a batch that is refused as a whole would take a second.
            await auntil(lambda: any(row[0] == "last" for row in rows()), 5)
            found = rows()
            other = await sends.aenqueue(str(job.id))
            await other.aresult(timeout=20)
            await heard.wait_for(LogLinesLost)
    assert [(row[1], row[2]) for row in found[:8]] == [
        (1000, "odd"), (30, "odd"), (0, "odd"), (30, "a\\x00b"), (30, "a\\ud800"),
        (30, ("\\x00" * 50)), (30, "None"), (30, "7"),
    ]  # fmt: skip
    now = datetime.now(UTC)
    assert all(abs((now - row[3]).total_seconds()) < 60 for row in found)
    assert found[14][0] == "\\x00\\ud800"
    assert found[15][0] == ("\\x00" * 1000)[:3999] + "…"
    assert [row[0] for row in rows()[len(found) :]] == ["good"] * 8
    [lost] = heard.of(LogLinesLost)
    assert lost.lines == 7
    assert lost.text().startswith("7 log lines of jobs could not be written, and are lost: ")
    assert not heard.of(UpkeepFailed)
