"""What stepwell.testing offers is told, and needs no pytest."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types

import pytest

from stepwell import testing


def test_all_is_exact_and_sorted() -> None:
    public = {
        name
        for name, value in vars(testing).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(testing.__all__) == public
    assert list(testing.__all__) == sorted(testing.__all__)


def test_everything_public_is_documented() -> None:
    undocumented: list[str] = []
    for name in testing.__all__:
        thing = getattr(testing, name)
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            continue
        if not thing.__doc__:
            undocumented.append(name)
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_") and inspect.isfunction(value) and not value.__doc__:
                undocumented.append(f"{name}.{member}")
    assert undocumented == []


@pytest.mark.slow
def test_it_is_imported_without_pytest() -> None:
    code = "import sys, stepwell.testing; sys.exit('pytest' in sys.modules or 'hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
