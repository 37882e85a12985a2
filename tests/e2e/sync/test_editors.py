"""What editors, shells and git do to files on one machine; the other machine must end with the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.pair import pair
from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.watch import Watching, watching

SETTLE_S = 0.4


class Desk:
    """Two machines that are kept the same, and what the first one's process says."""

    def __init__(self, ann: Machine, bob: Machine, watch: Watching) -> None:
        self.ann, self.bob, self.watch = ann, bob, watch

    def here(self, path: str) -> Path:
        """A file where the person works."""
        return self.ann.project / path

    def same(self) -> None:
        """Wait until both machines have the same memory, byte for byte, and stay so."""
        wait_until("the same files on both", self._are_same)
        time.sleep(SETTLE_S)
        assert tree(self.ann) == tree(self.bob)

    def _are_same(self) -> bool:
        # Hundreds of files are read for it: asked more often, it would take more of the processor than what it waits for.
        time.sleep(0.1)
        return tree(self.ann) == tree(self.bob)


def tree(machine: Machine) -> dict[str, bytes]:
    """Every markdown file of the memory that is one for Confide."""
    found = {}
    for folder, folders, names in os.walk(machine.project / "memory"):
        folders[:] = [name for name in folders if not name.startswith(".") and not name.endswith(".md")]
        for name in names:
            file = Path(folder) / name
            if name.endswith(".md") and not name.startswith(".") and not file.is_symlink():
                try:
                    found[file.relative_to(machine.project).as_posix()] = file.read_bytes()
                except FileNotFoundError:
                    continue
    return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    root = tmp_path_factory.mktemp("editors")
    with pair(root) as (_daemon, ann, bob), watching(ann) as here, watching(bob) as there:
        here.until("up")
        there.until("up")
        yield Desk(ann, bob, here)


def vim(file: Path, data: bytes) -> None:
    """vim with `backupcopy=no`: the old file steps aside, a new one takes its name, the old one goes."""
    probe = file.with_name("4913")
    probe.touch()
    probe.unlink()
    swap = file.with_name(f".{file.name}.swp")
    swap.write_bytes(b"b0VIM 9.0")
    backup = file.with_name(f"{file.name}~")
    if file.exists():
        file.rename(backup)
    file.write_bytes(data)
    backup.unlink(missing_ok=True)
    swap.unlink()


