"""Repositories on the runner: a bare mirror of each, and beside it the branches that runs have made.

Only bare repositories of our own are ever touched by a git that runs outside of a sandbox. A tree that a task has written is never: its
`.git/config` alone starts programs. What comes out of a sandbox is a bundle, a file of objects, which git checks (fsck) as it takes it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confide_crypto.keys.files import make_private_dir
from confide_proxy.errors import RepositoryError
from confide_proxy.runner.sandbox.disk import remove, used
from confide_proxy.runner.settings.recipes import Limits

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
_NEVER: Final = ("DISPLAY", "SSH_ASKPASS", "WAYLAND_DISPLAY")
"""By which git or ssh would open a window for a password that nobody is there to type."""


class Mirror:
    """One repository's. Nothing else writes to it while a run uses it."""

    def __init__(self, folder: Path, name: str, url: str, limits: Limits) -> None:
        """
        Args:
            folder: where those of all repositories are.
            name, url: as runner.toml has them.
        """
        self.name = name
        self.path = folder / f"{name}.git"
        self.results = folder / f"{name}-results.git"
        """The branches of runs: `git fetch` takes them from there."""
        self._url = url
        self._limits = limits

    async def fetch(self) -> str:
        """Have the mirror as the repository is now; the commit of its HEAD.

        Raises RepositoryError: it cannot be had, or is larger or slower than the limits say; it has no commit.
        """
        await asyncio.to_thread(make_private_dir, self.path.parent)
        if self.path.is_dir() and await self._is_of_url():
            await self._git("fetch", "--quiet", "--prune", "--no-write-fetch-head", "origin", *_HEADS, grows=self.path)
            with contextlib.suppress(RepositoryError):  # without a HEAD on the other side the old one stays
                await self._git("remote", "set-head", "origin", "--auto", deadline_s=_QUICK_S)
        else:
            await self._clone()
        try:
            return (await self._git("rev-parse", "--verify", "HEAD^{commit}", deadline_s=_QUICK_S)).strip()
        except RepositoryError:
            raise RepositoryError(
                f"the repository {self.name} has no commit", hint="is its default branch there?"
            ) from None

    async def keep(self, bundle: Path, slot: str) -> str:
        """Take the branch of a run out of its bundle; its name. Raises RepositoryError: git refuses it."""
        branch = BRANCH.format(slot)
        if not self.results.is_dir():
            await self._git("init", "--quiet", "--bare", str(self.results), place=None, deadline_s=_QUICK_S)
            shared = self.results / "objects/info/alternates"
            await asyncio.to_thread(shared.write_text, f"{self.path / 'objects'}\n")
        fetched = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(bundle), f"+HEAD:refs/heads/{branch}")
        await self._git(*fetched, place=self.results, grows=self.results)
        return branch

    async def push(self, slot: str) -> None:
        """Push the branch of a run to the repository that the mirror is of. Raises RepositoryError."""
        ref = f"refs/heads/{BRANCH.format(slot)}"
        await self._git("push", "--quiet", "--no-verify", self._url, f"{ref}:{ref}", place=self.results)

    async def _is_of_url(self) -> bool:
        with contextlib.suppress(RepositoryError):
            return (await self._git("config", "--get", "remote.origin.url", deadline_s=_QUICK_S)).strip() == self._url
        return False

    async def _clone(self) -> None:
        part = self.path.with_name(f".{self.path.name}.part")
        await asyncio.to_thread(remove, part)
        try:
            # Without --no-local a repository on this disk would be linked into ours, unchecked.
            cloned = (
                "clone",
                "--quiet",
                "--mirror",
                "--no-local",
                "--no-recurse-submodules",
                "--",
                self._url,
                str(part),
            )
            await self._git(*cloned, place=None, grows=part)
            await asyncio.to_thread(remove, self.path)
            await asyncio.to_thread(part.rename, self.path)
        finally:
            await asyncio.to_thread(remove, part)

    async def _git(
        self, *words: str, place: Path | None = Path(), deadline_s: float | None = None, grows: Path | None = None
    ) -> str:
        """Run git with this user's own settings and keys, on a repository of ours (the mirror, if none is named); what it prints.

        Of `grows`, the folder that it fetches into, the size is looked at meanwhile and at the end.

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
            env=_environment(os.environ),
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
                await asyncio.wait_for(process.communicate(), _ENDED_S)
        if grows is not None and await self._is_too_large(grows):
            problem = f"the repository {self.name} is larger than {self._limits.clone_mib:,} MiB"
            raise RepositoryError(problem, hint="clone_mib in [limits] of runner.toml is the limit")
        if process.returncode:
            # Its first line alone, which says what failed; an address in it may have a password.
            said = err[:_MOST_SAID].decode("utf-8", "replace").strip().splitlines()
            line = next((each for each in said if each.startswith(("fatal:", "error:"))), "git failed")
            shown = line.replace(self._url, self.name)
            raise RepositoryError(f"git cannot {words[0]} the repository {self.name}: {shown[:200]}")
        return out[:_MOST_SAID].decode("utf-8", "replace")

    async def _watch(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        """End it once the folder has grown too large."""
        while True:
            if await self._is_too_large(folder):
                return _kill(process)
            await asyncio.sleep(_LOOK_S)

    async def _is_too_large(self, folder: Path) -> bool:
        return (await asyncio.to_thread(used, folder)).size_bytes > self._limits.clone_mib * _MIB


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
