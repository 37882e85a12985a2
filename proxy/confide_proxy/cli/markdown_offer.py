"""The offer of `confide quickstart` to index the markdown of a folder of notes. It only says the line to write."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from confide_memory.documents import is_memory
from confide_proxy.config import ProxyConfig
from confide_proxy.sync.walk import tree

MANY: Final = 20
"""Fewer are a README and what goes with it."""
_MOST: Final = 50_000
_PATIENCE_S: Final = 1.0
LINE: Final = 'extra = ["**/*.md"]'


def offer(root: Path, config: ProxyConfig, file: Path) -> list[str]:
    """What to say where many markdown files lie in a folder of which nothing but its memory is indexed: nothing else."""
    if config.extra:
        return []
    count, is_all = count_markdown(root)
    if count < MANY:
        return []
    number = f"{count:,}" if is_all else f"over {count:,}"
    where = f"in {file}, at its beginning" if file.exists() else f"in a new file {file}"
    return [f"{number} markdown files are here: index them?", f"  {LINE}", f"{where}, and then: confide sync"]


def count_markdown(root: Path) -> tuple[int, bool]:
    """How many markdown files lie below a folder beside its memory, and whether that is all: no large disk is walked to its end."""
    end = time.monotonic() + _PATIENCE_S
    count = 0
    for number, (path, _entry) in enumerate(tree(root, "", 0)):
        if number >= _MOST or time.monotonic() > end:
            return count, False
        count += path.lower().endswith(".md") and not is_memory(path)
    return count, True
