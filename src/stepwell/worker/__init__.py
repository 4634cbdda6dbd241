"""The worker: a process that claims jobs, runs them and writes how they went.

Data walks one way through this room. The `Fetcher` claims batches, the `Runner` runs each job in a slot, `Outcomes`
gathers how they ended and writes that in batches. Queues with slots of their own have a fetcher and a runner each; the
fetchers take turns to claim, by way of `Claims`. Around them stand the `Lease`, a thread that keeps the worker's right
to hold its jobs alive whatever the event loop does; the `Listener`, which hears where jobs became ready; the `Lookout`,
which finds those that no notification announced; `Upkeep`, which finds out who leads, promotes due jobs, rescues those
of dead workers and keeps the tables tidy; the `Ticker`, which fires schedules; and `Stats`, which counts. All but the
lease and the listener ask by a `Link`, and links share the few `Connections` of the worker.
"""

from stepwell.worker.worker import Worker

__all__ = ["Worker"]
