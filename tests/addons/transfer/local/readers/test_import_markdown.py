"""Markdown that people wrote becomes notes as they would expect: small, with a title, known again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.sealing.sealers import SEALER

from confide_proxy.config import ProxyConfig
from confide_proxy.errors import UnreadableError
from confide_proxy.sync.project import Project
from confide_transfer.local import plan
from confide_transfer.local.fields import MAX_METADATA_BYTES, project_of, to_fields
from confide_transfer.local.plan import ImportPlan, ImportSource, reader_of, stores_at
from confide_transfer.local.reader import Losses, MemoryRecord
from confide_transfer.local.readers import readers
from confide_transfer.local.readers.markdown import READER

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write


def read(path: Path) -> list[MemoryRecord]:
    losses = Losses()
    records = list(READER.read(path, losses))
    assert losses.count == 0, losses.skips
    return records


def test_each_section_is_a_note_under_its_headings(write: Write) -> None:
    file = write(
        "NOTES.md",
        "Above.\n\n# Shop\n\n## Data\n\nPostgres.\n\n### Locks\n\n```\n# no heading\n```\n\n## Empty\n\nSetext\n------\nText.\n",
    )
    assert [(record.title, record.content, record.tags) for record in read(file)] == [
        ("Shop", "Above.", ()),
        ("Data", "Postgres.", ()),
        ("Data / Locks", "```\n# no heading\n```", ("data",)),
        ("Setext", "Text.", ()),
    ]


def test_items_of_a_plain_list_are_notes_of_their_own(write: Write) -> None:
    text = (
        "## Coding style\n\n- **Use pnpm**: never npm or yarn\n- Commit often, and small.\n  As one thought.\n"
        "    - a reason\n* [x] Ask before deleting files\n* [ ] Rename the old service\n"
    )
    found = read(write("NOTES.md", text))
    assert [(record.title, record.content) for record in found] == [
        ("Use pnpm", "**Use pnpm**: never npm or yarn"),
        ("Commit often, and small", "Commit often, and small.\nAs one thought.\n  - a reason"),
        ("Ask before deleting files", "Ask before deleting files"),
        ("Rename the old service", "Rename the old service"),
    ]
    assert {(record.category, record.tags) for record in found} == {("preferences", ("coding-style",))}
    assert [record.status for record in found] == [None, None, "done", "open"]


@pytest.mark.parametrize(
    "text",
    [
        "# Steps\n\n1. open the door\n2. go through it\n",
        "# Words\n\n- Python\n- Rust\n- Go\n",
        "# With words\n\nThese count:\n\n- the first of the things\n- the second of the things\n",
    ],
)
def test_other_lists_stay_whole(write: Write, text: str) -> None:
    assert len(read(write("a.md", text))) == 1


NYGARD = (
    "# {number}. {title}\n\nDate: 2024-02-0{number}\n\n## Status\n\n{status}\n\n## Context\n\nc\n\n## Decision\n\nd\n"
)


def test_decision_records_are_one_note_each_and_know_each_other(write: Write, tmp_path: Path) -> None:
    old = "Accepted\n\nSuperseded by [2. Postgres](0002-postgres.md)"
    write("adr/0001-mysql.md", NYGARD.format(number=1, title="MySQL", status=old))
    write("adr/0002-postgres.md", NYGARD.format(number=2, title="Postgres", status="Accepted"))
    write("adr/0003-cache.md", NYGARD.format(number=3, title="Cache", status="Supersedes [gone](0000-gone.md)"))
    madr = (
        "---\nstatus: proposed\ndate: 2024-03-01\ndeciders: [ann, bob]\n---\n# Queue\n\n## Context and Problem Statement\n\nc\n\n"
        "## Considered Options\n\no\n\n## Decision Outcome\n\nd\n"
    )
    write("anywhere/queue.md", madr)
    (tmp_path / "adr/template.md").write_text(NYGARD.format(number=0, title="Title", status="Proposed"))
    losses = Losses()
    found = {record.title: record for record in READER.read(tmp_path, losses)}
    assert [one.reason for one in losses.skips] == ["is a template"]
    assert {(one.category, one.importance) for one in found.values()} == {("decisions", "high")}
    assert {title: one.status for title, one in found.items()} == {
        "1. MySQL": "superseded",
        "2. Postgres": "accepted",
        "3. Cache": "Supersedes gone",
        "Queue": "proposed",
    }
    assert found["2. Postgres"].relations == (("supersedes", found["1. MySQL"].origin),)
    assert found["1. MySQL"].relations == ()
    assert found["3. Cache"].metadata["supersedes"][0].endswith("adr/0000-gone.md")
    assert found["1. MySQL"].created == "2024-02-01T00:00:00Z"
    assert (found["Queue"].created, found["Queue"].metadata["deciders"]) == ("2024-03-01T00:00:00Z", ["ann", "bob"])


def test_front_matter_is_kept(write: Write) -> None:
    whole = (
        "---\ntitle: Deploy keys\ntags: [ops, '#secret']\nimportance: 0.9\nowner: no\nrating: 7\nid: k1\n---\n"
        "# Keys\n\nRotate.\n\n## How\n\nSlowly.\n"
    )
    (record,) = read(write("keys.md", whole))
    assert (record.title, record.tags, record.importance) == ("Deploy keys", ("ops", "secret"), 0.9)
    assert record.metadata == {"owner": "no", "rating": 7, "id": "k1"}
    assert record.content.startswith("# Keys")
    parts = read(write("parts.md", "---\ncategory: facts\npriority: 9\n---\n# One\n\nA.\n\n# Two\n\nB.\n"))
    assert [(part.title, part.category, part.metadata["priority"]) for part in parts] == [
        ("One", "facts", 9),
        ("Two", "facts", 9),
    ]


def test_notes_of_ours_keep_their_ids_and_what_they_state(write: Write, tmp_path: Path) -> None:
    new, old = "mem_new_1700000000_0000abcd", "mem_old_1600000000_0000dcba"
    write("a/new.md", f"---\nid: {new}\nrelations:\n  - relation: supersedes\n    id: {old}\n---\n\nNew.\n")
    write("b/old.md", f"---\nid: {old}\ntitle: Old\ntaskId: t1\n---\n\nOld.\n")
    plan = ImportPlan([ImportSource(tmp_path, READER)], Project("shop", tmp_path, is_git=False), ProxyConfig())
    plan.survey()
    first, second = (note for batch in plan.batches(SEALER) for note in batch.notes)
    assert (first["id"], second["id"]) == (new, old)
    assert first["relations"] == [{"relation": "supersedes", "id": old}]
    alone = ImportPlan([ImportSource(tmp_path / "a", READER)], Project("shop", tmp_path, is_git=False), ProxyConfig())
    assert next(alone.batches(SEALER)).notes[0]["relations"] == first["relations"]
    assert second["taskId"] == "t1"


@pytest.mark.parametrize(
    "head", ["a: [", "a: &x [1]\nb: *x", "a: " + "[" * 5000, "a: !!python/name:os.system x", "{" * 70_000]
)
def test_front_matter_that_cannot_be_read_costs_no_text(write: Write, head: str) -> None:
    losses = Losses()
    found = list(READER.read(write("a.md", f"---\n{head}\n---\n\nThe text below.\n"), losses))
    assert losses.count == 1
    assert any("The text below." in record.content for record in found)


def test_the_same_note_has_the_same_id_again(write: Write, tmp_path: Path) -> None:
    """Whatever path was given, from each clone, after an edit of a section, and with an item put before the others."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", "git@host:me/shop.git"], check=True)
    file = write(
        "docs/a.md",
        "# A\n\n## B\n\nold text\n\n## B\n\nsecond\n\n## C\n\n- first of all items\n- second of all items\n",
    )
    before = [record.note_id for record in read(file)]
    assert len(set(before)) == 4
    assert [record.note_id for record in read(tmp_path)] == before
    assert read(file)[0].origin.startswith("host/me/shop/docs/a.md#")
    write(
        "docs/a.md",
        "# A\n\n## B\n\nnew text\n\n## B\n\nsecond\n\n## C\n\n- another new item\n- first of all items\n- second of all items\n",
    )
    after = [record.note_id for record in read(file)]
    assert [*after[:2], *after[3:]] == before


