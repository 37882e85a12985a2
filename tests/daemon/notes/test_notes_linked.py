"""Relations stand in the file of the note that states them, and are found from both ends."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent

from confide_memory.note import RELATIONS
from confide_memory.note_names import id_of_path


def ends(relations: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["relation"], one["direction"], one["id"]) for one in relations]


async def test_a_relation_is_found_from_both_ends(agent: Agent, laptop: Machine) -> None:
    for kind in RELATIONS:
        one, two = await agent.note(f"One that {kind}."), await agent.note(f"Two of {kind}.")
        done = await agent.call("memory_link", id=one, relatedId=two, relation=kind)
        assert (done["changed"], done["onDisk"]) == (True, True)
        assert ends(done["note"]["relations"]) == [(kind, "to", two)]
        assert ends(done["related"]["relations"]) == [(kind, "from", one)]
        assert laptop.files["proj", done["note"]["path"]].count(f"relation: {kind}") == 1
        assert "relation" not in laptop.files["proj", done["related"]["path"]]
        again = await agent.call("memory_link", id=one, relatedId=two, relation=kind)
        assert (again["changed"], again["note"]["revision"]) == (False, done["note"]["revision"])


async def test_both_ways_stands_in_both_files(agent: Agent, laptop: Machine) -> None:
    one, two = await agent.note("One."), await agent.note("Two.")
    done = await agent.call("memory_link", id=one, relatedId=two, relation="contradicts", bidirectional=True)
    for end, other in (("note", two), ("related", one)):
        assert sorted(ends(done[end]["relations"])) == [("contradicts", "from", other), ("contradicts", "to", other)]
        assert f"id: {other}" in laptop.files["proj", done[end]["path"]]


DIRECTED = ["supersedes", "refines", "depends_on", "implements", "example_of", "part_of"]


async def test_what_has_a_direction_has_one(agent: Agent) -> None:
    one, two = await agent.note("One."), await agent.note("Two.")
    for kind in DIRECTED:
        text = await agent.refused("memory_link", id=one, relatedId=two, relation=kind, bidirectional=True)
        assert "has a direction" in text
        assert "leave bidirectional out" in text


async def test_nothing_supersedes_itself_at_whatever_remove(agent: Agent) -> None:
    notes = [await agent.note(f"Note {number}.") for number in range(4)]
    assert "related to itself" in await agent.refused(
        "memory_link", id=notes[0], relatedId=notes[0], relation="see_also"
    )
    assert "related to itself" in await agent.refused("memory_update", id=notes[0], relatedTo=[notes[0]])
    for newer, older in itertools.pairwise(notes):
        await agent.call("memory_link", id=newer, relatedId=older, relation="supersedes")
    for older in notes[1:]:
        text = await agent.refused("memory_link", id=older, relatedId=notes[0], relation="supersedes")
        assert "in a circle" in text
    assert "in a circle" in await agent.refused(
        "memory_update", id=notes[3], relatedTo=[notes[0]], relation="supersedes"
    )
    # Taken back, it may be the other way round.
    await agent.call("memory_update", id=notes[0], relatedTo=[], relation="supersedes")
    await agent.call("memory_link", id=notes[3], relatedId=notes[0], relation="supersedes")


async def test_calls_at_the_same_time_close_no_circle(agent: Agent) -> None:
    notes = [await agent.note(f"Note {number}.") for number in range(5)]
    pairs = zip(notes, [*notes[1:], notes[0]], strict=True)
    results = await asyncio.gather(
        *(
            agent.client.call_tool("memory_link", {"id": newer, "relatedId": older, "relation": "supersedes"})
            for newer, older in pairs
        )
    )
    assert [result.is_error for result in results].count(True) == 1


async def test_the_form_that_a_person_wrote_is_kept(agent: Agent, laptop: Machine) -> None:
    other = await agent.note("Other.")
    third = await agent.note("Third.")
    by_hand = f"---\nrelations: # by me\n  refines: [{third}] # so\n  odd: 3\n---\nText.\n"
    await laptop.put("memory/notes/a.md", by_hand)
    note = id_of_path("proj", "memory/notes/a.md")
    done = await agent.call("memory_link", id=note, relatedId=other, relation="see_also")
    assert set(ends(done["note"]["relations"])) == {("refines", "to", third), ("see_also", "to", other)}
    text = laptop.files["proj", "memory/notes/a.md"]
    assert text.startswith(f"---\nrelations: # by me\n  refines: [{third}] # so\n  odd: 3\n  see_also: [{other}]\n")
    await laptop.put("memory/notes/b.md", "---\nrelations: nonsense\n---\nText.\n")
    note = id_of_path("proj", "memory/notes/b.md")
    text = await agent.refused("memory_link", id=note, relatedId=other, relation="see_also")
    assert "not understood" in text


async def test_a_note_states_so_many_relations(agent: Agent, laptop: Machine) -> None:
    other = await agent.note("Other.")
    stated = "".join(f"  - {{relation: see_also, id: mem_x_1_{number:08x}}}\n" for number in range(64))
    await laptop.put("memory/notes/a.md", f"---\nrelations:\n{stated}---\nText.\n")
    note = id_of_path("proj", "memory/notes/a.md")
    text = await agent.refused("memory_link", id=note, relatedId=other, relation="see_also")
    assert "at most 64 relations" in text


async def test_of_a_note_that_many_are_part_of_some_relations_are_told_and_all_counted(
    agent: Agent, laptop: Machine
) -> None:
    other = await agent.note("What it builds upon.")
    hub = await agent.note("The plan.", relatedTo=[other], relation="depends_on")
    for number in range(105):
        text = f"---\nrelations:\n  part_of: {hub}\n---\n\nPart {number}.\n"
        await laptop.put(f"memory/notes/part{number}.md", text)
    note = await agent.call("memory_get", id=hub)
    assert (len(note["relations"]), note["relationCount"]) == (100, 106)
    assert (note["relations"][0]["id"], note["relations"][0]["direction"]) == (other, "to")
    part = id_of_path("proj", "memory/notes/part104.md")
    assert [one["id"] for one in (await agent.call("memory_get", id=part))["relations"]] == [hub]
