"""How often to walk an index from its front.

While a transaction holds an old snapshot, an index keeps an entry for every dead row. A walk from the front passes over
all of them and keeps a core busy, for longer the longer the snapshot is held. So walks are rare: they only find jobs
that no notification announced.
"""

from __future__ import annotations

# Walks of one kind take at most this part of the time, however many rows they pass over. A twentieth was too much: on
# two cores it raised p99 of all jobs fivefold.
_SHARE = 0.002
_LONGEST_PAUSE = 120.0
# A walk over no dead rows takes this long, with the round trip to the server.
_QUICK = 0.005


def pause_after_walk(seconds: float) -> float:
    return min(max(0.0, seconds - _QUICK) / _SHARE, _LONGEST_PAUSE)
