"""The seam of the daemon: what add-ons bring is found where they are installed, and a copy without them is the core."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import ClassVar

import pytest
import typer.main
from tests.support.daemon import loopback, parts
from tests.support.programs.commands import inner_commands
from tests.support.programs.processes import Daemon

from confide_crypto.errors import EXIT_CONFIG, EXIT_UNREACHABLE, RequestError
from confide_daemon import addons
from confide_daemon.cli import app as commands
from confide_daemon.config import DaemonConfig
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.entry_points import ADDONS
from confide_daemon.server.mcp import prompts, tool_calls
from confide_daemon.server.server import REGISTRY_POLL_S
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space
from confide_daemon.store import logs
from confide_daemon.tools import search, store
from confide_daemon.tools.tool_context import Prompt, Tool

DEADLINE_S = 30.0
ROOT = Path(__file__).parents[2]
SECRET = "what was stored"
WITHOUT = "import sys; sys.path[:] = [path for path in sys.path if not path.rstrip('/').endswith('/addons')]\n"


@pytest.mark.addons
def test_all_that_are_here_are_found() -> None:
    files = (ROOT / "addons").glob("*/**/*addon.py")
    folders = [path for path in files if {"daemon", "server"} & {*path.parts} or path.name == "daemon_addon.py"]
    assert len(addons.installed()) == len(folders)
    assert all(type(each).__module__.startswith("confide_") for each in addons.installed())


@pytest.mark.addons
@pytest.mark.parametrize("group", [ADDONS, commands.GROUP, logs.GROUP])
def test_what_an_entry_point_names_is_there(group: str) -> None:
    found = entry_points(group=group)
    assert len(found) > 0
    for entry in found:
        assert entry.load()


def run(script: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_copy_without_their_folders_is_the_core(tmp_path: Path) -> None:
    """Nothing else has to be changed for it."""
    script = WITHOUT + (
        "import importlib, pkgutil, confide_daemon\n"
        "for module in pkgutil.walk_packages(confide_daemon.__path__, 'confide_daemon.'):\n"
        "    module.name.endswith(('__main__', 'gguf', 'fastembed')) or importlib.import_module(module.name)\n"
        "from confide_daemon.addons import installed\n"
        "assert installed() == ()\n"
        "from confide_daemon.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
    )
    shown = {
        line.split()[0] for line in run(script, tmp_path).splitlines() if line.startswith("  ") and line[2].isalpha()
    }
    core = {entry.name for entries in commands.COMMANDS.values() for entry in entries if not entry.is_hidden}
    assert core <= shown
    assert not {"backup", "restore", "store", "http"} & shown


def test_its_catalogue_has_the_tools_of_the_core(tmp_path: Path) -> None:
    script = WITHOUT + "from confide_daemon.server.mcp.tool_calls import toolsets; print(*toolsets())"
    assert run(script, tmp_path).split() == ["core", "notes", "entities"]


@pytest.mark.parametrize("table", ["store", "gateway", "backup", "node", "tasks"])
def test_a_table_of_an_add_on_that_is_gone_is_refused_with_a_reason(tmp_path: Path, table: str) -> None:
    """Taken in silence, nothing would come of what its operator relies on."""
    (tmp_path / "daemon.toml").write_text(f"[{table}]\n")
    (tmp_path / "daemon.toml").chmod(0o600)
    script = WITHOUT + (
        "from pathlib import Path\n"
        "from confide_crypto.errors import ConfideError\n"
        "from confide_daemon.config import load\n"
        "try:\n    load(Path('daemon.toml'))\nexcept ConfideError as error:\n    print(error, error.hint)"
    )
    said = run(script, tmp_path)
    assert f"unknown option '{table}'" in said
    assert "no add-on that is installed reads such a table" in said


@pytest.mark.addons
def test_all_commands_stand_where_people_look_for_them() -> None:
    names = list(inner_commands(typer.main.get_command(commands.app)))
    data = names[names.index("doctor") :]
    assert data[:5] == ["doctor", "restore", "upgrade", "backup", "store"]
    assert names[names.index("device") + 1] == "http"


def test_one_that_cannot_be_loaded_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    """What it guards, such as a space that has moved away, would be unguarded."""
    folder = tmp_path / "outside"
    told = folder / "toy-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[{ADDONS}]\ntoy = toy:Toy\n")
    (folder / "toy.py").write_text("raise ValueError('out of order')")
    daemon = Daemon(tmp_path)
    daemon.env["PYTHONPATH"] = str(folder)
    said = daemon.run("serve", "--listen", "127.0.0.1:0", code=EXIT_CONFIG)
    assert "confided: the add-on toy cannot be loaded: ValueError: out of order" in said
    assert "hint: install it again, or remove it" in said
    assert "is not running" in daemon.run("status", code=EXIT_UNREACHABLE)


class Greedy(addons.Addon):
    """It has names that are the core's, and breaks wherever it is asked for something that lasts."""

    toolsets: ClassVar = {"core": (), "greedy": (Tool(store.DEFINITION, search.call),)}
    prompts = (Prompt({"name": "recall", "arguments": []}, prompts._remember),)

    def session(self, session: addons.SessionHost) -> list[addons.SessionPart]:
        return [Breaking()]

    def space(self, space: Space, config: DaemonConfig) -> list[SpacePart]:
        return [Closing()]

    def service(self, daemon: addons.DaemonHost) -> addons.Service:
        return Ailing()


