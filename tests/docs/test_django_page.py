"""The page about Django: its samples are the files of a site, which is migrated and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# The rest of the settings, which every site has.
SETTINGS = """
import os
import django
from psycopg.conninfo import conninfo_to_dict

database = conninfo_to_dict(os.environ["SHOP_DATABASE"])
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": database["dbname"], "USER": database.get("user"),
    "PASSWORD": database.get("password"), "HOST": database.get("host"), "PORT": database.get("port"),
}}
SECRET_KEY = "for tests"
USE_TZ = True
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
"""


@pytest.mark.slow
def test_the_samples_are_a_site_that_prints_what_they_say(empty_dsn: str, open_dir: Path) -> None:
    files: dict[str, str] = {}
    for sample in re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "django.md").read_text(), re.DOTALL | re.MULTILINE
    ):
        name = re.match(r"# (shop/\w+\.py)\n", sample)
        assert name, f"a sample names no file:\n{sample}"
        files[name[1]] = files.get(name[1], "") + sample
    files["shop/settings.py"] += SETTINGS
    (open_dir / "shop").mkdir()
    for name, text in files.items():
        (open_dir / name).write_text(text)
    environment = {
        **os.environ,
        "SHOP_DATABASE": empty_dsn,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONPATH": f"{open_dir}{os.pathsep}{ROOT / 'src'}",
    }
    program = (
        "from stepwell.contrib.django.project import app\n"
        "from django.core.management import call_command\n"
        "call_command('migrate', verbosity=0)\n"
        "import shop.program\n"
        "app.close()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment, cwd=open_dir, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    said = re.findall(r"^ *print\(.*\)  # (.*)$", files["shop/program.py"], re.MULTILINE)
    assert run.stdout.splitlines() == said