def emacs(file: Path, data: bytes) -> None:
    """A lock that is a dangling link, an auto-save file, a backup that stays."""
    lock = file.with_name(f".#{file.name}")
    lock.symlink_to("ann@host.123:456")
    file.with_name(f"#{file.name}#").write_bytes(data[: len(data) // 2])
    if file.exists():
        shutil.copyfile(file, file.with_name(f"{file.name}~"))
    with file.open("wb") as opened:
        opened.write(data)
        os.fsync(opened.fileno())
    file.with_name(f"#{file.name}#").unlink()
    lock.unlink()


def vs_code(file: Path, data: bytes) -> None:
    """In place: emptied, then written."""
    with file.open("wb") as opened:
        opened.flush()
        time.sleep(0.01)
        opened.write(data)


def jetbrains(file: Path, data: bytes) -> None:
    """Safe write: beside it, then the two change places."""
    new, old = file.with_name(f"{file.name}___jb_tmp___"), file.with_name(f"{file.name}___jb_old___")
    new.write_bytes(data)
    if file.exists():
        file.rename(old)
    new.rename(file)
    old.unlink(missing_ok=True)


def plain_rename(file: Path, data: bytes) -> None:
    """Temporary file and rename, as most tools do."""
    part = file.with_name(f".goutputstream-{file.stem}")
    part.write_bytes(data)
    part.replace(file)


SAVES = {
    "vim": vim,
    "emacs": emacs,
    "vs_code": vs_code,
    "jetbrains": jetbrains,
    "plain_rename": plain_rename,
}


def test_however_it_is_saved(desk: Desk) -> None:
    """By each editor a new file, two edits of it close together, and one later."""
    for name, save in SAVES.items():
        for number in range(3):
            save(desk.here(f"memory/{name}.md"), b"# Herons\n\n" + b"They fish at dawn.\n" * (number + 1))
    desk.same()
    for name, save in SAVES.items():
        save(desk.here(f"memory/{name}.md"), b"# Herons\n\nThey sleep.\n")
    desk.same()
    for name in SAVES:
        assert desk.bob.project.joinpath(f"memory/{name}.md").read_bytes() == b"# Herons\n\nThey sleep.\n", name
    assert not [name for name in os.listdir(desk.bob.project / "memory") if not name.endswith(".md")]


STYLES = {
    "crlf": b"# One\r\n\r\nTwo\r\nThree\r\n",
    "bom": b"\xef\xbb\xbf# One\n\nTwo\nThree\n",
    "both": b"\xef\xbb\xbf# One\r\n\r\nTwo\r\nThree\r\n",
    "no newline": b"# One\n\nTwo\nThree",
    "mixed": b"# One\r\n\nTwo\nThree\r\n",
    "empty": b"",
}


def test_the_bytes_stay_as_they_were_written(desk: Desk) -> None:
    """Neither machine's file is rewritten, whatever its line ends."""
    files = {style: desk.here(f"memory/style-{style.replace(' ', '-')}.md") for style in STYLES}
    for style, file in files.items():
        file.write_bytes(STYLES[style])
    inodes = {style: file.stat().st_ino for style, file in files.items()}
    desk.same()
    for file in files.values():
        file.write_bytes(b"# Changed\n")
    desk.same()
    for style, file in files.items():
        file.write_bytes(STYLES[style])
    desk.same()
    assert {style: file.stat().st_ino for style, file in files.items()} == inodes
    for style, file in files.items():
        assert (desk.bob.project / file.relative_to(desk.ann.project)).read_bytes() == STYLES[style], style


def test_an_addition_takes_the_style_of_its_file(desk: Desk) -> None:
    """A store, and a merge with what the other machine wrote: still one kind of line end, still the mark at the start."""
    added = {style: f"memory/added-{style}.md" for style in ("crlf", "bom", "both")}
    for style, path in added.items():
        desk.here(path).write_bytes(STYLES[style])
    desk.same()
    for path in added.values():
        desk.bob.run("store", "Four", "--path", path)
    desk.same()
    for style, path in added.items():
        data = desk.here(path).read_bytes()
        assert b"Four" in data
        assert data.startswith(STYLES[style].rstrip())
        assert data.count(b"\r\n") == (data.count(b"\n") if b"\r" in STYLES[style] else 0)
        assert data.count(b"\xef\xbb\xbf") == STYLES[style].count(b"\xef\xbb\xbf")


def test_names_that_differ_in_case_alone(desk: Desk) -> None:
    """`Notes.md` becomes `notes.md`, and a folder likewise."""
    desk.here("memory/Notes.md").write_text("The heron fishes.\n")
    desk.here("memory/Birds").mkdir()
    desk.here("memory/Birds/ibis.md").write_text("The ibis waits.\n")
    desk.same()
    desk.here("memory/Notes.md").rename(desk.here("memory/notes.md"))
    desk.here("memory/Birds").rename(desk.here("memory/birds"))
    desk.same()
    assert {"memory/notes.md", "memory/birds/ibis.md"} <= tree(desk.bob).keys()
    assert not {"memory/Notes.md", "memory/Birds/ibis.md"} & tree(desk.bob).keys()


def test_renames_of_files_and_folders(desk: Desk) -> None:
    """Out of the memory and back in, from folder to folder, whole trees, and a swap of two names."""
    for number in range(5):
        file = desk.here(f"memory/old/deep/{number}.md")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"Number {number}\n")
    desk.same()
    desk.here("memory/old").rename(desk.here("memory/new"))
    desk.same()
    assert "memory/new/deep/3.md" in tree(desk.bob)
    one, two, aside = (desk.here(f"memory/new/deep/{name}.md") for name in ("1", "2", ".aside"))
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    desk.same()
    assert tree(desk.bob)["memory/new/deep/1.md"] == b"Number 2\n"
    desk.here("memory/new").rename(desk.here("elsewhere"))
    desk.same()
    desk.here("elsewhere").rename(desk.here("memory/again"))
    desk.same()
    assert "memory/again/deep/0.md" in tree(desk.bob)


def test_git_checkout_of_200_files(desk: Desk) -> None:
    """A commit that follows changes, adds and removes 200 files: all arrive, in a few steps and not in 200. The way back to the one before
    changes nothing elsewhere."""

    def git(*arguments: str, folder: Path = desk.ann.project) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=folder,
            env={**desk.ann.env, "GIT_CONFIG_NOSYSTEM": "1"},
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )

    git("init", "-q", "-b", "one")
    folder = desk.here("memory/repo")
    folder.mkdir()
    for number in range(140):
        (folder / f"{number}.md").write_text(f"Number {number} on branch one\n")
    git("add", "-f", "memory/repo")
    git("commit", "-qm", "one")
    # What is done on the other branch is done elsewhere: here it would be edits, each of which may arrive before the way back.
    elsewhere = desk.ann.project.parent / "elsewhere"
    git("clone", "-q", "-b", "one", str(desk.ann.project), str(elsewhere))
    git("checkout", "-qb", "two", folder=elsewhere)
    folder = elsewhere / "memory/repo"
    for number in range(60):
        (folder / f"{number}.md").write_text(f"Number {number} on branch two\n")
        (folder / f"{number + 60}.md").write_text(f"Number {number + 60} on branch two\n")
        (folder / "more" / str(number % 7)).mkdir(parents=True, exist_ok=True)
        (folder / "more" / str(number % 7) / f"{number}.md").write_text(f"More {number}\n")
    for number in range(120, 130):
        (folder / f"{number}.md").unlink()
    git("add", "-fA", "memory/repo", folder=elsewhere)
    git("commit", "-qm", "two", folder=elsewhere)
    git("push", "-q", "origin", "two", folder=elsewhere)
    desk.same()
    while not desk.watch.said.empty():
        desk.watch.said.get()
    git("checkout", "-q", "two")
    desk.same()
    there = tree(desk.bob)
    assert len([path for path in there if path.startswith("memory/repo/")]) == 190
    assert there["memory/repo/3.md"] == b"Number 3 on branch two\n"
    steps = 0
    while not desk.watch.said.empty():
        steps += desk.watch.said.get()["event"] == "synced"
    assert steps <= 12
    git("checkout", "-q", "one")
    desk.here("memory/calm.md").write_text("Saved behind it.\n")
    wait_until("what was saved behind it", (desk.bob.project / "memory/calm.md").exists)
    assert tree(desk.bob) == {**there, "memory/calm.md": b"Saved behind it.\n"}
    git("checkout", "-q", "two")
    desk.same()
    assert tree(desk.bob) == {**there, "memory/calm.md": b"Saved behind it.\n"}
    shutil.rmtree(desk.here(".git"))
    shutil.rmtree(elsewhere)