class Breaking(addons.SessionPart):
    early: ClassVar = {"roster": None}
    operations: ClassVar = {"put": None}

    async def run(self) -> None:
        raise ValueError(SECRET)


class Ailing(addons.Service):
    """It breaks whatever it is told, and whatever it is asked."""

    @property
    def is_busy(self) -> bool:
        raise ValueError(SECRET)

    @property
    def is_backed_up(self) -> bool | None:
        raise ValueError(SECRET)

    def health_problems(self) -> set[str]:
        raise ValueError(SECRET)

    def on_change(self, space_id: str, change: DocumentChange) -> None:
        raise ValueError(SECRET)

    def on_space_lost(self, space_id: str) -> None:
        raise ValueError(SECRET)


class Closing(SpacePart):
    async def close(self) -> None:
        raise ValueError(SECRET)


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The one add-on that there is, until the test ends."""
    found = (Greedy(),)
    for module in (tool_calls, prompts, loopback, parts):
        monkeypatch.setattr(module, "installed", lambda: found)
    cached = (
        tool_calls.toolsets,
        tool_calls.changing,
        tool_calls._tools,
        tool_calls._definitions,
        tool_calls._digest,
        prompts.prompts,
    )
    for each in cached:
        each.cache_clear()
    yield
    for each in cached:
        each.cache_clear()


@pytest.mark.usefixtures("greedy")
def test_no_name_is_taken_from_the_core() -> None:
    assert tool_calls.toolsets()["core"] == tool_calls.CORE["core"]
    (found,) = [tool for tool in tool_calls.tools(("all",)) if tool.definition.name == "memory_store"]
    assert found.call is store.call
    assert prompts.prompts()["recall"] is prompts.CORE[1]


@pytest.mark.usefixtures("greedy")
async def test_one_that_breaks_ends_neither_a_session_nor_a_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the core answers itself it still does; the log says where it broke, and nothing of its text."""
    async with loopback.serving(tmp_path / "data") as daemon, loopback.machine(daemon) as laptop:
        await laptop.attach("proj")
        await laptop.put("memory/a.md", "# One\n")
        with pytest.raises(RequestError, match="not attached"):
            await laptop.put("memory/a.md", "# One\n", project="elsewhere")
        assert (await laptop.request("roster", {"from": 0}))["entries"] == []
    assert "a part of the session broke: ValueError" in caplog.text
    assert "closing a part of a space broke: ValueError" in caplog.text
    assert SECRET not in caplog.text
    assert "did not close" not in caplog.text


@pytest.mark.usefixtures("greedy")
async def test_a_service_that_breaks_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The daemon answers and ends as it would without it; its operator is told, and of each fault once."""
    async with loopback.serving(tmp_path / "data") as daemon:
        async with loopback.machine(daemon) as laptop:
            await laptop.attach("proj")
            for text in ("# One\n", "# Two\n"):
                await laptop.put("memory/a.md", text)
            assert daemon.daemon.health_problems() == {"addons"}
            daemon.daemon.services.on_space_lost("any")
        assert daemon.daemon.around("none") == (None, None)
        async with asyncio.timeout(DEADLINE_S):
            while "is_busy of Ailing" not in caplog.text:  # noqa: ASYNC110 - the log tells nobody
                await asyncio.sleep(REGISTRY_POLL_S)
    told = [line for line in caplog.text.splitlines() if "Ailing" in line]
    assert len(told) == len(set(told))
    assert {line.partition(" of Ailing")[0].rsplit(" ", 1)[1] for line in told} == {
        "is_busy",
        "is_backed_up",
        "health_problems",
        "on_change",
        "on_space_lost",
    }
    assert SECRET not in caplog.text
