"""Tasks, the jobs that they enqueue, and handles to jobs.

A call travels in three hops: `Task` (or `Enqueuer`, a task with options) encodes the arguments, `enqueue.JobStore`
sends the job, and `postgres.database.Database` runs the query; `enqueue_chunks` divides a list of calls into queries.
`codec` turns arguments and results into JSON and back. `handle` is one job: its result (which `waiter` waits for), its
state, and the changes a caller may ask for; `reads` reads both. `bulk` and `filter` do the same for many jobs at once,
for Python and for the command line, and `act_by_id` for jobs named by their ids.

To watch a job is to see how it changes: `watches` has the jobs that callers watch, which `waiter` looks up together,
and `job_changes` turns what it finds into the changes that one caller sees.

Nothing here runs a job: see `execution` and `worker`. Chains and machines are tasks too, but this room does not know
them: they are in `flows`, and override what differs.
"""
