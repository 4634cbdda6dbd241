"""The one `App` of a Django site, made from the setting STEPWELL when it is first used."""
# pyright: basic

from __future__ import annotations

import threading
from typing import Any

from stepwell.app import App
from stepwell.contrib.django.connection_rules import ConnectionRules
from stepwell.contrib.django.django_task import DjangoTask
from stepwell.contrib.django.settings import read_settings
from stepwell.contrib.django.site_address import SiteAddress
from stepwell.contrib.django.site_database import SiteDatabase
from stepwell.contrib.django.tasks_api import Task as ApiTask
from stepwell.jobs.enqueue import JobStore
from stepwell.jobs.task import Task
from stepwell.postgres.threads import in_thread


class DjangoApp(App):
    """The app of the site. Its tasks are those of Django's `@task`, under their module paths, and those of `@app.task`.

    Its database is one of DATABASES, by default "default". Unless STEPWELL gives it another, its name is that of the
    package that holds the settings.
    """

    def __init__(self) -> None:
        site = read_settings()
        plugins = (ConnectionRules(), *site.options.pop("plugins", ()))
        super().__init__(None, plugins=plugins, **site.options)
        self.alias = site.database
        """The alias of its database in DATABASES."""
        self.modules = site.modules
        self._registering = threading.RLock()
        self.database.address = SiteAddress(site.database)
        self._site_jobs = JobStore(
            SiteDatabase(SiteAddress(site.database), call_timeout=self.database.call_timeout),
            self._tasks,
            max_args_size=self._job_store.max_args_size,
            owner=self.owner,
            misfit_grace=self._job_store.misfit_grace,
            resources=self.resources,
            sealer=self.sealer,
            plugins=self.plugins,
            events=self.events,
            start=self.start_plugins,
        )

    @property
    def site_database(self) -> SiteDatabase:
        """The database through Django's own connection."""
        return self._site_jobs.database  # pyright: ignore[reportReturnType]

    def close(self) -> None:
        self._site_jobs.waiter.close()
        self.site_database.close()
        super().close()

    async def aclose(self) -> None:
        await in_thread(self._site_jobs.waiter.close)
        await self.site_database.aclose()
        await super().aclose()

    def django_task(self, task: Any, queues: set[str]) -> DjangoTask:
        """Return the task under which jobs of a Django task are stored, and register it when it is first seen. `queues`
        are those of the backend."""
        with self._registering:
            known = self._tasks.get(task.module_path)
            if isinstance(known, DjangoTask) and known.django.func is task.func:
                known.all_queues |= queues
                return known
            made = DjangoTask(self._site_jobs, self._defaults, self, task, queues)
            # A module that is imported again, as a shell's autoreload does, brings a new function of the same path.
            if isinstance(known, DjangoTask):
                del self._tasks[task.module_path]
            return self._register(made)

    def _own_task(self, task: Any, caller: str) -> Task[..., Any]:
        """A Django task may have schedules like any other: `@app.schedule(...)` above `@task`."""
        return super()._own_task(self.django_task(task, set()) if isinstance(task, ApiTask) else task, caller)


_lock = threading.Lock()
_app: DjangoApp | None = None


def site_app() -> DjangoApp:
    """Return the app of this site, which every thread and backend shares."""
    global _app
    with _lock:
        if _app is None:
            _app = DjangoApp()
        return _app
