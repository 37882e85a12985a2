"""Write what the channels beside PyPI need: the MCP registry, Homebrew and the AUR, from channels.toml."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

HERE: Final = Path(__file__).parent
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


@dataclass(frozen=True, slots=True)
class Channels:
    """Names and addresses under which Confide is published."""

    package: str
    summary: str
    author: str
    license: str
    repository: str
    mcp_name: str
    image: str
    python: str

    @classmethod
    def load(cls, path: Path = HERE / "channels.toml") -> Channels:
        """Read the table. Raises TypeError if a row is missing or unknown."""
        return cls(**tomllib.loads(path.read_text("utf-8")))

    def address(self, version: str, file: str) -> str:
        """Return the address at which a file of a release can be downloaded."""
        return f"{self.repository}/releases/download/v{version}/{file}"


def server_json(channels: Channels, version: str, bundle: Path, digest: str) -> str:
    """Return the record of the MCP registry: the package of PyPI, and the bundle with its SHA-256."""
    record = {
        "$schema": SCHEMA,
        "name": channels.mcp_name,
        "title": "Confide",
        "description": channels.summary,
        "version": version,
        "repository": {"url": channels.repository, "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": channels.package,
                "version": version,
                "runtimeHint": "uvx",
                "runtimeArguments": [
                    {"type": "named", "name": "--with", "value": f"{channels.package}[daemon]=={version}"}
                ],
                "packageArguments": [{"type": "positional", "value": "mcp"}],
                "transport": {"type": "stdio"},
            },
            {
                "registryType": "mcpb",
                "identifier": channels.address(version, bundle.name),
                "fileSha256": digest,
                "transport": {"type": "stdio"},
            },
        ],
    }
    return json.dumps(record, indent=2) + "\n"


def filled(template: str, channels: Channels, version: str, files: dict[str, tuple[str, str]]) -> str:
    """Fill a template of this folder. `files` maps `sdist` and `wheel` to a file's name and its SHA-256.

    Raises KeyError if the template names something that is not in the table.
    """
    values = {
        "package": channels.package,
        "summary": channels.summary,
        "author": channels.author,
        "license": channels.license,
        "repository": channels.repository,
        "python": channels.python,
        "version": version,
    }
    for kind, (name, digest) in files.items():
        values |= {kind: channels.address(version, name), f"{kind}_name": name, f"{kind}_sha256": digest}
    return Template((HERE / template).read_text("utf-8")).substitute(values)
