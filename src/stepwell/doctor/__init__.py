"""Examine a database and report what is wrong with it, each finding with the next act.

`examine` runs every check and returns `Finding`s: a status (ok, warning, problem), a sentence for people, and the rows
behind it for programs. The checks are grouped by theme: `database` (schema, notifications, vacuum, partitions), `jobs`
(jobs and schedules that nobody runs) and `fleet` (workers, pauses, tasks of several apps). A check only reads, and one
that fails does not stop the others.

Nothing here prints: `stepwell doctor` is in `cli`, and a web page can call `examine` just as well. The queries are in
`postgres.queries.health`.
"""

from stepwell.doctor.examine import examine
from stepwell.doctor.finding import Finding, Status

__all__ = ["Finding", "Status", "examine"]
