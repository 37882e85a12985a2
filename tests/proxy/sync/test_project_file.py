"""What a project's own file may say: its name, and which files are left out. Never more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from confide_proxy.errors import FolderError
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.project import identify
from confide_proxy.sync.walk import FILE, load_project_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in ("MEMORY.md", "memory/a.md", "memory/private/b.md", "memory/private/deep/c.md", "docs/d.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text\n")
    return tmp_path


def watched(root: Path) -> list[str]:
    return [file.path for file in Folder("p", root, ("docs/*.md",)).walk()]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ('["memory/private/*.md"]', ["MEMORY.md", "memory/a.md", "docs/d.md"]),
        ('["memory/private/"]', ["MEMORY.md", "memory/a.md", "docs/d.md"]),
        ('["./memory/private"]', ["MEMORY.md", "memory/a.md", "docs/d.md"]),
        ('["memory/Private/B.md"]', ["MEMORY.md", "memory/a.md", "memory/private/deep/c.md", "docs/d.md"]),
        ('["MEMORY.md", "docs"]', ["memory/a.md", "memory/private/b.md", "memory/private/deep/c.md"]),
        (r"['memory\private']", ["MEMORY.md", "memory/a.md", "docs/d.md"]),
        (r"['.\memory\private\*.md ']", ["MEMORY.md", "memory/a.md", "docs/d.md"]),
        ('["*"]', []),
        ("[]", ["MEMORY.md", "memory/a.md", "memory/private/b.md", "memory/private/deep/c.md", "docs/d.md"]),
    ],
)
def test_excluded_files_are_left_out(root: Path, exclude: str, left: list[str]) -> None:
    """By globs or by folder, whatever case a file system, or an editor on Windows, makes of them; what the user's own globs add too."""
    for mark in ("", "\ufeff"):
        (root / FILE).write_text(f"{mark}exclude = {exclude}\r\n", encoding="utf-8", newline="")
        assert watched(root) == left


@pytest.mark.parametrize("glob", ["memory/gr\u00f6\u00dfe", "memory/gro\u0308\u00dfe", "memory/GRO\u0308*"])
@pytest.mark.parametrize("name", ["gr\u00f6\u00dfe", "gro\u0308\u00dfe"])
def test_a_glob_excludes_in_either_spelling(root: Path, glob: str, name: str) -> None:
    """What somebody means to keep back does not go out because their editor spells it otherwise than the disk."""
    (root / "memory" / name).mkdir()
    (root / "memory" / name / "a.md").write_text("x")
    folder = Folder("p", root)
    before = len(list(folder.walk()))
    (root / FILE).write_text(f'exclude = ["{glob}"]\n', encoding="utf-8")
    assert len(list(folder.walk())) == before - 1
    assert not folder.is_watched("memory/gr\u00f6\u00dfe/a.md")


def test_an_excluded_file_is_neither_read_nor_written_nor_missing(root: Path) -> None:
    """A folder that is in use follows the file at once; what is left out is not taken for deleted, whether it is there or not."""
    folder = Folder("p", root)
    before = folder.read("memory/private/b.md")
    (root / FILE).write_text('exclude = ["memory/private"]\n')
    assert not folder.is_watched("memory/private/b.md")
    for path in ("memory/private/b.md", "memory/private/never.md"):
        assert not folder.is_missing(path)
        with pytest.raises(FolderError, match="excluded"):
            folder.read(path)
        with pytest.raises(FolderError, match="excluded"):
            folder.write(path, "text\n", over=before)
    (root / FILE).unlink()
    assert folder.read("memory/private/b.md") == before


@pytest.mark.parametrize(
    "text", ["exclude = [", 'exclude = "memory/private"', "exclude = [1]", "# \xff", "x" * 70_000, '"' * 20_000]
)
def test_a_file_that_cannot_be_understood_leaves_out_everything(root: Path, text: str) -> None:
    """And says so; a typing mistake must not send what was meant to stay."""
    (root / FILE).write_bytes(text.encode("latin-1"))
    assert watched(root) == []
    (notice,) = Folder("p", root).narrowing.notices()
    assert "nothing of this project is sent" in notice


def test_a_pipe_in_its_place_holds_nobody_up(root: Path) -> None:
    """It is one more thing that cannot be understood."""
    os.mkfifo(root / FILE)
    assert watched(root) == []
    assert identify(root).name == root.name


def test_what_would_widen_is_ignored_and_said(root: Path) -> None:
    """Options of the user's own file have no effect here, nor do globs that lead elsewhere or take something back."""
    (root / FILE).write_text(
        'name = "shop"\nextra = ["**/*.md"]\nglobal_folder = "/"\nexclude = ["!memory/a.md", "/etc", "../x", "memory/a.md"]\n'
    )
    found = load_project_file(root)
    assert found.name == "shop"
    assert found.exclude == ("memory/a.md",)
    assert [next(word for word in ("extra", "global_folder", "!memory", "/etc", "../x") if word in n) for n in found.notices] == [
        "extra", "global_folder", "!memory", "/etc", "../x"
    ]  # fmt: skip
    assert "docs/d.md" not in [file.path for file in Folder("p", root).walk()]