def test_a_file_becomes_a_folder_of_its_name(desk: Desk) -> None:
    """And a file again."""
    file = desk.here("memory/topic.md")
    file.write_text("The heron fishes.\n")
    desk.same()
    file.unlink()
    file.mkdir()
    (file / "inside.md").write_text("Not a memory: its folder is named like a file.\n")
    desk.same()
    assert not (desk.bob.project / "memory/topic.md").exists()
    shutil.rmtree(file)
    file.write_text("The heron is back.\n")
    desk.same()
    assert (desk.bob.project / "memory/topic.md").read_text() == "The heron is back.\n"


def test_a_file_that_is_saved_fifty_times_a_second(desk: Desk) -> None:
    """It does not hold the others up, and arrives as it was left; not every save is a revision."""
    file, other = desk.here("memory/busy.md"), desk.here("memory/calm.md")
    for number in range(80):
        file.write_text(f"Saved {number} times\n" * 50)
        if number == 20:
            other.write_text("Saved once.\n")
        if number == 79:
            assert (desk.bob.project / "memory/calm.md").exists()
        time.sleep(0.02)
    desk.same()
    assert b"Saved 79 times" in tree(desk.bob)["memory/busy.md"]
    assert desk.ann.json("read", "memory/busy.md")["revision"] <= 12


def test_the_memory_folder_is_deleted_and_made_again(desk: Desk) -> None:
    """While it is watched, too, nobody deletes all memory so: it comes back, and what is put there later is watched again."""
    desk.here("memory/before.md").write_text("The heron fishes.\n")
    desk.same()
    before = tree(desk.bob)
    shutil.rmtree(desk.here("memory"))
    desk.here("memory").mkdir()
    desk.here("memory/after.md").write_text("The okapi waits.\n")
    desk.same()
    # With what was deleted in the ten seconds before.
    assert tree(desk.bob).items() >= {**before, "memory/after.md": b"The okapi waits.\n"}.items()
    desk.here("memory/after.md").write_text("The ibis still waits.\n")
    desk.same()
