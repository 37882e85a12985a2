"""Which decisions wait for a person, how calmly they are asked, and what a choice does; the daemon is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import LinkError
from confide_memory.documents import clash_origins, has_clash, marked_clash
from confide_proxy.config import ProxyConfig
from confide_proxy.hooks.server import folder_decisions
from confide_proxy.hooks.server.pending_decisions import AskedQuestions, DecisionDesk, DecisionPlace, PendingDecision
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync import project as projects
from confide_proxy.sync.absence.notice import Notice
from confide_proxy.sync.ledger import notice_file
from confide_proxy.sync.project import Project
from confide_proxy.sync.project_names import NameOrigin, ProjectNames
from confide_proxy.sync.workspace import folders_of

ANN, BOB = "ann-laptop, revision 4", "bob-desk, revision 5"
CLASH = "".join(["# Plan\n", *marked_clash(["Use A.\n"], ["Use B.\n"], (ANN, BOB)), "The end.\n"])


class Person:
    """Answers every question with the choice of this number; None is no answer."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self.asked: list[Question] = []
        self.can_ask = self.can_ask_now = True
        self.has_answered = asyncio.Event()

    async def ask(self, question: Question, *, timeout_s: float) -> str | None:
        self.asked.append(question)
        return None if self.number is None else question.choices[self.number].name


class Here:
    """A project, and the tools that were called in its name."""

    def __init__(self, root: Path) -> None:
        self.paths = ProxyPaths(root / "proxy.toml", root / "proxy", root / "global", root / "daemon")
        self.paths.state.mkdir(mode=0o700)
        self.paths.global_folder.mkdir()
        self.root = root / "shop"
        self.root.mkdir()
        self.config = ProxyConfig()
        self.project = Project("shop", self.root, is_git=False)
        self.clashes: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        self.down: Exception | None = None
        self.meant_deletions: dict[str, Any] = {}

    @property
    def place(self) -> DecisionPlace:
        return DecisionPlace(self.paths, self.config, self.project, self.connect, self.said.append)

    @property
    def folders(self) -> Any:
        return folders_of(self.paths, self.config, self.project)

    @property
    def files(self) -> Any:
        return self

    @property
    def ties(self) -> Any:
        """No note is tied: tests/e2e/sessions/test_questions_to_a_person.py has one that is."""
        return SimpleNamespace(notes=SimpleNamespace(all=lambda: iter(())))

    @asynccontextmanager
    async def connect(self, _project: Project) -> AsyncIterator[Any]:
        if self.down:
            raise self.down
        self.meant_deletions = {}
        yield self

    async def call(self, tool: str, arguments: dict[str, Any], **_more: Any) -> dict[str, Any]:
        self.calls.append((tool, self.meant_deletions))
        return {"clashes": self.clashes} if tool == "memory_status" else {}

    async def asked(self, person: Person, *finders: Any) -> list[Question]:
        await DecisionDesk(self.place, person, finders or folder_decisions.FINDERS).ask_all()
        return person.asked


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


async def test_nothing_is_asked_where_nothing_waits(here: Here) -> None:
    assert await here.asked(Person(0)) == []


@pytest.mark.parametrize(("number", "is_meant"), [(0, False), (1, True)])
async def test_missing_files(here: Here, number: int, is_meant: bool) -> None:
    notice = Notice(notice_file(here.paths.ledgers, here.root))
    here.paths.ledgers.mkdir(parents=True)
    hashes = {f"memory/{each}\x1b.md": "0" * 64 for each in range(12)}
    notice.note_missing(hashes, of=12, why="git clean", is_waiting=True)
    person = Person(number)
    (question,) = await here.asked(person)
    assert question.text.startswith("Confide asks about shop: 12 memory files went missing together")
    assert "and 7 more" in question.text
    assert "\x1b" not in question.text
    assert ("memory_sync", {"shop": frozenset(hashes)} if is_meant else {}) in here.calls
    assert not notice.missing()
    assert await here.asked(Person(number)) == []


async def test_not_now_changes_nothing_and_is_not_asked_again_today(here: Here) -> None:
    notice = Notice(notice_file(here.paths.ledgers, here.root))
    here.paths.ledgers.mkdir(parents=True)
    notice.note_missing({"memory/a.md": "0" * 64, "memory/b.md": "1" * 64}, of=2, why="x", is_waiting=True)
    before = len(await here.asked(Person(None)))
    assert before == 1
    assert ("memory_sync", False) not in here.calls
    assert notice.missing()
    assert await here.asked(Person(1)) == []


