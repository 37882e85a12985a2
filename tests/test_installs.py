"""The wheel with each of its extras alone, as users install it: every command works there, or names the extra in one sentence."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import urllib.request
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest
from packaging.utils import canonicalize_name
from tests.support.archives import unpack
from tests.support.programs.installs import REAL, ROOT, PackageNotFoundError, Wheel, built

DEADLINE_S: Final = 120
INITIALIZE: Final = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
)
ALONE: Final = ("gateway", "runner", "keyring", "lancedb")
"""The extras of a machine whose daemon is elsewhere."""
BESIDE: Final = {
    "postgres": "confide_cluster.daemon.log.postgres_engine",
    "vault": "confide_daemon.sealing.vault_client",
    "fastembed": "confide_daemon.embedding.libraries, fastembed",
    "onnx": "confide_daemon.embedding.libraries, onnxruntime, tokenizers",
}
"""Those beside `daemon`, with the modules that only their configuration loads."""
NOT_TRIED: Final = {"gguf": "it is built from source: tests/daemon/embedding/test_provider_libraries.py"}
FOR_DEVELOPERS: Final = {"dev", "docs", "fuzz", "lock"}
PARTS: Final[dict[str, str]] = {
    "confide_crypto": "",
    "confide_memory": "",
    "confide_proxy": "",
    "confide_proxy.link.device_identity": "keyring",
    "confide_daemon": "daemon",
    "confide_daemon.embedding.libraries": "daemon,fastembed",
    "confide_daemon.embedding.providers.gguf": "daemon,gguf",
    "confide_daemon.sealing.vault_client": "daemon,vault",
    "confide_backup": "daemon",
    "confide_cluster": "daemon",
    "confide_cluster.daemon.log": "daemon,postgres",
    "confide_cluster.daemon.log.configured": "daemon",
    "confide_cluster.daemon.nodes": "daemon,postgres",
    "confide_cluster.daemon.relay": "daemon,postgres",
    "confide_cluster.daemon.relocation": "daemon,postgres",
    "confide_cluster.daemon.spaces.leases": "daemon,postgres",
    "confide_cluster.shared": "",
    "confide_http": "gateway",
    "confide_http.cli": "",
    "confide_http.cli.gateway_commands": "daemon",
    "confide_http.server": "daemon",
    "confide_learn": "",
    "confide_night": "",
    "confide_night.daemon": "daemon",
    "confide_night.order.schedule": "runner",
    "confide_night.runner": "runner",
    "confide_panel": "gateway",
    "confide_stats": "",
    "confide_transfer": "",
    "confide_transfer.daemon": "daemon",
    "confide_transfer.local.readers.vector_memory_mcp": "lancedb",
    "confide_transfer.move.daemon": "daemon",
}
"""Which install each package, room or module is for; the nearest counts."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel(built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel"), tmp_path_factory.mktemp("unpacked"))


class Install:
    """One environment on a machine of its own, which nobody has set up."""

    def __init__(self, programs: Path, root: Path) -> None:
        self._programs = programs
        self.home = root / "home"
        self.project = root / "project"
        self.home.mkdir(mode=0o700)
        self.project.mkdir()

    def run(self, *command: str, stdin: str = "", code: int | None = 0) -> str:
        """All that a program says. `code`: what it ends with; None: with anything else than 0."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "CONFIDE_HOME": str(self.home)}
        done = subprocess.run(
            [self._programs / command[0], *command[1:]],
            cwd=self.project,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        assert done.returncode == code if code is not None else done.returncode, said
        return said


@pytest.fixture
def install(request: pytest.FixtureRequest, wheel: Wheel, tmp_path: Path) -> Install:
    """With the extras of the parameter, separated by commas."""
    try:
        programs = wheel.install(tmp_path / "environment", [each for each in request.param.split(",") if each])
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed here")
    return Install(programs, tmp_path)


def store_of_lancedb(where: Path) -> str:
    unpack(ROOT / "tests/fixtures/importing/vector-memory-mcp/memories.db.tar.gz", where)
    return str(where / "memories.db")


def asked(extra: str, install: Install) -> tuple[str, ...]:
    """A command for which the extra is needed, and a machine that is ready for it."""
    match extra:
        case "gateway":
            return "confide", "panel"
        case "runner":
            return "confide", "runner", "check"
        case "keyring":
            return "confide", "key", "move", "keyring"
        case "lancedb":
            (install.home / "daemon").mkdir(mode=0o700)  # somebody has set it up
            return "confide", "import", store_of_lancedb(install.project), "--dry-run"
        case "daemon":
            return "confide", "quickstart"
    url = {"postgres": "postgresql://confide@127.0.0.1:9/confide?sslmode=disable", "vault": "http://127.0.0.1:9"}
    section = {"postgres": "store", "vault": "vault"}[extra]
    (install.home / "daemon.toml").write_text(f'[{section}]\nurl = "{url[extra]}"\n')
    return "confided", "serve", "--listen", "127.0.0.1:0"


def assert_named(extra: str, install: Install) -> None:
    said = install.run(*asked(extra, install), code=None)
    assert f"install confide with its extra {extra} too" in said
    assert f"{extra}]'" in said


@pytest.mark.parametrize("install", [""], ids=["base"], indirect=True)
def test_what_the_base_install_lacks_is_named(install: Install) -> None:
    """The command that needs an extra says its name, and how it is installed; a client's session begins all the same."""
    for extra in (*ALONE, "daemon"):
        assert_named(extra, install)
    assert "its extra daemon too" in install.run("confided", "init", code=3)
    assert '"serverInfo"' in install.run("confide", "mcp", stdin=INITIALIZE + "\n")


