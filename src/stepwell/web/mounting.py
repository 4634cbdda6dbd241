"""The prefix under which a dashboard is mounted, however the app around it says so."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.types import Scope


def with_prefix(scope: Scope) -> Scope:
    """Return the scope with the prefix in `root_path` and in `path`, as Starlette has it.

    Litestar takes the path of a mount off `path` and says so nowhere. But the path as it was sent tells what is gone.
    """
    if scope["type"] != "http" or not scope.get("raw_path"):
        return scope
    sent = unquote(scope["raw_path"].partition(b"?")[0].decode("latin-1")).rstrip("/")
    path, root = scope["path"].rstrip("/"), scope.get("root_path", "").rstrip("/")
    if sent == path or not sent.endswith(path):
        return scope
    prefix = sent.removesuffix(path)
    if not prefix.startswith(root) or (root and path.startswith(root)):
        return scope
    return {**scope, "root_path": prefix, "path": prefix + (path or "/")}
