"""Put in so many jobs a second, as batches of 100; 0: as many as are run, with never more than 5,000 waiting."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tally import Reading
from tasks import noop

BATCH = 100
MOST_WAITING = 5_000


def main(rate: int) -> None:
    """Until killed."""
    ran = Reading(Path(os.environ["BENCH_TALLY"]))
    begun, already, put = time.monotonic(), ran.count, 0
    while True:
        if rate:
            time.sleep(max(0.0, begun + put / rate - time.monotonic()))
        while put > ran.count - already + MOST_WAITING:
            time.sleep(0.001)
        noop.enqueue_many([{}] * BATCH)
        put += BATCH


main(int(sys.argv[1]))
