"""`stepwell jobs`: its commands, the filters that they share, and how jobs are printed.

`commands` has one function per command. `filters` turns the filter options into a match, `changes` retries and cancels
jobs and reports the result, and `table`, `page` and `steps` print. The changes themselves are in `stepwell.jobs`.
"""

from stepwell.cli.jobs.commands import group

__all__ = ["group"]
