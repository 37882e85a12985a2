"""Two versions of a document become one: nothing is lost, and a clash says so in the text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_daemon.documents.merge import Merge, merge_texts
from confide_memory import front_matter
from confide_memory.documents import has_clash

BASE = "# Log\n\n- one\n- two\n- three\n"
HISTORY = Path(__file__).parents[3] / "docs" / "history.md"
NAMES = ("desk, revision 4", "laptop, revision 5")


def test_changes_in_different_places_merge() -> None:
    """Two machines edit different lines: both edits are there, and nobody is told of a clash."""
    merge = merge_texts(BASE, BASE.replace("one", "ONE"), BASE.replace("three", "THREE"))
    assert merge == Merge("# Log\n\n- ONE\n- two\n- THREE\n", clash=False)


@pytest.mark.parametrize("end", ["\n", "\n\n\n", ""])
def test_lines_added_on_both_sides_are_all_kept(end: str) -> None:
    """Two machines append to the same log: both lines stay, ours first, and it is no clash; however the log had ended."""
    base = BASE.removesuffix("\n") + end
    merge = merge_texts(base, BASE + "- ours\n", base + ("" if end else "\n") + "- theirs\n")
    assert not merge.clash
    assert [line for line in merge.text.split("\n") if line][-2:] == ["- ours", "- theirs"]


def test_paragraphs_appended_on_both_sides_stay_apart() -> None:
    """A blank line between them; list items stay one list, and a heading that both made stands once."""
    base = "# Log\n\nfirst\n"
    assert merge_texts(base, base + "\nours\n", base + "\ntheirs\n") == Merge(base + "\nours\n\ntheirs\n", clash=False)
    assert merge_texts(base, base + "\n- ours\n", base + "\n- theirs\n").text == base + "\n- ours\n- theirs\n"
    heading = "\n## Monday\n\n"
    merge = merge_texts(base, f"{base}{heading}ours\n", f"{base}{heading}theirs\n")
    assert merge == Merge(f"{base}{heading}ours\n\ntheirs\n", clash=False)


def test_an_appended_line_beside_a_changed_one_is_no_clash() -> None:
    """One side changes the last line, or deletes it, while the other one appends behind it."""
    merge = merge_texts(BASE, BASE + "- four\n", BASE.replace("three", "THREE"))
    assert merge == Merge("# Log\n\n- one\n- two\n- THREE\n- four\n", clash=False)
    merge = merge_texts(BASE, BASE.replace("- three\n", ""), BASE + "- four\n")
    assert merge == Merge("# Log\n\n- one\n- two\n- four\n", clash=False)


def test_the_same_line_changed_twice_keeps_both_between_marks() -> None:
    """A clash never drops text, says where each side comes from, and counts until the marks are gone."""
    merge = merge_texts(BASE, BASE.replace("two", "2 (ours)"), BASE.replace("two", "2 (theirs)"), names=NAMES)
    assert merge.clash
    assert merge.text == (
        "# Log\n\n- one\n"
        "<<<<<<< confide: desk, revision 4\n- 2 (ours)\n======= confide: laptop, revision 5\n- 2 (theirs)\n"
        ">>>>>>> confide: these versions differ; keep what is right and delete the marks\n"
        "- three\n"
    )
    assert has_clash(merge.text)
    assert has_clash(merge.text.replace("\n", "\r\n"))
    left = "\n".join(line for line in merge.text.split("\n") if " confide: " not in line)
    assert not has_clash(left)


def test_a_version_that_comes_before_its_machine_saw_the_marks_joins_the_others() -> None:
    """The newer one of the same author in place of its older one, another author's beside them, and one that is there already not again."""

    def put(ours: str, words: str, name: str) -> str:
        return merge_texts(BASE, ours, BASE.replace("two", words), names=("desk, revision 2", name)).text

    once = put(BASE.replace("two", "2"), "zwei", "laptop, revision 3")
    again = put(once, "deux", "laptop, revision 5")
    assert again == once.replace("revision 3", "revision 5").replace("zwei", "deux")
    third = put(again, "due", "phone, revision 7")
    assert third == again.replace("- deux\n", "- deux\n======= confide: phone, revision 7\n- due\n")
    assert put(third, "deux", "tablet, revision 9") == third