def test_hostile_texts_cost_little(write: Write, tmp_path: Path) -> None:
    """Those that made parsers slow; the suite's own limit of time is the deadline."""
    for number, text in enumerate(
        [
            ">" * 200_000,
            "[" * 500_000,
            "<!--" * 200_000,
            "# " + "[a](" * 100_000,
            "# a\n" + "**" * 250_000,
            "- " * 300_000,
        ]
    ):
        list(READER.read(write(f"{number}.md", text), Losses()))
    with pytest.raises(UnreadableError, match="too long"):
        list(READER.read(write("long.md", "word " * 300_000), Losses()))
    deep = tmp_path.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "lost.md").write_text("# Too deep\n\nfor anybody\n")
    losses = Losses()
    assert not any(record.title == "Too deep" for record in READER.read(tmp_path / "d", losses))
    assert "folders deep" in losses.skips[0].reason


def test_what_is_there_to_import_is_found(write: Write, tmp_path: Path) -> None:
    for path in (
        "NOTES.md",
        "CLAUDE.md",
        ".claude/rules.md",
        "docs/ADR-7-x.md",
        "docs/other.md",
        "docs/adr/0001-a.md",
        "memory/a.md",
        "MEMORY.md",
    ):
        write(path, "# A\n\ntext\n")
    (tmp_path / "doc").symlink_to(tmp_path / "docs")
    project = Project("shop", tmp_path, is_git=False)
    found = [store.path.relative_to(tmp_path).as_posix() for store in plan.to_project_path(project)]
    assert found == ["NOTES.md", "CLAUDE.md", ".claude/rules.md", "docs/ADR-7-x.md", "docs/adr"]


