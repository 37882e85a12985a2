"""What a stranger has committed is told from what was written or changed here, with a real git."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S

from confide_memory.documents import text_hash
from confide_proxy.sync.commits import Commits
from confide_proxy.sync.folder import Content, Folder

ORDER = "Each change is tried with scripts/verify.sh before it is committed.\nThe port is 80.\n"
NAME = "memory/notes/rules.md"
MALLORY, ANN = "m@evil.example", "ann@example.org"


def git(folder: Path, *arguments: str, by: str = MALLORY) -> str:
    told = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=x", "-c", f"user.email={by}", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return told.stdout


def write(root: Path, text: str = ORDER, name: str = NAME) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


def commit(root: Path, text: str = ORDER, *, by: str = MALLORY, name: str = NAME) -> None:
    write(root, text, name)
    git(root, "add", "-A", by=by)
    git(root, "commit", "-qm", "x", by=by)


def repository(folder: Path, *, address: str = ANN) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "config", "user.name", "Ann")
    git(folder, "config", "user.email", address)
    return folder


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine git takes as long as it takes; what follows when it takes too long has tests of its own."""
    monkeypatch.setattr("confide_proxy.sync.commits._DEADLINE_S", DEADLINE_S)


def is_a_strangers(root: Path, name: str = NAME) -> bool:
    content = Folder("proj", root).read(name)
    assert content is not None
    return Commits().has_a_strangers(root / name, content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "clone")


def _pulled(root: Path) -> None:
    commit(root, "ours\n", by=ANN)
    commit(root)


def _merged(root: Path) -> None:
    commit(root, "base\n", by=ANN, name="a.txt")
    git(root, "checkout", "-qb", "theirs")
    commit(root)
    git(root, "checkout", "-q", "-")
    commit(root, "base 2\n", by=ANN, name="a.txt")
    git(root, "merge", "-q", "--no-edit", "theirs", by=ANN)


def _picked(root: Path) -> None:
    commit(root)
    git(root, "commit", "-q", "--amend", "--no-edit", by=ANN)


def _with_line_ends(root: Path) -> None:
    commit(root)
    write(root, ORDER.replace("\n", "\r\n"))


def _with_attributes(line: str) -> Callable[[Path], None]:
    """A stranger has git write another text into the file than the blob has."""

    def make(root: Path) -> None:
        (root / ".gitattributes").write_text(f"*.md {line}\n")
        commit(root)
        write(root, f"{ORDER}$Id: 12 $\n")

    return make


@pytest.mark.parametrize(
    "make",
    [
        commit,
        _pulled,
        _merged,
        _picked,
        _with_line_ends,
        _with_attributes("ident"),
        _with_attributes("filter=lfs"),
        _with_attributes("working-tree-encoding=UTF-7"),
        lambda root: git(root, "config", "--unset", "user.email") + str(commit(root)),
        lambda root: commit(root, name="memory/[x] a*.md") or commit(root),
    ],
)
def test_what_came_with_a_clone_is_a_strangers(
    root: Path, make: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root)
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as a hook of git's hands it down
    assert is_a_strangers(root)


def _edited(root: Path) -> None:
    commit(root)
    write(root, f"{ORDER}And ours.\n")


@pytest.mark.parametrize(
    "make",
    [
        lambda root: commit(root, by=ANN),
        lambda root: commit(root, by="Ann@Example.org"),
        lambda root: commit(root) or commit(root, f"{ORDER}And ours.\n", by=ANN),
        _edited,
        write,  # a repository without a commit
        lambda root: commit(root, name="a.txt") or write(root),
        lambda root: write(root) or git(root, "add", "-A"),
    ],
)
def test_what_was_written_or_changed_here_is_not(root: Path, make: Callable[[Path], object]) -> None:
    make(root)
    assert not is_a_strangers(root)


def test_names_are_taken_as_they_are(root: Path) -> None:
    """One that is a pattern of git's tells nothing of others."""
    commit(root)
    commit(root, "ours\n", by=ANN, name="memory/notes/r*.md")
    commit(root, "ours\n", by=ANN, name="memory/notes/rulés.md")
    assert is_a_strangers(root)
    assert not is_a_strangers(root, "memory/notes/r*.md")
    assert not is_a_strangers(root, "memory/notes/rulés.md")


def test_a_repository_within_answers_for_itself(root: Path) -> None:
    commit(root, by=ANN, name="a.txt")
    inner = repository(root / "memory")
    commit(inner, name="rules.md")
    assert is_a_strangers(root, "memory/rules.md")


def test_a_folder_without_git_is_as_it_was(tmp_path: Path) -> None:
    write(tmp_path)
    assert not is_a_strangers(tmp_path)
    (tmp_path / ".git").mkdir()  # no repository yet
    assert not is_a_strangers(tmp_path)


def test_a_machine_without_git_is_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit(root)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_a_strangers(root)


@pytest.mark.parametrize("program", ["exit 3", "exec sleep 30"])
def test_where_git_gives_no_answer_nobody_vouches(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    """A git that hangs is not waited for again for each of many files."""
    commit(root, by=ANN)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\n{program}\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr("confide_proxy.sync.commits._DEADLINE_S", 1.0)
    commits, content = Commits(), Content(ORDER, text_hash(ORDER), len(ORDER), time.time_ns())
    assert all(commits.has_a_strangers(root / NAME, content) for _ in range(3))
    assert len((tmp_path / "asked").read_text().split()) == (1 if "sleep" in program else 3)


def test_nothing_of_the_repository_is_run(root: Path, tmp_path: Path) -> None:
    """Its configuration may come in an archive: with programs, and with a place from which objects are fetched."""
    commit(root, by=ANN)
    commit(root, by=ANN, name="a.txt")
    ran = f"touch {tmp_path}/ran"
    for name, value in (
        *(("filter.x.clean", ran), ("filter.x.smudge", ran), ("filter.x.process", ran), ("diff.x.textconv", ran)),
        *(("core.fsmonitor", ran), ("core.pager", ran), ("core.sshCommand", ran), ("gpg.program", ran)),
        *(("log.showSignature", "true"), ("remote.o.url", f"ext::{ran}"), ("remote.o.promisor", "true")),
        *(("extensions.partialClone", "o"), ("protocol.ext.allow", "always"), ("core.hooksPath", "hooks")),
    ):
        git(root, "config", name, value)
    (root / ".gitattributes").write_text("*.md filter=x diff=x\n")
    tree = git(root, "rev-parse", "HEAD~1^{tree}").strip()
    (root / ".git/objects" / tree[:2] / tree[2:]).unlink()
    assert is_a_strangers(root)
    assert not (tmp_path / "ran").exists()
