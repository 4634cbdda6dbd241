"""Open an app with a site on FastAPI, Starlette or Litestar, and run a worker in the same process if asked to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from stepwell.app import App
from stepwell.errors import ConfigError
from stepwell.telemetry.bus import logger
from stepwell.worker import Worker

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


def lifespan(
    app: App, *, worker: Callable[[App], Worker] | None = None
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan for `FastAPI(lifespan=...)`, `Starlette(lifespan=...)` and `Litestar(lifespan=[...])`.

    When the site starts, it checks the database; when the site stops, it closes the connections. With `worker=Worker`,
    or `worker=partial(Worker, concurrency=5)`, jobs run in this process, beside the requests. When the site stops, the
    worker claims no more and waits for its running jobs as long as its `grace` says. An error that ends the worker at
    its start stops the site from starting. A worker that ends later with an error is logged and started again after a
    pause.
    """
    if worker is not None and not callable(worker):
        raise ConfigError(
            f"lifespan(worker={worker!r}): give the class, worker=Worker, or worker=partial(Worker, concurrency=5): a "
            "site that starts again needs another worker"
        )

    @asynccontextmanager
    async def opened(_: Any) -> AsyncGenerator[None]:
        async with app:
            if worker is None:
                yield
                return
            site = _SiteWorker(worker(app))
            running = asyncio.create_task(site.run(), name="stepwell-site-worker")
            try:
                await site.started(running)
                yield
            finally:
                await site.stop(running)

    return opened


class _SiteWorker:
    """A worker that runs beside a site, and is started again if it ends."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._was_started = False
        self._stop_asked = asyncio.Event()

    async def started(self, running: asyncio.Task[None]) -> None:
        """Wait until the worker claims jobs. Raises what kept it from that."""
        started = asyncio.create_task(self._worker.started())
        try:
            await asyncio.wait([running, started], return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if running.done():
            await running
        self._was_started = True

    async def run(self) -> None:
        pause = _FIRST_PAUSE
        loop = asyncio.get_running_loop()
        while not self._stop_asked.is_set():
            began = loop.time()
            try:
                await self._worker.run()
            except Exception as error:
                if not self._was_started:
                    raise
                pause = _FIRST_PAUSE if loop.time() - began > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
                logger.exception("the worker of this site has ended: %s; it is started again in %g s", error, pause)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop_asked.wait(), pause)
            else:
                return  # it was stopped, by this site or by `stepwell stop`

    async def stop(self, running: asyncio.Task[None]) -> None:
        self._stop_asked.set()
        self._worker.stop()
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            self._worker.stop_now()  # the server has lost its patience
            await asyncio.wait([running])
            raise
        if not running.cancelled() and (error := running.exception()) is not None and self._was_started:
            logger.error("the worker of this site has ended: %s", error, exc_info=error)
