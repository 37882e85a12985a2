"""docs/uninstalling.md names every file and folder that Confide makes."""

from __future__ import annotations

import re
from pathlib import Path

from confide_daemon.datadir import paths as daemon
from confide_proxy import paths as proxy

PAGE = (Path(__file__).parents[1] / "docs" / "uninstalling.md").read_text("utf-8")
NAMED = {name.removesuffix("/") for name in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE)}


def test_the_page_names_what_the_proxy_keeps() -> None:
    names = [value._name for value in vars(proxy.ProxyPaths).values() if isinstance(value, proxy._InState)]
    assert len(names) > 10
    assert not set(names) - NAMED


def test_the_page_names_what_the_daemon_keeps() -> None:
    names = [value._name for value in vars(daemon.DataFolder).values() if isinstance(value, daemon._PathName)]
    assert len(names) > 8
    assert not set(names) - NAMED


def test_the_page_names_the_folders_themselves() -> None:
    """Those below the platform's folders for data and for settings, and the one of a key that is unlocked."""
    assert {"~/.config/confide", "~/.local/share/confide/proxy", "~/.local/share/confide/global"} <= NAMED
    assert {"~/.local/share/confide/daemon", "$XDG_RUNTIME_DIR/confide", "proxy.toml", "daemon.toml"} <= NAMED