def test_living_memory_is_not_imported_into_itself(write: Write, tmp_path: Path) -> None:
    for path in ("MEMORY.md", "memory/log.md", "notes/a.md", "kept/b.md"):
        write(path, f"# {path}\n\ntext of {path}\n")
    project = Project("shop", tmp_path, is_git=False)
    plan = ImportPlan([ImportSource(tmp_path, READER)], project, ProxyConfig(extra=("kept/*.md",)))
    (survey,) = plan.survey()
    assert survey.titles == ["notes/a.md"]


class Broken:
    """A reader that stumbles over what it finds; like a library that meets a file it was not made for."""

    name = title = "broken"

    def recognises(self, path: Path) -> bool:
        return True

    def read(self, path: Path, losses: Losses) -> Iterator[MemoryRecord]:
        yield MemoryRecord("broken", "1", "the first")
        raise KeyError(str(path))


def test_a_store_that_breaks_off_costs_only_its_rest(write: Write, tmp_path: Path) -> None:
    file = write("a.md", "# A\n\ntext\n")
    plan = ImportPlan(
        [ImportSource(tmp_path, Broken()), ImportSource(file, READER)],
        Project("shop", tmp_path, is_git=False),
        ProxyConfig(),
    )
    first, second = plan.survey()
    assert (first.notes, second.notes) == (1, 1)
    assert first.problem == "it cannot be read any further (KeyError)"
    assert [note["content"] for batch in plan.batches(SEALER) for note in batch.notes] == ["the first", "text"]


def test_every_reader_can_be_asked_about_anything(tmp_path: Path) -> None:
    """Whatever a path is, asking who recognises it raises nothing."""
    odd = [tmp_path / "missing", tmp_path, Path("/dev/null"), tmp_path / ("x" * 300), tmp_path / "dangling.db"]
    odd[-1].symlink_to(tmp_path / "nowhere")
    for suffix in (".json", ".jsonl", ".db", ".sqlite", ".zip", ".md"):
        odd.append(tmp_path / f"noise{suffix}")
        odd[-1].write_bytes(bytes(range(256)) * 40)
    for name, reader in readers().items():
        assert reader.name == name
        for path in odd:
            assert reader.recognises(path) in (True, False)
    with pytest.raises(UnreadableError, match="not there"):
        reader_of(tmp_path / "missing")
    with pytest.raises(UnreadableError, match="no system that is known"):
        stores_at([], "nobody")


