"""What is typed of a worker's queues: names, or names with slots; and how they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from stepwell.cli.usage import Usage

if TYPE_CHECKING:
    from stepwell.worker.claiming.balance import BalanceOption


def read_queues(typed: list[str], concurrency: int | None) -> list[str] | dict[str, int] | None:
    """Names as a list, names with slots as a dict; None: nothing was typed."""
    for each in typed:
        if "," in each:
            raise Usage(f"--queue is {each!r}: give each queue an option of its own, as in -q mail -q default")
    with_slots = [each for each in typed if "=" in each]
    if not with_slots:
        return typed or None
    if len(with_slots) < len(typed):
        bare = next(each for each in typed if "=" not in each)
        raise Usage(f"--queue is {bare!r} and {with_slots[0]!r}: give slots to all of them or to none")
    if concurrency is not None:
        raise Usage(
            f"--concurrency is {concurrency} and --queue {with_slots[0]!r}: leave out --concurrency, it is the sum"
        )
    return _numbers(typed, "--queue", "mail=2")


def read_balance(typed: str) -> BalanceOption:
    """Weights as a dict; a word is for the worker to judge."""
    if "=" in typed:
        return _numbers(typed.split(","), "--balance", "mail=3,default=1")
    return cast("BalanceOption", typed)


def _numbers(typed: list[str], option: str, example: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for each in typed:
        name, _, number = each.strip().rpartition("=")
        if not name or not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise Usage(f"{option} is {each!r}: write it as {example}")
        if name in numbers:
            raise Usage(f"{option} names {name!r} twice: once is enough")
        numbers[name] = int(number)
    return numbers
