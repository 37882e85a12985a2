"""Build the sdist, the wheel and the MCP bundle so that two builds of one commit have the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Final

from release.channels import Channels

BUILD_S: Final = 300.0
_FIRST_ZIP_DATE: Final = 315_532_800  # 1980-01-01: older times do not fit into an archive
_BUNDLE_PROJECT: Final = """\
[project]
name = "confide-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["confide[daemon]"]

[tool.uv.sources]
confide = {{ path = "{wheel}" }}
"""
_BUNDLE_START: Final = """\
import sys

from confide_proxy.__main__ import main

sys.argv[1:] = ["mcp"]
sys.exit(main())
"""


def source_date(root: Path) -> int:
    """Return the time for all archives, in seconds since 1970: SOURCE_DATE_EPOCH, or that of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return max(int(given), _FIRST_ZIP_DATE)
    command = ["git", "-C", root, "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=True)
    return int(done.stdout)


def build(root: Path, into: Path, date: int) -> tuple[Path, Path]:
    """Build the sdist from the tree and the wheel from the sdist, and return both paths.

    Raises subprocess.CalledProcessError if a build fails.
    """
    sdist = _hatch(root, into, "sdist", date)
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(sdist, folder)
        (unpacked,) = Path(folder).iterdir()
        return sdist, _hatch(unpacked, into, "wheel", date)


def _hatch(root: Path, into: Path, kind: str, date: int) -> Path:
    before = set(into.iterdir())
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", into]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
    subprocess.run(command, cwd=root, env=env, check=True, stdout=subprocess.DEVNULL, timeout=BUILD_S)
    (made,) = set(into.iterdir()) - before
    return made


def bundle(wheel: Path, into: Path, channels: Channels, version: str, date: int) -> Path:
    """Build the MCP bundle (manifest 0.4, server type `uv`) around the wheel.

    A client that opens the file installs the wheel with its dependencies by uv and runs `confide mcp`.
    """
    manifest = {
        "manifest_version": "0.4",
        "name": channels.package,
        "display_name": "Confide",
        "version": version,
        "description": channels.summary,
        "author": {"name": channels.author},
        "repository": {"type": "git", "url": channels.repository},
        "homepage": channels.repository,
        "license": channels.license,
        "keywords": ["memory", "mcp", "privacy"],
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--quiet", "--directory", "${__dirname}", "server.py"],
            },
        },
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
    }
    files = {
        "manifest.json": json.dumps(manifest, indent=2).encode() + b"\n",
        "pyproject.toml": _BUNDLE_PROJECT.format(version=version, wheel=wheel.name).encode(),
        "server.py": _BUNDLE_START.encode(),
        wheel.name: wheel.read_bytes(),
    }
    target = into / f"{channels.package}-{version}.mcpb"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(_entry(name, date), content)
    return target


def _entry(name: str, date: int) -> zipfile.ZipInfo:

    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
