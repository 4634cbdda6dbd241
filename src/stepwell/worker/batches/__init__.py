"""Jobs of tasks with `batch=`: gather claimed ones into batches, and run each batch in one slot.

`gathering` puts claimed jobs together until a batch is full or its time is up. `batch_runs` calls the function, stops
it when asked, and hands the outcome of each job on. `batches` combines both for the `Runner`, which decides when a
batch gets a slot. Each job is claimed, fenced and finished for itself: in the database there are no batches.
"""
