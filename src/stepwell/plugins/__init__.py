"""Plugins: extend an app at its enqueues, runs, steps and events.

`Plugin` is the base class of users' own plugins and of those in `stepwell.contrib`. `LoadedPlugins` calls the hooks
of an app's plugins and logs those that fail; `RunPlugins` calls those around the runs of one worker. An app without
plugins pays for one check per enqueue and one per run. This room knows neither the app nor the worker: it passes them
on.
"""

from stepwell.plugins.enqueue import Enqueue
from stepwell.plugins.plugin import Plugin
from stepwell.plugins.run import Run
from stepwell.plugins.step import StepRun

__all__ = ["Enqueue", "Plugin", "Run", "StepRun"]
