"""Repositories of the runner: a bare mirror of each, and a second bare repository with the branches
of runs.

Outside of a sandbox, git only works on these bare repositories, never on a tree that a run has
written: its `.git/config` alone can start programs. A sandbox returns its work as a bundle, a file
of objects, which git verifies (fsck) when it reads it.
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
from confide_night.errors import RepositoryError
from confide_night.runner.sandbox.disk_use import measure, remove
from confide_night.runner.settings.recipes import RunLimits

BRANCH: Final = "confide/{}"
"""Name of a slot's branch."""
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
"""Name of the remote, which is in no file. Not `origin`: a folder above ours may be a repository of
the user.
"""
_DETACHED: Final = "refs/confide/head"
"""Ref that keeps the commit of a HEAD without a branch."""
_INCOMING: Final = "refs/confide/incoming"
_SOURCE: Final = "confide.source"
"""Setting of the mirror with the hash of its repository's address."""
_HEAD: Final = re.compile(r"(?:ref: (?P<branch>refs/heads/\S+)|(?P<commit>[0-9a-f]{40}|[0-9a-f]{64}))\tHEAD")
_SHA256_CHARS: Final = 64
_SEEN: Final = ("objects", "refs", "packed-refs", "HEAD")
"""Parts of a mirror that a sandbox sees. It gets its own settings (`Mirror.settings`), since an
address can contain a password.
"""
_LENDS: Final = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$CONFIDE_USERNAME" "$CONFIDE_PASSWORD"; }; f'
)
"""A credential helper: git gets the password over a pipe, so it is in no argument of git or of its
child processes.
"""
_NEVER: Final = ("DISPLAY", "SSH_ASKPASS", "WAYLAND_DISPLAY")
"""Variables by which git or ssh would open a window to request a password, which no user could
answer.
"""


