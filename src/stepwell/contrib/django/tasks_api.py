"""Django's tasks: `django.tasks` from Django 6 on, and before that the package django-tasks, which has the same API.

Their errors have different names; here they have those of Django 6.
"""
# pyright: basic
# ruff: noqa: F401

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    BaseTaskBackend = Any
    Task = Any
    TaskContext = Any
    TaskError: Any
    TaskResult: Any
    TaskResultStatus: Any
    InvalidTask: Any
    TaskResultDoesNotExist: Any
    signals: Any
    normalize_json: Any
    task_backends: Any
elif django.VERSION >= (6,):
    from django.tasks import signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import signals, task_backends
    except ImportError:
        raise ImportError(
            f"Django {django.get_version()} has no tasks of its own: pip install django-tasks, or use Django 6"
        ) from None
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.utils import normalize_json