def test_what_does_not_fit_a_note_is_kept_in_its_metadata() -> None:
    record = MemoryRecord(
        "old",
        "x",
        "text",
        title="t" * 300,
        type="y" * 101,
        tags=tuple(f"tag {number}" for number in range(40)),
        task_id="release 42/b",
        importance=7.0,
        relations=(("supersedes", "known"), ("supersedes", "unknown"), ("odd", "known")),
        metadata={"origin": "theirs", "long": "z" * 50_000},
    )
    note = to_fields(record, {("old", "known"): "mem_a_1_00000000"}, "~/old.db")
    assert len(note["title"]) == 200
    assert len(note["tags"]) == 32
    assert (note["taskId"], "type" in note, "importance" in note) == ("release-42-b", False, False)
    assert note["relations"] == [{"relation": "supersedes", "id": "mem_a_1_00000000"}]
    metadata = note["metadata"]
    assert (metadata["type"], metadata["importance"], metadata["taskId"]) == ("y" * 101, 7.0, "release 42/b")
    assert len(metadata["tags"]) == 40
    assert metadata["old.origin"] == "theirs"
    assert metadata["long"].endswith("z…")
    assert {"relation": "supersedes", "origin": "unknown"} in metadata["relations"]
    assert metadata["origin"] == {"system": "old", "id": "x", "file": "~/old.db"}
    assert len(str(metadata)) < MAX_METADATA_BYTES


@pytest.mark.parametrize(
    ("name", "scope", "project"),
    [
        (None, None, "host/me/shop"),
        ("Shop", None, "host/me/shop"),
        ("/home/me/src/shop/", None, "host/me/shop"),
        ("kitchen", "project", "kitchen"),
        ("kitchen", "global", "global"),
        (" \x07\n ", None, "host/me/shop"),
    ],
)
def test_a_memory_goes_to_the_project_that_it_names(name: str | None, scope: str | None, project: str) -> None:
    assert project_of(MemoryRecord("old", "x", "text", project=name, scope=scope), "host/me/shop") == project


def test_front_matter_of_agents_with_a_colon_is_read(write: Write) -> None:
    """Claude Code's own notes are written by a model: the title is the note's name, not the lines above the second fence."""
    file = write(
        "deploy.md",
        "---\nname: deploy-day\ndescription: deploys: only on Thursdays\ntype: project\n---\n\nWe deploy on Thursdays.\n",
    )
    (record,) = read(file)
    assert (record.title, record.type, record.content) == ("deploy-day", "project", "We deploy on Thursdays.")
    assert record.metadata["description"] == "deploys: only on Thursdays"


def test_what_is_the_same_elsewhere_says_where(write: Write, tmp_path: Path) -> None:
    """Two sections, items or files of one text under other names are two notes; a copy of a file is the same one."""
    write("a.md", "# Billing\n\n## Owner\n\nAnn\n\n# Search\n\n## Owner\n\nAnn\n")
    said = "- Ben is on call today\n"
    write("b.md", f"# Teams\n\n## Billing\n\n{said}{said}\n## Search\n\n{said}- Eva is on call at night\n")
    write("c/billing.md", "# Owner\n\nCid\n")
    write("c/search.md", "# Owner\n\nCid\n")
    write("d/billing.md", "# Owner\n\nCid\n")
    assert [(record.title, record.content) for record in read(tmp_path)] == [
        ("Billing / Owner", "Ann"),
        ("Search / Owner", "Ann"),
        ("Ben is on call today", "Ben is on call today"),
        ("Ben is on call today", "Ben is on call today"),
        ("b / Teams / Search / Ben is on call today", "Ben is on call today"),
        ("Eva is on call at night", "Eva is on call at night"),
        ("Owner", "Cid"),
        ("search / Owner", "Cid"),
        ("Owner", "Cid"),
    ]


def test_properties_of_logseq_are_fields(write: Write) -> None:
    """Its title, its tags and its other names; a block's own `id` is none, and the text keeps all."""
    text = "title:: Deploy key\nalias:: Release key, [[DK]]\ntags:: ops, #secrets, [[on call]]\nid:: 6543\n\n- in the safe\n"
    (page,) = read(write("page.md", text))
    assert (page.title, page.tags) == ("Deploy key", ("ops", "secrets", "on call"))
    assert page.keywords == ("Release key", "DK")
    assert "in the safe" in page.content
    others = read(write("other.md", "tags:: ops\nid:: 6543\n\n- in the safe\n"))
    assert {other.tags for other in others} == {("ops",)}
