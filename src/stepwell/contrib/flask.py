"""Flask: an extension that gives an app the site's database and its handlers the site's context; `flask stepwell`; the
dashboard below a path of the site."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from stepwell.app import App
from stepwell.errors import ConfigError, StepwellError
from stepwell.errors.text import how_to_install
from stepwell.plugins.plugin import Plugin
from stepwell.plugins.run import Run
from stepwell.postgres import migrate as schema
from stepwell.values.duration import seconds
from stepwell.worker import Worker
from stepwell.worker.worker_main import run_worker

try:
    import click
    from flask import Flask, Response, request
    from flask.cli import AppGroup
except ImportError:
    raise ConfigError(f"the extension needs Flask: {how_to_install('flask')}") from None

if TYPE_CHECKING:
    from stepwell.web import Right, User

_CONFIG = "STEPWELL_DATABASE_URL"


class _SiteContext(Plugin):
    """Runs the handlers of an app in the context of the site that was tied to it last. An app has one, however many
    sites it is tied to."""

    site: Flask | None = None
    url: str | None = None
    """The database that the app has from a site."""

    @classmethod
    def of(cls, jobs: App) -> _SiteContext:
        for plugin in jobs.plugins.all:
            if isinstance(plugin, cls):
                return plugin
        made = cls()
        jobs.plugins.add(made, jobs)
        return made

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:  # noqa: ARG002
        if self.site is None:
            raise ConfigError("the site is unknown: call init_app(site) before a worker starts")
        with self.site.app_context():
            await call()


class Stepwell:
    """`Stepwell(site, jobs)`, or `Stepwell(jobs=jobs)` and later `init_app(site)`: ties a Stepwell app to a Flask site.

    An app that names no database uses `site.config["STEPWELL_DATABASE_URL"]`. Handlers of async and thread tasks run
    within `site.app_context()`, so that `current_app` and extensions work in them. `flask stepwell worker` runs the
    jobs, and `flask stepwell migrate` creates or upgrades the schema.
    """

    def __init__(self, app: Flask | None = None, jobs: App | None = None) -> None:
        if not isinstance(jobs, App):
            raise ConfigError(f"Stepwell(site, jobs): jobs is {jobs!r}: give the stepwell.App that has the tasks")
        self.jobs = jobs
        self._site: Flask | None = None
        self._context = _SiteContext.of(jobs)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Tie the jobs to this site. If several sites are made, as in tests, the jobs are in the database of the last
        one, and handlers run in its context."""
        url: str | None = cast("dict[str, Any]", app.config).get(_CONFIG)
        given = self.jobs.database.address.given
        if url and given != url:
            if given not in (None, self._context.url):
                raise ConfigError(
                    f"the app names its database in the code, and {_CONFIG} of the site names another: leave one of "
                    "them out"
                )
            self.jobs.close()
            self.jobs.database.move_to(url)
            self._context.url = url
        self._site = self._context.site = app
        app.extensions["stepwell"] = self
        app.cli.add_command(self._commands())

    def mount_dashboard(
        self,
        path: str,
        *,
        auth: str | tuple[str, str] | Callable[[], User | None],
        rights: Iterable[Right] | None = None,
        redact: Iterable[str] = (),
        title: str = "Stepwell",
    ) -> Callable[..., Response]:
        """Show the dashboard below this path of the site: `mount_dashboard("/jobs", auth=("ada", "secret"))`.

        `auth` is a token, a name and a password, or a function without parameters that returns the `stepwell.web.User`
        of the request, or None to refuse. It is called within the request, so that `session` and `current_user` work.
        `rights` are those of everybody who comes with the token or the password: `stepwell.web.ADMIN`, unless you give
        others. `redact` and `title` are those of `stepwell.web.Dashboard`. Pages poll for changes. Returns the view,
        for Flask-WTF's `csrf.exempt`: the dashboard checks by itself from where an act comes.
        """
        from stepwell.web import ADMIN, Dashboard
        from stepwell.web.wsgi import WsgiDashboard, is_file, user_of_site, with_user

        if self._site is None:
            raise ConfigError("the site is unknown: call init_app(site) before mount_dashboard")
        if not auth:
            raise ConfigError("mount_dashboard(auth=...): give a token, a name and a password, or a function")
        if not path.startswith("/") or path.endswith("/"):
            raise ConfigError(f"mount_dashboard({path!r}): the path must begin with a slash and not end with one")
        if any(rule.rule == f"{path}/" for rule in self._site.url_map.iter_rules()):
            raise ConfigError(f"mount_dashboard({path!r}): the site has pages there already: give another path")
        by_site = auth if callable(auth) else None
        by_header = None if callable(auth) else auth
        if by_site and rights is not None:
            raise ConfigError("mount_dashboard(rights=...): the function gives each User rights: leave rights out")
        given = ADMIN if rights is None else rights
        made = Dashboard(self.jobs, auth=by_header or user_of_site, rights=given, redact=redact, title=title)
        dashboard = WsgiDashboard(made)

        def view(**_: str) -> Response:
            environ = with_user(request.environ, by_site() if by_site else None)
            environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + path
            environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(path)
            response = cast("Response", Response.from_app(dashboard, environ))
            if not is_file(response.headers.get("Content-Disposition")):
                response.make_sequence()
            return response

        # Of several dashboards, each needs a name of its own.
        first = "stepwell_dashboard" not in self._site.view_functions
        endpoint = "stepwell_dashboard" if first else f"stepwell_dashboard:{path}"
        for rule in (f"{path}/", f"{path}/<path:rest>"):
            self._site.add_url_rule(rule, endpoint, view, methods=["GET", "POST"])
        return view

    def _commands(self) -> AppGroup:
        group = AppGroup("stepwell", help="Run background jobs.")

        @group.command("worker")
        @click.option("-q", "--queue", "queues", multiple=True, help="A queue to run; may be repeated. Default: all.")
        @click.option("-c", "--concurrency", type=click.IntRange(1), help="How many jobs run at once. Default: 10.")
        @click.option("--grace", default="30s", show_default=True, help="How long to wait for running jobs at the end.")
        def worker(queues: tuple[str, ...], concurrency: int | None, grace: str) -> None:
            """Run jobs until SIGTERM or SIGINT (Ctrl-C)."""
            if not logging.getLogger().handlers:
                logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
            try:
                runs = Worker(
                    self.jobs, queues=queues or None, concurrency=concurrency, grace=seconds(grace, "--grace")
                )
            except StepwellError as error:
                raise click.UsageError(str(error)) from None
            sys.exit(run_worker(self.jobs, runs, report=lambda error: click.echo(f"Error: {error}", err=True)))

        @group.command("migrate")
        def migrate() -> None:
            """Create the schema, or upgrade it to this version."""
            try:
                with self.jobs.database.connect() as connection:
                    applied = schema.migrate(connection)
                    version = schema.current(connection)
            except StepwellError as error:
                raise click.ClickException(str(error)) from None
            for name in applied:
                click.echo(f"applied {name}")
            if not applied:
                click.echo(f"schema is at {version}, nothing to do")

        _ = worker, migrate
        return group
