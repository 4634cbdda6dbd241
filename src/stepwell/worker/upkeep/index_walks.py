"""How often to walk an index from its front.

While a transaction holds an old snapshot, an index keeps an entry for every dead row. A walk from the front passes over
all of them and keeps a core busy, for longer the longer the snapshot is held. So walks are rare: they only find jobs
that no notification announced.
"""

from __future__ import annotations

# A walk over a million dead rows takes some 150 ms. With this pause walks of one kind take a five-hundredth of the
# time. A twentieth was too much: on two cores it raised p99 of all jobs fivefold. The pause depends on the number of
# rows, and not on the time that the walk took: on a busy machine that is long without any dead rows.
_PAUSE_PER_ROW = 75e-6
_LONGEST_PAUSE = 120.0


def pause_after_walk(rows: int) -> float:
    """How long to wait after a walk over so many rows."""
    return min(rows * _PAUSE_PER_ROW, _LONGEST_PAUSE)
