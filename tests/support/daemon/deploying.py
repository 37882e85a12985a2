"""What lies in `daemon/deploy`, and what checks it where `make deploy` has brought that."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from confide_daemon import config
from confide_daemon.config import DaemonConfig

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "daemon" / "deploy"
HELM = DEPLOY / "helm"
VALUES: dict[str, Any] = yaml.safe_load((HELM / "values.yaml").read_text())
EXAMPLES = sorted((HELM / "examples").glob("*.yaml"))
TOOLS = "CONFIDE_DEPLOY"
"""Names the folder of the tools."""
_RUN_S = 120


def load(folder: Path, text: str) -> DaemonConfig:
    """As a node reads it; without `[node]` where this version has no relay yet."""
    if not hasattr(DaemonConfig(), "node"):
        head, _, rest = text.partition("[node]")
        text = f"{head}{rest[rest.index('[') :] if '[' in rest else ''}"
    path = folder / "daemon.toml"
    path.write_text(text)
    return config.load(path, must_exist=True)


def merged(given: Path) -> dict[str, Any]:
    """Values as helm has them: what is given goes before what is in values.yaml."""
    return _over(copy.deepcopy(VALUES), yaml.safe_load(given.read_text()))


def _over(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        is_table = isinstance(value, dict) and isinstance(values.get(key), dict)
        values[key] = _over(values[key], value) if is_table else value
    return values


def tool(name: str) -> str:
    """A program that `make deploy` brings, or that is installed; skips the test where there is none."""
    folder = os.environ.get(TOOLS)
    if folder is None:
        pytest.skip("make deploy brings what this takes")
    found = shutil.which(name, path=f"{folder}/bin:{folder}/helm:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not here")
    return found


def run(*command: str, code: int = 0) -> str:
    """What a program prints, errors too; its exit code must be `code`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, stdin=subprocess.DEVNULL)
    text = done.stdout + done.stderr
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{text}"
    return text


def rendered(given: Path, *, release: str = "memory") -> list[dict[str, Any]]:
    """The objects of a release with these values; skips the test where helm is not here."""
    text = run(tool("helm"), "template", release, str(HELM), "--namespace", "confide", "--values", str(given))
    return [each for each in yaml.safe_load_all(text) if each]


def only(objects: list[dict[str, Any]], kind: str, name: str = "memory-confide") -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found
