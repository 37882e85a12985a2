"""The seam of the proxy: what add-ons bring is found where they are installed, and costs nothing where nobody asks for it."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from tests.support.programs.commands import inner_commands
from tests.support.programs.processes import Machine

from confide_crypto.errors import EXIT_CONFIG
from confide_memory.commands.entries import Command, Entry, place_addons
from confide_proxy import addons
from confide_proxy.addons import Addon
from confide_proxy.cli import app as frame

ROOT = Path(__file__).parents[2]


def places(addon: Addon) -> Iterator[str]:
    """All places that an add-on names."""
    yield from (value for value in addon if isinstance(value, str) and ":" in value)
    yield from (place for tool in addon.tools.values() for place in tool if place)
    entries = [each for command in addon.commands for each in (command.entry.commands or [command.entry])]
    entries = [each for entry in entries for each in (entry.commands or [entry])]
    yield from (each.place if ":" in each.place else f"{each.place}:{each.name}" for each in entries)
    yield from (place for _, place, _ in (addon.pages.routes if addon.pages else ()))


@pytest.mark.addons
def test_all_that_are_here_are_found_by_their_names() -> None:
    folders = {path.parent.name.removeprefix("confide_") for path in (ROOT / "addons").glob("*/addon.py")}
    folders |= {path.parents[1].name.removeprefix("confide_") for path in (ROOT / "addons").glob("*/local/addon.py")}
    assert [addon.name for addon in addons.installed()] == sorted(folders)


def test_they_are_those_that_the_standard_library_finds() -> None:
    points = importlib.metadata.entry_points(group=addons.GROUP)
    assert {point.name: point.value for point in points} == addons._places()


def test_a_file_of_entry_points_is_read_as_the_specification_has_it() -> None:
    text = f"""# of a tool
[console_scripts]
a = a:main
[{addons.GROUP}]
; one
a = a.b:ADDON
  c.d=c:X.Y [extra, more]
