"""Run worker processes, replace those that die, and pass on requests to stop.

`supervisor` starts the processes of one command and decides what follows each exit code (`exit_codes`). It watches a
child through `worker_process`, waits a `RestartDelay` after a crash, and restarts every child when `code_changes`
reports an edit. It talks to a child over the `lifeline`, a pipe that also tells the child when its supervisor is gone.

`worker_main` is the other side: it runs one worker in the current process, supervised or not, with its event loop, its
signals and its `limits` (jobs, memory).

Nothing here parses a command line or prints. The `cli` does both, and passes in a function that reports errors. What
happens is logged as events of `telemetry`. How a worker claims and runs jobs is in `worker`.
"""
