"""Lines that a stranger has committed are told from what was written or changed here, with a real git."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S

from confide_memory.documents import text_hash
from confide_proxy.sync.commits import Commits, Lines, is_whole
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


def by_others(root: Path, name: str = NAME, *, addresses: tuple[str, ...] = ()) -> list[Lines]:
    content = Folder("proj", root).read(name)
    assert content is not None
    return Commits(addresses).by_others(root / name, content)


def is_a_strangers(root: Path, name: str = NAME) -> bool:
    content = Folder("proj", root).read(name)
    assert content is not None
    found = by_others(root, name)
    assert is_whole(content, found) is bool(found)
    return bool(found)


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


@pytest.mark.parametrize(
    "make",
    [
        lambda root: commit(root, by=ANN),
        lambda root: commit(root, by="Ann@Example.org"),
        write,  # a repository without a commit
        lambda root: commit(root, name="a.txt") or write(root),
        lambda root: write(root) or git(root, "add", "-A"),
    ],
)
def test_what_was_written_or_changed_here_is_not(root: Path, make: Callable[[Path], object]) -> None:
    make(root)
    assert not is_a_strangers(root)


OURS = "Ours stands first.\n\n"


def _edited(root: Path) -> None:
    commit(root)
    write(root, OURS + ORDER)


def _renamed(root: Path) -> None:
    commit(root, name="memory/old.md")
    (root / "memory/notes").mkdir()
    git(root, "mv", "memory/old.md", NAME)
    git(root, "commit", "-qm", "x", by=ANN)
    commit(root, OURS + ORDER, by=ANN)


def _merged_in_one_file(root: Path) -> None:
    commit(root, "The base.\n", by=ANN)
    git(root, "checkout", "-qb", "theirs")
    commit(root, f"The base.\n{ORDER}")
    git(root, "checkout", "-q", "-")
    commit(root, "Ours stands first.\n\nThe base.\n", by=ANN)
    git(root, "merge", "-q", "--no-edit", "theirs", by=ANN)


def _in_a_conflict(root: Path) -> None:
    commit(root, "The base.\n", by=ANN)
    git(root, "checkout", "-qb", "theirs")
    commit(root, ORDER)
    git(root, "checkout", "-q", "-")
    commit(root, "Ours.\n", by=ANN)
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "-q", "theirs", by=ANN)
    write(root, OURS + ORDER)


def _moved(root: Path) -> None:
    commit(root, f"{ORDER}Ours stands first.\n", by=MALLORY)
    commit(root, f"Ours begins.\n\n{ORDER}", by=ANN)
    commit(root, "Ours begins.\n\n    " + ORDER.replace("\n", "\n    ", 1), by=ANN)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (_edited, (3, 4)),
        (lambda root: _edited(root) or git(root, "commit", "-qam", "x", by=ANN), (3, 4)),
        (_renamed, (3, 4)),
        (_merged_in_one_file, (4, 5)),
        (_in_a_conflict, (3, 4)),
        (_moved, (3, 4)),
    ],
)
def test_of_a_file_by_several_people_the_lines_are_told(
    root: Path, make: Callable[[Path], object], lines: Lines
) -> None:
    """However the user's last commit looks: an edit, a new name, a merge of both, other blanks, a conflict in progress."""
    make(root)
    assert by_others(root) == [lines]


def test_a_line_that_both_have_is_the_users(root: Path) -> None:
    commit(root, "# Rules\n\nThe port is 80.\n", by=ANN)
    commit(root, "# Rules\n\nThe port is 80.\n\n# Rules\n\nThe port is 81.\n")
    assert by_others(root) == [(7, 7)]


