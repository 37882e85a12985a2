"""All memory of a space as a folder of files, and back into another space, byte for byte."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon
from tests.support.programs.wire import Wire

ODD = "---\ntitle: Coffee # mine\nimportance: very\n\nmood:   sleepy\n---\r\nBlack.\r\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("export")) as running:
        yield running


def machine(folder: Path, daemon: Daemon) -> Machine:
    folder.mkdir()
    joined = Inside(folder, f"m-{secrets.token_hex(4)}")
    joined.run("join", daemon.invite(joined.name))
    return joined


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def filled(folder: Path, daemon: Daemon) -> Machine:
    made = machine(folder, daemon)
    made.write("MEMORY.md", "# Facts\n\nThe heron fishes at dawn.\n")
    made.write("memory/notes/coffee.md", ODD)
    made.write("memory/2026-11-20.md", "- no newline at the end")
    with Wire(made) as wire:
        wire.open()
        for number, scope in enumerate(("project", "global")):
            stored = wire.tool("memory_store", {"content": f"Fact {number}.", "scope": scope, "tags": ["über", "x"]})
            assert not stored.get("isError"), stored
    made.run("sync")
    return made


def test_export_import_export_is_byte_identical(tmp_path: Path, daemon: Daemon) -> None:
    first, second = filled(tmp_path / "one", daemon), machine(tmp_path / "two", daemon)
    made = first.json("export", str(tmp_path / "a"))
    assert made["skipped"] == []
    assert (made["files"], made["projects"]) == (5, 2)
    held = tree(tmp_path / "a")
    (coffee,) = [data for path, data in held.items() if path.endswith("coffee.md")]
    assert coffee == ODD.encode()
    looked = second.json("import", str(tmp_path / "a"), "--dry-run")
    assert (looked["dryRun"], looked["counts"]) == (True, {"new": 5})
    assert second.json("export", str(tmp_path / "none"))["files"] == 0
    done = second.json("import", str(tmp_path / "a"), "--yes")
    assert (done["counts"], done["skipped"]) == ({"new": 5}, [])
    assert second.json("import", str(tmp_path / "a"), "--yes")["counts"] == {"same": 5}
    second.json("export", str(tmp_path / "b"))
    assert tree(tmp_path / "b") == held
    # Into the same folder again: what is gone from memory is gone from it.
    notes = [json.loads(line) for line in (tmp_path / "b" / "notes.jsonl").read_text().splitlines()]
    assert sorted(one["content"] for one in notes) == ["Black.", "Fact 0.", "Fact 1."]
    first.project.joinpath("memory", "2026-11-20.md").unlink()
    first.run("sync")
    first.json("export", str(tmp_path / "a"))
    assert held.keys() - tree(tmp_path / "a").keys() == {path for path in held if path.endswith("2026-11-20.md")}


def test_what_is_there_with_another_text_stays(tmp_path: Path, daemon: Daemon) -> None:
    first = filled(tmp_path / "one", daemon)
    first.json("export", str(tmp_path / "a"))
    first.write("MEMORY.md", "# Facts\n\nThe heron fishes at dusk.\n")
    first.run("sync")
    counts = first.json("import", str(tmp_path / "a"), "--yes")["counts"]
    assert counts == {"same": 4, "differs": 1}
    assert "dusk" in first.project.joinpath("MEMORY.md").read_text()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path, daemon: Daemon) -> None:
    first = machine(tmp_path / "one", daemon)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.md").write_text("precious\n")
    refused = first.run("export", str(tmp_path / "mine"), code=7)
    assert "is not empty" in refused
    assert tree(tmp_path / "mine") == {"thesis.md": b"precious\n"}
    (tmp_path / "mine" / "confide.json").write_text('{"format": 1, "projects": [{"name": "x", "folder": "../one"}]}')
    assert "not those of its projects" in first.run("export", str(tmp_path / "mine"), code=7)
    (tmp_path / "mine" / "confide.json").write_text('{"format": 2, "projects": []}')
    assert "another format" in first.run("export", str(tmp_path / "mine"), code=7)


def test_an_export_does_not_become_memory_itself(tmp_path: Path, daemon: Daemon) -> None:
    """Each one would hold all those before it."""
    first = filled(tmp_path / "one", daemon)
    (first.home / "proxy.toml").write_text(f'[folders."{first.project}"]\nextra = ["docs/**/*.md"]\n')
    for folder in ("memory/backup", "docs/backup", str(first.home / "global" / "memory" / "backup")):
        assert "is watched for memory" in first.run("export", folder, code=7)
    assert not first.project.joinpath("docs").exists()
    assert first.json("export", "backup")["skipped"] == []


def test_a_tree_leads_nowhere_else(tmp_path: Path, daemon: Daemon) -> None:
    first = filled(tmp_path / "one", daemon)
    first.json("export", str(tmp_path / "a"))
    (secret := tmp_path / "secret.md").write_text("not for the daemon\n")
    (tmp_path / "a" / "global" / "memory" / "link.md").symlink_to(secret)
    second = machine(tmp_path / "two", daemon)
    done = second.json("import", str(tmp_path / "a"), "--yes")
    assert done["counts"] == {"new": 5}
    second.json("export", str(tmp_path / "b"))
    assert not any(b"not for the daemon" in data for data in tree(tmp_path / "b").values())


def test_one_project_alone(tmp_path: Path, daemon: Daemon) -> None:
    first = filled(tmp_path / "one", daemon)
    made = first.json("export", str(tmp_path / "a"), "--only", "global")
    assert (made["files"], made["projects"]) == (1, 1)
    assert "there is no project 'nonsense'" in first.run("export", str(tmp_path / "b"), "--only", "nonsense", code=7)
