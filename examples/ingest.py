"""A chain: fetch, parse, store, each saved before the next begins. `python examples/ingest.py`.

The second feed is broken in its last step. Once that is mended, the job goes on from there, or from any step before it.
"""

from __future__ import annotations

import asyncio

from stepwell import App, Context, Done, Fail, JobFailed, Next, Retry, Step, Worker

app = App("embedded")
stored: dict[str, list[int]] = {}
locked: set[str] = set()


async def fetch(ctx: Context, feed: str) -> dict[str, str]:
    if ctx.attempt == 1:  # by the step's policy it is tried again, soon; another step would have fresh attempts
        raise ConnectionError("connection reset by peer")
    print(f"  {feed} fetched, in attempt {ctx.attempt}")
    return {"feed": feed, "body": "" if feed == "empty" else "3,1,4,1,5"}


def parse(fetched: dict[str, str]) -> Next[tuple[str, list[int]]] | Done[int]:
    """A plain function: it runs in a thread."""
    if not fetched["body"]:
        return Done(0)  # ends the chain
    numbers = [int(number) for number in fetched["body"].split(",")]
    print(f"  {fetched['feed']} parsed: {numbers}")
    return Next((fetched["feed"], numbers), after="200ms")  # the next step waits, without a slot


async def store(parsed: tuple[str, list[int]]) -> int:
    feed, numbers = parsed
    if feed in locked:
        raise Fail(f"{feed} is locked")
    stored[feed] = numbers
    print(f"  {feed} stored")
    return len(numbers)


ingest = app.chain("ingest", Step(fetch, retry=Retry(max_attempts=3, initial="100ms")), parse, store)


async def main() -> None:
    async with app, Worker(app):
        print("two feeds, one of them empty:")
        for feed in ("good", "empty"):
            job = await ingest.aenqueue(feed)
            print(f"  {await job.aresult(timeout='30s')} numbers")

        print("one that cannot be stored:")
        locked.add("shut")
        job = await ingest.aenqueue("shut")
        try:
            await job.aresult(timeout="30s")
        except JobFailed as failed:
            info = await job.ainfo()
            assert info is not None
            print(f"  failed at {info.cursor!r}: {failed.message}")

        print("mended, and sent back to 'parse':")
        locked.clear()
        await job.aretry(step="parse")
        print(f"  {await job.aresult(timeout='30s')} numbers")


if __name__ == "__main__":
    asyncio.run(main())
