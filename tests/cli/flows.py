"""An app with a chain, a machine and schedules, for the command that lists them."""

from dataclasses import dataclass

from stepwell import App, Context, Done, Next, Retry, Step, SyncContext

app = App()


@app.schedule("15m", name="often", args={"x": 2}, catchup="skip", metadata={"by": "cron"}, timeout="1m", keep="1h")
@app.schedule("0 3 * * *", tz="Europe/Paris", args={"x": 1}, overlap="queue", catchup=3, queue="late")
@app.task(queue="night")
async def clean(x: int) -> int:
    return x


def fetch(url: str) -> str:
    return url


def parse(page: str) -> int:
    return len(page)


def save(ctx: SyncContext, length: int) -> None: ...


app.chain(
    "ingest",
    fetch,
    Step(parse, retry=Retry(max_attempts=1), timeout="3s", queue="cpu", priority=7, process=True),
    Step(save, transaction=True),
    queue="web",
    priority=2,
)
subscription = app.machine("subscription")


@subscription.state(start=True)
@dataclass
class Trial:
    customer: str

    async def run(self, ctx: Context) -> "Next[Active]":
        return Next(Active(self.customer))


@subscription.state(queue="billing", timeout="1m")
@dataclass
class Active:
    customer: str

    async def run(self, ctx: Context) -> Done[str]:
        return Done(self.customer)
