"""Repositories on the runner: a bare mirror of each, and beside it the branches that runs have made.

Only bare repositories of our own are ever touched by a git that runs outside of a sandbox. A tree that a task has written is never: its
`.git/config` alone starts programs. What comes out of a sandbox is a bundle, a file of objects, which git checks (fsck) as it takes it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from confide_crypto.keys.private_files import make_private_dir
from confide_night.runner.sandbox.disk_use import remove, used
from confide_night.runner.settings.recipes import RunLimits
from confide_proxy.errors import RepositoryError

BRANCH: Final = "confide/{}"
"""Of a slot's work."""
_LOOK_S: Final = 1.0
_QUICK_S: Final = 60.0
_ENDED_S: Final = 5.0
_MIB: Final = 2**20
_MOST_SAID: Final = 4096
_SETTINGS: Final = (
    *("transfer.fsckObjects=true", "fetch.fsckObjects=true", "receive.fsckObjects=true"),
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false", "fetch.recurseSubmodules=false"),
    *(
        "gc.autoDetach=false",
        "maintenance.autoDetach=false",
        "protocol.ext.allow=never",
        "credential.interactive=false",
    ),
)
_HEADS: Final = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_REMOTE: Final = "confide-runner"
"""What git knows an address by that stands in no file. Not `origin`: a folder above ours may be somebody's repository."""
_DETACHED: Final = "refs/confide/head"
"""Where the commit of a HEAD that is no branch's is kept."""
_INCOMING: Final = "refs/confide/incoming"
_SOURCE: Final = "confide.source"
"""Of the mirror's own settings: which address it is of, as a hash."""
_HEAD: Final = re.compile(r"(?:ref: (?P<branch>refs/heads/\S+)|(?P<commit>[0-9a-f]{40}|[0-9a-f]{64}))\tHEAD")
_SHA256_CHARS: Final = 64
_SEEN: Final = ("objects", "refs", "packed-refs", "HEAD")
"""What a sandbox sees of a mirror. Of its settings it has its own (`config_of`): an address can have a password in it."""
_LENDS: Final = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$CONFIDE_USERNAME" "$CONFIDE_PASSWORD"; }; f'
)
"""A credential helper: a password goes to git over a pipe, and stands in no argument of it or of what it starts."""
_NEVER: Final = ("DISPLAY", "SSH_ASKPASS", "WAYLAND_DISPLAY")
"""By which git or ssh would open a window for a password that nobody is there to type."""


