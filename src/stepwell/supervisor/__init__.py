"""Run worker processes, replace those that die, and pass on requests to stop.

`supervisor` starts the processes of one command and decides what follows each exit code (`exit_codes`). It watches a
child through `worker_process`, waits a `RestartDelay` after a crash, and restarts every child when `code_changes`
reports an edit. It talks to a child over the `lifeline`, a pipe that also tells the child when its supervisor is gone.

Nothing here knows a worker or its jobs: a child runs `worker.worker_main`, the other side of the lifeline. Nothing here
parses a command line or prints. The `cli` does both, and passes in a function that reports errors. What happens is
logged as events of `telemetry`.
"""
