"""The settings of the site: what is about Stepwell is at the end."""
# pyright: basic

import os
from pathlib import Path

import django
from psycopg.conninfo import conninfo_to_dict

from stepwell import App, Retry

BASE_DIR = Path(__file__).parent.parent
SECRET_KEY = "an example has no secrets"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
INSTALLED_APPS = ["shop", "stepwell.contrib.django"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")

# Without a database of its own, the example starts one, which ends with the last process that uses it.
_url = os.environ.get("DATABASE_URL") or App(f"embedded:{BASE_DIR / '.stepwell'}").url
_database = conninfo_to_dict(_url)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database["dbname"],
        "USER": _database.get("user"),
        "PASSWORD": _database.get("password"),
        "HOST": _database.get("host"),
        "PORT": _database.get("port"),
    }
}

TASKS = {"default": {"BACKEND": "stepwell.contrib.django.StepwellBackend"}}
STEPWELL = {"retry": Retry(max_attempts=5)}
