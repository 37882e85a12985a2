"""The stores of other systems, found in a home folder and imported by the command: notes that say where they came from, once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.documents.imports import FIXTURES, unpacked
from tests.support.programs.processes import Inside, running_daemon

STORES = {
    "mcp-memory-service": (".local/share/mcp-memory/sqlite_vec.db", 5),
    "basic-memory": ("basic-memory", 4),
    "claude-mem": (".claude-mem/claude-mem.db", 7),
    "server-memory": (".npm/_npx/a/node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl", 4),
}
EXPORTS = {"chatgpt": 5, "claude-ai": 6}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder in which four systems left their stores, where they usually do."""
    for system, (place, _) in STORES.items():
        target = tmp_path / "home" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        (source,) = (path for path in (FIXTURES / system).iterdir() if not path.name.startswith(("make.", "README")))
        if source.suffix == ".gz":
            (tmp_path / system).mkdir()
            shutil.copy(unpacked(f"{system}/{source.name}", tmp_path / system), target)
        elif source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    return tmp_path / "home"


def test_the_stores_of_other_systems(home: Path, tmp_path: Path) -> None:
    with running_daemon(tmp_path / "daemon") as daemon:
        laptop = Inside(tmp_path, "laptop")
        laptop.run("join", daemon.invite("laptop"))
        laptop.env["HOME"] = str(home)
        preview = laptop.json("import", "--dry-run")
        assert {store["system"]: store["notes"] for store in preview["stores"]} == {
            system: notes for system, (_, notes) in STORES.items()
        }
        assert not any(store["skipped"] for store in preview["stores"])
        total = sum(notes for _, notes in STORES.values())
        assert laptop.json("import", "--yes")["results"]["new"] == total

        exports = [str(shutil.make_archive(str(tmp_path / name), "zip", FIXTURES / name)) for name in EXPORTS]
        assert laptop.json("import", *exports, "--yes")["results"]["new"] == sum(EXPORTS.values())
        again = laptop.json("import", *exports, "--yes")["results"]
        assert (again["new"], again["known"]) == (0, sum(EXPORTS.values()))
        assert laptop.json("import", "--yes")["results"]["known"] == total

        notes = {path.name: path.read_text() for path in (laptop.project / "memory" / "notes").glob("*.md")}
        supersedes = [text for text in notes.values() if "relation: supersedes" in text]
        assert len(supersedes) == 1
        assert "no longer table locks" in supersedes[0]
        (doc,) = (text for text in notes.values() if "title: schema.md" in text)
        assert "relation: part_of" in doc
        assert "system: claude-ai" in doc