[ other ]
e = e:E
[ {addons.GROUP} ]
f = f:F
"""
    assert addons._parse_entry_points(text) == {"a": "a.b:ADDON", "c.d": "c:X.Y", "f": "f:F"}


@pytest.mark.parametrize("addon", addons.installed(), ids=lambda addon: addon.name)
def test_what_one_names_is_there(addon: Addon) -> None:
    named = list(places(addon))
    assert named
    for place in named:
        assert place.startswith(f"confide_{addon.name}.")
        assert addons.load_object(place)


def loaded_by(script: str, folder: Path) -> set[str]:
    """The modules that a process has loaded at the end of a script."""
    script = f"{script}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=folder)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.addons
def test_a_command_of_the_core_looks_for_none(tmp_path: Path) -> None:
    run = "from confide_proxy.cli.app import app\napp({}, standalone_mode=False)"
    own = loaded_by(run.format(["search", "--help"]), tmp_path)
    assert not {name.partition(".")[0] for name in own} & {path.name for path in (ROOT / "addons").iterdir()}
    other = loaded_by(run.format(["report", "--help"]), tmp_path)
    assert {"confide_proxy.addons", "confide_night.cli.tasks"} <= other


def test_to_look_for_them_loads_no_library_and_none_of_their_work(tmp_path: Path) -> None:
    look = "from confide_proxy import addons\naddons.installed()"
    loaded = loaded_by(look, tmp_path) - loaded_by("import importlib, pathlib, confide_proxy.errors", tmp_path)
    own = {name for name in loaded if name.startswith("confide_")}
    assert {name for name in own if name.count(".") == 2} <= {
        "confide_memory.commands.entries",
        "confide_memory.commands.spelling",
        "confide_memory.tools.result_views",
        "confide_panel.views.memory_view",  # what a page is called, and not the page
        *(f"confide_{addon.name}.local.addon" for addon in addons.installed()),
    }
    assert loaded - own == set()


def test_without_any_the_core_has_its_own_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addons, "installed", tuple)
    core = [entry.name for entries in frame.COMMANDS.values() for entry in entries]
    assert list(inner_commands(typer.main.get_command(frame.app))) == core


def test_a_copy_without_their_folders_is_the_core(tmp_path: Path) -> None:
    """Nothing else has to be changed for it."""
    script = (
        "import sys\n"
        "sys.path[:] = [path for path in sys.path if not path.rstrip('/').endswith('/addons')]\n"
        "from confide_proxy.cli.app import COMMANDS, app\n"
        "from confide_proxy import addons\n"
        "import importlib, pkgutil\n"
        "for core in map(importlib.import_module, ('confide_crypto', 'confide_memory', 'confide_proxy')):\n"
        "    for module in pkgutil.walk_packages(core.__path__, core.__name__ + '.'):\n"
        "        module.name.endswith('__main__') or importlib.import_module(module.name)\n"
        "assert addons.installed() == ()\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "help", "all"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    core = [entry.name for entries in frame.COMMANDS.values() for entry in entries if not entry.is_hidden]
    shown = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line[2].isalpha()]
    assert set(core) <= set(shown)
    assert not {"task", "panel", "http", "import"} & set(shown)


def entry(name: str) -> Entry:
    return Entry(name, name, f"{name}.")


def names(groups: dict[str, list[Entry]]) -> dict[str, list[str]]:
    return {heading: [each.name for each in entries] for heading, entries in groups.items()}


def test_each_stands_behind_the_first_that_there_is() -> None:
    core = {"One": [entry("a"), entry("b")], "Two": [entry("c")]}
    more = [
        Command("One", ("nobody", "a"), entry("x")),
        Command("One", ("x",), entry("y")),
        Command("One", ("nobody",), entry("z")),
        Command("New", ("b",), entry("n")),
        Command("New", ("n",), entry("m")),
        Command("Last", ("nobody",), entry("l")),
        Command("Last", ("l",), entry("a")),
    ]
    found = place_addons(core, more)
    assert names(dict(found)) == {"One": ["a", "x", "y", "b", "z"], "New": ["n", "m"], "Two": ["c"], "Last": ["l"]}  # type: ignore[arg-type]
    assert list(found) == ["One", "New", "Two", "Last"]
    assert [each.name for each in core["One"]] == ["a", "b"]


TOY = """
import typer
from confide_memory.commands.entries import Command, Entry
from confide_proxy.addons import Addon

entry = Entry("greet", "toy:greet", "Say hello.", "confide greet ann")
ADDON = Addon("toy", commands=[Command("Memory", ("store",), entry)], other_words={"hello": "greet"})

def greet(name: str) -> None:
    typer.echo(f"hello {name}")
"""


def beside(folder: Path, text: str) -> Path:
    """A folder outside of the tree with an add-on, as an installer would put it."""
    told = folder / "toy-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[{addons.GROUP}]\ntoy = toy:ADDON\n")
    (folder / "toy.py").write_text(text)
    return folder


def confide(machine: Machine, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "confide_proxy", *arguments]
    environment = {**machine.env, "PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_folder_outside_of_the_tree_brings_a_command(tmp_path: Path) -> None:
    machine, folder = Machine(tmp_path, "ann"), beside(tmp_path, TOY)
    assert confide(machine, folder, "greet", "ann").stdout == "hello ann\n"
    lines = confide(machine, folder, "help", "all").stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  store "))
    following = next(line for line in lines[at + 1 :] if not line.startswith("   "))
    assert following.split() == ["greet", "Say", "hello."]
    assert "confide_proxy greet? " in confide(machine, folder, "hello").stderr


def test_one_that_cannot_be_loaded_is_named_where_it_is_needed(tmp_path: Path) -> None:
    machine, folder = Machine(tmp_path, "ann"), beside(tmp_path, "raise ValueError('out of order')")
    ended = confide(machine, folder, "--help")
    assert ended.returncode == EXIT_CONFIG
    assert ended.stderr == (
        "confide: the add-on toy cannot be loaded: ValueError: out of order\nhint: install it again, or remove it\n"
    )
    assert confide(machine, folder, "search", "--help").returncode == 0
