"""Write how runs ended, in batches.

`outcome_table` says for each type of outcome which statement writes it, which counter counts it and which event
announces it; it is the only place that knows. `writer` gathers outcomes, announces them, groups them by statement and
writes them; outcomes that cannot be written now stay in memory and are tried again. `progress` writes what running jobs
report, over the same connection. `stats` adds up how runs ended, for the table `stepwell.stat`.

No outcome is decided here: `execution` makes them, and the database's fence decides whether they still count. Steps of
durable jobs are saved in `worker/steps`.
"""
