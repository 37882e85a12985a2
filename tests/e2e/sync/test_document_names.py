"""What memory files are called, through the real programs: names that no machine could have, and names in decomposed Unicode."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.programs.processes import Inside, Machine, running_daemon, wait_until
from tests.support.programs.wire import Wire

COMPOSED, DECOMPOSED = "memory/gr\u00f6\u00dfe/\u00fcber.md", "memory/gro\u0308\u00dfe/u\u0308ber.md"


def names(machine: Machine) -> list[str]:
    """What lies in the memory folder, as the disk spells it."""
    root = machine.project
    return sorted(str(file.relative_to(root)) for file in (root / "memory").rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("path", "why"),
    [("memory/.hidden.md", "hidden"), ("memory/a\u200b.md", "cannot be seen"), ("memory/A.MD", "does not end in .md")],
)
def test_a_name_that_no_machine_could_have_is_refused(tmp_path: Path, path: str, why: str) -> None:
    """With a sentence and an example; nothing is stored, with or without the daemon."""
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        machine.write("memory/a.md", "The ibis waits.\n")
        machine.run("sync")
        said = machine.run("store", "The heron fishes at dawn.", "--path", path, code=7)
        assert "the document path is not allowed" in said
        assert why in said
        assert "memory/notes/decisions.md" in said
        assert "heron" not in machine.run("search", "heron at dawn")
        assert names(machine) == ["memory/a.md"]
    with Wire(machine) as wire:
        wire.open()
        refused = wire.tool("memory_store", {"content": "The heron fishes at dawn.", "path": path})
        assert refused["isError"]
        assert why in refused["content"][0]["text"]
    assert "heron" not in machine.run("queue")


def test_a_decomposed_name_keeps_its_file(tmp_path: Path) -> None:
    """It is sent under its composed name; what comes back goes into the same file, and a deletion takes it away."""
    ann, bob = Inside(tmp_path, "ann"), Inside(tmp_path, "bob")
    with running_daemon(tmp_path) as daemon:
        for machine, options in ((ann, ()), (bob, ("--space", "ann"))):
            machine.call_project("shared")
            machine.run("join", daemon.invite(machine.name, *options))
        file = ann.write(DECOMPOSED, "The heron fishes at dawn.\n")
        assert ann.json("sync")["filesSent"] == 1
        again = ann.json("sync")
        assert (again["filesSent"], again["skipped"]) == (0, [])
        assert COMPOSED in ann.run("search", "heron at dawn")
        for asked in (COMPOSED, DECOMPOSED):
            assert "heron" in ann.run("read", asked)
            assert len(ann.json("history", asked)["revisions"]) == 1
        bob.run("sync")
        assert names(bob) == [COMPOSED]
        (bob.project / COMPOSED).write_text("The heron fishes at dusk.\n", encoding="utf-8")
        bob.run("sync")
        ann.run("sync")
        assert names(ann) == [DECOMPOSED]
        assert file.read_text(encoding="utf-8") == "The heron fishes at dusk.\n"
        # A tool that spells it so writes into the same file.
        ann.run("store", "- and at noon", "--path", DECOMPOSED)
        assert names(ann) == [DECOMPOSED]
        assert "noon" in file.read_text(encoding="utf-8")
        bob.run("sync")
        (bob.project / COMPOSED).unlink()
        bob.run("sync")
        ann.run("sync")
        assert names(ann) == []
        assert "heron" not in ann.run("search", "heron at dusk")
        ann.run("restore", DECOMPOSED)
        assert "noon" in (ann.project / COMPOSED.replace("gr\u00f6", "gro\u0308")).read_text(encoding="utf-8")


def test_a_watched_file_with_a_decomposed_name(tmp_path: Path) -> None:
    """A session sends it as it is saved and deleted, and tells two files with one name apart."""
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        with Wire(machine) as wire:
            wire.open()
            file = machine.write(DECOMPOSED, "The heron fishes at dawn.\n")

            def is_found() -> bool:
                return COMPOSED in str(wire.tool("memory_search", {"query": "heron at dawn"}))

            wait_until("the file to be found", is_found)
            file.unlink()
            wait_until("the file to be gone", lambda: not is_found())


def test_two_files_with_one_name_are_told_of(tmp_path: Path) -> None:
    """The composed one is the document; the other stays as it is, and is never deleted or overwritten."""
    machine = Inside(tmp_path, "ann")
    with running_daemon(tmp_path) as daemon:
        machine.run("join", daemon.invite("ann"))
        machine.write("memory/u\u0308.md", "The ibis waits.\n")
        machine.write("memory/\u00fc.md", "The heron fishes at dawn.\n")
        machine.write("memory/ blank.md", "The stork sleeps.\n")
        machine.write("memory/.hidden.md", "The crane flies.\n")
        report = machine.json("sync")
        assert report["filesSent"] == 1
        told = {item["path"]: item["reason"] for item in report["skipped"]}
        assert set(told) == {"memory/u\u0308.md", "memory/ blank.md"}
        assert "rename it" in told["memory/u\u0308.md"]
        assert "begins or ends with a blank" in told["memory/ blank.md"]
        machine.run("store", "- at dusk", "--path", "memory/\u00fc.md")
        assert (machine.project / "memory/u\u0308.md").read_text() == "The ibis waits.\n"
        assert "dusk" in (machine.project / "memory/\u00fc.md").read_text()
