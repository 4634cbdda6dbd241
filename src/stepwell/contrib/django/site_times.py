"""Times as the site has them: with a time zone if USE_TZ, else local times without one. Stepwell's always have one."""
# pyright: basic

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.utils import timezone


def to_aware(at: datetime | None) -> datetime | None:
    """Return a time of the site with a time zone."""
    return timezone.make_aware(at) if at is not None and timezone.is_naive(at) else at


def of_site(at: datetime | None) -> datetime | None:
    """Return a time of Stepwell as the site has it."""
    return at if at is None or settings.USE_TZ else timezone.make_naive(at)
