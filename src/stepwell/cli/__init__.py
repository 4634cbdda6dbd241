"""The command line: argv -> one call -> print.

One noun per file. A command opens the database with `session`, runs queries, and hands values to `output`, which knows
people (tables) from programs (`--json`) and trusts no text that came with a job. Errors are raised as everywhere else;
`entry` says them in one line and chooses the exit code: 0, 1 for trouble, 2 for a wrong command line.

A worker runs in the command's own process (`running`), or in several that a `supervisor` starts and replaces: those are
the same command again, at the end of a `lifeline`, and their exit codes (`exits`) say what is to come after them.
"""

from stepwell.cli.entry import main

__all__ = ["main"]