@pytest.mark.parametrize("install", ALONE, indirect=True)
def test_an_extra_alone_is_enough_for_its_command(install: Install, request: pytest.FixtureRequest) -> None:
    """What else it says of a machine that nobody has set up is another matter."""
    extra = request.node.callspec.params["install"]
    try:
        assert f"its extra {extra} " not in install.run(*asked(extra, install), code=None)
    finally:
        if extra == "gateway":
            install.run("confide", "panel", "--stop")


@pytest.mark.parametrize("install", [f"daemon,{extra}" for extra in BESIDE], indirect=True)
def test_an_extra_beside_the_daemon_brings_what_it_loads(install: Install, request: pytest.FixtureRequest) -> None:
    extra = request.node.callspec.params["install"].rpartition(",")[2]
    install.run("python", "-c", f"import {BESIDE[extra]}")


@pytest.mark.parametrize("install", ["daemon"], indirect=True)
def test_the_readmes_install_stores_finds_and_shows_the_panel(install: Install) -> None:
    """With what the README says to install, far from this tree: a daemon on demand, a search, and the panel in a browser."""
    where = install.run("python", "-c", "import confide_daemon, confide_proxy; print(confide_proxy.__file__)")
    assert str(install.home.parent / "environment") in where
    try:
        install.run("confide", "quickstart")
        install.run("confide", "store", "We chose postgres over mysql for its row locks.")
        assert "row locks" in install.run("confide", "search", "why postgres")
        shown = json.loads(install.run("confide", "panel", "--json"))
        with urllib.request.urlopen(shown["url"], timeout=DEADLINE_S) as page:
            assert "Go to the panel" in page.read().decode()
    finally:
        install.run("confide", "panel", "--stop")
        install.run("confide", "stop")
    for extra in ("postgres", "vault"):
        assert_named(extra, install)


def test_every_extra_is_tried(wheel: Wheel) -> None:
    assert set(wheel.extras) == {"daemon", *ALONE, *BESIDE, *NOT_TRIED, *FOR_DEVELOPERS}


@pytest.mark.skipif(REAL, reason="of what is installed here")
def test_no_module_imports_what_its_install_does_not_bring(wheel: Wheel) -> None:
    """Looked up in the code, so that an import in a branch that no test enters counts as well."""
    owners = {name: {canonicalize_name(each) for each in found} for name, found in packages_distributions().items()}
    owners["llama_cpp"] = {"llama-cpp-python"}
    brought: dict[str, set[str]] = {"daemon,gguf": wheel.requires(["daemon"]) | {"llama-cpp-python"}}
    missing = []
    for file in wheel.folder.rglob("*.py"):
        module = ".".join(file.relative_to(wheel.folder).with_suffix("").parts)
        extras = PARTS[max((part for part in PARTS if f"{module}.".startswith(f"{part}.")), key=len)]
        if extras not in brought:
            brought[extras] = wheel.requires([each for each in extras.split(",") if each])
        for name in imported(file):
            if name not in sys.stdlib_module_names and not name.startswith("confide"):
                missing += [] if owners.get(name, {name}) & brought[extras] else [f"{module}: {name} ({extras})"]
    assert missing == []


def test_the_readmes_install_has_all_of_the_gateway(wheel: Wheel) -> None:
    assert wheel.requires(["gateway"]) <= wheel.requires(["daemon"])


def imported(file: Path) -> set[str]:
    """The packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
