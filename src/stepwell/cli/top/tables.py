"""The tabs of `stepwell top` as tables: their columns, the text of each cell, and the columns that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.cli.output import clean, compact, hide
from stepwell.cli.top.view import Record, View
from stepwell.postgres.queries.reads import value_of
from stepwell.web.progress import read_progress
from stepwell.web.wording import ago, between, count, length

BARS = "▁▂▃▄▅▆▇█"
_GAP = 2  # between two columns
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Cells:
    """A column. Where the terminal is narrow, columns with the largest `spare` are left out first; 0: never."""

    title: str
    text: Callable[[Record, View], object]
    right: bool = False
    spare: int = 0
    widest: int = 60


def _counted(state: str) -> Callable[[Record, View], str]:
    return lambda queue, _: count(queue["counts"][state], queue["counts"]["most"]) if queue["counts"][state] else ""


def _runs(how: str) -> Callable[[Record, View], str]:
    return lambda row, _: f"{row['runs'][how]:,}" if row["runs"][how] else ""


QUEUES = (
    Cells("queue", lambda queue, _: queue["name"]),
    Cells("state", lambda queue, view: "paused" if queue["paused_at"] or view.paused else "", spare=1),
    Cells("ready", _counted("ready"), right=True),
    Cells("running", _counted("running"), right=True),
    Cells("scheduled", _counted("scheduled"), right=True, spare=4),
    Cells("waiting", _counted("waiting"), right=True, spare=6),
    Cells("blocked", _counted("blocked"), right=True, spare=7),
    Cells("oldest", lambda queue, view: _since(queue["oldest_ready_at"], view), right=True, spare=3),
    Cells("done/h", _runs("succeeded"), right=True, spare=5),
    Cells("failed/h", _runs("failed"), right=True, spare=2),
    Cells("workers", lambda queue, _: queue["workers"], right=True, spare=8),
)
RUNNING = (
    Cells("task", lambda job, _: job["task"]),
    Cells("for", lambda job, view: _since(job["claimed_at"], view), right=True),
    Cells("progress", lambda job, _: progress_text(job["progress"]), spare=1),
    Cells("queue", lambda job, _: job["queue"], spare=3, widest=24),
    Cells("attempt", lambda job, _: job["attempt"], right=True, spare=4),
    Cells("worker", lambda job, view: _worker_of(job, view), spare=5),
    Cells("id", lambda job, _: job["id"], spare=2),
)
JOBS = (
    Cells("task", lambda job, _: job["task"]),
    Cells("state", lambda job, _: job["state"], spare=6),
    Cells("enqueued", lambda job, view: ago(job["enqueued_at"], view.now), spare=3),
    Cells("due or ended", lambda job, view: ago(job["finished_at"] or job["run_at"], view.now)),
    Cells("queue", lambda job, _: job["queue"], spare=4, widest=24),
    Cells("attempt", lambda job, _: job["attempt"], right=True, spare=5),
    Cells("error", lambda job, _: job["error"], spare=1),
    Cells("id", lambda job, _: job["id"], spare=2),
)
WORKERS = (
    Cells("worker", lambda worker, _: f"{worker['host']}:{worker['pid']}"),
    Cells("state", lambda worker, _: worker_state(worker)),
    Cells("running", lambda worker, _: f"{worker['running']}/{worker['concurrency']}", right=True),
    Cells("queues", lambda worker, _: ", ".join(worker["queues"]), spare=1, widest=30),
    Cells("runs", lambda worker, _: ", ".join(dict.fromkeys(job["task"] for job in worker["jobs"])), spare=4),
    Cells("started", lambda worker, view: ago(worker["started_at"], view.now), spare=3),
    Cells("renewed", lambda worker, view: ago(worker["renewed_at"], view.now), spare=2),
    Cells("leads", lambda worker, _: "yes" if worker["leads"] else "", spare=6),
    Cells("app", lambda worker, _: worker["owner"], spare=7, widest=24),
    Cells("id", lambda worker, _: worker["id"], spare=5),
)
FAILURES = (
    Cells("task", lambda group, _: group["task"]),
    Cells("count", lambda group, _: f"{group['count']:,}", right=True),
    Cells("last", lambda group, view: ago(group["last_at"], view.now)),
    Cells("first", lambda group, view: ago(group["first_at"], view.now), spare=3),
    Cells("error", lambda group, _: group["type"], widest=30),
    Cells("in", lambda group, _: group["frame"], spare=2, widest=40),
    Cells("message", lambda group, _: group["message"], spare=1),
)
TASKS = (
    Cells("task", lambda task, _: task["name"]),
    Cells("state", lambda task, view: "paused" if task["paused_at"] or view.paused else "", spare=1),
    Cells("done/h", _runs("succeeded"), right=True),
    Cells("failed/h", _runs("failed"), right=True),
    Cells("mean run", lambda task, _: _mean(task), right=True, spare=2),
    Cells("last hour", lambda task, _: sparkline(task["runs"]["chart"]), spare=3),
    Cells("workers", lambda task, _: task["workers"], right=True, spare=4),
)
EMPTY = {
    "queues": "No queue is in use: none has live jobs, a pause, a setting or a worker.",
    "jobs": "No job is {state}.",
    "workers": "No worker is registered.",
    "failures": "No failure is open.",
    "tasks": "No task has run, and no worker has one.",
}
_KEYS: dict[str, Callable[[Record], str]] = {
    "queues": lambda queue: queue["name"],
    "jobs": lambda job: job["id"],
    "workers": lambda worker: worker["id"],
    "failures": lambda group: group["id"],
    "tasks": lambda task: task["name"],
}


def columns_of(tab: str, view: View) -> tuple[Cells, ...]:
    if tab == "jobs":
        return RUNNING if view.state == "running" else JOBS
    return {"queues": QUEUES, "workers": WORKERS, "failures": FAILURES, "tasks": TASKS}[tab]


def key_of(tab: str, row: Record) -> str:
    """What names the row, also after it was read again."""
    return _KEYS[tab](row)


def rows_of(tab: str, view: View, wanted: str = "") -> list[tuple[Record, list[str]]]:
    """The rows with the text of each cell, all of those with the wanted text in one of them, ignoring case."""
    columns = columns_of(tab, view)
    rows = [(row, [_cell(column.text(row, view)) for column in columns]) for row in view.rows.get(tab, ())]
    sought = wanted.lower()
    return [(row, cells) for row, cells in rows if any(sought in cell.lower() for cell in cells)]


def fitting(columns: Sequence[Cells], rows: Iterable[Sequence[str]], width: int) -> dict[int, int]:
    """The places of the columns that fit into the width, each with the widest that it may be. Columns that have no text
    are left out, if they may be. If what must stay is too wide, the widest texts are to be cut."""
    from rich.cells import cell_len

    widths = [len(column.title) for column in columns]
    filled: set[int] = set()
    for row in rows:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], min(cell_len(cell), columns[place].widest))
            if cell:
                filled.add(place)
    kept = [place for place, column in enumerate(columns) if not column.spare or place in filled]
    while sum(widths[place] + _GAP for place in kept) > width:
        spare = max(kept, key=lambda place: columns[place].spare)
        if not columns[spare].spare:
            break
        kept.remove(spare)
    # No column is narrower than its title.
    least = {place: max(_NARROWEST, len(columns[place].title)) for place in kept if not columns[place].right}
    while sum(widths[place] + _GAP for place in kept) > width:
        texts = [place for place, narrowest in least.items() if widths[place] > narrowest]
        if not texts:
            break
        widths[max(texts, key=widths.__getitem__)] -= 1
    return {place: widths[place] for place in kept}


def cut(text: str, widest: int) -> str:
    """The text in at most so many cells of a terminal, of which some characters take two."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= widest else set_cell_size(text, widest - 1) + "…"


