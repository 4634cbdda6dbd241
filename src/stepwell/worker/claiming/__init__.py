"""Claim jobs: from which queues, how many, and for which slots.

`pools` and `balance` hold what the user configured: slots, and the shares that queues get of them; `patterns` are queue
names that end with *. A `fetcher` per pool claims jobs and feeds its runner. `ready_ranges` holds where in each queue
jobs may be ready, `queue_rotation` which queues a claim asks and in which shares, `claim_budget` how many jobs and
bytes the worker may hold. `ready_poller` finds ready jobs that no notification announced. `claims` is the connection
that the fetchers share; it also hands back jobs whose claim was committed but whose reply was lost. `unreadable_jobs`
handles jobs whose contents cannot be sent with a claim.

Nothing here runs a job: the fetcher hands claimed jobs to the `Runner`.
"""
