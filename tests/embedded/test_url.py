from __future__ import annotations

from pathlib import Path

import pytest

from stepwell.embedded import embedded_path, is_embedded
from stepwell.errors import EmbeddedError


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("embedded", None),
        ("embedded:jobs", Path("jobs")),
        ("embedded:./jobs", Path("jobs")),
        ("embedded:/srv/jobs", Path("/srv/jobs")),
        ("embedded:///srv/jobs", Path("/srv/jobs")),
        ("embedded:~/jobs", Path.home() / "jobs"),
    ],
)
def test_an_embedded_url_names_a_path_or_leaves_it_to_us(url: str, path: Path | None) -> None:
    assert is_embedded(url)
    assert embedded_path(url) == path


@pytest.mark.parametrize("url", ["postgresql:///jobs", "embeddedness", "host=/tmp", ""])
def test_any_other_url_is_not_embedded(url: str) -> None:
    assert not is_embedded(url)
    with pytest.raises(EmbeddedError, match='write "embedded" or "embedded:PATH"'):
        embedded_path(url)


@pytest.mark.parametrize("url", ["embedded:", "embedded://", "embedded:/", "embedded:~nobody-has-this-name/x"])
def test_a_url_without_a_usable_path_says_what_to_write(url: str) -> None:
    assert is_embedded(url)
    with pytest.raises(EmbeddedError, match="write"):
        embedded_path(url)