class Mirror:
    """The mirror of one repository. Only one run at a time uses it."""

    def __init__(self, folder: Path, name: str, url: str, limits: RunLimits) -> None:
        """Args:
        folder: parent folder of all mirrors.
        name, url: from runner.toml.
        """
        self.name = name
        self.path = folder / f"{name}.git"
        self.results = folder / f"{name}-results.git"
        """The repository with the branches of runs; users fetch from it."""
        self._url, self._user, self._password = apart(url)
        self._limits = limits

    @property
    def visible_paths(self) -> dict[str, Path]:
        """Return the paths of the mirror that a sandbox may see, by their names in the sandbox."""
        return {name: self.path / name for name in _SEEN if (self.path / name).exists()}

    async def settings(self) -> str:
        """Return the git settings for the sandbox, which only state the repository's format. Raises
        RepositoryError.
        """
        form = (await self._git("rev-parse", "--show-object-format", deadline_s=_QUICK_S)).strip()
        plain = "[core]\n\trepositoryformatversion = {}\n\tbare = true\n"
        return plain.format(0) if form == "sha1" else plain.format(1) + f"[extensions]\n\tobjectFormat = {form}\n"

    async def fetch(self) -> str:
        """Update the mirror from its repository; return the commit of its HEAD.

        Raises RepositoryError if the repository is unreachable, has no commit, or exceeds the
        limits of size or time.
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
        """Import the branch of a run from its bundle; return the branch's name.

        Args:
            commit: the commit that was checked and reported, which the bundle must contain; None
                accepts any.

        Raises RepositoryError if git refuses the bundle or it has another commit; no branch is
        created then.
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
        """Push the commit to the original repository, as the branch of a run. Raises
        RepositoryError if git refuses.
        """
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
        """Request the HEAD of the original repository: its branch, or its commit if it is detached."""
        asked = ("ls-remote", "--quiet", "--symref", _REMOTE, "HEAD")
        said = await self._git(*asked, place=None, told="clone", goes_out=True)
        return next((found for line in said.splitlines() if (found := _HEAD.fullmatch(line))), None)

    async def _take(self, place: Path, head: re.Match[str] | None, told: str) -> None:
        """Fetch all branches and tags into a bare repository, and set its HEAD as in the original.
        Raises RepositoryError.
        """
        detached = (f"+HEAD:{_DETACHED}",) if head is not None and head["commit"] else ()
        fetched = ("fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        await self._git(*fetched, _REMOTE, *_HEADS, *detached, place=place, grows=place, told=told, goes_out=True)
        if head is None:
            return  # the old HEAD stays
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
            # Not `git clone`: it stores the address, and links the objects of a local repository
            # without checking them.
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
        """Run git with the user's own settings and keys on a bare repository (by default the
        mirror); return its output.

        Args:
            grows: the folder that git fetches into; its size is checked during the command and at
                the end.
            told: verb for error messages; by default the git command.
            goes_out: pass the repository's address, as the remote `_REMOTE`.

        Raises RepositoryError if git fails, takes too long, or writes too much.
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
        out, err = await self._output(process, deadline_s or self._limits.clone_s, grows)
        if grows is not None and await self._is_too_large(grows):
            problem = f"the repository {self.name} is larger than {self._limits.clone_mib:,} MiB"
            raise RepositoryError(problem, hint="clone_mib in [limits] of runner.toml is the limit")
        if process.returncode:
            # Show only the line with the error, without the address, which may contain a password.
            said = err[:_MOST_SAID].decode("utf-8", "replace").strip().splitlines()
            line = next((each for each in said if each.startswith(("fatal:", "error:"))), "git failed")
            shown = line.replace(self._url, self.name)
            raise RepositoryError(f"git cannot {told or words[0]} the repository {self.name}: {shown[:200]}")
        return out[:_MOST_SAID].decode("utf-8", "replace")

    async def _output(
        self, process: asyncio.subprocess.Process, deadline_s: float, grows: Path | None
    ) -> tuple[bytes, bytes]:
        """Return what git wrote to its output and as errors. It has ended, or is killed, after that.

        Raises RepositoryError: git takes longer than `deadline_s`.
        """
        try:
            async with asyncio.timeout(deadline_s):
                watching = asyncio.create_task(self._watch(grows, process)) if grows is not None else None
                try:
                    return await process.communicate()
                finally:
                    if watching is not None:
                        watching.cancel()
        except TimeoutError:
            raise RepositoryError(f"git takes too long with the repository {self.name}") from None
        finally:
            _kill(process)
            # No process may be left, even after a cancellation.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENDED_S):
                    await process.communicate()

    def _origin(self) -> dict[str, str]:
        """Return variables that pass the address and its password to git, so that they appear in no
        file and no list of processes.
        """
        settings = {f"remote.{_REMOTE}.url": [self._url]}
        variables = {}
        if self._password:
            # The address has a password, so the empty entry disables the user's own credential
            # helpers.
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
        """Kill the process if the folder grows too large."""
        while True:
            if await self._is_too_large(folder):
                return _kill(process)
            await asyncio.sleep(_LOOK_S)

    async def _is_too_large(self, folder: Path) -> bool:
        return (await asyncio.to_thread(measure, folder)).size_bytes > self._limits.clone_mib * _MIB


def apart(url: str) -> tuple[str, str, str]:
    """Split a URL into the URL without credentials, the user name and the password; "" for each
    missing part.
    """
    parts = urlsplit(url) if url.startswith(("https://", "http://")) else None
    if parts is None or "@" not in parts.netloc:
        return url, "", ""
    user, _, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(name), unquote(password)


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment, so that their keys and credentials work, without variables
    that select a repository or prompt for input.
    """
    kept = {name: value for name, value in own.items() if name not in _NEVER and not _is_of_git(name)}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "LC_ALL": "C"}


def _is_of_git(name: str) -> bool:
    return name.startswith("GIT_") and name not in ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_CONFIG_GLOBAL", "GIT_SSL_CAINFO")


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process with its children (ssh, git-remote-https)."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
