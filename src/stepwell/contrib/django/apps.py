"""The Django application: its migrations install Stepwell's schema, and its checks read the settings."""
# pyright: basic

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class StepwellConfig(AppConfig):
    name = "stepwell.contrib.django"
    label = "stepwell"
    verbose_name = "Stepwell"

    def ready(self) -> None:
        from stepwell.contrib.django.settings import check_settings

        checks.register(check_settings)
