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
        wait_until("the same files on both", self._are_same, 30)
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


@pytest.mark.parametrize("save", [vim, emacs, vs_code, jetbrains, plain_rename])
def test_however_it_is_saved(desk: Desk, save: object) -> None:
    """A new file, two edits of it close together, and one later."""
    file = desk.here(f"memory/{save.__name__}.md")  # type: ignore[attr-defined]
    for number in range(3):
        save(file, b"# Herons\n\n" + b"They fish at dawn.\n" * (number + 1))  # type: ignore[operator]
    desk.same()
    save(file, b"# Herons\n\nThey sleep.\n")  # type: ignore[operator]
    desk.same()
    assert desk.bob.project.joinpath(f"memory/{file.name}").read_bytes() == b"# Herons\n\nThey sleep.\n"
    assert not [name for name in os.listdir(desk.bob.project / "memory") if not name.endswith(".md")]


STYLES = {
    "crlf": b"# One\r\n\r\nTwo\r\nThree\r\n",
    "bom": b"\xef\xbb\xbf# One\n\nTwo\nThree\n",
    "both": b"\xef\xbb\xbf# One\r\n\r\nTwo\r\nThree\r\n",
    "no newline": b"# One\n\nTwo\nThree",
    "mixed": b"# One\r\n\nTwo\nThree\r\n",
    "empty": b"",
}


@pytest.mark.parametrize("style", STYLES)
def test_the_bytes_stay_as_they_were_written(desk: Desk, style: str) -> None:
    """Neither machine's file is rewritten, whatever its line ends."""
    file = desk.here(f"memory/style-{style.replace(' ', '-')}.md")
    file.write_bytes(STYLES[style])
    inode = file.stat().st_ino
    desk.same()
    file.write_bytes(b"# Changed\n")
    desk.same()
    file.write_bytes(STYLES[style])
    desk.same()
    assert file.stat().st_ino == inode
    assert (desk.bob.project / file.relative_to(desk.ann.project)).read_bytes() == STYLES[style]


@pytest.mark.parametrize("style", ["crlf", "bom", "both"])
def test_an_addition_takes_the_style_of_its_file(desk: Desk, style: str) -> None:
    """A store, and a merge with what the other machine wrote: still one kind of line end, still the mark at the start."""
    path = f"memory/added-{style}.md"
    file = desk.here(path)
    file.write_bytes(STYLES[style])
    desk.same()
    desk.bob.run("store", "Four", "--path", path)
    desk.same()
    data = file.read_bytes()
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


def test_git_checkout_of_500_files(desk: Desk) -> None:
    """Another branch changes, adds and removes 500 files: all arrive, in a few steps and not in 500."""

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=desk.ann.project,
            env={**desk.ann.env, "GIT_CONFIG_NOSYSTEM": "1"},
            check=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )

    git("init", "-q", "-b", "one")
    folder = desk.here("memory/repo")
    folder.mkdir()
    for number in range(350):
        (folder / f"{number}.md").write_text(f"Number {number} on branch one\n")
    git("add", "-f", "memory/repo")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "two")
    for number in range(150):
        (folder / f"{number}.md").write_text(f"Number {number} on branch two\n")
        (folder / f"{number + 150}.md").unlink()
        (folder / "more" / str(number % 7)).mkdir(parents=True, exist_ok=True)
        (folder / "more" / str(number % 7) / f"{number}.md").write_text(f"More {number}\n")
    git("add", "-fA", "memory/repo")
    git("commit", "-qm", "two")
    desk.same()
    while not desk.watch.said.empty():
        desk.watch.said.get()
    git("checkout", "-q", "one")
    desk.same()
    assert len([path for path in tree(desk.bob) if path.startswith("memory/repo/")]) == 350
    steps = 0
    while not desk.watch.said.empty():
        steps += desk.watch.said.get()["event"] == "synced"
    assert steps <= 12
    shutil.rmtree(desk.here(".git"))


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
    for number in range(120):
        file.write_text(f"Saved {number} times\n" * 50)
        if number == 20:
            other.write_text("Saved once.\n")
        if number == 119:
            assert (desk.bob.project / "memory/calm.md").exists()
        time.sleep(0.02)
    desk.same()
    assert b"Saved 119 times" in tree(desk.bob)["memory/busy.md"]
    assert desk.ann.json("read", "memory/busy.md")["revision"] <= 12


def test_the_memory_folder_is_deleted_and_made_again(desk: Desk) -> None:
    """While it is watched that is a deletion, and what is put there later is watched again."""
    desk.here("memory/before.md").write_text("The heron fishes.\n")
    desk.same()
    shutil.rmtree(desk.here("memory"))
    time.sleep(0.05)
    desk.here("memory").mkdir()
    desk.here("memory/after.md").write_text("The ibis waits.\n")
    desk.same()
    assert tree(desk.bob).keys() == {"memory/after.md"}
    desk.here("memory/after.md").write_text("The ibis still waits.\n")
    desk.same()
