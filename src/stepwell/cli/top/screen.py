"""The screen of `stepwell top`: it reads every other second, shows one tab, and asks before it acts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar
from uuid import UUID

import psycopg
from rich.text import Text
from textual.app import App as TextualApp
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from stepwell.app import App
from stepwell.cli.output import clean
from stepwell.cli.top import acts
from stepwell.cli.top.acts import Choice, Counting
from stepwell.cli.top.dialogs import Page, Question, help_page
from stepwell.cli.top.job_page import job_text
from stepwell.cli.top.rows import Rows, cell
from stepwell.cli.top.summary import notices, summary
from stepwell.cli.top.tables import EMPTY, columns_of, cut, fitting, key_of, rows_of
from stepwell.cli.top.view import STATES, TABS, RecentViews, Record, View, read_view
from stepwell.errors import StepwellError
from stepwell.postgres.query_plan import arun
from stepwell.values.job import State
from stepwell.web.reads import jobs

_ERRORS = (StepwellError, psycopg.Error, OSError, TimeoutError)
_NOTICES = 3
_ACTS = ("retry", "cancel", "run_now", "pause", "stop", "everything")
_TABS_OF = {
    "retry": ("jobs", "failures"),
    "cancel": ("jobs",),
    "run_now": ("jobs",),
    "pause": ("queues", "tasks", "workers"),
    "stop": ("workers",),
    "everything": TABS,
    "next_state": ("jobs",),
}


class Top(TextualApp[None]):
    """The fleet on a terminal, until q."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title { height: 1; padding: 0 1; }
    #summary { height: 2; padding: 0 1; }
    #notice { height: auto; max-height: 4; padding: 0 1; color: $text-warning; display: none; }
    #notice.away { color: $text-error; text-style: bold; }
    #empty { padding: 1 2; color: $text-muted; display: none; }
    #filter { display: none; margin: 0 1; }
    Rows { height: 1fr; }
    Question, Page { align: center middle; }
    .window { width: 80%; max-width: 100; height: auto; max-height: 90%; padding: 1 2; border: round $primary;
      background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "Quit"),
        Binding("question_mark", "help", "Help"),
        Binding("slash", "filter", "Filter"),
        Binding("s", "next_state", "State"),
        Binding("R", "act('retry')", "Retry"),
        Binding("C", "act('cancel')", "Cancel"),
        Binding("N", "act('run_now')", "Run now"),
        Binding("P", "act('pause')", "Pause"),
        Binding("S", "act('stop')", "Stop"),
        Binding("E", "act('everything')", "Pause all"),
        Binding("space", "again", show=False),
        Binding("h,left", "tab(-1)", show=False, priority=False),
        Binding("l,right", "tab(1)", show=False, priority=False),
        Binding("escape", "unfilter", show=False),
        *[Binding(str(n), f"go('{tab}')", show=False) for n, tab in enumerate(TABS, 1)],
    ]

    def __init__(self, app: App, where: str, *, interval: float, read_only: bool) -> None:
        super().__init__()
        self.jobs_app = app
        self.where = clean(where)
        self.interval = interval
        self.always_read_only = read_only
        self.view: View | None = None
        self.away: str | None = None
        """Why the last read failed."""
        self.tab = TABS[0]
        self.state: State = "running"
        self.wanted = ""
        self.shown: list[Record] = []
        """The rows of the table."""
        self._chosen: dict[str, str] = {}
        self._counting = 0
        """How many questions wait for a count. All but the last are being cancelled."""
        self._again = asyncio.Event()
        self._recent = RecentViews()

    @property
    def read_only(self) -> bool:
        return self.always_read_only or (self.view is not None and self.view.read_only)

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="summary")
        yield Static(id="notice")
        yield Tabs(*[Tab(f"{n} {tab.capitalize()}", id=tab) for n, tab in enumerate(TABS, 1)])
        yield Rows(cursor_type="row", zebra_stripes=True)
        yield Static(id="empty")
        yield Input(placeholder="text that a row must have", id="filter", select_on_focus=False, compact=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Tabs).can_focus = False
        self.query_one(Rows).focus()
        self.run_worker(self._keep_reading(), exit_on_error=True)

    async def _keep_reading(self) -> None:
        while True:
            self._again.clear()
            await self._read()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), self.interval)

    async def _read(self) -> None:
        tabs = {self.tab, "workers"} if self.tab == "jobs" else {self.tab}
        try:
            view = await arun(read_view(tabs, self.state), self.jobs_app.database)
        except _ERRORS as error:
            # What was read before stays on the screen.
            self.away = clean(" ".join(str(error).split()))
        else:
            self._recent.add(view, time.monotonic())
            self.view, self.away = view, None
        self._show()

    def _show(self) -> None:
        if not self.query("#title"):
            return  # the screen is not there yet, or no longer
        view, width = self.view, self.size.width
        mode = "   read-only" if self.read_only else "   counting ..." if self._counting else ""
        at = "" if view is None else f"   {view.now.astimezone():%H:%M:%S}"
        title = Text(f"stepwell top   {cut(self.where, max(width - 40, 10))}{at}   every {self.interval:g} s{mode}")
        self.query_one("#title", Static).update(title)
        if view is not None:
            lines = [
                Text.assemble(*((clean(text), style) for text, style in line)) for line in summary(view, width - 2)
            ]
            self.query_one("#summary", Static).update(Text("\n").join(lines))
        self._show_notice(view)
        if view is not None and self.tab in view.rows and (self.tab != "jobs" or view.state == self.state):
            self._show_rows(view)
        self.refresh_bindings()

    def _show_notice(self, view: View | None) -> None:
        notice = self.query_one("#notice", Static)
        # One line each, so that the last one, which says how many more there are, can be seen.
        lines = [] if view is None else [cut(clean(line), self.size.width - 2) for line in notices(view, _NOTICES)]
        if self.away is not None:
            since = "" if view is None else f" This is from {view.now.astimezone():%H:%M:%S}."
            lines = [f"The database does not answer: {self.away}.{since} Trying again."]
        notice.set_class(self.away is not None, "away")
        notice.display = bool(lines)
        notice.update(Text(clean("\n".join(lines), lines=True)))

    def _show_rows(self, view: View) -> None:
        table = self.query_one(Rows)
        rows, columns = rows_of(self.tab, view, self.wanted), columns_of(self.tab, view)
        places = fitting(columns, [cells for _, cells in rows], self.size.width - 2)
        self._remember()
        chosen, before = self._chosen.get(self.tab), table.cursor_row
        top = table.scroll_y
        with self.batch_update():
            table.clear(columns=True)
            for place in places:
                column = columns[place]
                table.add_column(Text(column.title, "bold", justify="right" if column.right else "left"))
            for _, cells in rows:
                table.add_row(*[cell(cells[place], widest, columns[place].right) for place, widest in places.items()])
            self.shown = [row for row, _ in rows]
            keys = [key_of(self.tab, row) for row in self.shown]
            # The row that was chosen stays chosen, wherever it is now.
            at = keys.index(chosen) if chosen in keys else min(before, len(keys) - 1)
            table.move_cursor(row=max(at, 0), animate=False, scroll=False)
            table.scroll_to(y=top, animate=False, immediate=True)
        self._show_empty(view, bool(rows))

    def _show_empty(self, view: View, any_rows: bool) -> None:
        """Say why the table is empty, or which of the rows it has."""
        said = ""
        if not any_rows and self.wanted:
            said = f"No row has the text {self.wanted!r}. Escape ends the filter."
        elif not any_rows:
            said = EMPTY[self.tab].format(state=self.state)
        elif self.wanted:
            said = f"Only rows with the text {self.wanted!r}, of the {len(view.rows[self.tab])} that were read."
        elif self.tab in view.more:
            said = f"These are the first {len(view.rows[self.tab])}; there are more."
        elif self.tab == "jobs":
            said = f"Jobs that are {self.state}: s shows those in the next state."
        empty = self.query_one("#empty", Static)
        empty.display = bool(said)
        empty.update(Text(clean(said)))

    @property
    def row(self) -> Record | None:
        at = self.query_one(Rows).cursor_row
        return self.shown[at] if 0 <= at < len(self.shown) else None

    @property
    def chosen(self) -> tuple[str, str | None]:
        """The tab, and what names the row."""
        return self.tab, None if self.row is None else key_of(self.tab, self.row)

    def _remember(self) -> None:
        tab, key = self.chosen
        if key is not None:
            self._chosen[tab] = key

    def on_tabs_tab_activated(self, event: Tabs.TabActivated) -> None:
        self._remember()
        self.tab = str(event.tab.id)
        self.shown = []
        self.query_one(Rows).clear(columns=True)
        self.query_one("#empty", Static).display = False
        self.action_again()

    def on_resize(self, _event: Resize) -> None:
        self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.wanted = event.value
        self._show()

    def on_input_submitted(self, _event: Input.Submitted) -> None:
        self.query_one(Rows).focus()

    def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        row = self.row
        job_id = None if row is None else row["id"] if self.tab == "jobs" else row.get("job_id")
        if job_id is not None:
            self.run_worker(self._show_job(job_id))

    async def _show_job(self, job_id: str) -> None:
        try:
            [job] = await self.jobs_app.database.afetch(jobs.job(UUID(job_id)))
            if job is None:
                self._say(f"job {job_id} is no longer kept", ok=False)
                return
            why = await self.jobs_app.job(job_id).awhy()
        except _ERRORS as error:
            self._say(str(error), ok=False)
        else:
            self.push_screen(Page(job_text(job, why)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something now; the footer shows no others."""
        name = str(parameters[0]) if action == "act" else action
        if name in _ACTS and self.read_only:
            return False
        return self.tab in _TABS_OF.get(name, TABS)

    def action_act(self, name: str) -> None:
        if self.read_only:
            return
        find: dict[str, Callable[[App, str, Record], Choice | Counting | None]] = {
            "retry": acts.retry,
            "cancel": acts.cancel,
            "run_now": acts.run_now,
            "pause": acts.pause,
            "stop": acts.stop,
        }
        choice = None
        if name == "everything":
            choice = None if self.view is None else acts.pause_everything(self.jobs_app, self.view)
        elif self.row is not None:
            choice = find[name](self.jobs_app, self.tab, self.row)
        if isinstance(choice, Choice):
            self._ask(choice)
        elif choice is not None:
            # A function, because a coroutine would never be awaited if the next one replaces it before it starts.
            self.run_worker(partial(self._ask_when_known, choice, self.chosen), group="question", exclusive=True)

    async def _ask_when_known(self, count: Counting, chosen: tuple[str, str | None]) -> None:
        self._counting += 1
        self._show()
        try:
            choice = await count()
        except _ERRORS as error:
            self._say(str(error), ok=False)
        else:
            # A person who has gone on would answer another question, or type a "y" into this one.
            elsewhere = len(self.screen_stack) > 1 or isinstance(self.focused, Input)
            if self.chosen == chosen and not elsewhere:
                self._ask(choice)
        finally:
            self._counting -= 1
            self._show()

    def _ask(self, choice: Choice) -> None:
        self.push_screen(Question(choice.question), lambda yes: self._answered(choice, yes))

    def _answered(self, choice: Choice, yes: bool | None) -> None:
        if yes:
            self.run_worker(self._do(choice))

    async def _do(self, choice: Choice) -> None:
        try:
            self._say(await choice.do())
        except _ERRORS as error:
            self._say(str(error), ok=False)
        self.action_again()

    def _say(self, said: str, *, ok: bool = True) -> None:
        self.notify(clean(said), severity="information" if ok else "error", markup=False)

    def action_again(self) -> None:
        self._again.set()

    def action_help(self) -> None:
        self.push_screen(help_page(read_only=self.read_only))

    def action_next_state(self) -> None:
        self.state = STATES[(STATES.index(self.state) + 1) % len(STATES)]
        self.action_again()

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_unfilter(self) -> None:
        box = self.query_one("#filter", Input)
        box.value = ""
        box.display = False
        self.query_one(Rows).focus()

    def action_go(self, tab: str) -> None:
        self.query_one(Tabs).active = tab

    def action_tab(self, step: int) -> None:
        self.action_go(TABS[(TABS.index(self.tab) + step) % len(TABS)])
