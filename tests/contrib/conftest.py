"""Fixtures of the tests of what Stepwell adds to libraries of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sentry_sdk

from .kept import Kept
from .spans import Recorder


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.provider.shutdown()
    made.meters.shutdown()


@pytest.fixture
def kept() -> Iterator[Kept]:
    transport = Kept()
    sentry_sdk.init("http://key@127.0.0.1:1/1", transport=transport, traces_sample_rate=1.0)
    yield transport
    sentry_sdk.init()
