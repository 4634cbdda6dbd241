"""The app of the site with all its tasks, for a worker: `stepwell worker stepwell.contrib.django.project:app`.

Django must know its settings, by DJANGO_SETTINGS_MODULE. `manage.py stepwell worker` loads this module, too.
"""
# pyright: basic

from __future__ import annotations

from importlib import import_module

import django
from django.apps import apps
from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from stepwell.contrib.django.site_app import site_app

if not apps.ready:
    django.setup()

app = site_app()

# A worker runs only tasks that it knows. They are in the `tasks` of installed apps, in modules that views import, or
# elsewhere, as STEPWELL["modules"] says.
autodiscover_modules("tasks")
for module in (getattr(settings, "ROOT_URLCONF", None), *app.modules):
    if module:
        import_module(module)
