"""What a note speaks of: what is kept of it, and what is said of it later."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.stale.judge import judged

from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.note import SEEN_VALUE
from confide_proxy.freshness.note_ties import ProjectTies, TieState, TieVerdict

KEYS = SpaceKeys.generate()
CODE = "def login(user):\n    return user.name\n\n\ndef logout(user):\n    return None\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/auth.py").write_text(CODE)
    (tmp_path / "package.json").write_text(
        '{"dependencies": {"next": "15.1.0", "lodash.get": "4"}, "files": ["a", "b"]}'
    )
    return tmp_path


def looked(root: Path, seen: dict[str, str]) -> TieVerdict:
    verdict = ProjectTies(root, lambda: KEYS).verdict(seen, until=time.monotonic() + 60)
    assert verdict is not None
    return verdict


def made(root: Path, *names: str) -> dict[str, str]:
    return ProjectTies(root, lambda: KEYS).seen_for_parts(names)


def test_mutations_of_small_repositories(tmp_path: Path) -> None:
    """The short form of `python -m bench.stale.judge`."""
    found = judged(tmp_path, 250, files=1)
    assert found.stale > 500
    assert found.wrong == []
    assert len(found.needless) <= found.fresh / 100


def test_parts_of_every_form(root: Path) -> None:
    names = ("src/auth.py", "src/auth.py#login", "src/auth.py:5-6", "package.json#dependencies.next")
    more = ("package.json#dependencies.lodash.get", "package.json#files.1")
    seen = made(root, *names, *more)
    assert list(seen) == [*names, *more]
    assert all(SEEN_VALUE.fullmatch(value) for value in seen.values())
    assert looked(root, seen).mark == ""
    (root / "src/auth.py").write_text("import os\n\n" + CODE.replace("user.name", "user.id"))
    (root / "package.json").write_text('{"dependencies": {"next": "15.2.0", "lodash.get": "4"}, "files": ["a"]}')
    by_name = {name: looked(root, {name: value}).state for name, value in seen.items()}
    assert by_name == {
        "src/auth.py": TieState.CHANGED,
        "src/auth.py#login": TieState.CHANGED,
        "src/auth.py:5-6": TieState.FRESH,  # the lines were found again
        "package.json#dependencies.next": TieState.CHANGED,
        "package.json#dependencies.lodash.get": TieState.FRESH,
        "package.json#files.1": TieState.GONE,
    }
    mark = looked(root, seen).mark
    assert mark.startswith("changed since 20")
    assert mark.endswith("src/auth.py, src/auth.py#login and 2 more")


@pytest.mark.parametrize(
    "name", ["../x.py", "/etc/passwd", "src/none.py", "src/auth.py#none", "src/auth.py:9-2", "a\nb", "git:..", ""]
)
def test_what_is_no_part_is_not_tied(root: Path, name: str) -> None:
    assert made(root, name) == {}


def test_files_that_are_not_read(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A link out of the project, a repository within it, a device of its own kind, a huge file: none is tied, and none that took the
    place of a tied file is waited for.
    """
    seen = made(root, "src/auth.py#login")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "auth.py").write_text(CODE)
    file = root / "src/auth.py"

    def link() -> None:
        file.symlink_to(outside / "auth.py")

    def folder() -> None:
        (root / "src").rename(root / "old")
        (root / "src").symlink_to(outside)

    def submodule() -> None:
        (root / "src").unlink()
        (root / "old").rename(root / "src")
        file.write_text(CODE)
        (root / "src/.git").write_text("gitdir: ../.git/modules/src")

    def huge() -> None:
        (root / "src/.git").unlink()
        with file.open("wb") as opened:
            opened.truncate(2 * 2**30)

    cases: list[Callable[[], None]] = [link, folder, submodule, lambda: os.mkfifo(file), huge]
    for change in cases:
        file.unlink(missing_ok=True)
        change()
        verdict = looked(root, seen)
        assert verdict.state in (TieState.UNCHECKED, TieState.GONE)
        assert verdict.mark.startswith(("not checked: src/auth.py#login (", "gone: "))
        assert made(root, "src/auth.py", "src/auth.py#login") == {}
        if change is submodule:
            assert "another repository" in verdict.mark
    assert "larger than 1 MiB" in looked(root, seen).mark


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.test")
    subprocess.run(["git", *who, *arguments], cwd=root, check=False, capture_output=True)


