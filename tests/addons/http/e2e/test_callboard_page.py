"""Follow the section on drawlatch and callboard in docs/http.md, command by command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.watch import watching

from confide_proxy.config import load

ROOT = Path(__file__).parents[4]
SECTION = (
    (ROOT / "docs/http.md")
    .read_text(encoding="utf-8")
    .partition("## With drawlatch and callboard\n")[2]
    .partition("\n## ")[0]
)


def blocks(kind: str) -> list[str]:
    found = re.findall(rf"^( *)```{kind}\n(.*?)^\1```", SECTION, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE).strip() for indent, text in found]


def found(machine: Machine) -> set[str]:
    """Return the files that mention numbats."""
    return {one["path"] for one in machine.json("search", "numbat", "--all-projects")["results"]}


def test_the_page_is_followed_as_it_stands(gateway: Gateway, tmp_path: Path) -> None:
    """Serve, token, plugin, the folder of an agent, the button, the frame: each command does what the page says of it."""
    serve, token, plugin, watch, button, panel = (block.removeprefix("$ ") for block in blocks("console"))
    machine = gateway.machine
    assert serve == "confide http serve"  # which runs
    text = machine.json(*shlex.split(token)[1:])["token"]

    connector = json.loads((ROOT / "configs/drawlatch-confide.json").read_text(encoding="utf-8"))
    (secret,) = connector["secrets"]
    assert f"`DEFAULT_{secret}=`" in SECTION
    assert f"its alias `{connector['alias']}`" in SECTION
    tried = connector["testConnection"]["url"].partition("7734")[2]
    assert f"`{tried}`" in SECTION
    assert gateway.request("GET", tried, token=text).json["name"] == "drawlatch"

    folder = Path(machine.run(*shlex.split(plugin)[1:]).strip())
    assert (folder / ".claude-plugin/marketplace.json").is_file()

    workspace = tmp_path / "agent-workspaces/hex"
    workspace.mkdir(parents=True)
    (workspace / "MEMORY.md").write_text("# Long-term\n\nThe numbat eats termites.\n")
    *_, named = shlex.split(watch)
    assert named == "~/.callboard/agent-workspaces/hex"
    with watching(machine, str(workspace)):
        # Other tests at this gateway know of numbats too.
        wait_until("the workspace", lambda: "MEMORY.md" in found(machine))

    (settings,) = blocks("toml")
    config = tmp_path / "proxy.toml"
    config.write_text(settings)
    assert load(config).panel.frame_ancestors == ("http://localhost:8000",)
    shown = machine.json(*shlex.split(panel)[1:-1])
    assert shlex.split(panel)[-1] == "--json"
    address = shown["url"].removeprefix(gateway.url)
    assert address.startswith("/panel/in/")
    assert "set-cookie" in gateway.request("GET", address).headers

    if (curl := shutil.which("curl")) is None:
        pytest.skip("there is no curl here, for the one command that uses it")
    command = button.replace(":7734/", f":{gateway.port}/").replace("$CONFIDE_TOKEN", text)
    stored = subprocess.run(
        [curl, *shlex.split(command)[1:]], capture_output=True, check=True, timeout=DEADLINE_S, env=machine.env
    )
    assert json.loads(stored.stdout)["path"].startswith("memory/notes/")
