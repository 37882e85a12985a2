"""The offer to index a folder's markdown files outside its memory, made by `confide quickstart` and
`confide setup`.

No such file is sent unless the user agrees at a terminal, or has written the folder's section in
the configuration by hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confide_memory.documents import is_memory, path_problem
from confide_proxy import config as configuration
from confide_proxy.cli import own_config
from confide_proxy.cli.console import CommandContext, ask_yes_no, can_ask, count_noun, remark, row, say, size
from confide_proxy.config import ProxyConfig
from confide_proxy.sync.walk import Narrowing, is_project, tree

MANY: Final = 20
"""The fewest markdown files for an offer; fewer are a README and the like."""
ALL: Final = ("**/*.md",)
_MOST: Final = 50_000
_PATIENCE_S: Final = 1.0
_NAMED: Final = 4


class Markdown(NamedTuple):
    """The markdown files below a folder that are not memory, counted.

    Attributes:
        names: the paths of some of them.
        is_all: True if all of them were counted; False if the search stopped early on a large disk.
    """

    files: int
    size: int
    names: tuple[str, ...]
    is_all: bool

    def __str__(self) -> str:
        count = count_noun(self.files, "markdown file")
        more = ", …" if self.files > len(self.names) else ""
        return f"{count if self.is_all else f'over {count}'}, {size(self.size)}: {', '.join(self.names)}{more}"


def look(root: Path) -> Markdown:
    """Count the files that would be sent if all markdown files of a folder were indexed, without
    those of other projects below it.
    """
    end = time.monotonic() + _PATIENCE_S
    narrowing = Narrowing(root)
    count = size = 0
    names: list[str] = []
    for number, (path, entry) in enumerate(tree(root, "", 0, is_apart=lambda path: is_project(root / path))):
        if number >= _MOST or time.monotonic() > end:
            return Markdown(count, size, tuple(names), is_all=False)
        if not path.lower().endswith(".md") or is_memory(path) or path_problem(path) or narrowing.excludes(path):
            continue
        try:
            size += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # deleted since the folder was listed
        count += 1
        if len(names) < _NAMED:
            names.append(path)
    return Markdown(count, size, tuple(names), is_all=True)


def is_due(root: Path, config: ProxyConfig) -> bool:
    """Return True if the user has not decided yet whether to index the folder's markdown files."""
    return config.options_for(root) is None and not config.extra


def section(root: Path, extra: Sequence[str]) -> str:
    """Return the section of the configuration file that indexes a folder's markdown files.

    Args:
        extra: globs below the folder.
    """
    return f"[folders.{_quote(home_path(root))}]\nextra = [{', '.join(map(_quote, extra))}]"


def advice(root: Path, extra: Sequence[str]) -> str:
    """Return the section of the configuration file that indexes a folder's markdown files, with a
    sentence on where to put it.
    """
    return f"for this folder alone, as a section at the end of that file: {section(root, extra)}".replace("\n", "  ")


def home_path(root: Path) -> str:
    """Format a folder's path with `~` in place of the home folder."""
    home = Path.home()
    return f"~/{root.relative_to(home).as_posix()}" if root.is_relative_to(home) and root != home else str(root)


def offer_markdown(here: CommandContext, root: Path) -> CommandContext:
    """Offer at a terminal to index a folder's markdown files, and store the choice if the user
    agrees. Without a terminal, print the section to add to the configuration.

    Returns the context with the resulting configuration. Raises ConfigError if the configuration
    cannot be parsed; StateError if it cannot be written.
    """
    if not is_due(root, here.config):
        return here
    found = look(root)
    if found.files < MANY:
        return here
    row(f"beside the memory are {found}")
    file = here.paths.config
    if not can_ask():
        say("to index them, put this at the end of " + (str(file) if file.exists() else f"a new file {file}"))
        say("\n".join(f"  {line}" for line in section(root, ALL).splitlines()))
        say("and then: confide sync")
        return here
    remark("their texts go to your daemon, to be found by searches; the files are only read, never written")
    if not ask_yes_no("index them?"):
        return here
    write(file, root, ALL)
    row(f"written to {file}; to take it back, delete that section, and: confide forget '**/*.md'")
    return here._replace(config=configuration.load(file))


def write(file: Path, root: Path, extra: Sequence[str]) -> None:
    """Add a folder's section to the configuration file, and keep the user's text otherwise.

    Raises ConfigError if the file cannot be parsed or has such a section already; StateError if it
    cannot be written.
    """
    text, table = own_config.read(file)
    wanted = table | {"folders": table.get("folders", {}) | {home_path(root): {"extra": list(extra)}}}
    by_hand = f"by hand: {section(root, extra)}".replace("\n", "  ")
    own_config.write(file, own_config.with_section(text, section(root, extra)), wanted, by_hand=by_hand)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
