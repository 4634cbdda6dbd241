"""Plain values that every room passes around: jobs, steps, outcomes, policies, durations, names and JSON.

Values know no database, no clock and no event loop, and import nothing above them but errors. `job` and `step` hold
what the database stores, `outcome` how a run ended, `directives` what user code returns to continue, and `retry` and
`policy` how jobs are retried, timed and kept. `json` is the one encoding of arguments, results and steps.

Codecs that read a function's annotations are in `jobs.codec`; queries that load and store values in `postgres.queries`.
"""
