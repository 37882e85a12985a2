"""What memory there is, and what changed lately, as a machine is told it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import RequestError
from confide_daemon.documents.change_numbers import ChangeNumbers
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_memory.documents import marked_clash

HERE = {"project": "proj"}


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def filled(desk: Machine) -> None:
    await desk.attach()
    await desk.put("MEMORY.md", "# Facts\n\n- The API listens on 8010.\n")
    await desk.put("memory/plan.md", "- one\n")
    await desk.put("memory/plan.md", "- one\n- two herons\n", base=1)
    await desk.put("memory/notes/a.md", "---\ntitle: Tabs\n---\nWe use tabs.\n")
    await desk.put("memory/gone.md", "soon gone\n")
    await desk.request("remove", {**HERE, "path": "memory/gone.md", "base": 1})


async def test_living_documents_are_listed_with_what_they_are(daemon: Serving) -> None:
    """The last changed first; a note has its title and id, another file what it begins with; a folder and a limit narrow it."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)
        found = await desk.request("documents", HERE)
        assert found["total"] == 3
        assert [one["path"] for one in found["documents"]] == ["memory/notes/a.md", "memory/plan.md", "MEMORY.md"]
        note, plan, _ = found["documents"]
        assert note["title"] == "Tabs"
        assert note["id"].startswith("mem_")
        assert (plan["title"], plan["lines"], plan["bytes"], plan["revision"]) == ("one", 2, 19, 2)
        assert (plan["author"], plan["id"], plan["clash"]) == ("desk", None, False)
        narrow = await desk.request("documents", {**HERE, "path": "memory", "limit": 1})
        assert (len(narrow["documents"]), narrow["total"]) == (1, 2)
        (only,) = (await desk.request("documents", {**HERE, "path": "MEMORY.md"}))["documents"]
        assert only["title"] == "Facts"
        assert (await desk.request("documents", {**HERE, "path": "memory/no%"}))["total"] == 0


async def test_a_list_has_pages_to_its_end_in_each_order(daemon: Serving) -> None:
    """Each document is on one page; a page says where it stands, and folders say how many documents they have."""
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        paths = [f"memory/{'ab'[n % 2]}/deep/{n}.md" for n in range(7)] + ["memory/top.md"]
        for n, path in enumerate(paths):
            await desk.put(path, f"# Title {n}\n\n{'words ' * (n + 1)}\n")
        orders = {"updated": paths[::-1], "path": sorted(paths), "size": paths[::-1]}
        for sort, expected in orders.items():
            seen: list[str] = []
            while len(seen) < len(paths):
                answer = await desk.request("documents", {**HERE, "sort": sort, "offset": len(seen), "limit": 3})
                assert (answer["offset"], answer["total"]) == (len(seen), 8)
                seen += [one["path"] for one in answer["documents"]]
            assert seen == expected
        whole = await desk.request("documents", {**HERE, "path": "memory", "folders": True})
        assert whole["folders"] == [{"path": "memory/a", "documents": 4}, {"path": "memory/b", "documents": 3}]
        assert whole["documents"][0]["words"] == " ".join(["words"] * 8)
        deeper = await desk.request("documents", {**HERE, "path": "memory/a", "folders": True})
        assert deeper["folders"] == [{"path": "memory/a/deep", "documents": 4}]
        for path, shown in ((paths[2], paths[0:5:2]), (paths[0], paths[0:3:2])):
            around = await desk.request("documents", {**HERE, "path": "memory/a", "around": path, "limit": 3})
            assert [one["path"] for one in around["documents"]][: len(shown)] == shown


async def test_the_line_of_a_document_in_conflict_is_one_of_its_own(daemon: Serving) -> None:
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await desk.put("MEMORY.md", "".join(["# Ports\n\n", *marked_clash(["4000\n"], ["4001\n"], ("ann", "bob"))]))
        (only,) = (await desk.request("documents", HERE))["documents"]
        assert (only["title"], only["words"]) == ("Ports", "4000")


async def test_an_order_that_no_list_has_is_refused(daemon: Serving) -> None:
    async with machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        for wrong in ({"sort": "colour"}, {"offset": -1}, {"folders": "yes"}, {"around": 1}):
            with pytest.raises(RequestError) as refused:
                await desk.request("documents", {**HERE, **wrong})
            assert refused.value.code == "invalid"


