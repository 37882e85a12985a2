"""The layout holds: crypto is the floor, proxy and daemon never meet, and `confide mcp` starts lean."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench import house

ROOT = Path(__file__).parent.parent
CORE = {
    "confide_crypto": ROOT / "crypto" / "confide_crypto",
    "confide_memory": ROOT / "memory" / "confide_memory",
    "confide_proxy": ROOT / "proxy" / "confide_proxy",
    "confide_daemon": ROOT / "daemon" / "confide_daemon",
}
ADDONS = {path.name: path for path in sorted((ROOT / "addons").iterdir()) if (path / "__init__.py").exists()}
PACKAGES = CORE | ADDONS
ONE_THING_A_FILE = {"cli", "tools", "readers", "providers", "requests", "sql"}
HEAVY = {
    "mcp",
    "pydantic",
    "typer",
    "rich",
    "watchdog",
    "httpx",
    "numpy",
    "starlette",
    "uvicorn",
    "h11",
    "jinja2",
    "markdown_it",
}

MOST_IMPORTS_APART = 300
SERVING = {"starlette", "uvicorn", "h11", "jinja2"}


@functools.cache
def imports(file: Path) -> set[str]:
    """The top-level names that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("confide_crypto", {"confide_memory", "confide_proxy", "confide_daemon", "mcp"}),
        ("confide_memory", {"confide_proxy", "confide_daemon", "mcp"}),
        ("confide_proxy", {"confide_daemon", "mcp"}),
        ("confide_daemon", {"confide_proxy"}),
    ],
)
def test_packages_keep_their_places(package: str, forbidden: set[str]) -> None:
    """Who may import whom, function-level imports included."""
    modules = list(PACKAGES[package].rglob("*.py"))
    assert len(modules) > 5
    for module in modules:
        assert not imports(module) & forbidden, module


@pytest.mark.parametrize("package", CORE)
def test_the_core_names_no_addon(package: str) -> None:
    """Not in an import, nor in a string that becomes one, nor in a sentence: what is beside the core is found, and may be missing."""
    name = re.compile("|".join(rf"\b{each}\b" for each in ADDONS))
    files = [path for path in CORE[package].rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) > 5
    assert [str(path.relative_to(ROOT)) for path in files if name.search(path.read_text("utf-8", "replace"))] == []


TALKATIVE = {"fastembed", "huggingface_hub", "onnxruntime"}
"""Libraries that speak to their makers or their hubs unless they are told not to before they are imported."""
LOADERS = {"__import__", "import_module", "importorskip"}


def loads(file: Path) -> set[str]:
    """The top-level names that a module imports, by a statement or by a call that names them; none where `TALKATIVE` is not mentioned."""
    if not any(name in file.read_text(encoding="utf-8") for name in TALKATIVE):
        return set()
    calls = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    named = {
        node.args[0].value.split(".")[0]
        for node in calls
        if getattr(node.func, "attr", getattr(node.func, "id", None)) in LOADERS
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }
    return imports(file) | named


