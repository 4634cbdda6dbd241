"""The command line of a process that does a part of what this one was asked to do."""

from __future__ import annotations

from typing import Any, cast

import typer


def command_line(context: typer.Context, **changed: object) -> list[str]:
    """The command that runs now, with its options but for those that are `changed`; None leaves one out."""
    argv = [context.info_name or ""]
    given = {**context.params, **changed}
    for parameter in context.command.params:
        value: Any = given.get(parameter.name or "")
        if value is None or value is False or value == parameter.default:
            continue
        for one in cast("list[object]", value if isinstance(value, list | tuple) else [value]):
            if parameter.param_type_name == "argument":
                argv.append(str(one))
            else:
                argv.append(parameter.opts[0] if one is True else f"{parameter.opts[0]}={one}")
    return argv
