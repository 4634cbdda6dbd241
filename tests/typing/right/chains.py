"""Chains: the arguments of the first function; to pyright, the result of the last, too, and what goes from one to the
next. (Mypy knows of the result only that it may be anything, so what is assigned here says nothing to it.)"""

from collections.abc import Mapping
from typing import Any

from stepwell import App, Chain, Context, Done, JobHandle, Next, Retry, Step, SyncContext

app = App("embedded")


async def fetch(url: str, limit: int = 1000) -> bytes:
    return url.encode()[:limit]


def fetch_text(url: str) -> str:
    return url


def same(text: str) -> str:
    return text


def parse(body: bytes) -> dict[str, int]:
    return {"length": len(body)}


async def store(ctx: Context, parsed: dict[str, int]) -> int:
    return parsed["length"]


def check(n: int) -> Next[int] | Done[str]:
    return Done("too small") if n < 10 else Next(n // 2, after="50ms")


async def check_later(n: int) -> Next[int] | Done[str]:
    return check(n)


async def report(n: int) -> str:
    return f"half is {n}"


def half(ctx: SyncContext, n: int) -> float:
    return n / 2


def end(n: float) -> Done[float]:
    return Done(n)


def total(lengths: Mapping[str, int], start: float = 0) -> float:
    return sum(lengths.values(), start=start)


def text_of(x: Any) -> str:
    return str(x)


ingest = app.chain("ingest", Step(fetch, retry=Retry(max_attempts=5)), parse, Step(store, queue="db"), retry=Retry())
ingest_type: Chain[..., int] = ingest
halve_type: Chain[[int], str] = app.chain("halve", check, report)
later_type: Chain[[int], str] = app.chain("later", Step(check_later), report)
total_type: Chain[[bytes], float] = app.chain("total", parse, Step(total, timeout="1s"))
halved = app.chain("halved", half, end)
end_type: Chain[[int], float] = halved
context_type: Chain[[dict[str, int]], str] = app.chain("context", store, check, report)
loose_type: Chain[..., int] = app.chain("loose", text_of, Step(text_of, name="again"), len)
long_type: Chain[[str], int] = app.chain("long", fetch_text, same, same, same, same, len)
longer_type: Chain[[str], int] = app.chain("longer", fetch_text, same, same, same, same, same, same, len)


async def main() -> None:
    handle: JobHandle[int] = await ingest.aenqueue("https://example.org", limit=80)
    number: int = await handle.aresult()
    print(number)
    await halved.aenqueue(7)
    await ingest.using(priority=3).aenqueue(url="https://example.org")