def test_talkative_libraries_are_reached_through_one_module_that_silences_them() -> None:
    """Tests and benchmarks included: they run on people's machines as well."""
    folders = ("crypto", "memory", "proxy", "daemon", "addons", "bench", "fuzz", "mutants", "demo", "tests")
    modules = [module for folder in folders for module in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 100
    assert {str(module.relative_to(ROOT)) for module in modules if loads(module) & TALKATIVE} == {
        "daemon/confide_daemon/embedding/libraries.py"
    }


def test_the_start_path_is_lean(tmp_path: Path) -> None:
    """A whole `confide mcp` process, link included, never loads a heavy library before its files are watched."""
    script = (
        "import json, sys\n"
        "sys.argv = ['confide', 'mcp']\n"
        "from confide_proxy.mcp import stdio, agent_session, client, tunnel\n"
        "from confide_proxy.link import daemon_link; from confide_proxy.sync.replication import replica\n"
        "import confide_crypto.transport.open_channel\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert not set(json.loads(done.stdout)) & HEAVY


def test_the_first_answer_needs_no_event_loop() -> None:
    """What runs before `initialize` is answered imports neither asyncio nor a cipher."""
    script = (
        "import json, sys\n"
        "from confide_proxy import __main__; from confide_proxy.mcp import stdio\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout)) & {*HEAVY, "asyncio", "nacl", "cryptography", "websockets", "platformdirs"}


def test_a_session_without_the_seat_of_hooks_does_not_load_their_answers() -> None:
    """Beside every agent runs one; only the one that answers hooks needs the tables of names and days."""
    script = "import sys, confide_proxy.hooks.server.seat; print('confide_proxy.hooks.server.recall' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.addons
def test_what_serves_http_is_loaded_by_who_serves_it() -> None:
    """Its libraries stand in rooms of their own, which no agent's session and no hook may import, nor may `confide http token`
    or a runner that waits: its gateway is another process."""
    users = {
        (package, file.relative_to(folder).parts[0])
        for package, folder in PACKAGES.items()
        for file in folder.rglob("*.py")
        if imports(file) & SERVING
    }
    assert {package for package, _ in users} == {"confide_http", "confide_night", "confide_panel", "confide_proxy"}
    assert {room for package, room in users if package == "confide_proxy"} == {"run"}
    assert {room for package, room in users if package == "confide_night"} == {"runner"}
    names = "confide_http.cli.local_commands, confide_night.cli.runner, confide_night.runner.runner_service, confide_proxy.cli.secret_run"
    script = f"import json, sys, {names}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in json.loads(done.stdout)} & {*SERVING, "httpx2"}


def test_a_hook_loads_next_to_nothing() -> None:
    """A person waits for it at every turn: of our own code its light half, beside what json and socket bring along."""
    bare = "json, os, select, socket, stat, struct, time, contextlib, fcntl, resource"
    loaded = []
    for names in (bare, f"{bare}, confide_proxy.__main__, confide_proxy.hooks.hook_process"):
        script = f"from __future__ import annotations; import sys, {names}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        loaded.append(set(done.stdout.split()))
    light = ("block", "briefings", "counts", "events", "hook_paths", "hook_process", "learning_queue")
    light += ("session_marks", "tool_events")
    room = "confide_proxy.hooks"
    assert loaded[1] - loaded[0] == {
        "confide_crypto",
        "confide_crypto.atomic",
        "confide_crypto.portable",
        "confide_proxy",
        "confide_proxy.__main__",
        room,
        *(f"{room}.{name}" for name in light),
    }


def test_no_module_is_a_drawer() -> None:
    """No utils, helpers, common or manager: code lives where its noun is."""
    for folder in PACKAGES.values():
        for module in folder.rglob("*.py"):
            assert module.stem not in {"utils", "util", "helpers", "helper", "common", "manager", "misc"}, module


def test_no_registry_address_in_the_repository() -> None:
    """Lock and constraints files name packages and versions, never a host."""
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_the_architecture_names_rooms_and_modules_that_there_are() -> None:
    """Every path of ARCHITECTURE.md leads somewhere; every room of the packages is in its tables."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = list(PACKAGES.values())
    for named in re.findall(r"`([\w/]+(?:\.py|/))`", page):
        # `ranking.py` after `retrieval/search/engine.py` is of the same folder.
        places = [
            ROOT,
            *packages,
            *(package.parent for package in packages),
            PACKAGES["confide_daemon"] / "retrieval" / "search",
        ]
        assert any((place / named).exists() for place in places), named
    for package, folder in PACKAGES.items():
        rooms = {path.name for path in folder.iterdir() if (path / "__init__.py").exists()}
        floors = re.search(rf"^\| {package.removeprefix('confide_')} \| (.+) \|$", page, re.MULTILINE)
        assert floors, package
        assert rooms <= set(re.split(r"[ >,]+", floors[1])), package


def test_no_folder_is_a_warehouse() -> None:
    """At most 12 entries in a folder, 19 at the top of a package; folders of one thing a file may hold more."""
    for package in PACKAGES.values():
        for folder in (package, *(path for path in package.rglob("*") if (path / "__init__.py").exists())):
            entries = [
                path
                for path in folder.iterdir()
                if path.name not in ("__pycache__", "py.typed")
                and not path.name.startswith("__init__")
                # Of a room that has gone, Python's caches stay behind in a tree that is older.
                and (path.is_file() or any(each.suffix != ".pyc" and each.is_file() for each in path.rglob("*")))
            ]
            limit = 19 if folder == package else 12
            assert len(entries) <= limit or folder.name in ONE_THING_A_FILE, (folder, len(entries))


NAMED_OTHERWISE = {
    "tests/crypto/test_formal.py": "the models in crypto/formal",
    "tests/crypto/test_frozen.py": "the whole protocol, byte by byte",
    "tests/crypto/test_fuzz.py": "the targets in fuzz/",
    "tests/crypto/test_interop.py": "tests/interop",
    "tests/crypto/test_vectors.py": "tests/vectors",
}
OF_PROGRAMS = {"e2e", "browser", "deploy"}
"""Folders whose tests run what a package is made into, as it is started; they are named by what somebody does with it."""


def _words(name: str) -> tuple[str, ...]:
    """Of a file's name, one for many."""
    return tuple(word.removesuffix("s") for word in name.strip("_").split("_"))


def test_the_name_of_a_test_says_what_it_tests() -> None:
    """Where something is tested is answered by a name: each file of tests has that of a module or a folder of its package in its own."""
    lost = []
    for package, folder in PACKAGES.items():
        short = package.removeprefix("confide_")
        known = {
            _words(path.stem) for path in folder.rglob("*") if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        known.add((short,))
        for path in sorted((ROOT / "tests" / ("addons" if package in ADDONS else "") / short).rglob("test_*.py")):
            said = _words(path.stem.removeprefix("test_"))
            runs = {said[begin:end] for begin in range(len(said)) for end in range(begin + 1, len(said) + 1)}
            if not (runs & known or OF_PROGRAMS & {*path.parts}):
                lost.append(path.relative_to(ROOT).as_posix())
    assert sorted(lost) == sorted(NAMED_OTHERWISE)


def test_the_page_of_what_tests_share_names_all_of_it() -> None:
    """Whoever writes a test finds what is there: each module of tests/support is on its page, and nothing else is."""
    folder = ROOT / "tests" / "support"
    page = (folder / "README.md").read_text(encoding="utf-8")
    there = {path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if path.stem != "__init__"}
    named = set(re.findall(r"`([\w/]+)`", page))
    assert sorted(str(path) for path in there if not named & {str(path), path.name}) == []
    assert [
        name
        for name in named
        if "/" in name and not name.endswith("/") and not (ROOT / name).exists() and Path(name) not in there
    ] == []


def test_few_imports_are_late_or_for_types_alone() -> None:
    """Each hides from a reader, and from mypy or the program, what a module needs."""
    late, for_types = house.imports(house.modules(*house.CORE, "addons"))
    assert late + for_types <= MOST_IMPORTS_APART
