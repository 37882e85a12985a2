"""Identify the project of a folder, read facts from git about it, and say which of them the daemon
may learn.

A project is the same on every device: it is named by its repository's normalised remote, so that
clones and worktrees are one project; or else by `name` in `.confide.toml`; or else by the folder's
name (architecture, "A space is the wall"). The author of a repository writes the last two, so they
are only claims: `sync/project_names.py` decides if a folder gets the name that it claims.
"""

from __future__ import annotations

import asyncio
import enum
import hashlib
import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto import atomic, portable
from confide_memory.documents import GLOBAL_PROJECT, MEMORY_FOLDER
from confide_proxy.sync.walk import FILE, load_project_file, plain_file

log = logging.getLogger(__name__)

MAX_NAME_BYTES = 200
_SHORTEST_TOKEN = 20
_OWN = ("MEMORY.md", "memory.md", "memory", FILE)
_GIT_DEADLINE_S = 2.0
_MOST_LINK_BYTES = 8192
_MOST_IGNORE_BYTES = 1024 * 1024
_GLOB: Final = re.compile(r"([*?\[\]\\ ])")
_ESCAPED: Final = r"\\\1"
"""Characters with a meaning in git's patterns; a space has one at the end."""
# The host must be the one from which git fetches: both `evil.example:x@github.com:a/b` and
# `https://evil.example?@github.com/a/b` lead to evil.example.
_SCP_REMOTE = re.compile(r"^(?:[^@/:?#]+@)?(\[[^\]/]+\]|[^:/\[]+):(?!//)(.+)$")
_URL_REMOTE = re.compile(r"^(?!file:)[a-z+]+://(?:[^/?#]*@)?(\[[^\]/]+\]|[^/:\[?#@]+)(?::\d*)?/(.+)$", re.IGNORECASE)
_WHOLE_REMOTE = re.compile(r"^(?:(?:https?|ssh|git|git\+ssh|ssh\+git)://|[^@/:]+@|[^@/:]+\.[^@/:]+:)", re.IGNORECASE)
"""A remote that is a complete address; others, such as `work:shop`, are abbreviations that the
user's own git configuration expands.
"""


