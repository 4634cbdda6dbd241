"""The worker's part in durable execution and in transactional tasks.

`step_store` batches the steps of all running jobs into shared round trips; its `backend` is what `stepwell.durable`
calls. `step_threads` runs plain steps and branches. `transaction` runs a `transaction=True` handler so that its writes
commit with the job's completion, and `transaction_runs` settles commits in doubt. `open_transaction` opens the
transaction of a handler or a step, and `open_session` one in a session of the user's. Which steps a handler takes, and
what they mean, is in `stepwell.durable`; outcomes are written in `worker/outcomes`.
"""