async def test_changes_are_told_with_what_each_brought(daemon: Serving) -> None:
    """The newest first, over all documents; of a time, of one file, and no more than asked for."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)
        found = (await desk.request("changes", HERE))["changes"]
        assert [(one["path"], one["revision"]) for one in found] == [
            ("memory/gone.md", 2),
            ("memory/gone.md", 1),
            ("memory/notes/a.md", 1),
            ("memory/plan.md", 2),
            ("memory/plan.md", 1),
            ("MEMORY.md", 1),
        ]
        assert [one["words"] for one in found] == ["", "soon gone", "We use tabs.", "two herons", "one", "Facts"]
        assert [one["deleted"] for one in found[:2]] == [True, False]
        assert len((await desk.request("changes", {**HERE, "limit": 2}))["changes"]) == 2
        of_plan = await desk.request("changes", {**HERE, "path": "memory/plan.md"})
        assert [one["revision"] for one in of_plan["changes"]] == [2, 1]
        later = {**HERE, "since": "2100-01-01T00:00:00Z"}
        assert (await desk.request("changes", later))["changes"] == []
        with pytest.raises(RequestError):
            await desk.request("changes", {**HERE, "since": "yesterday"})


async def test_what_has_changed_behind_a_place_in_the_sequence(daemon: Serving) -> None:
    """Each document as it stands now, in order, deleted notes by the id that they had; from the last place on nothing comes again."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)

        async def after(place: int, **more: Any) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await desk.request("changes", {**HERE, "after": place, **more}))["changes"]
            return found

        found = await after(0)
        assert [(one["path"], one["revision"], one["deleted"]) for one in found] == [
            ("MEMORY.md", 1, False),
            ("memory/plan.md", 2, False),
            ("memory/notes/a.md", 1, False),
            ("memory/gone.md", 2, True),
        ]
        assert await after(0, limit=2) == found[:2]
        assert await after(found[1]["change"]) == found[2:]
        assert await after(found[-1]["change"]) == []
        assert await after(0, since="2100-01-01T00:00:00Z") == []
        note = found[2]
        assert note["id"].startswith("mem_")
        await desk.request("remove", {"project": HERE["project"], "path": note["path"], "base": 1})
        (gone,) = await after(found[-1]["change"])
        assert (gone["id"], gone["deleted"]) == (note["id"], True)
        for wrong in (-1, "1", 2**53):
            with pytest.raises(RequestError):
                await after(wrong)  # type: ignore[arg-type]


async def test_the_numbers_of_changes_tell_nothing_of_other_projects(daemon: Serving) -> None:
    """Not by their size or order, nor by what is answered to a number that the caller has chosen."""
    async with (
        machine(daemon, "owner", space="home") as owner,
        machine(daemon, "limited", space="home", projects={"app"}) as limited,
    ):
        await owner.attach("app", "hidden")
        await limited.attach("app")
        shown = []
        for number in range(6):
            await owner.put(f"memory/{number}.md", "ours\n", project="app")
            for more in range(number):
                await owner.put(f"memory/{number}-{more}.md", "hidden\n", project="hidden")
            (newest, *_) = (await limited.request("changes", {"project": "app"}))["changes"]
            shown.append(newest["change"])
        assert all(2**31 <= each < 2**32 for each in shown)
        gaps = [abs(one - other) for one, other in itertools.pairwise(shown)]
        assert sum(gaps) > 2**20  # the sequence itself would show 21
        every = (await limited.request("changes", {"project": "app", "after": 0}))["changes"]
        assert [each["change"] for each in every] == shown
        for chosen in range(1, 25):
            assert (await limited.request("changes", {"project": "app", "after": chosen}))["changes"] == every
        plain = (await owner.request("changes", {"project": "app", "after": 1}))["changes"]
        assert len(plain) == 5  # whoever reaches everything goes on from a number of an earlier version


@given(key=st.binary(min_size=32, max_size=32), number=st.integers(0, 2**30 - 1))
def test_each_change_has_one_number_that_means_it(key: bytes, number: int) -> None:
    numbers = ChangeNumbers(key)
    assert numbers.from_client(numbers.to_client(number), is_limited=True) == number


async def test_what_waits_for_vectors_is_told_of_ones_own_projects(tmp_path: Path) -> None:
    """In the answers to `put` and `restore` as in those of the tools."""
    held = threading.Event()

    class Held(HashedEmbedder):
        def embed_documents(self, texts: list[str]) -> Any:
            held.wait(DEADLINE_S)
            return super().embed_documents(texts)

    async with serving(tmp_path / "d", embedder=LoadedModel.ready(Held())) as daemon:
        try:
            async with (
                machine(daemon, "owner", space="home") as owner,
                machine(daemon, "limited", space="home", projects={"app"}) as limited,
            ):
                await owner.attach("hidden")
                await limited.attach("app")
                for number in range(5):
                    await owner.put(f"memory/{number}.md", f"hidden text {number}\n", project="hidden")
                assert (await limited.put("memory/a.md", "mine\n", project="app"))["queued"] == 1
                await limited.put("memory/a.md", "mine once more\n", base=1, project="app")
                asked = {"project": "app", "path": "memory/a.md", "revision": 1}
                assert (await limited.request("restore", asked))["queued"] == 1
                assert (await owner.put("memory/9.md", "the last one\n", project="hidden"))["queued"] == 7
        finally:
            held.set()


async def test_neither_tells_what_its_caller_may_not_read(daemon: Serving) -> None:
    """Another project does not exist for a machine that reaches one alone, nor memory for one that reads transcripts."""
    async with machine(daemon, "desk", space="home") as desk:
        await filled(desk)
        assert (await desk.request("documents", {"project": "empty"}))["documents"] == []  # attached or not
    for op in ("documents", "changes"):
        async with machine(daemon, f"web{op}", space="home", projects={"web"}) as web:
            await web.attach("web")
            with pytest.raises(RequestError):
                await web.request(op, HERE)
        async with machine(daemon, f"talker{op}", space="home", sources={"sessions"}) as talker:
            await talker.attach()
            with pytest.raises(RequestError):
                await talker.request(op, HERE)
