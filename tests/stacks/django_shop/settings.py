"""The settings of a small shop. The environment says which database it has."""
# pyright: basic

import os

import django
from psycopg.conninfo import conninfo_to_dict

from stepwell import Retry

_database = conninfo_to_dict(os.environ["SHOP_DATABASE"])

SECRET_KEY = "for tests"
USE_TZ = True
TIME_ZONE = "Europe/Lisbon"
_DJANGOS = ["admin", "auth", "contenttypes", "messages", "sessions"]
INSTALLED_APPS = ["stepwell.contrib.django", "stacks.django_shop", *(f"django.contrib.{name}" for name in _DJANGOS)]
# Their tables are made as they are now, without the many migrations behind them.
MIGRATION_MODULES = dict.fromkeys(_DJANGOS)
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
_PROCESSORS = ["template.context_processors.request", "contrib.auth.context_processors.auth"]
_PROCESSORS.append("contrib.messages.context_processors.messages")
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [f"django.{name}" for name in _PROCESSORS]},
    }
]
ALLOWED_HOSTS = ["127.0.0.1"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the quickest
STATIC_URL = "static/"
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
ROOT_URLCONF = "stacks.django_shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database["dbname"],
        "USER": _database.get("user", ""),
        "PASSWORD": _database.get("password", ""),
        "HOST": _database.get("host", ""),
        "PORT": _database.get("port", ""),
        "OPTIONS": {"connect_timeout": 10},
    },
    "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}


class OnlyOnDefault:
    """The tables of Django's own apps are in one database."""

    def allow_migrate(self, db: str, app_label: str, **_: object) -> bool | None:
        return False if db == "lite" and app_label in _DJANGOS else None


DATABASE_ROUTERS = [f"{__name__}.OnlyOnDefault"]
TASKS = {
    "default": {"BACKEND": "stepwell.contrib.django.StepwellBackend", "QUEUES": ["default", "mail"]},
    "any": {"BACKEND": "stepwell.contrib.django.StepwellBackend", "QUEUES": []},
}
STEPWELL = {"retry": Retry(max_attempts=2, initial=0)}
LOGGING_CONFIG = None
