"""An app with a batch task."""

from stepwell import App

app = App()


@app.task(batch=100, batch_wait="250ms")
async def embed(texts: list[str]) -> list[float]:
    return [0.0 for _ in texts]


@app.task
async def one(text: str) -> None: ...
