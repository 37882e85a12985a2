"""`confide panel`: open the panel in a browser with a link that works once
(docs/panel.md).
"""

from __future__ import annotations

import html
import os
import signal
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote, urlencode

import typer

from confide_crypto import portable
from confide_crypto.errors import ConfideError
from confide_crypto.keys.private_files import make_private_dir, write_private_file
from confide_http.errors import GatewayError
from confide_http.local.running_gateway import RunningGateway, running
from confide_memory.documents import GLOBAL_PROJECT, to_nfc
from confide_memory.note_names import is_id
from confide_panel.links import GOOD_S, Links
from confide_proxy.cli.completion import memory_paths
from confide_proxy.cli.console import (
    CommandContext,
    IsGlobal,
    Output,
    ProjectDir,
    command,
    folder_of,
    project_of,
    remark,
    say,
)
from confide_proxy.cli.typed_paths import to_project_path
from confide_proxy.errors import LibrariesMissingError
from confide_proxy.paths import ProxyPaths
from confide_proxy.run import shown_values

START_S: Final = 20.0
"""Seconds in which `confide http serve` must have begun; it may have to ask a daemon for the
project of a folder.
"""
STOP_S: Final = 10.0
LOOK_S: Final = 0.05
LOG: Final = "serve.log"
IDLE_EXIT_S: Final = 12 * 3600
"""Seconds without a request after which a gateway that was started for the panel ends, as a browser
session does.
"""
MOST_LOG_BYTES: Final = 8_192
FOLDER: Final = "links"


@command
async def panel(
    here: CommandContext,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH|ID]",
            help="A file or a note, as confide ls or a search shows it.",
            autocompletion=memory_paths,
            show_default=False,
        ),
    ] = None,
    is_global: IsGlobal = False,
    is_printed: Annotated[
        bool, typer.Option("--print", help="Only print the link.", show_default="open it, where there is a screen")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the server of the panel.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Start the panel unless it runs, and open a link that lets one browser in."""
    if stop:
        return _stop(here.paths)
    target = ""
    is_path = name is not None and ("/" in name or name.endswith(".md"))
    if name is not None and not is_path and not is_id(name):
        known = "name a file or a note, as confide ls shows it; to stop the panel: --stop"
        raise typer.BadParameter(f"'{name[:40]}' is neither: {known}", param_hint="PATH|ID")
    if name is not None and is_path:
        this = await project_of(here, project)
        named = {
            "project": GLOBAL_PROJECT if is_global else this.name,
            "path": to_nfc(to_project_path(here, project, name)).removeprefix("./"),
        }
        target = f"file?{urlencode(named)}"
    elif name is not None:
        target = f"note/{quote(name, safe='')}"
    return _open_link(here, folder_of(project), target, is_printed=is_printed)


def _open_link(here: CommandContext, folder: Path, target: str, *, is_printed: bool) -> Output:
    is_of_agent = shown_values.is_of_agent(os.environ)
    if is_printed or not _has_screen():
        # Who has the link can show secrets, and say yes to their use.
        shown_values.refuse_in_agent_shell(os.environ, "print a link to the panel, which shows secrets")
    found = running(here.paths)
    is_started = found is None
    found = found or _start(here, folder)
    address = f"http://127.0.0.1:{found.port}/panel/in/{Links(here.paths.gateway / FOLDER).make(target)}"
    is_shown = not is_printed and (sys.stdout.isatty() or is_of_agent) and _has_screen()
    if is_shown:
        _show(here.paths, address)

    def print_text() -> None:
        say("the panel opens in your browser" if is_of_agent else address)
        remark(
            f"the link works once, within {GOOD_S:.0f} seconds" + (", and opens in your browser" if is_shown else "")
        )
        if is_started:
            remark("the panel's server runs from now on; confide panel --stop ends it, and so do 12 hours without use")

    shown = {} if is_of_agent else {"url": address}
    return Output({**shown, "port": found.port, "pid": found.pid, "started": is_started}, print_text)


def _start(here: CommandContext, folder: Path) -> RunningGateway:
    """Start a gateway in a process session of its own, so that it outlives this terminal. Raises
    GatewayError or LibrariesMissingError if it does not begin.
    """
    make_private_dir(here.paths.gateway)
    log = here.paths.gateway / LOG
    asked = [sys.executable, "-m", "confide_proxy", "--config", str(here.paths.config)][
        : 5 if here.paths.config.exists() else 3
    ]
    asked += ["http", "serve", "--project", str(folder), "--any-port", "--idle-exit", str(IDLE_EXIT_S)]
    with open(
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | portable.NO_LINK | portable.CLOSED, 0o600), "wb"
    ) as told:
        process = subprocess.Popen(
            asked, stdin=subprocess.DEVNULL, stdout=told, stderr=told, start_new_session=True, cwd=folder
        )
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if (found := running(here.paths)) is not None:
            return found
        if process.poll() is not None:
            raise _failure(log)
        time.sleep(LOOK_S)
    process.terminate()
    raise GatewayError(
        "the panel's server did not start in time", hint="start it by hand to see why: confide http serve"
    )


def _failure(log: Path) -> ConfideError:
    """Return the last error of `confide http serve` from its log."""
    lines = log.read_bytes()[-MOST_LOG_BYTES:].decode("utf-8", "replace").strip().splitlines()
    said = next((line for line in reversed(lines) if line.startswith("confide: ")), "")
    hint = next((line.removeprefix("hint: ") for line in reversed(lines) if line.startswith("hint: ")), None)
    if "libraries that are not installed" in said:
        return LibrariesMissingError("confide http serve", "gateway")
    why = said.removeprefix("confide: ") or "it ended at once"
    return GatewayError(f"the panel's server did not start: {why}", hint=hint or "start it by hand: confide http serve")


def _stop(paths: ProxyPaths) -> Output:
    found = running(paths)
    if found is None:
        return Output({"stopped": False}, "the panel does not run")
    os.kill(found.pid, signal.SIGTERM)
    end = time.monotonic() + STOP_S
    while running(paths) is not None:
        if time.monotonic() > end:
            raise GatewayError("the panel's server has not ended yet", hint=f"kill {found.pid}")
        time.sleep(LOOK_S)
    return Output({"stopped": True}, "the panel's server has ended, and with it all sessions in browsers")


def _has_screen() -> bool:
    """Return True if a browser with windows can open: one in this terminal would take it over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show(paths: ProxyPaths, address: str) -> None:
    """Open the link through a file that only this user can read: all users of this machine can see
    the arguments of a process.
    """
    file = paths.gateway / "panel.html"
    leads = f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">'
    page = f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Confide</title>{leads}'
    write_private_file(file, page.encode(), replace=True)
    webbrowser.open(file.as_uri())
