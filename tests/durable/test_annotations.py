"""What a chain makes of its functions' annotations."""

from __future__ import annotations

from stepwell import App, Done, Next, Worker


async def half(n: int) -> Next[int] | Done[str]:
    return Done("odd") if n % 2 else Next(n // 2)


async def told(n: int) -> str:
    return f"half is {n}"


async def test_a_step_may_say_that_it_goes_on_or_ends(app: App) -> None:
    chain = app.chain("halve", half, told)
    async with Worker(app):
        assert await (await chain.aenqueue(8)).aresult(timeout="20s") == "half is 4"
        assert await (await chain.aenqueue(7)).aresult(timeout="20s") == "odd"