def sparkline(values: Sequence[float]) -> str:
    """A value is as high as its share of the largest. One that is not 0 can be seen."""
    most = max(values, default=0) or 1
    return "".join(" " if not value else BARS[min(7, int(value / most * 7.99))] for value in values)


def progress_text(stored: str | None) -> str:
    """What `ctx.progress` reported: a short bar, the share, and the message."""
    said = hide(value_of(stored))
    progress = read_progress(said)
    if progress is None:
        return "" if said is None else said if isinstance(said, str) else compact(said)
    share = progress.share
    bar = progress.amount if share is None else f"{'█' * round(share * 8):░<8} {share * 100:3.0f}%"
    return " ".join(part for part in (bar, progress.message) if part)


def worker_state(worker: Record) -> str:
    if not worker["alive"]:
        return "dead"
    return "stopping" if worker["stopping"] else "paused" if worker["paused"] else "alive"


def _cell(value: object) -> str:
    return "" if value is None else clean(str(value))


def _since(at: Any, view: View) -> str:
    return "" if at is None else length(between(at, view.now))


def _worker_of(job: Record, view: View) -> str:
    for worker in view.rows.get("workers", ()):
        if worker["id"] == job["worker_id"]:
            return f"{worker['host']}:{worker['pid']}"
    return str(job["worker_id"] or "")[:8]


def _mean(task: Record) -> str:
    runs = task["runs"]
    # Runs that were suspended or handed back took time, too. Jobs that were broken or lost count as ended, without one.
    return length(runs["seconds"] / runs["ended"]) if runs["seconds"] and runs["ended"] else ""