def test_front_matter_does_not_pile_up_what_gave_way() -> None:
    """One comment for each line of an author's last version."""
    base = "---\nstatus: open\n---\n"
    ours = base.replace("open", "done")
    for number in range(2, 6):
        theirs = base.replace("open", f"word {number}")
        ours = merge_texts(
            base, ours, theirs, names=(f"desk, revision {number}", f"laptop, revision {number + 1}")
        ).text
    assert ours == "---\nstatus: word 5\n# confide clash, desk, revision 5: status: word 4\n---\n"


def test_the_documents_show_a_clash_as_it_is() -> None:
    """The example of docs/history.md."""
    base = "# Plan\n\nstart on monday\n"
    names = ("desk, revision 2", "laptop, revision 3")
    merge = merge_texts(base, base.replace("monday", "tuesday"), base.replace("monday", "friday"), names=names)
    assert f"```markdown\n{merge.text}```\n" in HISTORY.read_text(encoding="utf-8")


def test_a_deleted_line_that_the_other_side_changed_clashes() -> None:
    """Neither side is right by itself; the change is between the marks."""
    merge = merge_texts(BASE, BASE.replace("- two\n", ""), BASE.replace("two", "2"))
    assert merge.clash
    assert "- 2\n>>>>>>> confide" in merge.text


def test_the_same_change_on_both_sides_is_one_change() -> None:
    """Also where one of them made more of it."""
    ours = BASE.replace("two", "2")
    assert merge_texts(BASE, ours, ours + "- four\n") == Merge(ours + "- four\n", clash=False)
    assert merge_texts(BASE, ours, ours.replace("- 2\n", "- 2\n  and more\n")).text == ours.replace(
        "- 2\n", "- 2\n  and more\n"
    )


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\n", "\r\n")),
        (lambda text: "\ufeff" + text, lambda text: "\ufeff" + text),
        (lambda text: text.removesuffix("\n"), lambda text: text.removesuffix("\n")),
    ],
)
def test_how_a_text_is_written_never_clashes(side: int, written: object, expected: object) -> None:
    """One side's editor changes the line ends, the byte order mark or the last newline of the whole file, the other one changes every
    line: the words of the one in the style of the other."""
    assert callable(written)
    assert callable(expected)
    words = "# Log\n\n- 1\n- 2\n- 3\n"
    sides = [words, words]
    sides[side] = written(BASE)
    merge = merge_texts(BASE, *sides)
    assert merge == Merge(expected(words), clash=False)
    grown = [BASE + "- ours\n", BASE + "- theirs\n"]
    grown[side] = written(grown[side])
    assert merge_texts(BASE, *grown) == Merge(expected(BASE + "- ours\n- theirs\n"), clash=False)


def test_without_a_common_ancestor_shared_lines_do_not_double() -> None:
    """A machine that never synced has the same file with some lines more, at any place."""
    assert merge_texts(None, "# Log\n\n- one\n", "# Log\n\n- one\n- two\n") == Merge(
        "# Log\n\n- one\n- two\n", clash=False
    )
    merge = merge_texts(None, "a\nb\nc\n", "a\nnew\nb\nc\nlast\n")
    assert merge == Merge("a\nnew\nb\nc\nlast\n", clash=False)


