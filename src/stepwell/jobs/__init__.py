"""Tasks, how their jobs are enqueued, and handles to jobs."""
