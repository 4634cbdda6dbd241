"""A chain: fetch, parse, store, each saved before the next begins. Run it with `python examples/ingest.py`.

The third feed fails in its last step. After the cause is fixed, the job resumes at that step or at any step before it.
"""

from __future__ import annotations

import asyncio

from stepwell import App, Context, Done, Fail, JobFailed, Next, Retry, Step, Worker

app = App("embedded")
stored: dict[str, list[int]] = {}
locked: set[str] = set()


async def fetch(ctx: Context, feed: str) -> dict[str, str]:
    if ctx.attempt == 1:  # retried by the step's own policy; every step has its own attempts
        raise ConnectionError("connection reset by peer")
    print(f"  {feed} fetched in attempt {ctx.attempt}")
    return {"feed": feed, "body": "" if feed == "empty" else "3,1,4,1,5"}


def parse(fetched: dict[str, str]) -> Next[tuple[str, list[int]]] | Done[int]:
    """A plain function runs in a thread."""
    if not fetched["body"]:
        return Done(0)  # ends the chain
    numbers = [int(number) for number in fetched["body"].split(",")]
    print(f"  {fetched['feed']} parsed: {numbers}")
    return Next((fetched["feed"], numbers), after="200ms")  # the next step waits without a slot


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

        print("a feed that cannot be stored:")
        locked.add("shut")
        job = await ingest.aenqueue("shut")
        try:
            await job.aresult(timeout="30s")
        except JobFailed as failed:
            info = await job.ainfo()
            assert info is not None
            print(f"  failed at {info.cursor!r}: {failed.message}")

        print("unlocked, and resumed at 'parse':")
        locked.clear()
        await job.aretry(step="parse")
        print(f"  {await job.aresult(timeout='30s')} numbers")


if __name__ == "__main__":
    asyncio.run(main())
