"""Where in each queue something may be ready.

A claim starts at such a place and not at the front of the queue. In front of it there may be any number of rows that
were claimed long ago and cannot be vacuumed, because somebody holds an old snapshot.
"""

from __future__ import annotations

from typing import NamedTuple

from stepwell.postgres.queries.claims import Position

LAST_RANK = 32767
# A queue with more places than this is walked from the first of them to its end.
_MOST_PLACES = 16


class Place(NamedTuple):
    """The jobs after a position, up to the end of a rank."""

    after: Position
    last_rank: int

    def covers(self, other: Place) -> bool:
        """Whether all jobs of the other place are jobs of this one."""
        return self.after <= other.after and self.last_rank >= other.last_rank


class Places:
    """The places of a pool's queues. A queue without one has nothing ready."""

    def __init__(self) -> None:
        self._places: dict[str, list[Place]] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._places

    def __len__(self) -> int:
        """How many queues have one."""
        return len(self._places)

    def merge(self, others: Places) -> list[str]:
        """Take over the places of others, which have none after this. Returns their queues."""
        queues = list(others._places)
        for queue in queues:
            for place in others._places.pop(queue):
                self.add(queue, place)
        return queues

    def add(self, queue: str, place: Place) -> None:
        """Something may be ready there."""
        places = self._places.setdefault(queue, [])
        if any(other.covers(place) for other in places):
            return
        places[:] = sorted([*(other for other in places if not place.covers(other)), place])
        if len(places) > _MOST_PLACES:
            places[:] = [Place(places[0].after, LAST_RANK)]

    def first(self, queue: str) -> Place:
        """The place of the queue from which to claim next."""
        return self._places[queue][0]

    def advance(self, queue: str, position: Position) -> None:
        """Everything up to this position of the first place has been claimed."""
        self._places[queue][0] = Place(position, self._places[queue][0].last_rank)

    def end(self, queue: str) -> None:
        """Everything in the first place has been claimed."""
        places = self._places[queue]
        del places[0]
        if not places:
            del self._places[queue]
