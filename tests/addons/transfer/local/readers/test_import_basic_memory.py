"""A project of basic-memory, as its own server wrote it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.support.documents.imports import FIXTURES, ids
from tests.support.documents.imports import read_placed as read

from confide_proxy.errors import UnreadableError
from confide_transfer.local.readers.basic_memory import READER

TREE = FIXTURES / "basic-memory" / "notes-project"


def note(folder: Path, name: str, text: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_notes() -> None:
    """A file is a note, its text whole; its permalink is what it is known by."""
    assert READER.recognises(TREE)
    records, losses = read(READER, TREE)
    assert list(records) == ["decisions/2026/adr-queues", "design/job-queue", "design/scheduler", "places/stammtisch"]
    place = records["places/stammtisch"]
    assert (place.title, place.type) == ("Stammtisch", "note")
    assert place.content == "Dort trifft sich das Team 🗓.\n\n- [ort] Nähe Bahnhof #zürich"
    assert place.metadata == {"file": "places/Stammtisch.md"}
    assert not losses.count


def test_observations() -> None:
    """Their tags are tags and their categories keywords; tasks, links and code are no observations."""
    records, _ = read(READER, TREE)
    scheduler = records["design/scheduler"]
    assert (scheduler.tags, scheduler.keywords) == (("postgres", "locks"), ("decision", "gotcha"))
    assert "- [decision] Row locks with SKIP LOCKED #postgres #locks (after the load test)\n" in scheduler.content
    assert records["design/job-queue"].tags == ("postgres", "priority")
    assert records["places/stammtisch"].tags == ("zürich",)


def test_relations() -> None:
    """Links find a note by its title or permalink; what leads nowhere, or means something of its own, is kept by its name."""
    records, _ = read(READER, TREE)
    scheduler = records["design/scheduler"]
    assert scheduler.relations == (("depends_on", "design/job-queue"), ("implements", "decisions/2026/adr-queues"))
    assert scheduler.metadata["relations"] == [
        {"type": "implements", "target": "ADR: Queues|the decision", "context": "section 2"},
        {"type": "maintained_by", "target": "Ada"},
    ]
    assert records["design/job-queue"].relations == (("part_of", "design/scheduler"),)
    assert records["decisions/2026/adr-queues"].metadata["relations"] == [{"type": "supersedes", "target": "Old Queue"}]


def test_the_same_ids_again(tmp_path: Path) -> None:
    """Also after a file was moved and edited, since its permalink stays; not of another project that has the same permalinks."""
    copy = tmp_path / "copy"
    shutil.copytree(TREE, copy)
    before = ids(READER, copy)
    assert not set(before) & set(ids(READER, TREE))
    (copy / "design" / "Scheduler.md").rename(copy / "Scheduler.md")
    with (copy / "Scheduler.md").open("a") as file:
        file.write("- [fact] One more #new\n")
    assert sorted(ids(READER, copy)) == sorted(before)


def test_front_matter_of_people(tmp_path: Path) -> None:
    """Fields that other programs and people write; without a permalink it is the path that a note is known by."""
    note(
        tmp_path,
        "a/Note.md",
        "---\r\ntitle: Note\r\npermalink: a/note\r\ntags: one, two\r\ncreated: 2025-01-02T03:04:05+01:00\r\nimportance: high\r\n"
        "status: draft\r\nweight: 3\r\n---\r\n\r\nSee [[b]] and [[b]].\r\n",
    )
    note(tmp_path, "b.md", "No front matter\n\n- contradicts [[a/note]]\n- [[memory://a/note]]\n")
    note(tmp_path, "c.md", "---\ntitle: Copy\npermalink: a/note\n---\ntext\n")
    note(tmp_path, "d.md", "---\ntitle: [\n---\ntext\n")
    records, losses = read(READER, tmp_path)
    first = records["a/note"]
    assert (first.tags, first.created, first.importance, first.status) == (
        ("one", "two"),
        "2025-01-02T02:04:05Z",
        "high",
        "draft",
    )
    assert (first.content, first.relations) == ("See [[b]] and [[b]].", (("see_also", "b"),))
    assert first.metadata == {"weight": 3, "file": "a/Note.md"}
    assert (records["b"].title, records["b"].relations) == ("b", (("contradicts", "a/note"),))
    assert records["c"].title == "Copy", "a permalink that is taken names the first file that has it"
    assert "text" in records["d"].content
    assert [loss.origin for loss in losses.skips] == ["d.md"]


def test_marks_in_text(tmp_path: Path) -> None:
    """Tags stand in any item but a task, several in a word; what is code is no mark."""
    note(
        tmp_path,
        "n.md",
        "- An item without category #one #two#three\n- [ ] to do #four\n- `#five [[m]]` (#six)\n* [x] done #seven\n\n"
        "A heading is no tag:\n# eight\n#nine\n~~~\n- #ten\n```\n~~~\n+ #eleven ends\n",
    )
    note(tmp_path, "m.md", "text")
    records, _ = read(READER, tmp_path)
    assert records["n"].tags == ("one", "two", "three", "eleven")
    assert records["n"].relations == ()


@pytest.mark.long
def test_what_is_hostile(tmp_path: Path) -> None:
    """Symlinks out of the folder, files that are no text, too large or nested too deeply: each costs itself alone."""
    secret = tmp_path / "secret.md"
    secret.write_text("---\npermalink: secret\n---\nsecret")
    root = tmp_path / "root"
    note(root, "good.md", "---\npermalink: good\n---\ngood\n")
    note(root, "bad.md", b"---\npermalink: bad\n---\n\xff\xfe")
    note(root, "empty.md", "---\npermalink: empty\n---\n\n")
    note(root, "large.md", b"x" * 600_000)
    note(root, "larger.md", b"x" * 1_100_000)
    note(root, "bomb.md", "---\na: &a [x]\nb: [*a, *a]\n---\n" + "[[" * 100_000)
    note(root, "deep.md", "---\na: " + "[" * 5_000 + "\n---\ntext")
    (root / "out.md").symlink_to(secret)
    (root / "folder").symlink_to(tmp_path)
    records, losses = read(READER, root)
    assert [record.title for record in records.values()] == ["bomb", "deep", "good"]
    assert {loss.origin: loss.reason for loss in losses.skips} == {
        "out.md": "is a symlink",
        "bad.md": "is not UTF-8 text (byte 23)",
        "large": "is larger than 500,000 bytes",
        "larger.md": "is larger than 1 MiB",
        "bomb.md": "has front matter that is not YAML; its text is imported without its fields",
        "deep.md": "has front matter that is not YAML; its text is imported without its fields",
        "empty": "is empty",
    }


def test_where_it_is(tmp_path: Path) -> None:
    """Its configuration names the folders of its projects, in the form of old versions or of new ones."""
    config = tmp_path / ".basic-memory" / "config.json"
    config.parent.mkdir()
    config.write_text(
        json.dumps({"projects": {"main": "/one", "work": {"path": "/two"}, "odd": 7, "relative": "three"}})
    )
    assert READER.places(tmp_path) == [tmp_path / "basic-memory", Path("/one"), Path("/two")]
    for broken in ("[]", "{", '{"projects": []}', "[" * 100_000):
        config.write_text(broken)
        assert READER.places(tmp_path) == [tmp_path / "basic-memory"]


def test_other_folders(tmp_path: Path) -> None:
    """Markdown without permalinks is not its; a file is no project."""
    note(tmp_path, "README.md", "# Read me\n\npermalink: no\n")
    assert not READER.recognises(tmp_path)
    assert not READER.recognises(TREE / "design" / "Scheduler.md")
    assert not READER.recognises(tmp_path / "missing")
    with pytest.raises(UnreadableError, match="is no folder"):
        read(READER, tmp_path / "README.md")
