"""The worker: a process that claims jobs, runs them and writes how they went.

Data walks one way. A `Fetcher` (in `claiming`) claims batches, a `Runner` runs each job in a slot, calling its handler
by `HandlerCalls`, and `OutcomeWriter` (in `outcomes`) gathers how they ended and writes that in batches. Each pool of
slots has a fetcher and a runner; `Slots` holds them. Durable jobs save their steps through `steps` while they run.
Around them are the `Lease`, a thread that keeps the worker's right to its jobs alive even if the event loop is blocked;
the `Listener`, which hears where jobs became ready; and `upkeep`, which promotes due jobs, fires schedules, rescues
jobs of dead workers and prunes tables.

`Worker` is what users see, `WorkerRun` wires the parts of one run together, and `draining` ends it. All parts but the
lease and the listener ask the database by a `WorkerConnection`; these share the few `Connections` of the worker, and an
`Outage` logs once when the database is away. `Locks` sets aside writes of locked jobs, so that they hold up no others,
and a `DutyRunner` limits the time of a duty's query and logs its failure once. `worker_main` runs a worker in this
process, supervised or not, with its signals and its `process_limits`. How a handler becomes an outcome:
`stepwell.execution`.
"""

from stepwell.worker.worker import Worker

__all__ = ["Worker"]
