"""Groups: the callback's result has its type."""

from typing import Any, assert_type

from stepwell import App, Group, GroupFailure, GroupProgress, GroupResult, GroupSummary, JobHandle

app = App("embedded")


@app.task
async def work(n: int) -> str:
    return str(n)


@app.task
async def other(text: str) -> None: ...


@app.task
async def tell(summary: GroupSummary) -> int:
    assert_type(summary.failures, tuple[GroupFailure, ...])
    return summary.succeeded


@app.task
async def after() -> bool:
    return True


def sync() -> None:
    group = app.group([work.call(1), other.call("a")], then=tell)
    assert_type(group, Group[int])
    assert_type(group.then, JobHandle[int])
    assert_type(group.result("1s"), GroupSummary)
    assert_type(group.progress(), GroupProgress)
    assert_type(group.results(after=None), list[GroupResult])
    assert_type(group.cancel(then=True), int)
    assert_type(app.group([], then=after.using(queue="q")).then.result(), bool)
    assert_type(app.group([work.call(1)]), Group[Any])
    assert_type(app.get_group(group.id), Group[Any])


async def asynchronous() -> None:
    group = await app.agroup([work.call(n) for n in range(3)], then=tell)
    assert_type(await group.then.aresult(), int)
    assert_type(await group.aresult(timeout=1), GroupSummary)
    assert_type((await group.aprogress()).done, int)
    assert_type((await group.aresults())[0].error, str | None)
