"""The command line: parse the arguments, call the library once, print the answer.

`commands` lists all commands; each has a file named after it, or a folder (`jobs`) where it needs several. A
command connects through `database`, reads its arguments with `parse`, and prints with `output`, which writes tables for
people and `--json` for programs, and escapes control characters in all text from jobs. `entry_point` turns every error
into one line on stderr and an exit code: 0, 1 for a failure, 2 for a wrong command line. `top` is the screen for the
terminal, `completion` has what the shell completes, and `progress` shows how far a long command is.

Nothing is decided here: jobs are changed by `stepwell.jobs`, checks are in `stepwell.doctor`, and worker processes are
started and replaced by `stepwell.supervisor`. To add a command, write its file and name it in `commands`.
"""

import sys
from typing import NoReturn

from stepwell.errors.text import how_to_install

__all__ = ["main"]


def main() -> NoReturn:
    try:
        from stepwell.cli import entry_point
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(f"stepwell: the command is not installed: {how_to_install('worker')}")
    entry_point.main()
