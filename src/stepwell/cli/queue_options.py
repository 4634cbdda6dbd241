"""The options that say which queues a worker claims from, and with how many slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from stepwell.cli.parse import UsageError

if TYPE_CHECKING:
    from stepwell.worker.claiming.balance import BalanceOption

QueuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME[=SLOTS]",
        help="Claim from this queue, or with a trailing * from all with that prefix, optionally with its own number "
        "of slots. Repeatable.  [default: the queues of the app's tasks]",
        show_default=False,
    ),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        "-c",
        metavar="N",
        help="Run up to N jobs at once.  [default: 10]",
        min=1,
        max=100_000,
        show_default=False,
    ),
]


def read_queues(typed: list[str], concurrency: int | None) -> list[str] | dict[str, int] | None:
    for each in typed:
        if "," in each:
            raise UsageError(f"--queue is {each!r}: repeat the option for each queue, as in -q mail -q default")
    with_slots = [each for each in typed if "=" in each]
    if not with_slots:
        return typed or None
    if len(with_slots) < len(typed):
        bare = next(each for each in typed if "=" not in each)
        raise UsageError(f"--queue is {bare!r} and {with_slots[0]!r}: give slots to all queues or to none")
    if concurrency is not None:
        raise UsageError(
            f"--concurrency is {concurrency} and --queue {with_slots[0]!r}: leave out --concurrency, it is the sum of "
            "the slots"
        )
    return _numbers(typed, "--queue", "mail=2")


def read_balance(typed: str) -> BalanceOption:
    """Weights as a dict; the worker checks anything else."""
    if "=" in typed:
        return _numbers([each.strip() for each in typed.split(",")], "--balance", "mail=3,default=1")
    return cast("BalanceOption", typed)


def _numbers(typed: list[str], option: str, example: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for each in typed:
        name, _, number = each.rpartition("=")
        if not name or not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise UsageError(f"{option} is {each!r}: write it as {example}")
        if name in numbers:
            raise UsageError(f"{option} names {name!r} twice: name it once")
        numbers[name] = int(number)
    return numbers
