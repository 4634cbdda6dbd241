from stepwell import App, Worker

app = App("embedded", stale_schedules="sometimes")  # error


@app.schedule("1h", overlap="maybe")  # error
@app.task
async def one() -> None: ...


@app.schedule(None)  # error
@app.task
async def two() -> None: ...


@app.schedule("1h")  # error
async def three() -> None: ...


@app.on_worker_start  # error
def with_argument(client: object) -> None: ...


async def main() -> None:
    await app.apause(7)  # error
    await app.aschedule_task(three, "1h")  # error
    await app.aschedule_task(one, "1h", catchup="all")  # error
    await app.aschedule_task(one, "1h", metadata=[1])  # error
    Worker(app, balance="fair")  # error