class Mirror:
    """One repository's. Nothing else writes to it while a run uses it."""

    def __init__(self, folder: Path, name: str, url: str, limits: RunLimits) -> None:
        """
        Args:
            folder: where those of all repositories are.
            name, url: as runner.toml has them.
        """
        self.name = name
        self.path = folder / f"{name}.git"
        self.results = folder / f"{name}-results.git"
        """The branches of runs: `git fetch` takes them from there."""
        self._url, self._user, self._password = apart(url)
        self._limits = limits

    @property
    def seen(self) -> dict[str, Path]:
        """What of it a sandbox may see, by its name in there."""
        return {name: self.path / name for name in _SEEN if (self.path / name).exists()}

    async def settings(self) -> str:
        """Git's settings for what a sandbox sees: of its form alone. Raises RepositoryError."""
        form = (await self._git("rev-parse", "--show-object-format", deadline_s=_QUICK_S)).strip()
        plain = "[core]\n\trepositoryformatversion = {}\n\tbare = true\n"
        return plain.format(0) if form == "sha1" else plain.format(1) + f"[extensions]\n\tobjectFormat = {form}\n"

    async def fetch(self) -> str:
        """Have the mirror as the repository is now; the commit of its HEAD.

        Raises RepositoryError: it cannot be had, or is larger or slower than the limits say; it has no commit.
        """
        await asyncio.to_thread(make_private_dir, self.path.parent)
        if self.path.is_dir() and await self._is_of_url():
            await self._take(self.path, await self._head(), "fetch")
        else:
            await self._clone()
        try:
            return (await self._git("rev-parse", "--verify", "HEAD^{commit}", deadline_s=_QUICK_S)).strip()
        except RepositoryError:
            raise RepositoryError(
                f"the repository {self.name} has no commit", hint="is its default branch there?"
            ) from None

    async def keep(self, bundle: Path, slot: str, commit: str | None = None) -> str:
        """Take the branch of a run out of its bundle; its name.

        Args:
            commit: what it has to be at: the commit that was checked, and told of. None: whatever the bundle has.

        Raises RepositoryError: git refuses it, or it is another commit; no branch is made then.
        """
        branch = BRANCH.format(slot)
        if not self.results.is_dir():
            await self._git("init", "--quiet", "--bare", str(self.results), place=None, deadline_s=_QUICK_S)
            shared = self.results / "objects/info/alternates"
            await asyncio.to_thread(shared.write_text, f"{self.path / 'objects'}\n")
        fetched = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(bundle), f"+HEAD:{_INCOMING}")
        await self._git(*fetched, place=self.results, grows=self.results)
        try:
            asked = ("rev-parse", "--verify", f"{_INCOMING}^{{commit}}")
            found = (await self._git(*asked, place=self.results, deadline_s=_QUICK_S)).strip()
            if commit is not None and found != commit:
                raise RepositoryError(f"the work of slot {slot} is not the commit that was checked")
            moved = ("update-ref", f"refs/heads/{branch}", found)
            await self._git(*moved, place=self.results, deadline_s=_QUICK_S)
        finally:
            await self._git("update-ref", "-d", _INCOMING, place=self.results, deadline_s=_QUICK_S)
        return branch

    async def push(self, slot: str, commit: str) -> None:
        """Push that commit to the repository that the mirror is of, as the branch of a run. Raises RepositoryError."""
        ref = f"refs/heads/{BRANCH.format(slot)}"
        await self._git("push", "--quiet", "--no-verify", _REMOTE, f"{commit}:{ref}", place=self.results, goes_out=True)

    async def _is_of_url(self) -> bool:
        with contextlib.suppress(RepositoryError):
            return (await self._git("config", "--get", _SOURCE, deadline_s=_QUICK_S)).strip() == self._source
        return False

    @property
    def _source(self) -> str:
        return hashlib.sha256(self._url.encode()).hexdigest()

    async def _head(self) -> re.Match[str] | None:
        """What the repository says of its HEAD: the branch, or the commit where it is at none."""
        asked = ("ls-remote", "--quiet", "--symref", _REMOTE, "HEAD")
        said = await self._git(*asked, place=None, told="clone", goes_out=True)
        return next((found for line in said.splitlines() if (found := _HEAD.fullmatch(line))), None)

    async def _take(self, place: Path, head: re.Match[str] | None, told: str) -> None:
        """Have all branches and tags in a bare repository of ours, and its HEAD where the other one's is. Raises RepositoryError."""
        detached = (f"+HEAD:{_DETACHED}",) if head is not None and head["commit"] else ()
        fetched = ("fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        await self._git(*fetched, _REMOTE, *_HEADS, *detached, place=place, grows=place, told=told, goes_out=True)
        if head is None:
            return  # the old one stays
        if head["branch"]:
            await self._git("symbolic-ref", "HEAD", head["branch"], place=place, deadline_s=_QUICK_S)
        else:
            await self._git("update-ref", "--no-deref", "HEAD", head["commit"], place=place, deadline_s=_QUICK_S)

    async def _clone(self) -> None:
        part = self.path.with_name(f".{self.path.name}.part")
        await asyncio.to_thread(remove, part)
        head = await self._head()
        is_long = head is not None and len(head["commit"] or "") == _SHA256_CHARS
        form = "sha256" if is_long else "sha1"
        try:
            # Not `git clone`: it writes the address down, and links a repository of this disk into ours, unchecked.
            made = ("init", "--quiet", "--bare", "--template=", f"--object-format={form}", str(part))
            await self._git(*made, place=None, deadline_s=_QUICK_S)
            await self._take(part, head, "clone")
            await self._git("config", _SOURCE, self._source, place=part, deadline_s=_QUICK_S)
            await asyncio.to_thread(remove, self.path)
            await asyncio.to_thread(part.rename, self.path)
        finally:
            await asyncio.to_thread(remove, part)

    async def _git(
        self,
        *words: str,
        place: Path | None = Path(),
        deadline_s: float | None = None,
        grows: Path | None = None,
        told: str = "",
        goes_out: bool = False,
    ) -> str:
        """Run git with this user's own settings and keys, on a repository of ours (the mirror, if none is named); what it prints.

        Of `grows`, the folder that it fetches into, the size is looked at meanwhile and at the end. `told`: the word for it in an error.
        With `goes_out` it knows the repository's address, by the name `_REMOTE`.

        Raises RepositoryError: it fails, takes too long, or writes too much.
        """
        where = self.path if place == Path() else place
        settings = [each for setting in _SETTINGS for each in ("-c", setting)]
        chosen = [f"--git-dir={where}"] if where is not None else []
        process = await asyncio.create_subprocess_exec(
            "git",
            *settings,
            *chosen,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.path.parent,
            env={**_environment(os.environ), **(self._origin() if goes_out else {})},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(deadline_s or self._limits.clone_s):
                watching = asyncio.create_task(self._watch(grows, process)) if grows is not None else None
                try:
                    out, err = await process.communicate()
                finally:
                    if watching is not None:
                        watching.cancel()
        except TimeoutError:
            raise RepositoryError(f"git takes too long with the repository {self.name}") from None
        finally:
            _kill(process)
            # Also where this is cancelled: nothing of it lives on return.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENDED_S):
                    await process.communicate()
        if grows is not None and await self._is_too_large(grows):
            problem = f"the repository {self.name} is larger than {self._limits.clone_mib:,} MiB"
            raise RepositoryError(problem, hint="clone_mib in [limits] of runner.toml is the limit")
        if process.returncode:
            # Its first line alone, which says what failed; an address in it may have a password.
            said = err[:_MOST_SAID].decode("utf-8", "replace").strip().splitlines()
            line = next((each for each in said if each.startswith(("fatal:", "error:"))), "git failed")
            shown = line.replace(self._url, self.name)
            raise RepositoryError(f"git cannot {told or words[0]} the repository {self.name}: {shown[:200]}")
        return out[:_MOST_SAID].decode("utf-8", "replace")

    def _origin(self) -> dict[str, str]:
        """Variables that tell git the address, and a password in it, which stand in no file and no list of processes then."""
        settings = {f"remote.{_REMOTE}.url": [self._url]}
        variables = {}
        if self._password:
            # Of the user's own helpers none is asked: the address says what it takes.
            settings["credential.helper"] = ["", _LENDS]
            variables = {"CONFIDE_USERNAME": self._user, "CONFIDE_PASSWORD": self._password}
        elif self._user:
            settings["credential.username"] = [self._user]
        pairs = [(name, value) for name, values in settings.items() for value in values]
        variables["GIT_CONFIG_COUNT"] = str(len(pairs))
        for number, (name, value) in enumerate(pairs):
            variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

    async def _watch(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        """End it once the folder has grown too large."""
        while True:
            if await self._is_too_large(folder):
                return _kill(process)
            await asyncio.sleep(_LOOK_S)

    async def _is_too_large(self, folder: Path) -> bool:
        return (await asyncio.to_thread(used, folder)).size_bytes > self._limits.clone_mib * _MIB


def apart(url: str) -> tuple[str, str, str]:
    """An address without the name and password of a user that stand in it, and these; "" where there are none."""
    parts = urlsplit(url) if url.startswith(("https://", "http://")) else None
    if parts is None or "@" not in parts.netloc:
        return url, "", ""
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(name), unquote(password)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """This user's, so that their keys and credentials work, without what would say which repository is meant, or ask somebody."""
    kept = {name: value for name, value in own.items() if name not in _NEVER and not _is_of_git(name)}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "LC_ALL": "C"}


def _is_of_git(name: str) -> bool:
    return name.startswith("GIT_") and name not in ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_CONFIG_GLOBAL", "GIT_SSL_CAINFO")


def _kill(process: asyncio.subprocess.Process) -> None:
    """With what it has started: ssh, git-remote-https."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