def test_the_user_has_several_addresses(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's for all repositories, git's for this one, and those of the user's own configuration."""
    (tmp_path / ".gitconfig").write_text("[user]\n\temail = ann@home.example\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = ""
    for number, address in enumerate((ANN, "ann@home.example", "ann@old.example")):
        text += f"Line {number}.\n"
        commit(root, text, by=address)
    assert by_others(root) == [(3, 3)]
    assert by_others(root, addresses=("Ann@Old.example",)) == []


def test_the_first_commit_of_another_person_is_noticed(root: Path) -> None:
    """Whose commits there are is read once, and then only of what is new: a pull, another branch, a history that was rewritten."""
    commits = Commits()

    def found() -> list[Lines]:
        content = Folder("proj", root).read(NAME)
        assert content is not None
        return commits.by_others(root / NAME, content)

    commit(root, "Ours.\n", by=ANN)
    assert found() == []
    git(root, "checkout", "-qb", "theirs")
    commit(root, f"Ours.\n{ORDER}")
    assert found() == [(2, 3)]
    git(root, "checkout", "-q", "-")
    assert found() == []
    git(root, "commit", "-q", "--amend", "--no-edit", "--author", f"x <{MALLORY}>")
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "branch", "-qD", "theirs")
    git(root, "gc", "-q", "--prune=now")
    assert found() == [(1, 1)]


def test_no_address_is_nobodys(root: Path) -> None:
    commit(root, by="")
    git(root, "config", "user.email", "")
    assert by_others(root, addresses=("",)) == [(1, 2)]


def test_a_shallow_clone_hides_who_wrote_what_was_before(root: Path, tmp_path: Path) -> None:
    """Its oldest commit, the user's own, looks as if it had brought all of the file."""
    commit(root)
    for number in (1, 2):
        commit(root, ORDER + "Ours.\n" * number, by=ANN)
    clone = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{root}", str(clone))
    git(clone, "config", "user.email", ANN)
    assert is_a_strangers(clone)
    commit(clone, ORDER + "Ours.\nOurs.\nWritten here.\n", by=ANN)
    assert by_others(clone) == [(1, 4)]


def test_the_repository_does_not_say_who_wrote_what(root: Path) -> None:
    """Neither a map of names, nor commits to look past, nor grafts, nor replaced objects make a stranger's lines the user's."""
    commit(root, ORDER.replace("verify", "test").replace("80", "81"), by=ANN)
    commit(root)
    _, theirs = git(root, "rev-list", "--reverse", "HEAD").split()
    (root / ".mailmap").write_text(f"Ann <{ANN}> x <{MALLORY}>\n")
    assert is_a_strangers(root)
    (root / ".mailmap").unlink()
    (root / ".ignored").write_text(f"{theirs}\n")
    git(root, "config", "blame.ignoreRevsFile", str(root / ".ignored"))
    assert ANN in git(root, "blame", "-e", "HEAD", NAME)
    assert is_a_strangers(root)
    git(root, "config", "--unset", "blame.ignoreRevsFile")
    git(root, "commit", "-q", "--amend", "--no-edit", "--author", f"x <{ANN}>")
    git(root, "replace", theirs, "HEAD")
    git(root, "reset", "-q", "--hard", theirs)
    assert ANN in git(root, "blame", "-e", "HEAD", NAME)
    assert is_a_strangers(root)


def test_a_submodule_answers_for_itself(root: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other")
    commit(other, name="rules.md")
    commit(root, by=ANN, name="a.txt")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "memory")
    git(root, "commit", "-qm", "x", by=ANN)
    git(root / "memory", "config", "user.email", ANN)
    assert (root / "memory/.git").is_file()
    assert is_a_strangers(root, "memory/rules.md")


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
    assert all(is_whole(content, commits.by_others(root / NAME, content)) for _ in range(3))
    assert len((tmp_path / "asked").read_text().split()) == (1 if "sleep" in program else 3)


def test_nothing_of_the_repository_is_run(root: Path, tmp_path: Path) -> None:
    """Its configuration may come in an archive: with programs, and with a place from which objects are fetched."""
    commit(root, by=ANN)
    commit(root, name="a.txt")
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
