"""Checks of what works on this device, for `confide task runner --check` and before a runner claims
anything.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.errors import ConfideError
from confide_crypto.keys.private_files import check_private_file, make_private_dir
from confide_night.errors import RunnerError, SandboxError
from confide_night.runner import agents
from confide_night.runner.mirrors import apart
from confide_night.runner.sandbox import bubblewrap, disk_use, groups
from confide_night.runner.sandbox.bubblewrap import Box, Sandbox
from confide_night.runner.settings import prices
from confide_night.runner.settings.recipes import Recipe, RunnerSettings
from confide_proxy.errors import LibrariesMissingError

TRIAL_S: Final = 20.0
_LOOKS: Final = (
    "test ! -w / && test ! -w /usr && test -w /tmp && test -w /task || exit 3; "
    "unshare --user true 2> /dev/null && exit 4; "
    "test \"$(cut -d: -f1 -s /proc/net/dev | tr -d ' \\n')\" = lo || exit 5"
)
_MEANS: Final = {
    3: "what should be read-only in a sandbox is not",
    4: "a sandbox can make further namespaces",
    5: "a sandbox has a network",
}
_LIBRARIES: Final = ("cronsim", "httpx2", "starlette", "uvicorn")
_MEMORY: Final = "memory and processes of a run are bounded"


class TrialFinding(NamedTuple):
    """The result of one check. `is_good` is True if the checked part works, False if not, None if
    it works with restrictions.
    """

    name: str
    is_good: bool | None
    text: str
    hint: str = ""


async def sandbox_works(folder: Path) -> SandboxError | None:
    """Try a sandbox, including its listener, in `folder`; return None if it works, else the error."""
    await asyncio.to_thread(make_private_dir, folder)
    place = await asyncio.to_thread(lambda: Path(tempfile.mkdtemp(prefix=".trial-", dir=folder)))
    ours, theirs = socket.socketpair()
    try:
        with ours, theirs:
            box = Box(f"trial-{place.name[7:]}", place, RunnerSettings(place, "").limits, gateway=theirs.fileno())
            async with asyncio.timeout(TRIAL_S), await Sandbox.start(box, ("/bin/sh", "-c", _LOOKS)) as sandbox:
                theirs.close()
                _, said = await sandbox.process.communicate()
                code = sandbox.process.returncode
            ours.setblocking(False)
            _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
        if code in _MEANS:
            return SandboxError(_MEANS[code])
        if code or not ancillary:
            line = said.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"it ended with code {code}"]
            return SandboxError(f"a sandbox does not work here: {line[0]}")
    except (TimeoutError, BlockingIOError):
        return SandboxError("a sandbox does not work here: it hands out no listener")
    except SandboxError as error:
        return error
    finally:
        await asyncio.to_thread(disk_use.remove, place)
    return None


def check_libraries() -> None:
    """Check that the optional libraries of the runner are installed, without loading them. Raises
    LibrariesMissingError.
    """
    if any(importlib.util.find_spec(name) is None for name in _LIBRARIES):
        raise LibrariesMissingError("confide task runner", "runner")


def why_not(recipe: Recipe, settings: RunnerSettings) -> ConfideError | None:
    """Return the reason why a recipe does not work on this device; None if it seems to work. Sends
    no requests.
    """
    try:
        if recipe.kind != "ask":
            if shutil.which("git") is None:
                raise RunnerError("git is not on this device", hint="install git")
            agents.program_of(recipe, settings.model.api)
        if recipe.asks_a_model and not settings.model.key:
            if not settings.model.key_file:
                raise RunnerError("there is no key of a model", hint="key_file in [model] of runner.toml")
            check_private_file(Path(settings.model.key_file).expanduser())
    except ConfideError as error:
        return error
    return None


async def findings(settings: RunnerSettings, folder: Path) -> AsyncIterator[TrialFinding]:
    """Yield the results of all checks that need no daemon."""
    found = bubblewrap.program()
    if found is None:
        hint = "install the package bubblewrap, or confide's extra runner"
        yield TrialFinding("bubblewrap", False, "not installed", hint)
    else:
        yield TrialFinding("bubblewrap", True, str(found))
        error = await sandbox_works(folder)
        if error is None:
            yield TrialFinding("sandbox", True, "namespaces, read-only system, no network, and a listener handed out")
        else:
            hint = error.hint or "are user namespaces allowed here? nothing is claimed without a sandbox"
            yield TrialFinding("sandbox", False, str(error), hint)
    way = await asyncio.to_thread(groups.available)
    if way:
        yield TrialFinding("limits", True, f"{_MEMORY}, by control groups ({way})")
    else:
        hint = "run it as a service of systemd with Delegate=yes: configs/confide-runner.service"
        yield TrialFinding(
            "limits", None, "this device gives no control group: a run is bounded by its time and its disk", hint
        )
    if os.geteuid() == 0:
        hint = "give it a user of its own: docs/tasks.md"
        yield TrialFinding(
            "user", None, "root: files of root that everybody may see are an agent's own in its sandbox", hint
        )
    free = disk_use.free_mib(folder)
    is_enough = free >= settings.limits.free_mib
    yield TrialFinding("disk", is_enough, f"{free:,} MiB free, {settings.limits.free_mib:,} needed")
    yield TrialFinding("prices", True, f"of {prices.price_date()}, {len(settings.prices)} of your own")
    for name, url in settings.repositories.items():
        if apart(url)[1:] != ("", ""):
            hint = "a credential helper of this user's git keeps it; every run that pushes uses it"
            yield TrialFinding(f"repository {name}", None, "its address has a name or password in it", hint)
    for recipe in settings.recipes.values():
        problem = why_not(recipe, settings)
        cost = f", at most ${recipe.max_usd:.2f} of {recipe.model}" if recipe.asks_a_model else ""
        more = ", with an approval" if recipe.approval == "device" else ""
        if problem is None:
            yield TrialFinding(f"recipe {recipe.name}", True, f"{recipe.kind}{cost}{more}")
        else:
            yield TrialFinding(f"recipe {recipe.name}", False, str(problem), problem.hint or "")
    if not settings.recipes:
        yield TrialFinding("recipes", False, "there is none", "confide task runner --init --print shows some")