# Protects from a folder in a clone that looks like a bare repository with a configuration by its
# author: with a remote, and with programs for git to start (`core.fsmonitor` ran at
# `check-ignore`).
WARY: Final = ("-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


class Project(NamedTuple):
    """A project on this device.

    Attributes:
        name: the project's name, as the daemon gets it.
        root: the working folder.
        is_git: True if the folder is in a git repository.
        claim: the name that the folder claims but was not granted; "" if there is none.
    """

    name: str
    root: Path
    is_git: bool
    claim: str = ""


class Basis(enum.Enum):
    """Where a folder's name comes from: the git remote, `.confide.toml`, or the folder itself."""

    REMOTE = "remote"
    """The remote of its repository, which git wrote when the user cloned it, or a folder below
    that.
    """
    FILE = "file"
    """`.confide.toml`, which comes with the repository."""
    FOLDER = "folder"
    """The folder's own name, which the author of an archive may have chosen."""


class Claim(NamedTuple):
    """The project name that a folder claims, its working folder, and whether it is in a git
    repository.

    Attributes:
        home: the folder to which the name belongs: for a worktree, the repository.
    """

    name: str
    root: Path
    is_git: bool
    basis: Basis
    home: Path

    @property
    def is_project(self) -> bool:
        """Return True if the folder can be a project: it is neither the root of the disk, nor a
        home folder without memory or `.confide.toml`.
        """
        if self.basis is not Basis.FOLDER:
            return True
        if self.root == Path(self.root.anchor):
            return False
        return self.root != _home() or any((self.root / own).exists() for own in _OWN)

    def grant(self) -> Project:
        """Return the project under the name that the folder claims."""
        return Project(self.name, self.root, self.is_git)

    def separate_project(self, name: str) -> Project:
        """Return a separate project of the folder, under this other name."""
        return Project(name, self.root, self.is_git, self.name)


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except (OSError, RuntimeError):  # the system does not know this user
        return None


def global_project(global_folder: Path) -> Project:
    """Return the global project, for sessions outside of any other project."""
    return Project(GLOBAL_PROJECT, global_folder.absolute(), is_git=False)


def identify(folder: Path) -> Claim:
    """Return the project name that `folder` claims. Never fails: the last resort is the folder's
    own name.

    Inside a repository, the project is the repository, in whichever subfolder the agent was
    started; but a subfolder with memory of its own (or a `.confide.toml`) is a project of its own,
    as in a repository of many services.
    """
    here = folder.resolve()
    root = _top(here)
    if root is None:
        named = _named_in_file(here)
        return Claim(_clean(named or here.name), here, False, Basis.FILE if named else Basis.FOLDER, here)
    inner = here.relative_to(root) if here != root and any((here / own).exists() for own in _OWN) else None
    place, below = (here, f"/{inner.as_posix()}") if inner else (root, "")
    is_ours = _is_of(root)
    origin = remote(root) if is_ours else None
    named = _named_in_file(place) if inner or origin is None else None
    if named is not None:
        named = _clean(named)
        # A folder may claim the name of its own repository, or one below it.
        is_below = origin is not None and f"{named}/".startswith(f"{_clean(origin)}/") and _goes_down(named)
        return Claim(named, place, True, Basis.REMOTE if is_below else Basis.FILE, place)
    if origin is not None:
        return Claim(_clean(origin + below), place, True, Basis.REMOTE, place)
    name, home = _repository(root) if is_ours else (root.name, root)
    return Claim(_clean(name + below), place, True, Basis.FOLDER, home / inner if inner else home)


def _goes_down(name: str) -> bool:
    """Return True if a name, read as a path, has no parts such as `..`: `host/ours/../theirs` would
    lead elsewhere.
    """
    return all(part not in ("", ".", "..") for part in name.replace("\\", "/").split("/"))


def remote(root: Path) -> str | None:
    """Return `host/owner/name` of a repository's git remote; None if it has no remote, or only a
    local path.
    """
    found = _remote(root)
    return normalise_remote(found) if found else None


def branch(root: Path) -> str | None:
    """Return the name of the branch that is checked out, or else the commit's short id; None if
    there is neither.
    """
    return _git(root, "symbolic-ref", "--quiet", "--short", "HEAD") or _git(root, "rev-parse", "--short", "HEAD")


def _top(here: Path) -> Path | None:
    """Return the top folder of the repository that contains a folder, if the `.git` there leads to
    that repository.

    A `.git` from an archive may name another folder as its work tree, such as the one above, to get
    at the files there.
    """
    found = (_git(here, "rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir") or "").split("\n")
    if len(found) != 2:  # no repository, or a path with line ends
        return None
    root, kept = (Path(each).resolve() for each in found)
    if root not in (here, *here.parents):
        return None
    # From inside a bare repository, or below a work tree that was named elsewhere, the top has no
    # way to it.
    own = root / ".git"
    return root if (_led_to(own) if own.is_file() else own.resolve()) == kept else None


def _led_to(link: Path) -> Path | None:
    """Return the repository to which a `.git` file leads."""
    try:
        return (link.parent / _path_in(link).removeprefix("gitdir:").strip()).resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def _path_in(file: Path) -> str:
    """Return the path in one of git's files. Raises OSError."""
    return plain_file(file, _MOST_LINK_BYTES)[0].decode("utf-8", "surrogateescape").strip()


def _is_of(root: Path) -> bool:
    """Return True if the repository that git finds for `root` lists it.

    An archive may contain a `.git` symlink or file that leads to a repository on this device, whose
    path its author has guessed.
    """
    link = root / ".git"
    if link.is_symlink():
        return False
    if not link.is_file():
        return (
            link.is_dir()
        )  # otherwise a parent folder looks like a bare repository, and names this one as its work tree
    kept = _led_to(link)
    if kept is None:
        return False
    try:
        if (kept / "commondir").is_file():  # a worktree: its repository must list it
            return (kept / _path_in(kept / "gitdir")).resolve() == link.resolve()
    except (OSError, ValueError, RuntimeError):
        return False
    return kept.name != ".git"  # a `.git` folder is the repository of the folder that contains it


def _repository(root: Path) -> tuple[str, Path]:
    """Return the name of a repository without a remote, and its folder: worktrees share both."""
    kept = (_git(root, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir") or "").splitlines()
    if len(kept) != 2:
        return root.name, root
    own, common = (Path(each) for each in kept)
    # The folder that contains it names all worktrees.
    home = common.parent if common.name.startswith(".") else common
    return home.name.removesuffix(".git") or root.name, root if own == common else home


def _remote(root: Path) -> str | None:
    """Return the URL of `origin`, or of the only remote if that has another name."""
    listed = _git(root, "config", "--get-regexp", r"^remote\..+\.url$") or ""
    urls: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, address = line.partition(" ")
        urls.setdefault(key.removeprefix("remote.").removesuffix(".url"), address)
    remote = "origin" if "origin" in urls or len(urls) != 1 else next(iter(urls))
    url = urls.get(remote)
    if url is None or _WHOLE_REMOTE.match(url):
        # The address from which it was cloned: a mirror to which it leads on this device is the
        # same project.
        return url
    return _git(root, "remote", "get-url", "--", remote) or url


def normalise_remote(remote: str) -> str | None:
    """Return `host/owner/name` from the address of a git remote, without user, password, port,
    scheme and `.git`; None for a local path.
    """
    match = _URL_REMOTE.match(remote) or _SCP_REMOTE.match(remote)
    if match is None:
        return None
    host, path = match.groups()
    path = re.split(r"[?#]", path, maxsplit=1)[0]  # a token may follow these
    path = "/".join(part for part in path.split("/") if part).removesuffix(".git").rstrip("/")
    return f"{host.lower()}/{path}" if path else None


def _git(folder: Path, *arguments: str) -> str | None:
    # A git hook passes its own repository on by GIT_DIR and others; only the folder counts here.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = _run_git(folder, *arguments, env=env)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    text = os.fsdecode(done.stdout.removesuffix(b"\n"))
    return text if done.returncode == 0 and text else None


def _run_git(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    command = ["git", *WARY, "-C", os.fspath(folder), *arguments]
    return subprocess.run(command, capture_output=True, timeout=_GIT_DEADLINE_S, check=False, env=env)


def git_says(folder: Path, *arguments: str) -> tuple[int, bytes]:
    """Run a git command that reads objects, without fetching missing ones. Return its exit code and
    output; the code is 128 if git does not answer in time.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # The configuration in an archive may name a program of its author for fetching missing objects.
    env |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    try:
        done = _run_git(folder, *arguments, env=env)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 128, b""
    return done.returncode, done.stdout


def is_shared(file: Path) -> bool:
    """Return True if the file is in a git repository that does not ignore it, so that it may be
    committed.
    """
    try:
        return _run_git(file.parent, "check-ignore", "-q", "--", file.name).returncode == 1
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False


def is_tracked(file: Path) -> bool:
    """Return True if git tracks the file."""
    try:
        return _run_git(file.parent, "ls-files", "--error-unmatch", "--", file.name).returncode == 0
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False


def _named_in_file(root: Path) -> str | None:
    name = load_project_file(root).name
    return name if name != GLOBAL_PROJECT else None


def _without_credentials(name: str) -> str:
    """Replace each part of a name that is a credential by a short hash, since the daemon shows
    names to every device.

    A hash keeps two projects apart, and gives the same name on every device; a random value cannot
    be guessed from it. Parts of lower-case letters and digits only stay, such as ids of gists.
    """
    parts = name.split("/")
    if not any(len(part) >= _SHORTEST_TOKEN and any(letter.isdigit() for letter in part) for part in parts):
        return name
    # Imported late: few names have such a part.
    from confide_proxy.sealing.detection.plausibility import is_random
    from confide_proxy.sealing.detection.scanner import scan

    return "/".join(
        _short_hash(part) if scan(part, 0.75) or (is_random(part, _SHORTEST_TOKEN) and not part.islower()) else part
        for part in parts
    )


def _short_hash(part: str) -> str:
    return f"~{hashlib.blake2b(part.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


def _clean(name: str) -> str:
    if not name.isascii():
        import unicodedata  # loads a megabyte of tables, which most names do not need

        name = unicodedata.normalize("NFC", name)
    printable = "".join(c for c in name if c.isprintable())
    name = _without_credentials(printable.strip()).encode("utf-8")[:MAX_NAME_BYTES].decode("utf-8", "ignore").strip()
    # A folder that happens to have this name must not become the global project.
    return f"{GLOBAL_PROJECT}-project" if name == GLOBAL_PROJECT else name or "project"


async def workplace(project: Project, shown: Callable[[str], str] = str) -> dict[str, object]:
    """Return the response to a `workplace` request (PROTOCOL.md 9.4): names, never paths, and no
    credentials of a remote.

    `shown` seals a name for the daemon.
    """
    return {
        "platform": sys.platform,
        "directory": shown(project.root.name),
        "git": await asyncio.to_thread(_git_workplace, project, shown) if project.is_git else None,
        **({"claim": shown(project.claim)} if project.claim else {}),
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _git_workplace(project: Project, shown: Callable[[str], str]) -> dict[str, str | None]:
    found = {"repository": project.root.name, "branch": branch(project.root), "remote": remote(project.root)}
    return {name: shown(value) if value else value for name, value in found.items()}


def _add_line(file: Path, line: bytes) -> bool:
    """Append a line to a file, which need not exist. Return False if the file is too large. Raises
    OSError: it is not a regular file.
    """
    before, mode = b"", 0o644
    with suppress(FileNotFoundError):
        before, status = plain_file(file, _MOST_IGNORE_BYTES + 1)
        mode = stat.S_IMODE(status.st_mode)
    if len(before) > _MOST_IGNORE_BYTES:
        return False
    end = b"\r\n" if b"\r\n" in before else b"\n"
    gap = b"" if not before or before.endswith(b"\n") else end
    # The file is replaced, not changed: it may have a hard link outside the project.
    atomic.write(file, before + gap + line + end, mode=mode)
    return True


def ignore_memory(root: Path) -> Path | None:
    """Make git ignore `memory/` in all worktrees of a repository, unless it does already: memory is
    private by default.

    The line is added to the repository's own `info/exclude`, which is not part of any checkout: one
    in `.gitignore` would be a change in each. Tracked files stay tracked; new ones beside them are
    private too.

    Returns:
        The file with the added line; None if nothing had to be done, or could be.
    """
    try:
        # 1 means "not ignored".
        if _run_git(root, "check-ignore", "-q", f"{MEMORY_FOLDER}/x.md").returncode != 1:
            return None
        here = root.resolve()
        top, common = _top(here), _git(root, "rev-parse", "--path-format=absolute", "--git-common-dir")
        if top is None or common is None or not _is_of(top):
            return None
        info = Path(common).resolve() / "info"
        if info.is_symlink():
            return None
        info.mkdir(exist_ok=True)
        below = (here / MEMORY_FOLDER).relative_to(top).as_posix()
        line = f"/{_GLOB.sub(_ESCAPED, below)}/"
        return info / "exclude" if _add_line(info / "exclude", os.fsencode(line)) else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        log.warning("could not have git leave out %s/: %s", MEMORY_FOLDER, why)
        return None


def leave_out_of_package(root: Path) -> bool:
    """Make npm leave `memory/` out of the project's package, if it is one. npm does not read git's
    `info/exclude`, and publishes all files that no ignore file names.

    Returns:
        True if an ignore file was added.
    """
    folder = root / MEMORY_FOLDER
    try:
        if not (root / "package.json").is_file() or folder.is_symlink():
            return False
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | portable.NO_LINK | portable.CLOSED
        descriptor = os.open(folder / ".npmignore", flags, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        log.warning("could not have npm leave out %s/: %s", MEMORY_FOLDER, error.strerror)
        return False
    with open(descriptor, "wb") as file:
        file.write(b"*\n")
    return True


def has_tracked_memory(root: Path) -> bool:
    """Return True if git tracks memory files already, so that the user may expect it to track new
    ones too.
    """
    try:
        return bool(_run_git(root, "ls-files", "--", MEMORY_FOLDER).stdout.strip())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
