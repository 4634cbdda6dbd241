"""The broker and the actors that are measured."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from program import REDIS, open_tally

# Each thread takes a connection. The client allows 100, and a thread that gets none tries again after 5 s; so here the
# limit is the server's, 10,000.
broker = RedisBroker(url=f"{REDIS}?max_connections=10000")
dramatiq.set_broker(broker)
tally = open_tally()


@dramatiq.actor
def noop() -> None:
    """Nothing."""
    tally.hit()


@dramatiq.actor
def answer(sent: int) -> None:
    """Say how long it took to get here."""
    tally.hit_after(sent)