@pytest.mark.parametrize(("number", "name"), [(0, "shop"), (1, "shop~1")])
async def test_a_name_that_another_folder_has(here: Here, number: int, name: str) -> None:
    claim = projects.identify(here.root)
    ProjectNames(here.paths.projects).note(claim, NameOrigin.OWN)
    here.project = Project("shop~1", here.root, is_git=False, claim="shop")
    (question,) = await here.asked(Person(number))
    assert "calls itself shop" in question.text
    decision = ProjectNames(here.paths.projects).about(claim)
    assert decision is not None
    assert (decision.state is NameOrigin.ALLOWED) == (name == "shop")
    assert await here.asked(Person(number)) == []


@pytest.mark.parametrize(("number", "kept"), [(0, "Use A."), (1, "Use B.")])
async def test_a_conflict(here: Here, number: int, kept: str) -> None:
    file = here.root / "memory/plan.md"
    file.parent.mkdir()
    file.write_text(CLASH)
    here.clashes = [{"project": "shop", "path": "memory/plan.md", "revision": 5}]
    (question,) = await here.asked(Person(number))
    assert "Use A." in question.text
    assert "Use B." in question.text
    assert [choice.name for choice in question.choices] == [ANN, BOB]
    assert file.read_text() == f"# Plan\n{kept}\nThe end.\n"


async def test_a_file_that_was_changed_meanwhile_stays(here: Here) -> None:
    file = here.root / "memory/plan.md"
    file.parent.mkdir()
    file.write_text(CLASH)
    here.clashes = [{"project": "shop", "path": "memory/plan.md", "revision": 5}]
    (decision,) = await folder_decisions.conflicts(here.place)
    file.write_text(f"{CLASH}More.\n")

    async def found(_place: DecisionPlace) -> list[PendingDecision]:
        return [decision]

    await here.asked(Person(0), found)
    assert has_clash(file.read_text())


async def test_conflicts_that_only_an_editor_can_settle_are_not_asked(here: Here) -> None:
    """Three versions, versions of other origins, one in front matter, marks without an end, a file that has gone, or is out of memory."""
    third = marked_clash(CLASH.splitlines(keepends=True)[1:-1], ["Use C.\n"], (ANN, "c, revision 6"))
    other = marked_clash(["x\n"], ["y\n"], ("c, revision 1", "d, revision 2"))
    forms = ("".join(third), CLASH + "".join(other), f"---\n# confide clash, a: x\n---\n{CLASH}", CLASH[:60], "plain\n")
    (here.root / "memory").mkdir()
    for number, text in enumerate(forms):
        (here.root / f"memory/{number}.md").write_text(text)
        assert clash_origins(text) is None
    paths = [*(f"memory/{number}.md" for number in range(len(forms))), "memory/gone.md", "../../etc/passwd"]
    for path in paths:
        here.clashes = [{"project": "shop", "path": path, "revision": 1}]
        assert await here.asked(Person(0)) == []


async def test_one_question_of_a_topic_in_a_session(here: Here) -> None:
    """Whatever fails to be found or carried out ends nothing, and may be asked again tomorrow."""
    done: list[str] = []

    async def carry_out(choice: str) -> None:
        done.append(choice)
        raise LinkError("down")

    def decision(topic: str, text: str) -> PendingDecision:
        return PendingDecision(topic, Question(text, (Choice("yes", "Yes"),)), carry_out)

    async def broken(_place: DecisionPlace) -> list[PendingDecision]:
        raise LinkError("down")

    async def found(_place: DecisionPlace) -> list[PendingDecision]:
        return [decision("a", "1"), decision("a", "2"), decision("b", "3")]

    assert [each.text for each in await here.asked(Person(0), broken, found)] == ["1", "3"]
    assert done == ["yes", "yes"]
    assert [each.text for each in await here.asked(Person(0), found)] == ["2"]


def test_a_damaged_record_of_questions_is_none(tmp_path: Path) -> None:
    question = Question("?", ())
    for damage in (b"", b"[]", b'{"a": "b"}', b"\xff", b"[" * 100_000):
        (tmp_path / "asked.json").write_bytes(damage)
        asked = AskedQuestions(tmp_path / "asked.json")
        assert not asked.has(question)
        asked.note(question, DEADLINE_S)
        assert asked.has(question)
        assert b"?" not in (tmp_path / "asked.json").read_bytes()


async def test_the_agents_own_call_is_answered_first(here: Here) -> None:
    person = Person(None)

    async def found(_place: DecisionPlace) -> list[PendingDecision]:
        person.number = 0
        return []

    running = asyncio.create_task(DecisionDesk(here.place, person, [found]).run())
    try:
        await asyncio.sleep(0)
        assert person.number is None
        person.has_answered.set()
        async with asyncio.timeout(DEADLINE_S):
            while person.number is None:  # noqa: ASYNC110 - another task is waited for
                await asyncio.sleep(0)
    finally:
        running.cancel()
