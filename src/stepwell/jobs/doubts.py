"""When a look in the database proves that a job does not exist."""

from __future__ import annotations


class Doubts:
    """The jobs that the last look did not find. While a partition is created, a row that moves into it can be missed:
    a job does not exist if two looks in a row do not find it."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._ids)

    def is_certain(self, job_id: str, *, found: bool, knows_all: bool) -> bool:
        """Whether a look says how it is about this job. If not, look again. Without `knows_all`, a job that is not
        found may exist: a server that has handed over does not see the jobs of its successor."""
        if not found and not knows_all:
            return False
        if not found and job_id not in self._ids:
            self._ids.add(job_id)
            return False
        self._ids.discard(job_id)
        return True

    def forget(self, job_id: str) -> None:
        self._ids.discard(job_id)

    def clear(self) -> None:
        self._ids.clear()
