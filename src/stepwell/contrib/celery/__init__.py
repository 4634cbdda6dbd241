"""Celery's way to write tasks, calls and canvases, for code that moves from Celery to Stepwell. Celery is not needed.

`Celery(app)` makes tasks of an `App` with Celery's decorator: `app.py`, `task.py`. A call makes a job, and a chain,
group or chord makes one durable job that spawns the others: `canvas.py` writes it down, `canvas_job.py` runs it.
`options.py` says what an option of Celery becomes. An option or method that has no counterpart is refused by name:
nothing of Celery is silently ignored.
"""

from stepwell.contrib.celery.app import Celery, shared_task
from stepwell.contrib.celery.canvas import Signature, chain, chord, group
from stepwell.contrib.celery.result import AsyncResult, GroupResult
from stepwell.contrib.celery.task import CeleryTask

__all__ = [
    "AsyncResult",
    "Celery",
    "CeleryTask",
    "GroupResult",
    "Signature",
    "chain",
    "chord",
    "group",
    "shared_task",
]
