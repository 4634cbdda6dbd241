"""Exit codes of a worker process, and how its supervisor reads them."""

from __future__ import annotations

DONE = 0
"""The worker was asked to stop and did: the supervisor does not replace it."""
TROUBLE = 1
USAGE = 2
"""The command line is wrong: another process with the same one would fail, too."""
REFUSED = 69
"""The database refused the worker before it started, or with --no-wait was away. Unsupervised, this is `TROUBLE`."""
RECYCLE = 75
"""The process reached one of its limits: the supervisor replaces it at once."""
MISCONFIGURED = 78
"""The app cannot be used until its code or settings change. Unsupervised, this is `TROUBLE`."""
