"""A hostile project folder, of every kind that a repository or an archive can hold: nothing outside it is read or written, nobody else's
name is taken, and everything comes to an end."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from tests.proxy.cli.test_console_hostile_texts import STEERS
from tests.support.daemon.hostile import PATHS
from tests.support.documents.hostile_folders import (
    BELIEVED,
    CANARY,
    GIT_CONFIGS,
    VICTIM,
    Put,
    folders,
    in_time,
    seen,
    write_outside,
)
from tests.support.draws import draws

from confide_memory import front_matter, note
from confide_memory.documents import GLOBAL_PROJECT
from confide_memory.tools.question import question
from confide_proxy.errors import ChangedMeanwhileError, FolderError
from confide_proxy.offline.local_corpus import LocalMemory
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.folder import Content, Folder
from confide_proxy.sync.project import MAX_NAME_BYTES, Basis, git_says, identify, ignore_memory
from confide_proxy.sync.walk import load_project_file
from confide_proxy.sync.workspace import obstacles

MOST_KEPT = 4 * 2**20


@contextmanager
def made(puts: list[Put]) -> Iterator[tuple[Path, Path]]:
    """The hostile folder and the one beside it, which is as it was when this ends."""
    with tempfile.TemporaryDirectory() as parent, in_time():
        base = Path(parent).resolve()
        outside, root = base / "outside", base / "project"
        write_outside(outside)
        root.mkdir()
        for put in puts:
            put.make(root, outside)
        before = seen(outside)
        yield root, outside
        assert seen(outside) == before


def check_told(*texts: str) -> None:
    for text in texts:
        assert CANARY not in text
        assert STEERS.search(text) is None, text
        assert "\n" not in text


def repository(*puts: Put) -> list[Put]:
    return [Put("MEMORY.md", "file", b"x\n"), *puts]


WORKTREES = [
    repository(Put(".git", "git", config), Put("sub", "folder")) for config in GIT_CONFIGS if b"worktree" in config
]

ABOVE = next(config for config in GIT_CONFIGS if b"worktree = ../..\n" in config)
"""Of a folder that has no memory of its own, which would be a project whatever git says."""


@settings(max_examples=draws(90), suppress_health_check=list(HealthCheck))
@given(puts=folders())
@example(puts=WORKTREES[0])
@example(puts=WORKTREES[1])
@example(puts=WORKTREES[2])
@example(puts=[Put(".git", "git", ABOVE)])
@example(puts=[Put(".git", "file", "gitdir: ../outside/tree")])
@example(puts=[Put(".confide.toml", "link", "{outside}/named.toml")])
def test_no_folder_passes_for_another_project(puts: list[Put]) -> None:
    """Its name can be sent and shown, its place is where it is, and what it is called by a file is no more than a claim."""
    with made(puts) as (root, _outside):
        for here in (root, root / "sub", root / "memory"):
            if here.is_dir() and not here.is_symlink():
                claim = identify(here)
                assert claim.name.isprintable()
                assert 0 < len(claim.name.encode()) <= MAX_NAME_BYTES
                assert claim.name != GLOBAL_PROJECT
                assert root in (claim.root, *claim.root.parents), claim
                check_told(claim.name)
                is_forged = any(put.kind == "git" and put.what in BELIEVED for put in puts)
                if claim.basis is Basis.REMOTE and not is_forged:
                    assert VICTIM not in claim.name, claim


@settings(max_examples=draws(120), suppress_health_check=list(HealthCheck))
@given(puts=folders())
def test_nothing_outside_of_a_folder_is_read_or_written(puts: list[Put]) -> None:
    with made(puts) as (root, _outside):
        said = load_project_file(root)
        check_told(*said.notices)
        assert CANARY not in (said.name or "")
        folder = Folder("p", root, ("docs/*.md", "**/*.md"))
        for path, why in folder.passed_by():
            check_told(path, why)
        contents: dict[str, Content] = {}
        for path in {*(found.path for found in folder.walk()), *PATHS, "memory/a.md", "memory/c.md"}:
            try:
                content = folder.read(path)
            except FolderError as error:
                check_told(error.problem)
                continue
            if content is not None:
                assert CANARY not in content.text
                assert content.size <= MOST_KEPT
                contents[path] = content
                for text in (content.text, content.text.replace("\n", "\r\n")):
                    front_matter.parse(text)
                    note.read("p", path, text)
        memory = LocalMemory([folder], lambda _projects: [])
        found, _unread = memory.search(question("acquisition OR Nightingale"), least=0.0)
        assert not found
        memory.close()
        for path in (*PATHS, *contents):
            for over in (contents.get(path), None):
                with suppress(FolderError, ChangedMeanwhileError):
                    folder.write(path, "from elsewhere\n", over=over)
            with suppress(FolderError, ChangedMeanwhileError):
                folder.delete(path, over=contents.get(path, Content("", "", 0, 0)))
        folder.sweep()


@pytest.mark.parametrize("config", sorted(BELIEVED))
def test_an_archive_with_a_whole_repository_is_believed(config: bytes) -> None:
    """As docs/threat-model.md says of it: who can have you open one could have run programs as you at the next `git status`."""
    with made([Put(".git", "git", config)]) as (root, _outside):
        claim = identify(root)
        assert (claim.name, claim.basis, claim.root) == (VICTIM, Basis.REMOTE, root)


def test_a_project_file_that_is_no_file_of_the_folder_keeps_all_back(tmp_path: Path) -> None:
    """What it says is not known, so nothing goes out; and the name in a file outside is not sent."""
    write_outside(tmp_path / "outside")
    for number, put in enumerate((Put(".confide.toml", "link", "{outside}/named.toml"), Put(".confide.toml", "pipe"))):
        root = tmp_path / f"project{number}"
        (root / "memory").mkdir(parents=True)
        (root / "memory/a.md").write_text("x\n")
        put.make(root, tmp_path / "outside")
        said = load_project_file(root)
        assert said.name is None
        assert "is no regular file; nothing of this project is sent or received until it is right" in said.notices
        assert not list(Folder("p", root).walk())


def test_a_project_file_costs_no_more_than_its_length() -> None:
    """A key of very many parts is refused unparsed; 256 globs of files are not that many."""
    with made([Put(".confide.toml", "file", b".".join([b"a"] * 30_000) + b" = 1\n")]) as (root, _outside):
        (notice,) = load_project_file(root).notices
        assert "has more than 2,048 dots; nothing of this project is sent" in notice
        globs = ", ".join(f'"memory/a.{number}.draft.md"' for number in range(256))
        (root / ".confide.toml").write_text(f"exclude = [{globs}]\n")
        assert not load_project_file(root).notices


@pytest.mark.parametrize("kind", ["huge", "hard link", "link", "socket", "device"])
def test_what_a_repository_leaves_out_is_in_its_own_file(kind: str) -> None:
    """It gets a line at the first store; a device in its place would be read without end, and a hard link leads outside."""
    puts = [Put(".git", "git", b""), Put(".git/info/exclude", kind, "{outside}/keep.md" if kind == "link" else b"")]
    with made(puts) as (root, outside):
        ignore_memory(root)
        if kind == "hard link":
            excluded = (root / ".git/info/exclude").read_text()
            assert excluded == (outside / "linked.md").read_text() + "/memory/\n"


def test_the_folder_of_that_file_is_no_link() -> None:
    with made([Put(".git", "git", b""), Put(".git/info", "link", "{outside}/other")]) as (root, outside):
        assert ignore_memory(root) is None
        assert not (outside / "other/exclude").exists()


def test_no_program_is_started_for_what_a_repository_lacks(tmp_path: Path) -> None:
    """An archive may hold one that is half a clone, and says by which program the rest is to be had."""
    root, ran = tmp_path / "root", tmp_path / "ran"
    root.mkdir()
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    with (root / ".git/config").open("a") as config:
        config.write(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n"
            f'[remote "origin"]\n\turl = {tmp_path}\n\tpromisor = true\n\tuploadpack = "touch {ran}; false"\n'
        )
    code, _said = git_says(root, "cat-file", "blob", "1" * 40)
    assert code != 0
    assert not ran.exists()


@pytest.mark.parametrize(("what", "why"), [("link", "is a symlink"), ("file", "is not a folder"), ("pipe", "is not")])
def test_a_memory_that_is_no_folder_is_told_of_everywhere(tmp_path: Path, what: str, why: str) -> None:
    """The doctor and the status said that all is well, and that there are no files."""
    memory = tmp_path / "project/memory"
    (tmp_path / "elsewhere").mkdir()
    memory.parent.mkdir()
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "proxy", tmp_path / "global", tmp_path / "daemon")
    folder = Folder("p", memory.parent)
    assert (folder.passed_by(), obstacles(paths, folder)) == ([], [])
    if what == "link":
        memory.symlink_to(tmp_path / "elsewhere")
    elif what == "pipe":
        os.mkfifo(memory)
    else:
        memory.write_text("- a note\n")
    [(path, reason)] = folder.passed_by()
    [told] = obstacles(paths, folder)
    assert (path, why in reason, why in told, "put a folder there" in told) == ("memory", True, True, True)