def test_branches_worktrees_and_a_rebase(root: Path) -> None:
    """Each checkout has its own verdict; in the middle of a rebase nothing is called changed."""
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    seen = made(root, "src/auth.py#login", "git:main")
    assert all(len(value.split(" ")[2]) == 12 for value in seen.values())
    assert looked(root, seen).state is TieState.FRESH
    git(root, "checkout", "-q", "-b", "other")
    (root / "src/auth.py").write_text(CODE.replace("user.name", "user.id"))
    git(root, "commit", "-q", "-a", "-m", "two")
    assert looked(root, seen).parts == ("src/auth.py#login",)
    git(root, "worktree", "add", "-q", "--detach", "../beside", "main")
    assert looked(root.parent / "beside", seen).state is TieState.FRESH
    git(root, "checkout", "-q", "main")
    assert looked(root, seen).state is TieState.FRESH
    (root / "src/auth.py").write_text(CODE.replace("user.name", "user.mail"))
    git(root, "commit", "-q", "-a", "-m", "three")
    assert looked(root, seen).parts == ("src/auth.py#login", "git:main")
    git(root, "rebase", "-q", "other")
    assert "<<<<<<<" in (root / "src/auth.py").read_text()
    assert "git is in the middle" in looked(root, seen).mark
    git(root, "rebase", "--abort")
    assert "changed since" in looked(root, seen).mark


def test_the_hashes_tell_nothing_without_the_key(root: Path) -> None:
    """Another space's key gives others, and a device without keys makes and says nothing."""
    seen = made(root, "src/auth.py")
    other = ProjectTies(root, SpaceKeys.generate).seen_for_parts(["src/auth.py"])
    for own, others in zip(seen["src/auth.py"].split(" ")[:2], other["src/auth.py"].split(" ")[:2], strict=True):
        assert own != others
    without = ProjectTies(root, lambda: None)
    assert without.seen_for_parts(["src/auth.py"]) == {}
    verdict = without.verdict(seen, until=time.monotonic() + 1)
    assert verdict is not None
    assert verdict.mark == "not checked: src/auth.py (no keys of the space)"


def test_what_a_text_names(root: Path) -> None:
    """The function that is named with its file; the file without one; no file of the memory, and no lock file."""
    (root / "poetry.lock").write_text("x")
    (root / "memory").mkdir()
    (root / "memory/plan.md").write_text("x")
    ties = ProjectTies(root, lambda: KEYS)
    assert list(ties.seen_for_text("`login()` of src/auth.py must not cache")) == ["src/auth.py#login"]
    assert list(ties.seen_for_text("never edit src/auth.py by hand; see memory/plan.md, poetry.lock")) == [
        "src/auth.py"
    ]
    assert list(ties.seen_for_text("see src/auth.py:5-6 and https://a.test/src/auth.py")) == ["src/auth.py:5-6"]
    assert ties.seen_for_text("nothing of src/none.py") == {}


def test_lines_that_a_file_has_twice(root: Path) -> None:
    """The twin of changed lines is not taken for them; with what is around them they may move."""
    text = "a:\n  wait: 5\n\nb:\n  wait: 5\n\nc:\n  wait: 5\n"
    file = root / "limits.yml"
    file.write_text(text)
    seen = made(root, "limits.yml:5")
    file.write_text("# told\n" + text)
    assert looked(root, seen).state is TieState.FRESH
    file.write_text(text.replace("b:\n  wait: 5", "b:\n  wait: 9"))
    assert looked(root, seen).state is TieState.CHANGED
    file.write_text("x\n" * 40)
    seen = made(root, "limits.yml:20")
    file.write_text("x\n" * 19 + "y\n" + "x\n" * 20)
    assert looked(root, seen).state is TieState.CHANGED


def test_a_large_file_that_was_changed_is_not_waited_for(root: Path) -> None:
    """It is unchecked, and known at a later look."""
    text = CODE + "".join(f"def f{number}(a):\n    return a + {number}\n" for number in range(20_000))
    file = root / "src/auth.py"
    file.write_text(text)
    ties = ProjectTies(root, lambda: KEYS)
    seen = ties.seen_for_parts(["src/auth.py#login"])
    file.write_text(text + "\n")
    verdict = ties.verdict(seen, until=0.0)
    assert verdict is not None
    assert verdict.state is TieState.UNCHECKED
    verdict = ties.verdict(seen, until=time.monotonic() + 60)
    assert verdict is not None
    assert verdict.state is TieState.FRESH
