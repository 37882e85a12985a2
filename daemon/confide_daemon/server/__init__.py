"""The daemon on the network: sessions, the MCP server in each, and the machines' requests.

Of the MCP SDK only its loop for one connection is used. The `__init__` of its package, and of its `server`, import all of it: an HTTP
client, Starlette, OAuth. None of these has a part here, where messages come over a channel of our own, and they take 10 MB of every daemon
and a quarter of a second of its start. So the two are put in place unrun, before anything below imports them, and run when somebody asks
them for something else than a module.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from types import ModuleType
from typing import Any


def _unrun(name: str) -> None:
    """Puts a package in place whose `__init__` runs when something of it is asked for."""
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__dict__["__getattr__"] = partial(_run, package)
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def _run(package: ModuleType, wanted: str) -> Any:
    if wanted.startswith("__"):  # what the import system looks for
        raise AttributeError(wanted)
    del package.__dict__["__getattr__"]
    assert package.__spec__ is not None
    assert package.__spec__.loader is not None
    package.__spec__.loader.exec_module(package)
    return getattr(package, wanted)


_unrun("mcp")
_unrun("mcp.server")
