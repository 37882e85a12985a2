"""A store for every daemon that a test serves in its process, where `CONFIDE_LOGGED=1` is set (`make logged`): what holds without one holds
with one.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
from functools import cache
from typing import TYPE_CHECKING

from confide_daemon.datadir.paths import DataFolder

if TYPE_CHECKING:
    from tests.support.daemon.postgres import Postgres

IS_LOGGED = os.environ.get("CONFIDE_LOGGED") == "1"


def url(folder: DataFolder) -> str:
    """Of the store of this data folder, whenever it is served; "" for none."""
    if not IS_LOGGED:
        return ""
    name = "of_" + hashlib.blake2b(str(folder.root).encode(), digest_size=8).hexdigest()
    postgres = _server()
    if not postgres.sql("SELECT 1 FROM pg_database WHERE datname = %s", name):
        postgres.sql(f"CREATE DATABASE {name}")
    return postgres.url(name)


@cache
def _server() -> Postgres:
    from tests.support.daemon import postgres

    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgres.server())
