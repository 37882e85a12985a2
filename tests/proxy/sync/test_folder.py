"""A memory folder: what is walked, what is read, and that nothing outside it is ever touched."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.documents.closed_folders import closed

from confide_memory.documents import text_hash
from confide_proxy.errors import ChangedMeanwhileError, FolderError
from confide_proxy.sync.folder import Content, Folder, is_spelled_so

SOME = Content("", "", 0, 0)
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0\nsize 12345\n"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "project"
    (root / "memory" / "notes").mkdir(parents=True)
    return Folder("p", root, ("docs/**/*.md",), max_bytes=1024)


def paths(folder: Folder) -> list[str]:
    return sorted(found.path for found in folder.walk())


def test_walks_memory_and_extra_markdown_only(folder: Folder) -> None:
    """MEMORY.md, memory/** and the configured globs are found; editors' leftovers and other files are not."""
    for name in ("MEMORY.md", "memory/a.md", "memory/notes/b.md", "docs/adr/1.md"):
        file = folder.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    for name in ("README.md", "memory/a.md~", "memory/.#a.md", "memory/.hidden.md", "memory/a.txt", "docs/x.rst"):
        (folder.root / name).write_text("x")
    assert paths(folder) == ["MEMORY.md", "docs/adr/1.md", "memory/a.md", "memory/notes/b.md"]


@pytest.mark.parametrize(
    ("below", "mode", "unread"),
    [
        ("memory/notes", 0o000, {"memory/notes": "cannot be listed: Permission denied"}),
        ("memory/notes", 0o600, {"memory/notes/b.md": "cannot be opened: Permission denied"}),
        ("memory", 0o000, {"memory": "cannot be listed: Permission denied"}),
        ("memory", 0o600, {"memory/notes": "cannot be listed: Permission denied"}),
        ("", 0o300, {".": "cannot be listed: Permission denied"}),
        ("docs", 0o000, {"docs": "cannot be listed: Permission denied"}),
        ("other", 0o000, {}),
    ],
)
def test_what_may_not_be_read_is_not_taken_for_empty(
    folder: Folder, below: str, mode: int, unread: dict[str, str]
) -> None:
    """Neither a folder that cannot be listed, nor one whose files cannot be looked at; others' are left alone."""
    for name in ("memory/notes/b.md", "docs/1.md", "other/x.md"):
        (folder.root / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / name).write_text("x")
    with closed(folder.root / below, mode):
        listing = folder.look()
        assert (listing.unread, listing.passed_by) == (unread, [])
        assert listing.unread_memory() == {path: why for path, why in unread.items() if path != "docs"}
    assert folder.look().unread == {}


def test_an_excluded_folder_may_be_closed(folder: Folder) -> None:
    """Nothing in it is memory."""
    (folder.root / ".confide.toml").write_text('exclude = ["memory/notes"]\n')
    with closed(folder.root / "memory" / "notes"):
        assert folder.look().unread == {}


@pytest.mark.parametrize(
    ("extra", "taken"),
    [
        (["**/*.md"], ["Inbox.md", "docs/a.md", "docs/b/c.md"]),
        (["docs/**/*.md"], ["docs/a.md", "docs/b/c.md"]),
        (["docs/**"], ["docs/a.md", "docs/b/c.md"]),
        (["./docs/"], ["docs/a.md", "docs/b/c.md"]),
        (["docs"], ["docs/a.md", "docs/b/c.md"]),
        (["docs/*.md"], ["docs/a.md"]),
        (["*.md"], ["Inbox.md"]),
        (["Inbox.md", "docs/b/*.md"], ["Inbox.md", "docs/b/c.md"]),
        (["**/*.md", "docs/**/*.md", "docs/b"], ["Inbox.md", "docs/a.md", "docs/b/c.md"]),
        (["/docs/*.md", "../*.md", "", "docs/*.txt"], []),
    ],
)
def test_the_files_that_a_glob_takes(tmp_path: Path, extra: list[str], taken: list[str]) -> None:
    """At the top too, and each once."""
    for name in ("Inbox.md", "docs/a.md", "docs/b/c.md", "docs/a.txt", "node_modules/x.md", ".obsidian/x.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    folder = Folder("shop", tmp_path, tuple(extra))
    assert paths(folder) == taken
    assert all(folder.is_watched(path) for path in taken)


@pytest.mark.parametrize(
    ("extra", "taken"),
    [
        (["**/*.md"], ["notes/a.md"]),
        (["client", "lib/**/*.md"], ["client/README.md", "client/docs/plan.md", "lib/b.md"]),
        (["**/*.md", "client/docs"], ["client/docs/plan.md", "notes/a.md"]),
        (["*/*.md"], ["notes/a.md"]),
    ],
)
def test_another_project_below_the_folder_is_not_taken_along(
    tmp_path: Path, extra: list[str], taken: list[str]
) -> None:
    """A yes to a folder is none to a repository, submodule or named project in it, unless the glob names that."""
    for name in ("notes/a.md", "client/README.md", "client/docs/plan.md", "client/memory/x.md", "lib/b.md", "own/c.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "client/.git").mkdir()
    (tmp_path / "lib/.git").write_text("gitdir: ../.git/modules/lib\n")
    (tmp_path / "own/.confide.toml").write_text("")
    (tmp_path / ".git").mkdir()
    folder = Folder("vault", tmp_path, tuple(extra))
    taken = taken if "client" not in extra else sorted([*taken, "client/memory/x.md"])
    assert paths(folder) == taken
    known = ("notes/a.md", "client/README.md", "client/docs/plan.md", "lib/b.md", "own/c.md")
    assert [path for path in known if folder.is_watched(path)] == [path for path in known if path in taken]
    assert [found.path for found in folder.walk(below="client")] == [
        path for path in taken if path.startswith("client")
    ]
    if extra == ["**/*.md"]:
        why = "is a project of its own"
        assert folder.passed_by() == [("client", why), ("lib", why), ("own", why)]
        assert folder.why_not("client/docs/plan.md") == "is in client, which is a project of its own"


def test_reads_text_with_its_hash(folder: Folder) -> None:
    """Line endings and a BOM are part of the text; nothing is normalised."""
    (folder.root / "memory/a.md").write_bytes("\ufeffcaf\u00e9\r\n".encode())
    content = folder.read("memory/a.md")
    assert content is not None
    assert content.text == "\ufeffcaf\u00e9\r\n"
    assert content.hash == text_hash(content.text)


def test_a_file_that_is_just_being_saved_is_read_as_it_will_be(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would lose for an instant what an editor has cut off and not written yet; a file that is empty stays so."""
    monkeypatch.setattr("confide_proxy.sync.folder._SAVING_S", 10.0)
    file = folder.root / "memory/a.md"
    file.write_text("")
    with ThreadPoolExecutor(1) as reader:
        content = reader.submit(folder.read, "memory/a.md")
        time.sleep(0.03)
        file.write_text("The heron fishes.")
        assert content.result(DEADLINE_S) == folder.read("memory/a.md")
    monkeypatch.setattr("confide_proxy.sync.folder._SAVING_S", 0.1)
    file.write_text("")
    empty = folder.read("memory/a.md")
    assert empty
    assert empty.text == ""


def test_a_missing_file_is_none(folder: Folder) -> None:
    """No file is not an error."""
    assert folder.read("memory/none.md") is None
    assert folder.read("memory/no/where.md") is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"a\0b", "NUL"),
        (b"x" * 1025, "larger"),
        (LFS_POINTER, "pointer of Git LFS"),
        (LFS_POINTER.replace(b"\n", b"\r\n"), "pointer of Git LFS"),
        (b"/annex/objects/SHA256E-s12--4d7a214614ab2935.md\n", "pointer of git-annex"),
    ],
)
def test_unreadable_contents_are_named(folder: Folder, data: bytes, problem: str) -> None:
    """Binary, wrongly encoded and huge files are refused with a reason, and so is what stands for a text that a tool has not fetched."""
    (folder.root / "memory/a.md").write_bytes(data)
    with pytest.raises(FolderError, match=problem):
        folder.read("memory/a.md")
    assert not folder.is_missing("memory/a.md")


def test_a_note_about_pointers_is_one_like_any_other(folder: Folder) -> None:
    text = f"A pointer of Git LFS:\n\n{LFS_POINTER.decode()}"
    (folder.root / "memory/a.md").write_text(text)
    assert folder.own_text("memory/a.md") == text


def test_a_fifo_does_not_hang_the_reader(folder: Folder) -> None:
    """A named pipe with a markdown name is refused at once."""
    os.mkfifo(folder.root / "memory/pipe.md")
    with pytest.raises(FolderError, match="regular"):
        folder.read("memory/pipe.md")


@pytest.mark.parametrize("link", ["memory/link.md", "memory/sub"])
def test_symlinks_lead_nowhere(folder: Folder, tmp_path: Path, link: str) -> None:
    """Neither a linked file nor a linked folder is walked, read, written or deleted through."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (folder.root / link).symlink_to(outside / "secret.md" if link.endswith(".md") else outside)
    inside = link if link.endswith(".md") else f"{link}/secret.md"
    assert paths(folder) == []
    with pytest.raises(FolderError, match="symlink"):
        folder.read(inside)
    if not link.endswith(".md"):
        for act in (lambda: folder.write(inside, "x", over=None), lambda: folder.delete(inside, over=SOME)):
            with pytest.raises(FolderError, match="symlink"):
                act()
    else:
        with pytest.raises(FolderError, match="changed meanwhile"):
            folder.write(inside, "mine", over=None)
    assert (outside / "secret.md").read_text() == "secret"


def test_skipped_symlinks_are_reported(folder: Folder, tmp_path: Path) -> None:
    """A person whose file is not found can be told why."""
    (folder.root / "memory/link.md").symlink_to(tmp_path)
    assert folder.passed_by() == [("memory/link.md", "is a symlink")]


@pytest.mark.parametrize(
    "path",
    [
        "../MEMORY.md",
        "memory/../../x.md",
        "/etc/x.md",
        "memory//x.md",
        "memory/./x.md",
        "memory/x.txt",
        ".ssh/config.md",
        "memory/.git/x.md",
        "README.md",
        "docs/adr/1.md",
        "memory\\x.md",
        "memory/a\nb.md",
        "memory/" + "x" * 600 + ".md",
        "",
    ],
)
def test_writes_are_for_memory_files_alone(folder: Folder, path: str) -> None:
    """Whatever the daemon asks for, nothing outside the memory folders is written."""
    before = sorted(folder.root.parent.rglob("*"))
    with pytest.raises(FolderError):
        folder.write(path, "x", over=None)
    assert sorted(folder.root.parent.rglob("*")) == before


def test_a_write_keeps_the_mode_and_leaves_no_part(folder: Folder) -> None:
    """A private file stays private, and the temporary file is gone."""
    file = folder.root / "memory/a.md"
    file.write_text("old")
    file.chmod(0o600)
    folder.write("memory/a.md", "new", over=folder.read("memory/a.md"))
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(file.parent)) == ["a.md", "notes"]


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A write that does not fit fails with a clear message, and the old text is still there."""
    import resource
    import signal

    folder = Folder("p", tmp_path)
    old = folder.write("memory/a.md", "old", over=None)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(FolderError, match="cannot be"):
            folder.write("memory/a.md", "x" * 100_000, over=old)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "memory/a.md").read_text() == "old"
    assert os.listdir(tmp_path / "memory") == ["a.md"]


def test_too_many_files_are_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that holds a whole archive is said to, instead of being sent."""
    monkeypatch.setattr("confide_proxy.sync.folder.MAX_FILES", 3)
    for number in range(4):
        (folder.root / f"memory/{number}.md").write_text("x")
    with pytest.raises(FolderError, match="more than"):
        list(folder.walk())


def test_an_edit_made_meanwhile_is_never_replaced(folder: Folder) -> None:
    """What a person saves between our read and our write stays: by changing, by making, by deleting the file."""
    file = folder.root / "memory/a.md"
    file.write_text("read")
    read = folder.read("memory/a.md")
    assert read is not None
    file.write_text("saved by a person")
    for act in (
        lambda: folder.write("memory/a.md", "ours", over=read),
        lambda: folder.delete("memory/a.md", over=read),
    ):
        with pytest.raises(ChangedMeanwhileError):
            act()
    with pytest.raises(ChangedMeanwhileError):
        folder.write("memory/a.md", "ours", over=None)
    assert file.read_text() == "saved by a person"
    assert sorted(os.listdir(file.parent)) == ["a.md", "notes"]


def test_a_file_is_read_by_the_name_it_has(folder: Folder) -> None:
    """Where both spellings lead to one file (a disk that folds case, or two links), a name that is in the folder is good."""
    file = folder.root / "memory/Notes.md"
    file.write_text("mine")
    os.link(file, folder.root / "memory/nOTES.MD")
    content = folder.read("memory/Notes.md")
    assert content is not None
    assert content.text == "mine"


def test_what_a_crash_left_is_swept_up_and_nothing_else(folder: Folder) -> None:
    """The unfinished writes of processes that are gone; those of one that runs may still become files."""
    gone = [".0123456789abcdef.4194999.confide-part", "memory/notes/.0123456789abcdef.4194999.confide-part"]
    kept = [
        f"memory/.0123456789abcdef.{os.getpid()}.confide-part",
        "memory/.mine.part",
        "memory/a.md",
        "notes.confide-part.md",
    ]
    for name in (*gone, *kept):
        (folder.root / name).write_text("x")
    folder.sweep()
    assert not any((folder.root / name).exists() for name in gone)
    assert all((folder.root / name).exists() for name in kept)


def test_the_root_of_a_tree_is_no_symlink_either(tmp_path: Path) -> None:
    """An export looks at each of its folders once, and somebody may put a link there afterwards."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "MEMORY.md").write_text("precious\n")
    (tmp_path / "shop").symlink_to(mine)
    folder = Folder("shop", tmp_path / "shop", ("**/*.md",), is_tree=True)
    with pytest.raises(FolderError, match="symlink"):
        folder.read("MEMORY.md")
    with pytest.raises(FolderError, match="symlink"):
        folder.write("memory/a.md", "text\n", over=None)
    assert [path.name for path in mine.iterdir()] == ["MEMORY.md"]


COMPOSED, DECOMPOSED = "memory/gr\u00f6/\u00fc.md", "memory/gro\u0308/u\u0308.md"


def test_a_decomposed_name_is_found_by_its_composed_one_and_kept(folder: Folder) -> None:
    """Read, written and deleted where it is; a new file goes into the folder that is there."""
    file = folder.root / DECOMPOSED
    file.parent.mkdir()
    file.write_text("mine")
    assert COMPOSED in paths(folder)
    content = folder.read(COMPOSED)
    assert content is not None
    written = folder.write(COMPOSED, "ours", over=content)
    assert file.read_text() == "ours"
    folder.write("memory/gr\u00f6/n\u00e9.md", "new", over=None)
    assert sorted(os.listdir(file.parent)) == ["n\u00e9.md", "u\u0308.md"]
    assert not (folder.root / "memory/gr\u00f6").exists()
    folder.delete(COMPOSED, over=written)
    assert not file.exists()
    assert folder.is_missing(COMPOSED)


def test_of_two_files_with_one_name_the_composed_one_counts(folder: Folder) -> None:
    """In one folder or in two; the other is told of, and comes up once the first has gone."""
    texts = {COMPOSED: "composed", DECOMPOSED: "decomposed", "memory/gr\u00f6/u\u0308.md": "mixed"}
    for path, text in texts.items():
        (folder.root / path).parent.mkdir(exist_ok=True)
        (folder.root / path).write_text(text)
    for left in (COMPOSED, "memory/gr\u00f6/u\u0308.md", DECOMPOSED):
        assert paths(folder).count(COMPOSED) == 1
        content = folder.read(COMPOSED)
        assert content is not None
        assert content.text == texts.pop(left)
        assert {path for path, _ in folder.passed_by()} == set(texts)
        folder.delete(COMPOSED, over=content)
    assert folder.is_missing(COMPOSED)


def test_a_name_in_no_normal_form_is_told_of(folder: Folder) -> None:
    """It could not be found again by the name of a document: partly decomposed, or a sign that composes to a letter."""
    for name in ("u\u0308\u00fc.md", "\u212a.md"):
        (folder.root / "memory" / name).write_text("x")
    assert {path for path, _ in folder.passed_by()} == {"memory/u\u0308\u00fc.md", "memory/\u212a.md"}
    assert not folder.read("memory/K.md")
    assert not [path for path in paths(folder) if not path.isascii() or "K" in path]


def test_two_links_with_one_name_are_one_file(folder: Folder) -> None:
    """As on a disk that takes all spellings for the same."""
    (folder.root / "memory/u\u0308.md").write_text("x")
    os.link(folder.root / "memory/u\u0308.md", folder.root / "memory/\u00fc.md")
    assert paths(folder).count("memory/\u00fc.md") == 1
    assert folder.passed_by() == []


def test_a_disk_that_folds_case_and_spelling_finds_the_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS does: it lists the decomposed name, and opens it by the composed one in either case."""
    (folder.root / "memory/u\u0308.md").write_text("x")
    parent = os.open(folder.root / "memory", os.O_RDONLY)
    try:
        monkeypatch.setattr(os, "stat", lambda *_a, **_o: os.fstat(parent))
        monkeypatch.setattr(os.path, "samestat", lambda *_s: True)
        assert is_spelled_so("\u00fc.md", parent, parent)
        assert not is_spelled_so("\u00dc.md", parent, parent)
    finally:
        monkeypatch.undo()
        os.close(parent)


def test_names_that_the_rule_refuses_are_told_of(folder: Folder) -> None:
    """With why; what is hidden is left alone without a word."""
    deep = "memory/" + "d/" * 31
    (folder.root / deep).mkdir(parents=True)
    for path in ("a\u200b.md", "a\nb.md", "b .md/x.md", ".x.md", " x.txt", os.fsdecode(b"\xff.md")):
        (folder.root / "memory" / path).parent.mkdir(exist_ok=True)
        (folder.root / "memory" / path).write_text("x")
    (folder.root / f"{deep}x.md").write_text("x")
    told = dict(folder.passed_by())
    assert set(told) == {"memory/a?.md", "memory/a?b.md", "memory/?.md", "memory/b .md/x.md", f"{deep}x.md"}
    assert all(why.startswith("has a name that is not allowed: ") for why in told.values())
    assert paths(folder) == []


def test_files_that_look_like_memory_but_are_not_are_told_of(folder: Folder) -> None:
    """By their suffix, or by the case of their names; another file of that kind elsewhere is not."""
    left = ("memory/Note.MD", "memory/notes/a.Md", "memory/b.markdown", "docs/c.MD", "Memory.md")
    others = ("memory/x.txt", "memory/.y.MD", "memory/md", "docs/d.markdown", "e.MD", "MEMORY", "Memory.txt")
    for path in (*left, *others):
        (folder.root / path).parent.mkdir(exist_ok=True)
        (folder.root / path).write_text("x")
    told = dict(folder.passed_by())
    assert sorted(told) == sorted(left)
    assert told["memory/Note.MD"] == "does not end in .md: rename it"
    assert "no memory: rename it" in told["Memory.md"]
    assert paths(folder) == []


def test_a_folder_with_the_name_of_memory_in_another_case_is_told_of(folder: Folder) -> None:
    """If it holds notes: it may be a project's code."""
    (folder.root / "Memory").mkdir()
    if (folder.root / "memory").samefile(folder.root / "Memory"):
        pytest.skip("this disk does not tell them apart")
    (folder.root / "Memory/pool.c").write_text("x")
    assert folder.passed_by() == []
    (folder.root / "Memory/a.md").write_text("x")
    assert [path for path, _ in folder.passed_by()] == ["Memory"]


def test_a_save_that_leaves_size_and_time_as_they_were_is_seen_before_its_file_is_replaced(folder: Folder) -> None:
    """A program may give a file the time that it had; what it holds is looked at, and a person's text neither overwritten nor deleted."""
    file = folder.root / "memory/a.md"
    file.write_text("only 4\n")
    over = folder.read("memory/a.md")
    assert over is not None
    status = file.stat()
    file.write_text("only 7\n")
    os.utime(file, ns=(status.st_mtime_ns, status.st_mtime_ns))
    with pytest.raises(ChangedMeanwhileError):
        folder.delete("memory/a.md", over=over)
    with pytest.raises(ChangedMeanwhileError):
        folder.write("memory/a.md", "only 9\n", over=over)
    assert file.read_text() == "only 7\n"
