"""How often to walk an index from its front.

While some transaction holds an old snapshot, an index keeps an entry for every row that ever was in it. A walk from the
front passes over all of them: that keeps a core busy for a time that grows for as long as the snapshot is held. So
walks are rare. They only find what nothing else has told.
"""

from __future__ import annotations

# Walks of one kind take at most this part of the time, however many rows they pass over. A twentieth was too much: on
# two cores it raised p99 of all jobs fivefold.
_SHARE = 0.002
_LONGEST_PAUSE = 120.0
# So long takes a walk over nothing, with the way to the server and back.
_QUICK = 0.005


def pause_after(seconds: float) -> float:
    """How long to wait after a walk that took so long."""
    return min(max(0.0, seconds - _QUICK) / _SHARE, _LONGEST_PAUSE)
