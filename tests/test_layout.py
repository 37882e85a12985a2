"""The layout holds: crypto is the floor, proxy and daemon never meet, and `confide mcp` starts lean."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "confide_crypto": ROOT / "crypto" / "confide_crypto",
    "confide_proxy": ROOT / "proxy" / "confide_proxy",
    "confide_daemon": ROOT / "daemon" / "confide_daemon",
}
HEAVY = {"mcp", "pydantic", "typer", "rich", "watchdog", "httpx", "numpy"}


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
        ("confide_crypto", {"confide_proxy", "confide_daemon", "mcp"}),
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


def test_the_start_path_is_lean(tmp_path: Path) -> None:
    """A whole `confide mcp` process, link included, never loads a heavy library before its files are watched."""
    script = (
        "import json, sys\n"
        "sys.argv = ['confide', 'mcp']\n"
        "from confide_proxy import stdio, session, client, link, tunnel, replica\n"
        "import confide_crypto.connection\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert not set(json.loads(done.stdout)) & HEAVY


def test_the_first_answer_needs_no_event_loop() -> None:
    """What runs before `initialize` is answered imports neither asyncio nor a cipher."""
    script = (
        "import json, sys\n"
        "from confide_proxy import entry, stdio\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout)) & {*HEAVY, "asyncio", "nacl", "cryptography", "websockets", "platformdirs"}


def test_no_module_is_a_drawer() -> None:
    """No utils, helpers, common or manager: code lives where its noun is."""
    for folder in PACKAGES.values():
        for module in folder.rglob("*.py"):
            assert module.stem not in {"utils", "util", "helpers", "helper", "common", "manager", "misc"}, module


def test_no_registry_address_in_the_repository() -> None:
    """Lock and constraints files name packages and versions, never a host."""
    assert "://" not in (ROOT / "constraints.txt").read_text()
