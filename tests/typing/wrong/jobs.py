from stepwell import App

app = App("embedded")


async def main() -> None:
    await app.ajobs(state="done")  # error
    await app.ajobs(taks="confirm")  # error
    await app.ajobs(metadata=7)  # error
    await app.acount_jobs(limit=5)  # error
    await app.acancel_jobs(7)  # error
    app.retry_jobs(older_than=[1])  # error
