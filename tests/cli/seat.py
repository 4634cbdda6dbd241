"""A person in front of `stepwell top`, on a real database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot
from textual.widgets import Static
from waiting import auntil

from stepwell import App
from stepwell.cli.top.dialogs import Question
from stepwell.cli.top.screen import Rows, Top


class Seat:
    """A person in front of the screen."""

    def __init__(self, screen: Top, pilot: Pilot[None]) -> None:
        self.screen = screen
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def sees(self, holds: Callable[[], object]) -> None:
        """Wait for something, reading again meanwhile."""

        async def now() -> bool:
            await self.pilot.pause()
            return bool(holds())

        await auntil(now)

    @property
    def rows(self) -> list[list[str]]:
        table = self.screen.query_one(Rows)
        return [[cell.plain for cell in table.get_row_at(row)] for row in range(table.row_count)]

    @property
    def titles(self) -> list[str]:
        return [str(column.label) for column in self.screen.query_one(Rows).ordered_columns]

    def text(self, name: str) -> str:
        widget = self.screen.query_one(f"#{name}", Static)
        return str(widget.render()) if widget.display else ""

    async def go(self, tab: str) -> None:
        await self.press(tab)
        name = ("queues", "jobs", "workers", "failures", "tasks")[int(tab) - 1]
        await self.sees(lambda: self.screen.view is not None and name in self.screen.view.rows and self.titles)

    async def asked(self) -> str:
        await self.sees(lambda: isinstance(self.screen.screen, Question))
        question = self.screen.screen
        assert isinstance(question, Question)
        return question.question


@asynccontextmanager
async def sitting(dsn: str, *, read_only: bool = False, size: tuple[int, int] = (120, 30)) -> AsyncGenerator[Seat]:
    async with App(dsn, call_timeout="2s") as app:
        screen = Top(app, "shop", interval=0.2, read_only=read_only)
        async with screen.run_test(size=size) as pilot:
            seat = Seat(screen, pilot)
            await seat.sees(lambda: screen.view is not None or screen.away is not None)
            yield seat
