"""End a connection from this side, also while another thread or task waits on it."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import psycopg


def sever(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Make every thread or task that waits on the connection fail at once."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
