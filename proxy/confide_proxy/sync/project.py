"""Which project a folder belongs to, what git says of it, and what the daemon may be told.

A project is the same on every machine: it is named by its repository's normalised remote, so that clones and worktrees are one project;
else by `name` in `.confide.toml`; else by the folder's name (architecture, "A space is the wall").
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from confide_memory.documents import GLOBAL_PROJECT, MEMORY_FOLDER
from confide_proxy.sync.walk import FILE, load_project_file

log = logging.getLogger(__name__)

MAX_NAME_BYTES = 200
_OWN = ("MEMORY.md", "memory.md", "memory", FILE)
_GIT_DEADLINE_S = 2.0
_SCP_REMOTE = re.compile(r"^(?:[^@/]+@)?(\[[^\]/]+\]|[^:/\[]+):(?!//)(.+)$")
_URL_REMOTE = re.compile(r"^(?!file:)[a-z+]+://(?:[^@/]*@)?(\[[^\]/]+\]|[^/:\[]+)(?::\d*)?/(.+)$", re.IGNORECASE)
_WHOLE_REMOTE = re.compile(r"^(?:(?:https?|ssh|git|git\+ssh|ssh\+git)://|[^@/:]+@|[^@/:]+\.[^@/:]+:)", re.IGNORECASE)
"""A remote that is an address by itself; others, such as `work:shop`, are short for what the user's own git makes of them."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project as this machine sees it: its `name`, its working folder `root`, and whether git keeps it."""

    name: str
    root: Path
    is_git: bool


def identify(folder: Path) -> Project:
    """The project of `folder`. Never fails: at worst the folder's own name is taken.

    Inside a repository that is the repository, wherever below its top the agent was started; but a folder that holds memory of its own
    (or a `.confide.toml`) is a project of its own, as in a repository of many services.
    """
    here = folder.resolve()
    top = _git(here, "rev-parse", "--show-toplevel")
    root = Path(top).resolve() if top else here
    if top is None or root not in (here, *here.parents):
        return Project(_clean(_named_in_file(here) or here.name), here, is_git=False)
    inner = here.relative_to(root) if here != root and any((here / own).exists() for own in _OWN) else None
    name = _named_in_file(here) if inner else None
    if name is None:
        name = _repository_name(root) + (f"/{inner.as_posix()}" if inner else "")
    return Project(_clean(name), here if inner else root, is_git=True)


def remote(root: Path) -> str | None:
    """`host/owner/name` of a repository's remote; None without one that is an address."""
    found = _remote(root)
    return normalise_remote(found) if found else None


def branch(root: Path) -> str | None:
    """The branch that is checked out, else the commit's short name."""
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD") or _git(root, "rev-parse", "--short", "HEAD")


def _repository_name(root: Path) -> str:
    name = remote(root)
    if name is None:
        name = _named_in_file(root)
    if name is None and (common := _git(root, "rev-parse", "--path-format=absolute", "--git-common-dir")):
        # Worktrees of one repository without a remote share its common directory, so its owner names them all.
        home = Path(common)
        name = (home.parent if home.name.startswith(".") else home).name.removesuffix(".git")
    return name or root.name


def _remote(root: Path) -> str | None:
    """The address of `origin`, or of the only remote where it is called otherwise."""
    listed = _git(root, "config", "--get-regexp", r"^remote\..+\.url$") or ""
    urls: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, address = line.partition(" ")
        urls.setdefault(key.removeprefix("remote.").removesuffix(".url"), address)
    remote = "origin" if "origin" in urls or len(urls) != 1 else next(iter(urls))
    url = urls.get(remote)
    if url is None or _WHOLE_REMOTE.match(url):
        # An address as it was cloned from: where it leads on this machine (a mirror, say) is no other project.
        return url
    return _git(root, "remote", "get-url", "--", remote) or url


def normalise_remote(remote: str) -> str | None:
    """`host/owner/name` of a git remote, without user, port, scheme and `.git`; None for a local path."""
    match = _URL_REMOTE.match(remote) or _SCP_REMOTE.match(remote)
    if match is None:
        return None
    host, path = match.groups()
    path = path.partition("?")[0]  # behind it may be a token
    path = "/".join(part for part in path.split("/") if part).removesuffix(".git").rstrip("/")
    return f"{host.lower()}/{path}" if path else None


def _git(folder: Path, *arguments: str) -> str | None:
    # A git hook hands its own repository down by GIT_DIR and others; it is the folder that counts here.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = _run_git(folder, *arguments, env=env)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    text = os.fsdecode(done.stdout.removesuffix(b"\n"))
    return text if done.returncode == 0 and text else None


def _run_git(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    command = ["git", "-C", os.fspath(folder), *arguments]
    return subprocess.run(command, capture_output=True, timeout=_GIT_DEADLINE_S, check=False, env=env)


def _named_in_file(root: Path) -> str | None:
    name = load_project_file(root).name
    return name if name != GLOBAL_PROJECT else None


def _clean(name: str) -> str:
    if not name.isascii():
        import unicodedata  # a megabyte of tables, which most names do not need

        name = unicodedata.normalize("NFC", name)
    printable = "".join(c for c in name if c.isprintable())
    name = printable.strip().encode("utf-8")[:MAX_NAME_BYTES].decode("utf-8", "ignore").strip()
    # A folder that happens to be called so must not become the memory that every project shares.
    return f"{GLOBAL_PROJECT}-project" if name == GLOBAL_PROJECT else name or "project"


async def workplace(project: Project, shown: Callable[[str], str] = str) -> dict[str, Any]:
    """What the request `workplace` answers (PROTOCOL.md 9.4): names, never paths, and no credentials of a remote.

    `shown` makes of a name what the daemon may see of it.
    """
    return {
        "platform": sys.platform,
        "directory": shown(project.root.name),
        "git": await asyncio.to_thread(_git_workplace, project, shown) if project.is_git else None,
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _git_workplace(project: Project, shown: Callable[[str], str]) -> dict[str, str | None]:
    found = {"repository": project.root.name, "branch": branch(project.root), "remote": remote(project.root)}
    return {name: shown(value) if value else value for name, value in found.items()}


def ignore_memory(root: Path) -> None:
    """Add `memory/` to the repository's `.gitignore`, unless git ignores it or tracks it already: memory is private by default."""
    try:
        check = _run_git(root, "check-ignore", "-q", f"{MEMORY_FOLDER}/x.md")
        tracked = _run_git(root, "ls-files", "--", MEMORY_FOLDER)
        # 1 means "not ignored"; files that the team tracks already were meant to be shared, and stay so.
        if check.returncode != 1 or tracked.stdout.strip():
            return
        ignore = root / ".gitignore"
        if ignore.is_symlink():
            return
        before = ignore.read_bytes() if ignore.exists() else b""
        end = b"\r\n" if b"\r\n" in before else b"\n"
        gap = b"" if not before or before.endswith(b"\n") else end
        with ignore.open("ab") as file:
            file.write(gap + f"{MEMORY_FOLDER}/".encode() + end)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("could not add %s/ to .gitignore: %s", MEMORY_FOLDER, type(error).__name__)
