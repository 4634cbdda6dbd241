"""Run one job and return how it went, as an `Outcome`.

`executor` runs a function: it decodes the args, calls the handler, and turns the result or the exception into an
outcome. For durable jobs that includes suspending, and replaying a failed job to collect and run its undos.
`flow_executor` runs chains and machines, step after step in one slot. `step_task` lets a chain's step that needs a
transaction or a process of its own run like a task.

Nothing here knows SQL, connections or leases. Steps are saved through the backend that a context carries. The worker's
`runner` decides when a run starts and when it is asked to stop; `worker/outcomes` writes the outcome.
"""