def test_without_a_common_ancestor_logs_and_lists_follow_each_other_and_others_clash() -> None:
    """Two machines began the same log, or list; or the same settings, of which only a person knows which ones hold."""
    ours, theirs = "# Log\n\n- one\n- two\n", "# Log\n\n- eins\n- zwei\n"
    merge = merge_texts(None, ours, theirs, is_log=True)
    assert merge == Merge("# Log\n\n- one\n- two\n- eins\n- zwei\n", clash=False)
    merge = merge_texts(None, "# Facts\n\n- one\n  and more\n", "# Facts\n\n- eins\n")
    assert merge == Merge("# Facts\n\n- one\n  and more\n- eins\n", clash=False)
    merge = merge_texts(None, "# Settings\n\nport 1\n", "# Settings\n\nport 2\n")
    assert merge.clash
    assert "port 1\n======= " in merge.text


def test_front_matter_stays_readable_in_a_clash() -> None:
    """Other lines than keys and comments would break the note: the incoming side counts there, and the other one stays as a comment."""
    base = "---\nstatus: open\n---\n\nbody\n"
    ours, theirs = base.replace("open", "done") + "ours\n", base.replace("open", "blocked") + "theirs\n"
    merge = merge_texts(base, ours, theirs, names=NAMES)
    assert merge == Merge(
        "---\nstatus: blocked\n# confide clash, desk, revision 4: status: done\n---\n\nbody\nours\ntheirs\n", clash=True
    )
    assert has_clash(merge.text)


def test_different_keys_added_to_front_matter_are_both_kept() -> None:
    """Two machines add a key each, or the whole front matter; a key that both add with another value clashes."""
    base = "---\nstatus: open\n---\nbody\n"
    ours, theirs = base.replace("open\n", "open\ntags: [a]\n"), base.replace("open\n", "open\nowner: ann\n")
    assert merge_texts(base, ours, theirs) == Merge(
        base.replace("open\n", "open\ntags: [a]\nowner: ann\n"), clash=False
    )
    assert merge_texts(base, ours, ours.replace("[a]", "[b]")).clash


lines = st.sampled_from(["a", "b", "c", "- x", "", "# h"])
texts = st.lists(lines, max_size=8).map(lambda chosen: "".join(f"{line}\n" for line in chosen))
fronted = st.tuples(st.sampled_from(["", "---\nk: 1\n---\n", "---\nk: 2\nl: 1\n---\n"]), texts).map("".join)
styled = st.tuples(st.sampled_from(["", "\ufeff"]), fronted, st.sampled_from(["\n", "\r\n"])).map(
    lambda parts: parts[0] + parts[1].replace("\n", parts[2])
)


@given(base=st.none() | styled, ours=styled, theirs=styled, is_log=st.booleans())
def test_no_line_that_one_side_added_is_ever_lost(base: str | None, ours: str, theirs: str, is_log: bool) -> None:
    """What either side wrote and the ancestor had not is in the result, a clash is in its text, and no merge of merges grows by itself."""
    merge = merge_texts(base, ours, theirs, is_log=is_log)
    for side in (ours, theirs):
        for line in set(side.removeprefix("\ufeff").splitlines()) - set(
            (base or "").removeprefix("\ufeff").splitlines()
        ):
            assert line in merge.text
    assert merge.clash == has_clash(merge.text)
    assert merge_texts(theirs, merge.text, theirs).text == merge.text


@given(base=styled, ours=styled)
def test_a_side_that_changed_nothing_never_clashes(base: str, ours: str) -> None:
    """Then the other side is the result."""
    assert merge_texts(base, ours, base) == Merge(ours, clash=False)
    assert merge_texts(base, base, ours) == Merge(ours, clash=False)


LINKED = """\
---
id: mem_tea_1_abcdef12
tags: [hot]
relations:
  - relation: see_also
    id: mem_b_1_abcdef12
  - relation: refines
    id: mem_c_1_abcdef12
updated: 2026-01-01T00:00:00Z
---

Tea.
"""


