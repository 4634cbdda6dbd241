"""The app: its name, its database, its tasks, and every call that is public on `App`.

`App` combines one class for each concern. Three are here: `TaskRegistry` (`registry`) registers tasks with the options
of `task_defaults`, `FleetControl` (`fleet`) pauses and stops workers, and `AppExtensions` (`extensions`) registers
resources, middleware and hooks; `worker_hook` checks the hooks of workers. The others are in the rooms of what they
change: `AppJobs`, `AppLimits` and `AppFailures` in `jobs`, `AppSchedules` in `schedules`. This room runs no job.
"""

from stepwell.app.app import App

__all__ = ["App"]
