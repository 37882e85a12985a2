"""A name has one meaning: those of modules and classes that are used twice are few, each with its reason."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)
ROOT: Final = Path(__file__).parents[1]
SEAM: Final = "the same part of the seam for add-ons, at each end or in each add-on"
BOTH: Final = "the same part of each program"
COMMAND: Final = "named after the command, the tool, the request or the page that it holds"
MODULES: Final = {
    "addon": SEAM,
    "addons": SEAM,
    "app": BOTH,
    "commands": SEAM,
    "config": BOTH,
    "console": "what a command prints: for both programs, and for each",
    "devices": COMMAND,
    "errors": "the errors of each package",
    "health": COMMAND,
    "paths": BOTH,
    "projects": COMMAND,
    "requests": "the requests that an add-on answers in the daemon",
    "restore": COMMAND,
    "search": COMMAND,
    "session": "the daemon's session, and the form of its requests",
    "settings": "an add-on's table of the configuration, or that of a room",
    "status": COMMAND,
    "store": COMMAND,
    "sync": COMMAND,
    "wire": SEAM,
}
CLASSES: Final = {
    "Addon": SEAM,
    "CommandContext": BOTH,
    "ConfigError": BOTH,
    "PageContext": "the panel's context of a page, and what a page of an add-on needs of it",
    "Settings": "the settings of an embedding provider, found by this name in its module",
    "WrongKeyError": "the key of a record, and the key of a database",
}


def _twice(names: list[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def test_a_name_that_is_used_twice_has_its_reason() -> None:
    paths = sorted(ROOT.glob("*/confide_*/**/*.py"))
    assert len(paths) > 100
    classes = [name for path in paths for name in CLASS.findall(path.read_text("utf-8"))]
    modules = _twice([path.stem for path in paths if not path.stem.startswith("__")])
    assert modules - set(MODULES) == set(), "qualify the name by the room's noun, or write down a reason"
    assert _twice(classes) - set(CLASSES) == set(), "qualify the name by the room's noun, or write down a reason"
    assert len(MODULES) <= 20
    assert len(CLASSES) <= 30
