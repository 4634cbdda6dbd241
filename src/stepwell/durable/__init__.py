"""Durable execution: a handler's steps, waits and children are saved, and a later run replays them.

After a crash, a failed attempt or a wait, a worker runs the handler again from the top. `Context` and `SyncContext` are
the API that handlers use. A step goes `context` -> `step` -> `journal` (its key, and whether it is saved) -> `effects`
-> the worker's `StepBackend`. All of it is written once, as coroutines over `Effects` on the event loop or over
`ThreadEffects` in the thread of a plain function. `waits`, `children`, `concurrency`, `transaction` and `undo` go the
same way. `RunState` is the part of a context that only the worker and the executor touch.

This package knows no SQL: `worker/steps` supplies the backend, and `execution` turns what leaves a handler into an
outcome.
"""
