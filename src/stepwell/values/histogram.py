"""The bins in which waiting and run times are counted: fixed and logarithmic, so that counts of all workers add up.

Bin n, from 0, counts the times up to `BOUNDS[n]` seconds that are longer than the bound before. The last bin has no
bound. SQL has the same bounds in stepwell.histogram_bounds, which reads percentiles from them; a test compares the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

BOUNDS = [2.0 ** ((n - 26) / 2) for n in range(67)]
"""From 0.12 ms to 12 days, each the one before times the square root of 2."""
BINS = len(BOUNDS) + 1


# Not a function of our own, which takes twice as long to call: every run is counted twice.
bin_of: Callable[[float], int] = partial(bisect_left, BOUNDS)
"""The bin that counts this time, in seconds. A time below 0, by clocks that differ, is in the first."""
