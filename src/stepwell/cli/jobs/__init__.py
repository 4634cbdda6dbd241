"""`stepwell jobs`: its commands, the filters that they share, and how jobs are printed.

`commands`, `delete_and_move` and `live` have one function per command. `filters` turns the filter options into a match,
`acts` changes jobs and reports the result, and `table`, `page` and `steps` print. The acts themselves are in
`stepwell.jobs`.
"""

from stepwell.cli.jobs import delete_and_move
from stepwell.cli.jobs.commands import group
from stepwell.cli.jobs.live import logs, stack

group.command()(logs)
group.command()(stack)

__all__ = ["delete_and_move", "group"]
