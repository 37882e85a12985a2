"""The readers of other systems' memories: each file in this folder is one, with its `READER`
(`confide_transfer.local.reader`).

A new reader needs no other change. The modules are imported only for an import; heavy libraries are
imported in `read`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from confide_transfer.local.reader import Reader


@cache
def readers() -> dict[str, Reader]:
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {reader.name: reader for reader in sorted((module.READER for module in modules), key=lambda one: one.name)}
