"""The work for all workers: promote due jobs, fire schedules, rescue the jobs of dead workers, prune the tables.

One worker leads; `leadership` holds whether this one does. `promoter` makes due jobs ready, `ticker` fires schedules,
`bulk_runner` works off bulk operations, `upkeep` elects the leader and does its other duties. No job waits for a
leader: every duty is idempotent and safe to do twice at once, and duties that must not wait are done by the other
workers, too, half a second later. `index_walks` says how often a duty may walk an index from its front.

Nothing here claims or runs jobs: see `worker/claiming` and `worker/runner`. The transitions themselves are SQL
functions; these loops only call them at the right time.
"""
