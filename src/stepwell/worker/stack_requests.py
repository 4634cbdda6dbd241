"""Requests for the stacks of running handlers: the lease thread hears of them and answers them.

The event loop may be blocked, and that is when people ask. So nothing here needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from stepwell.errors.text import error_line_of
from stepwell.postgres import queries
from stepwell.postgres.connection import has_input
from stepwell.postgres.fetch import fetch
from stepwell.postgres.queries.fleet import Orders


class StackRequests:
    """What the connection of the lease brings, and the answers. `worker_id` is the id that the worker has now; `stack`
    returns where the handler of a job is, given the job and the thread of the event loop."""

    def __init__(self, worker_id: Callable[[], str | None], stack: Callable[[str, int], str], loop_thread: int) -> None:
        self._worker_id = worker_id
        self._stack = stack
        self._loop_thread = loop_thread
        self._asked = False

    def listen(self, connection: psycopg.Connection[Any]) -> None:
        # For those that come while the connection is in use.
        connection.add_notify_handler(lambda note: self._note(note.payload))
        connection.execute("listen stepwell_stack")

    def heard(self, connection: psycopg.Connection[Any] | None) -> bool:
        """Whether the idle connection was cut, or has brought a request for a stack of this worker."""
        asked, self._asked = self._asked, False
        if asked or connection is None or connection.closed or not has_input(connection):
            return asked
        # If it was cut, the advisory lock is gone: other workers take that for death within a second or two.
        try:
            connection.pgconn.consume_input()
        except psycopg.Error:
            return True
        notes = 0
        while (note := connection.pgconn.notifies()) is not None:
            notes += 1
            self._note(note.extra.decode(errors="replace"))
        asked, self._asked = self._asked, False
        return asked or not notes

    def answer(self, connection: psycopg.Connection[Any], worker_id: str, orders: Orders) -> None:
        """Answer the requests that a renewal has brought."""
        if orders.stack_requests:
            stacks = [self._stack_of(job_id) for job_id in orders.stack_jobs]
            fetch(connection, queries.logs.answer_stacks(worker_id, orders.stack_requests, stacks))

    def _note(self, worker_id: str) -> None:
        # Anybody may notify. The renewal asks the database for requests.
        self._asked = self._asked or worker_id == self._worker_id()

    def _stack_of(self, job_id: str) -> str:
        try:
            return self._stack(job_id, self._loop_thread)
        except Exception as error:  # the run may have changed meanwhile, and the lease must not suffer
            return f"its stack could not be taken: {error_line_of(error)}"
