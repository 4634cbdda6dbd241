"""Putting jobs in: options, batches, transactions, and what bad input gets."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
from psycopg import AsyncConnection, Connection, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from stepwell import (
    App,
    BadArgs,
    ConfigError,
    Context,
    DatabaseError,
    DuplicateTask,
    StepwellError,
    SyncContext,
    TaskNotFound,
)
from stepwell.jobs.codec import OPTIONS_OF_USING
from stepwell.jobs.enqueuer import Enqueuer
from stepwell.postgres.coalesce import batches
from stepwell.values.job import NewJob


def rows(conn: Connection[Any]) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("select * from stepwell.jobs order by id").fetchall()


async def test_options_land_on_the_job(app: App, conn: Connection[Any]) -> None:
    @app.task(queue="mail", priority=3)
    async def send(to: str, subject: str = "hi") -> None: ...

    await send.aenqueue("ada")
    await send.using(queue="bulk", priority=-2, delay="1h", metadata={"a": 1}, max_attempts=7).aenqueue(
        "bob", subject="x"
    )
    first, second = rows(conn)
    assert (first["queue"], first["priority"], first["state"], first["args"]) == ("mail", 3, "ready", {"to": "ada"})
    assert (second["queue"], second["priority"], second["state"]) == ("bulk", -2, "scheduled")
    assert (second["metadata"], second["max_attempts"]) == ({"a": 1}, 7)
    assert second["args"] == {"to": "bob", "subject": "x"}
    assert second["run_at"] - second["enqueued_at"] == timedelta(hours=1)


async def test_using_adds_up_and_leaves_the_task_as_it_was(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> None: ...

    urgent = note.using(priority=9)
    await urgent.using(queue="fast").aenqueue(1)
    await note.aenqueue(2)
    assert [(row["priority"], row["queue"]) for row in rows(conn)] == [(9, "fast"), (0, "default")]


def test_many_jobs_go_in_at_once_with_ids_in_order(dsn: str, conn: Connection[Any]) -> None:
    with App(dsn) as app:

        @app.task
        def note(n: int) -> None: ...

        @app.task
        def other(text: str) -> None: ...

        jobs = note.enqueue_many([{"n": n} for n in range(12_000)])
        assert [str(job.id) for job in jobs] == sorted(str(job.id) for job in jobs)
        stored = dict(conn.execute("select id, (args ->> 'n')::int from stepwell.jobs").fetchall())
        assert [stored[job.id] for job in jobs] == list(range(12_000))

        mixed = app.enqueue_many([note.using(priority=5).call(1), other.using(delay="1h").call("x"), note.call(2)])
        assert len(mixed) == 3
        kinds = [(info.task, info.state, info.priority) for job in mixed if (info := job.info())]
        assert kinds == [("note", "ready", 5), ("other", "scheduled", 0), ("note", "ready", 0)]
        assert note.enqueue_many([]) == []


async def test_many_are_put_in_all_or_none(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(BadArgs, match="'n'"):
        await note.aenqueue_many([{"n": 1}, {"n": "two"}])
    assert rows(conn) == []
    with pytest.raises(BadArgs, match="'n'"):
        await note.aenqueue_many([*({"n": n} for n in range(9000)), {"n": "nine thousand"}])
    assert rows(conn) == []


@pytest.mark.parametrize(
    ("happens", "error", "said"),
    [
        ("raise 'not this one'", psycopg.Error, "not this one"),
        ("perform pg_terminate_backend(pg_backend_pid())", DatabaseError, "connection"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_what_goes_wrong_among_many_is_said_and_nothing_stays(
    app: App, conn: Connection[Any], happens: str, error: type[Exception], said: str, is_async: bool
) -> None:
    @app.task
    async def note(n: int) -> None: ...

    # In the second of several chunks: those behind it are on their way when it fails.
    body = sql.Literal(f"begin {happens}; return new; end")
    conn.execute(sql.SQL("create function stop() returns trigger language plpgsql as {}").format(body))
    conn.execute(
        "create trigger stop before insert on stepwell.job for each row "
        "when (new.args ->> 'n' = '3000') execute function stop()"
    )
    items = [{"n": n} for n in range(9000)]
    with pytest.raises(error, match=said):
        await (note.aenqueue_many(items) if is_async else asyncio.to_thread(note.enqueue_many, items))
    assert rows(conn) == []
    conn.execute("drop trigger stop on stepwell.job")
    again = await (note.aenqueue_many(items) if is_async else asyncio.to_thread(note.enqueue_many, items))
    assert len(again) == len(rows(conn)) == 9000


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 6000])
async def test_a_cancelled_enqueue_of_many_leaves_no_connection_on_which_jobs_are_lost(
    dsn: str, conn: Connection[Any], count: int
) -> None:
    for turns in range(1, 26):
        async with App(dsn, pool_size=1) as app:
            note = app.task(_note)
            await note.aenqueue(0)
            many = asyncio.create_task(note.aenqueue_many([{"n": n} for n in range(count)]))
            for _ in range(turns):
                await asyncio.sleep(0)
            many.cancel()
            await asyncio.wait([many])
            conn.execute("truncate stepwell.job")
            job = await note.aenqueue(1)
            assert [row["id"] for row in rows(conn)] == [job.id], f"cancelled after {turns} turns"


async def _note(n: int) -> None: ...


async def test_a_client_without_an_encoding_enqueues(dsn: str, conn: Connection[Any]) -> None:
    async with App(make_conninfo(dsn, client_encoding="sql_ascii")) as app:
        note = app.task(_note)
        await note.aenqueue(1)
        assert len(await note.aenqueue_many([{"n": n} for n in range(2001)])) == 2001
    assert len(rows(conn)) == 2002


async def test_a_mapping_that_answers_to_every_name_is_not_taken_for_the_args(app: App, conn: Connection[Any]) -> None:
    note = app.task(_note)
    with pytest.raises(BadArgs, match="it does not know 'typo'; it needs 'n'"):
        await note.aenqueue_many([Counter({"typo": 5})])
    assert rows(conn) == []


async def test_calls_made_side_by_side_share_round_trips(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> None: ...

    batches: list[int] = []
    send = app._job_store._coalescer(False)._send  # pyright: ignore[reportPrivateUsage]

    async def counted(jobs: list[NewJob]) -> Any:
        batches.append(len(jobs))
        return await send(jobs)

    app._job_store._coalescer(False)._send = counted  # pyright: ignore[reportPrivateUsage]
    jobs = await asyncio.gather(*[note.aenqueue(n) for n in range(100)])
    stored = dict(conn.execute("select id, (args ->> 'n')::int from stepwell.jobs").fetchall())
    assert [stored[job.id] for job in jobs] == list(range(100))
    assert sum(batches) == 100
    assert len(batches) <= 3


@pytest.mark.slow
async def test_large_args_travel_in_batches_that_a_statement_can_carry(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def note(text: str) -> None: ...

    text = "x" * 1_000_000
    await note.aenqueue_many([{"text": text}] * 40)
    await asyncio.gather(*[note.aenqueue(text) for _ in range(40)])
    assert conn.execute("select count(*), min(length(args ->> 'text')) from stepwell.jobs").fetchone() == (
        80,
        1_000_000,
    )
    sizes = [len(batch) for batch in batches([text] * 40, 5000, len)]
    assert sum(sizes) == 40
    assert max(sizes) <= 8


async def test_one_bad_item_does_not_fail_those_beside_it(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> None: ...

    conn.execute(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise exception using errcode = '23514', message = 'no sevens'; end $$"
    )
    conn.execute(
        "create trigger refuse before insert on stepwell.job for each row "
        "when (new.args ->> 'n' = '7') execute function refuse()"
    )
    outcomes = await asyncio.gather(*[note.aenqueue(n) for n in range(10)], return_exceptions=True)
    assert [isinstance(outcome, psycopg.Error) for outcome in outcomes] == [n == 7 for n in range(10)]
    assert len(rows(conn)) == 9


async def test_a_job_exists_if_and_only_if_the_callers_transaction_commits(app: App, dsn: str) -> None:
    @app.task
    async def note(n: int) -> None: ...

    async with await AsyncConnection.connect(dsn) as connection:
        job = await note.using(connection=connection).aenqueue(1)
        many = await note.using(connection=connection).aenqueue_many([{"n": 2}, {"n": 3}])
        assert await job.ainfo() is None
        await connection.rollback()
    assert await job.ainfo() is None
    assert await many[1].ainfo() is None
    async with await AsyncConnection.connect(dsn) as connection:
        job = await note.using(connection=connection).aenqueue(1)
    assert await job.ainfo() is not None


def test_the_same_with_a_sync_connection(dsn: str) -> None:
    with App(dsn) as app:

        @app.task
        def note(n: int) -> None: ...

        with psycopg.connect(dsn) as connection:
            gone = note.using(connection=connection).enqueue(1)
            connection.rollback()
            kept = app.enqueue_many([note.call(2)], connection=connection)[0]
        assert gone.info() is None
        assert kept.info() is not None


async def test_the_wrong_kind_of_connection_is_named(app: App, dsn: str, conn: Connection[Any]) -> None:
    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(ConfigError, match="without the"):
        await note.using(connection=conn).aenqueue(1)
    with pytest.raises(ConfigError, match=r"psycopg\.Connection"):
        await note.using(connection="a string").aenqueue(1)
    async with await AsyncConnection.connect(dsn) as connection:
        with pytest.raises(ConfigError, match="begins with"):
            await asyncio.to_thread(note.using(connection=connection).enqueue, 1)


async def test_plain_sql_enqueues_with_all_options(conn: Connection[Any]) -> None:
    conn.execute("select stepwell.enqueue('ship')")
    conn.execute(
        """select stepwell.enqueue(task => 'ship', args => '{"n": 1}', queue => 'q', priority => 4,
        delay => interval '1 minute', metadata => '{"k": "v"}', max_attempts => 2)"""
    )
    plain, full = rows(conn)
    assert (plain["state"], plain["queue"], plain["args"], plain["metadata"]) == ("ready", "default", {}, None)
    assert (full["queue"], full["priority"], full["args"], full["metadata"]) == ("q", 4, {"n": 1}, {"k": "v"})
    assert (full["max_attempts"], full["run_at"] - full["enqueued_at"]) == (2, timedelta(minutes=1))


async def test_blocking_calls_inside_an_event_loop_name_the_async_ones(app: App) -> None:
    @app.task
    async def note(n: int) -> None: ...

    job = await note.aenqueue(1)
    for call, instead in (
        (lambda: note.enqueue(1), "aenqueue"),
        (lambda: note.enqueue_many([{"n": 1}]), "aenqueue"),
        (job.result, "aresult"),
        (job.info, "ainfo"),
        (job.cancel, "acancel"),
        (job.retry, "aretry"),
        (lambda: app.pause("default"), "apause"),
    ):
        with pytest.raises(StepwellError, match=instead):
            call()


async def test_a_context_without_its_annotation_is_refused_where_the_task_is_defined(app: App) -> None:
    def plain(ctx, n: int) -> None: ...  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]

    async def later(ctx, n: Undefined) -> None: ...  # pyright: ignore  # noqa: F821

    undecorated: list[Any] = [plain, later]
    for fn in undecorated:
        with pytest.raises(ConfigError, match="'ctx' has no annotation: write 'ctx: Context'"):
            app.task(fn)

    @app.task
    async def an_argument(ctx: dict[str, int], context) -> None: ...  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]

    with pytest.raises(BadArgs, match="if 'context' is meant to be the context, annotate it: context: Context"):
        await an_argument.aenqueue(ctx={"n": 1})  # pyright: ignore


async def test_a_call_that_other_libraries_have_on_the_app_names_the_one_to_use(app: App) -> None:
    for name in ("enqueue", "aenqueue", "send_task", "delay"):
        with pytest.raises(AttributeError, match=r"task\.a?enqueue\(\.\.\.\).*app\.tasks\['name'\]"):
            getattr(app, name)
    with pytest.raises(AttributeError, match="'App' object has no attribute 'nonsense'"):
        _ = app.nonsense  # pyright: ignore


async def test_one_dict_for_many_jobs_is_refused_with_how_to_write_it(app: App) -> None:
    note = app.task(_note)
    with pytest.raises(BadArgs, match=r"takes a list, .* write _note\.enqueue_many\(\[\{\.\.\.\}, \{\.\.\.\}\]\)"):
        await note.aenqueue_many({"n": 1})  # pyright: ignore[reportArgumentType]


async def test_a_name_that_is_no_text_is_refused(app: App) -> None:
    note = app.task(_note)
    with pytest.raises(BadArgs, match=r"it does not know 1\.5"):
        await note.aenqueue_many([{1.5: 1}])  # pyright: ignore[reportArgumentType]


class Odd:
    pass


def test_every_option_of_using_is_known_to_the_error_about_unknown_arguments() -> None:
    using = cast("Any", Enqueuer.using)
    assert set(inspect.signature(using).parameters) - {"self"} == OPTIONS_OF_USING


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "it needs 'n'"),
        ((), {"m": 1}, "it does not know 'm'; it needs 'n'"),
        ((1, "a", 3), {}, "too many positional arguments"),
        ((1,), {"nope": 2}, "'nope'"),
        (
            (1,),
            {"delay": "10s"},
            r"it does not know 'delay'; an option of the job goes in using: task.using\(delay=...\)",
        ),
        (("text",), {}, "'n': Expected `int`, got `str`"),
        ((1.5,), {}, "'n': Expected `int`"),
        ((None,), {}, "'n': Expected `int`, got `null`"),
        ((1, 5), {}, "'text': Expected `str`, got `int`"),
        ((1, "a\x00b"), {}, "'text' holds a NUL"),
        ((1, "\ud800"), {}, "'text'"),
        ((1, "a", [1, "x"]), {}, "too many"),
    ],
)
async def test_args_that_do_not_fit_are_refused_by_name(
    app: App, conn: Connection[Any], args: Any, kwargs: Any, said: str
) -> None:
    @app.task
    async def note(n: int, text: str = "") -> None: ...

    with pytest.raises(BadArgs, match=said):
        await note.aenqueue(*args, **kwargs)
    assert rows(conn) == []


async def test_values_that_do_not_encode_are_refused_by_name(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def anything(n: int, value: Any, more: dict[str, list[int]] | None = None) -> None: ...

    endless: list[Any] = []
    endless.append(endless)
    for bad in (Odd(), {"deep": [Odd()]}, lambda: None, endless, object()):
        with pytest.raises(BadArgs, match="'value'"):
            await anything.aenqueue(1, bad)
    with pytest.raises(BadArgs, match=r"'more'.*Expected `int`, got `str`"):
        await anything.aenqueue(1, 1, {"a": ["x"]})  # pyright: ignore[reportArgumentType]
    for number in (math.nan, math.inf, [{"deep": -math.inf}], {math.nan: 1}, [{-math.inf: [1]}]):
        with pytest.raises(BadArgs, match="'value' holds NaN or infinity"):
            await anything.aenqueue(1, number)
        with pytest.raises(BadArgs, match="metadata holds NaN or infinity"):
            await anything.using(metadata={"deep": [number]}).aenqueue(1, 1)
    assert rows(conn) == []
    await anything.aenqueue(1, None)
    assert len(rows(conn)) == 1
    conn.execute("delete from stepwell.job")
    await anything.aenqueue(1, "a backslash \\u0000 is not a NUL")
    assert len(rows(conn)) == 1


async def test_args_over_the_limit_are_refused(dsn: str) -> None:
    async with App(dsn) as app:

        @app.task
        async def note(text: str) -> None: ...

        await note.aenqueue("x" * 1_000_000)
        with pytest.raises(BadArgs, match="1048587 bytes, more than 1048576"):
            await note.aenqueue("x" * (1024 * 1024))
    async with App(dsn, max_args_size=100) as small:

        @small.task
        async def note(text: str) -> None: ...

        with pytest.raises(BadArgs, match="max_args_size"):
            await note.aenqueue("x" * 100)


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": -1}, "delay is -1: it cannot be negative"),
        ({"delay": "-5s"}, "delay"),
        ({"delay": "soon"}, "write it as"),
        ({"delay": math.nan}, "delay"),
        ({"delay": math.inf}, "100 years"),
        ({"delay": 10**400}, "100 years"),
        ({"delay": timedelta(days=40_000)}, "100 years"),
        ({"delay": True}, "bool"),
        ({"delay": [1]}, "list"),
        ({"run_at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"run_at": datetime(9999, 1, 1, tzinfo=UTC)}, "year 9999"),
        ({"run_at": datetime(1, 1, 1, tzinfo=UTC)}, "year 1"),
        ({"run_at": "tomorrow"}, "datetime"),
        ({"delay": 1, "run_at": NOW}, "exclude each other"),
        ({"priority": 32768}, "between -32767 and 32767"),
        ({"priority": 10**30}, "between"),
        ({"priority": 1.5}, "whole number"),
        ({"priority": True}, "whole number"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\x00b"}, "queue"),
        ({"queue": "x" * 201}, "200"),
        ({"queue": 5}, "queue"),
        ({"metadata": [1]}, "give a dict"),
        ({"metadata": {"a": Odd()}}, "metadata"),
        ({"metadata": {"a": "\x00"}}, "NUL"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2.5}, "whole number"),
        ({"max_attempts": "3"}, "whole number"),
        ({"run_at": NOW + timedelta(days=365 * 101)}, "100 years"),
    ],
)
async def test_senseless_options_are_refused_by_name(app: App, options: dict[str, Any], said: str) -> None:
    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(StepwellError, match=said):
        note.using(**options)


async def test_an_unknown_option_is_a_type_error(app: App) -> None:
    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(TypeError, match="colour"):
        note.using(colour="red")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="colour"):
        app.task(colour="red")(note.fn)  # pyright: ignore


async def test_two_tasks_with_one_name_are_refused(app: App) -> None:
    def register(name: str | None = None) -> None:
        @app.task(name=name)
        async def note(n: int) -> None: ...

    register()
    with pytest.raises(DuplicateTask, match=r"'note'.*@app.task\(name="):
        register()
    register("another")
    assert set(app.tasks) == {"note", "another"}


async def test_an_unknown_task_is_named_with_the_nearest(app: App) -> None:
    @app.task
    def send(to: str) -> None: ...

    with pytest.raises(KeyError) as raised:
        _ = app.tasks["snd"]
    assert isinstance(raised.value, ConfigError)
    assert str(raised.value) == "the app has no task 'snd': did you mean 'send'?"
    with pytest.raises(TaskNotFound, match=r"no task 'zzz': import the module that defines it, or check the name$"):
        _ = app.tasks["zzz"]
    assert (app.tasks.get("snd"), "snd" in app.tasks) == (None, False)


async def test_what_cannot_be_a_task_is_refused_at_registration(app: App) -> None:
    def generator() -> Any:
        yield 1

    async def agenerator() -> Any:
        yield 1

    def variadic(*numbers: int) -> None: ...

    def keywords(**numbers: int) -> None: ...

    async def async_process() -> None: ...

    def local() -> None: ...

    async def without_context() -> None: ...

    async def fine() -> None: ...

    for fn, options, said in (
        (generator, {}, "generator"),
        (agenerator, {}, "generator"),
        (variadic, {}, "declare each argument"),
        (keywords, {}, "declare each argument"),
        (async_process, {"process": True}, "plain functions"),
        (local, {"process": True}, "top level of its module"),
        (without_context, {"transaction": True}, "ctx: Context"),
        (fine, {"name": ""}, "name"),
        (fine, {"timeout": 0}, "timeout"),
        (fine, {"keep": "a while"}, "keep"),
        (fine, {"priority": 99999}, "priority"),
        ("text", {}, "function"),
    ):
        with pytest.raises(ConfigError, match=said):
            app.task(**options)(fn)  # pyright: ignore


async def test_wrong_things_given_to_the_app_are_named(app: App) -> None:
    @app.task
    async def note(n: int) -> None: ...

    with pytest.raises(BadArgs, match=r"task\.call"):
        await app.aenqueue_many([note])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="give a Retry"):
        app.task(retry=5, name="other")(note.fn)  # pyright: ignore
    with pytest.raises(ConfigError, match="give a Retry"):
        App("embedded", retry=5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="forever"):
        app.task(keep="forver")(note.fn)
    job = await note.aenqueue(1)
    for reason in ("a\0b", "\ud800", 5):
        with pytest.raises(BadArgs, match="reason"):
            await job.acancel(reason)  # pyright: ignore[reportArgumentType]


async def test_a_task_that_is_called_is_its_function_and_enqueues_nothing(app: App, conn: Connection[Any]) -> None:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task(queue="mail")
    def greet(name: str = "Ada") -> str:
        return f"hello {name}"

    @app.task
    async def settle(ctx: Context, order_id: int) -> tuple[object, int]:
        return ctx, await double(order_id)

    ctx: Any = "a context of the caller's own"
    assert await double(n=2) == 4
    assert greet() == "hello Ada"
    assert await settle(ctx, 3) == await settle.fn(ctx, 3) == (ctx, 6)
    # As frameworks ask that run what they are given, in a thread or not.
    assert inspect.iscoroutinefunction(double.__call__)
    assert rows(conn) == []


async def test_a_task_that_takes_a_context_says_so_when_it_is_called_without(app: App) -> None:
    @app.task
    async def settle(ctx: Context, order_id: int) -> None: ...

    @app.task
    def book(order_id: int, *, ctx: SyncContext) -> None: ...

    call, wrong = cast("Any", settle), r"takes its context first: .*settle\.enqueue\(.*settle\(ctx, \.\.\.\)"
    with pytest.raises(TypeError, match=wrong):
        await call(7)
    with pytest.raises(TypeError, match=wrong):
        await call(order_id=7)
    with pytest.raises(TypeError, match=r"book\.enqueue\("):
        cast("Any", book)(7)


async def test_a_chain_cannot_be_called(app: App) -> None:
    def one(n: int) -> int:
        return n

    with pytest.raises(TypeError, match=r"'numbers' is not one function.*numbers\.enqueue"):
        cast("Any", app.chain("numbers", one))(1)


async def test_annotations_may_name_what_is_defined_later(app: App) -> None:
    namespace: dict[str, Any] = {"app": app}
    exec(
        "from __future__ import annotations\n"
        "from stepwell import Context\n"
        "@app.task\n"
        "async def later(ctx: Context, thing: Thing) -> Thing: return thing\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Thing:\n"
        "    n: int\n",
        namespace,
    )
    later, thing = namespace["later"], namespace["Thing"]
    await later.aenqueue(thing(1))
    with pytest.raises(BadArgs, match="'thing'"):
        await later.aenqueue("no")


@pytest.mark.parametrize("name", ["delay", "apply_async", "send"])
def test_the_names_that_other_libraries_have_lead_to_enqueue(app: App, name: str) -> None:
    @app.task
    def note(n: int) -> None: ...

    for given in (note, note.using(priority=1)):
        with pytest.raises(AttributeError, match=rf"no '{name}': enqueue it with note\.enqueue\(\.\.\.\)"):
            getattr(given, name)
    with pytest.raises(AttributeError, match="'SyncTask' object has no attribute 'dealy'"):
        getattr(note, "dealy")  # noqa: B009


def test_a_job_is_found_by_its_info_as_by_its_id(app: App) -> None:
    @app.task
    def note(n: int) -> None: ...

    job = note.enqueue(1)
    assert app.job(app.jobs()[0]) == app.job(job.id) == job
    with pytest.raises(ConfigError) as refused:
        app.job(["x" * 1000])  # pyright: ignore[reportArgumentType]
    assert len(str(refused.value)) < 150