def test_front_matter_that_both_changed_still_reads() -> None:
    """By lines, half of an item of a list would stand behind the field below it, and the note would have neither id nor tags."""
    ours = front_matter.edit(
        LINKED,
        {
            "relations": [{"relation": "see_also", "id": "mem_d_1_abcdef12"}],
            "tags": ["hot", "green"],
            "updated": "2026-02-01T00:00:00Z",
        },
    )
    more = [
        {"relation": "see_also", "id": "mem_b_1_abcdef12"},
        {"relation": "refines", "id": "mem_c_1_abcdef12"},
        {"relation": "supersedes", "id": "mem_e_1_abcdef12"},
    ]
    theirs = front_matter.edit(LINKED, {"relations": more, "status": "done"})
    for one, other, kept in ((ours, theirs, "mem_e_1_abcdef12"), (theirs, ours, "mem_d_1_abcdef12")):
        merged = merge_texts(LINKED, one, other, names=("ann, revision 2", "bob, revision 3"))
        found = front_matter.parse(merged.text)
        assert found.problem is None
        assert (found.fields["id"], found.fields["tags"]) == ("mem_tea_1_abcdef12", ["hot", "green"])
        assert (found.fields["status"], found.fields["updated"]) == ("done", "2026-02-01T00:00:00Z")
        assert found.fields["relations"][-1]["id"] == kept
        assert merged.clash
        assert "# confide clash, ann, revision 2" in merged.text  # what gave way
        assert found.body == "\nTea.\n"


def test_what_each_side_changed_alone_is_kept_where_lines_cannot_be_put_together() -> None:
    base = "---\ntags:\n  - a\n  - b\nnote: |\n  one\n\n  two\n---\nText.\n"
    rng = random.Random(6)
    values: dict[str, list[Any]] = {
        "tags": [["a"], ["a", "b", "c"], ["x", "y", "z"], None],
        "note": ["one\nthree\n", "one line", None],
        "metadata": [{"x": 1, "y": {"z": 2}}, {"x": "one\ntwo"}],
        "status": ["done", "open"],
    }
    for _ in range(100):
        changes = [{name: rng.choice(values[name]) for name in rng.sample(list(values), 2)} for _ in range(2)]
        ours, theirs = (front_matter.edit(base, change) for change in changes)
        found = front_matter.parse(merge_texts(base, ours, theirs).text)
        assert found.problem is None
        assert found.body == "Text.\n"


def test_two_times_of_the_last_change_are_no_clash() -> None:
    """Every tool that changes a note writes it."""
    times = ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
    for first, second in (times, times[::-1]):
        ours = front_matter.edit(LINKED, {"status": "done", "updated": first})
        theirs = front_matter.edit(LINKED, {"tags": ["hot", "green"], "updated": second})
        merged = merge_texts(LINKED, ours, theirs)
        assert not merged.clash
        assert front_matter.parse(merged.text).fields["updated"] == max(times)
        assert front_matter.parse(merged.text).fields["status"] == "done"
        assert not has_clash(merged.text)
    commented = LINKED.replace("tags:", "# mine\ntags:")
    merged = merge_texts(
        commented,
        front_matter.edit(commented.replace("mine", "ours"), {"updated": times[0]}),
        front_matter.edit(commented.replace("mine", "theirs"), {"updated": times[1]}),
    )
    assert "# theirs\n" in merged.text
    assert "# ours\n" in merged.text


@pytest.mark.parametrize("added", ["", "- three\n"])
@pytest.mark.parametrize(("here", "there"), [("\n", "\r\n"), ("\r\n", "\n")])
def test_a_clone_with_other_line_ends_changes_those_of_nobody(added: str, here: str, there: str) -> None:
    """A new one has no version in common, and git with `core.autocrlf` wrote its files."""
    ours = "# Plan\n\n- one\n- two\n".replace("\n", here)
    theirs = f"# Plan\n\n- one\n- two\n{added}".replace("\n", there)
    assert merge_texts(None, ours, theirs).text == ours + added.replace("\n", here)
