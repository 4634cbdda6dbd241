"""Stepwell in a Django site: a backend for Django's tasks, an app for durable jobs, `manage.py stepwell`, migrations.

Add "stepwell.contrib.django" to INSTALLED_APPS and name the backend in TASKS. `site_app` makes the one `App` of the
site from the setting STEPWELL; its database is one of DATABASES (`site_address`). `backend` enqueues through Django's
own connection (`site_database`), so that a job commits with the models. Each Django task is registered with the app
under its module path (`stepwell_task`, `django_task`, `stored_args`). `run` calls its function as Django does, and
`connection_rules` keeps Django's rules for connections in a worker. `results` reads a job as a `TaskResult`.
`dashboard` shows the dashboard to the staff of the site.

`stepwell.contrib.django.project:app` is the same app for a worker: it sets Django up and imports all tasks first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.contrib.django.backend import StepwellBackend
    from stepwell.contrib.django.dashboard import dashboard_urls
    from stepwell.contrib.django.site_app import DjangoApp
    from stepwell.contrib.django.stepwell_task import StepwellTask

    app: DjangoApp

__all__ = ["StepwellBackend", "StepwellTask", "app", "dashboard_urls"]


def __getattr__(name: str) -> Any:
    # Django imports this package before its settings may be read, so everything here is loaded on demand.
    match name:
        case "app":
            from stepwell.contrib.django.site_app import site_app

            return site_app()
        case "StepwellBackend":
            from stepwell.contrib.django.backend import StepwellBackend

            return StepwellBackend
        case "dashboard_urls":
            from stepwell.contrib.django.dashboard import dashboard_urls

            return dashboard_urls
        case "StepwellTask":
            from stepwell.contrib.django.stepwell_task import StepwellTask

            return StepwellTask
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
