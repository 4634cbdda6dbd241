"""Schedules of an app: declared in code, or made and changed at run time.

`app_schedules` is the part of `App` that users call, `declare` holds the declarations of one app and writes them to the
database when a worker starts, and `handle` is one schedule by its name. Nothing here fires a schedule: the leader among
the workers does, in `worker.upkeep.ticker`. When a schedule is due is computed in `calendar`.
"""
