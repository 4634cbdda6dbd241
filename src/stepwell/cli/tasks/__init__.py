"""`stepwell tasks`: `command` lists what an app would run, `details` reads it from the app, `tables` prints it."""

from stepwell.cli.tasks.command import tasks

__all__ = ["tasks"]
