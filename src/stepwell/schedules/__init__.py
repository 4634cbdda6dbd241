"""Schedules of an app: declared in code, or made and changed at run time."""
