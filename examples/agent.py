"""A durable LLM agent: it survives a crash in the middle, and asks a person before it spends money.

Run it with `python examples/agent.py`. The model is pydantic-ai's test model, which needs no network: it calls every
tool once, and then answers. Each request to the model and each call of a tool is a step, so after a crash the agent
goes on where it was, and pays for no answer twice. It waits for an approval without a slot, for days if need be. The
tokens of the answer go to a table as they come, and whoever watches the job reads them there.
"""

from __future__ import annotations

import asyncio
import os

import psycopg
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition

from stepwell import App, Context, Fail, JobHandle, Worker

app = App(os.environ.get("STEPWELL_DATABASE_URL", "embedded"))
MODEL = TestModel(seed=3)  # a real program writes "openai:gpt-5" or the like
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = ModelRequestParameters(
    function_tools=[
        ToolDefinition(name="find_flight", description="Find a flight.", parameters_json_schema=CITY),
        ToolDefinition(name="book_flight", description="Book a flight. Costs money.", parameters_json_schema=CITY),
    ]
)
NEEDS_APPROVAL = ("book_flight",)


async def find_flight(city: str) -> str:
    return f"there is a flight to {city} at 9:00"


async def book_flight(city: str) -> str:
    return f"a seat to {city} is booked"


@app.task
async def agent(ctx: Context, prompt: str) -> str:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(prompt)])]
    for turn in range(10):

        async def ask(turn: int = turn) -> str:
            answered = ModelMessagesTypeAdapter.dump_json([await request(ctx, turn, messages)])
            return answered.decode()

        [answer] = ModelMessagesTypeAdapter.validate_json(await ctx.step(ask, key=f"ask {turn}"))
        messages.append(answer)
        calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
        if not calls:
            return "".join(part.content for part in answer.parts if isinstance(part, TextPart))
        done = [ToolReturnPart(call.tool_name, await use(ctx, call), call.tool_call_id) for call in calls]
        messages.append(ModelRequest(parts=done))
    raise Fail("the agent went in circles")


async def request(ctx: Context, turn: int, messages: list[ModelMessage]) -> ModelResponse:
    """Ask the model, and write down each token as it comes. An earlier run may have been cut off in the middle."""
    async with await psycopg.AsyncConnection.connect(app.dsn, autocommit=True) as connection:
        await connection.execute("delete from token where job_id = %s and turn = %s", (ctx.id, turn))
        async with model_request_stream(MODEL, messages, model_request_parameters=TOOLS) as stream:
            count = 0
            async for event in stream:
                text = ""
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    text = event.part.content
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    text = event.delta.content_delta
                if text:
                    count += 1
                    row = (ctx.id, turn, count, text)
                    await connection.execute("insert into token values (%s, %s, %s, %s)", row)
                    ctx.progress(count)  # tells whoever watches that there is more to read
            return stream.get()


async def use(ctx: Context, call: ToolCallPart) -> str:
    """Call a tool, once a person has agreed if it needs that."""
    city = str(call.args_as_dict()["city"])
    if call.tool_name in NEEDS_APPROVAL:
        ctx.progress(0, message=f"may I call {call.tool_name} for {city!r}?")
        if not (await ctx.receive("approval", timeout="7d")):
            return "nobody agreed"
    tool = {"find_flight": find_flight, "book_flight": book_flight}[call.tool_name]
    return await ctx.step(tool, city)


async def follow(job: JobHandle[str]) -> str:
    """Show the agent's answer as it comes, and agree to what it asks. A site sends this to the browser instead."""
    shown = 0
    async for change in job.changes(timeout="60s"):
        if change.state == "waiting":
            print("approved")
            await job.asend("approval", True)
        async with await psycopg.AsyncConnection.connect(app.dsn) as connection:
            query = "select text from token where job_id = %s order by turn, n offset %s"
            async for (text,) in await connection.execute(query, (str(job.id), shown)):
                shown += 1
                print(text, end="", flush=True)
    print(f"\n({shown} tokens)")
    return await job.aresult()


async def main() -> None:
    async with app:
        set_up()
        async with Worker(app):
            answer = await follow(await agent.aenqueue("I want to go to Lisbon"))
            print(f"done: {answer}")


def set_up() -> None:
    with psycopg.connect(app.dsn, autocommit=True) as connection:
        connection.execute("create table if not exists token (job_id text, turn int, n int, text text)")


if __name__ == "__main__":
    asyncio.run(main())
