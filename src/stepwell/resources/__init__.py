"""Resources: what handlers share in a worker process, such as a connection pool, a client or a model.

`declared` holds the functions that `@app.resource` was given, by the type that each one makes. `opened` holds what a
worker, or a process of it, has opened. `injected` is the default of a parameter that a worker fills in. This room knows
no jobs and no worker.
"""
