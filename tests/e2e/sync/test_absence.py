"""A clone made anew, a cleaned or a removed one deletes nothing on any other machine, and says so; a person who means it is obeyed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.programs.command import confide
from tests.support.programs.pair import pair
from tests.support.programs.processes import Inside, Machine, wait_until
from tests.support.programs.wire import Wire

NOTES = [f"memory/n{number}.md" for number in range(5)]
ALL = sorted(["MEMORY.md", *NOTES])


def git(folder: Path, *arguments: str) -> None:
    told = ["-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    subprocess.run(["git", *told], cwd=folder, check=True, capture_output=True)


def files(machine: Machine) -> list[str]:
    return sorted(file.relative_to(machine.project).as_posix() for file in machine.project.rglob("*.md"))


def begun(machine: Machine) -> None:
    """A repository that has MEMORY.md, and leaves the notes to Confide."""
    for path in ALL:
        machine.write(path, f"- the heron of {path}\n")
    (machine.project / ".gitignore").write_text("memory/\n")
    git(machine.project, "init", "-q")
    git(machine.project, "add", ".")
    git(machine.project, "commit", "-q", "-m", "begin")
    machine.run("sync")


def test_a_clone_made_anew_or_cleaned_deletes_nothing_elsewhere(tmp_path: Path) -> None:
    """Status, doctor and the agent say what happened, and `confide sync --deleted` is how somebody means it."""
    with pair(tmp_path) as (_daemon, ann, bob):
        begun(ann)
        bob.run("sync")
        assert files(bob) == ALL
        git(tmp_path, "clone", "-q", str(ann.project), "clone")
        shutil.rmtree(ann.project)
        (tmp_path / "clone").rename(ann.project)
        assert "5 received, 0 removed" in ann.run("sync")
        told = ann.run("status")
        assert "5 of 6 memory files went missing" in told
        assert "another one than before" in told
        git(ann.project, "clean", "-fdxq")
        assert "5 received, 0 removed" in ann.run("sync")
        bob.run("sync")
        assert files(ann) == files(bob) == ALL
        # Whatever else it finds, such as a disk that is nearly full.
        assert "went missing in this folder" in confide(ann, "doctor").out
        with Wire(ann) as wire:
            wire.open()
            assert "5 of 6 memory files went missing" in str(wire.tool("memory_search", {"query": "heron"}))
            assert "5 of 6 memory files went missing" in str(wire.tool("memory_status", {}))
        assert "went missing" not in bob.run("status")
        shutil.rmtree(ann.project / "memory")
        assert "5 removed" in ann.run("sync", "--deleted")
        assert "went missing" not in ann.run("status")
        assert "5 removed" in bob.run("sync")
        assert files(bob) == ["MEMORY.md"]
        assert "5 memory files were deleted here" in bob.run("status")


def test_the_memory_of_all_projects_is_lost_and_not_deleted_too(tmp_path: Path) -> None:
    """Its folder is made by every start, so it is there and empty."""
    with pair(tmp_path) as (_daemon, ann, bob):
        ann.run("store", "- the ibis", "--global", "--path", "memory/birds.md")
        bob.run("sync")
        (ours,) = ann.home.rglob("birds.md")
        (theirs,) = bob.home.rglob("birds.md")
        shutil.rmtree(ours.parent.parent)
        assert "0 removed" in ann.run("sync")
        bob.run("sync")
        assert ours.read_text() == theirs.read_text()
        assert "the one memory file went missing" in ann.run("status")


def test_a_word_about_a_project_deletes_no_memory_of_all_projects(tmp_path: Path) -> None:
    """Both are missing. The other folder is named by its own sentence, with its own way out."""
    with pair(tmp_path) as (_daemon, ann, bob):
        begun(ann)
        for number in range(3):
            ann.run("store", f"- the ibis {number}", "--global", "--path", f"memory/birds{number}.md")
        bob.run("sync")
        (ours,) = ann.home.rglob("birds1.md")
        (theirs,) = bob.home.rglob("birds1.md")
        for folder in (ann.project / "memory", ours.parent):
            shutil.rmtree(folder)
        assert "3 received, 5 removed" in ann.run("sync", "--deleted")
        bob.run("sync")
        assert ours.exists()
        assert theirs.exists()
        told = ann.run("status")
        assert "3 of 3 memory files went missing from the memory that all projects share" in told
        assert "went missing in this folder" not in told
        assert "confide sync --deleted --project ~" in told
        assert "3 removed" in ann.run("sync", "--deleted", "--project", ann.env["HOME"])
        bob.run("sync")
        assert not theirs.exists()


def test_a_folder_that_is_replaced_under_a_session_is_watched_in_its_new_place(tmp_path: Path) -> None:
    """Moved aside, and a copy in its place: no event tells of it."""
    with pair(tmp_path) as (_daemon, ann, bob), Wire(ann) as wire, Wire(bob) as other:
        wire.open()
        other.open()
        ann.write("memory/a.md", "- one\n")
        there = bob.project / "memory/a.md"
        wait_until("the file at bob", there.exists)
        ann.project.rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", ann.project)
        ann.write("memory/a.md", "- one\n- two\n")
        wait_until("the edit at bob", lambda: there.read_text() == "- one\n- two\n")
        ann.write("memory/b.md", "- three\n")
        wait_until("a new file at bob", (bob.project / "memory/b.md").exists)


def test_a_worktree_that_is_removed_under_a_session_takes_nothing_with_it(tmp_path: Path) -> None:
    """Its memory goes first, and the rest of it later, as the disk lists it."""
    with pair(tmp_path) as (_daemon, ann, _bob):
        begun(ann)
        tree = tmp_path / "tree"
        git(ann.project, "worktree", "add", "-q", "-b", "wt", str(tree))
        there = Inside(tmp_path, "there")
        there.home, there.env, there.project = ann.home, ann.env, tree
        there.allow("shared", tree)
        with Wire(there) as wire:
            wire.open()
            wait_until("the files of the worktree", lambda: files(there) == ALL)
            shutil.rmtree(tree / "memory")
            wait_until("it to be seen", lambda: list((ann.home / "proxy").rglob("*.notice")))
            git(ann.project, "worktree", "remove", "--force", str(tree))
            assert not tree.exists()
            assert "0 removed" in ann.run("sync")
        assert files(ann) == ALL
        assert "heron" in ann.run("search", "heron of memory/n3.md")
