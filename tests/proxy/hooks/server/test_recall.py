"""What the seat's holder answers where the link is down, the daemon is slow, refuses or lies, or the folder is nobody's yet."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import ConnectionLost, RequestError
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_memory.actions import error_messages
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import KeyLockedError, NotJoinedError
from confide_proxy.freshness.note_ties import ProjectTies
from confide_proxy.hooks import briefings, session_marks
from confide_proxy.hooks.server import recall, shown, usage
from confide_proxy.hooks.server.recall import PromptRecall
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync import project as projects
from confide_proxy.sync.project_names import NameOrigin, ProjectNames

QUESTION = "why did we choose postgres for the orders?"


class Link:
    """A link whose daemon answers what the test says."""

    def __init__(self) -> None:
        self.is_up: bool | None = True
        self.reason: Exception | None = None
        self.says: Any = {"result": {"results": [], "memories": []}}
        self.asked: list[dict[str, Any]] = []

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        self.asked.append(body)
        if isinstance(self.says, Exception):
            raise self.says
        if self.says is None:
            await asyncio.Event().wait()
        result: dict[str, Any] = self.says
        return result


class Here:
    """A holder, its link, and the folder of a project that is known."""

    def __init__(self, tmp_path: Path) -> None:
        self.paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "state", tmp_path / "global", tmp_path / "daemon")
        self.paths.state.mkdir(mode=0o700)
        self.folder = tmp_path / "shop"
        self.folder.mkdir()
        ProjectNames(self.paths.projects).note(projects.identify(self.folder), NameOrigin.FIRST)
        self.link = Link()
        self.sealing = SessionSealing(self.paths, ProxyConfig(), MachineKeys(self.paths))
        link: Any = self.link
        self.recall = PromptRecall(self.paths, link, self.sealing, [self.folder])

    async def start(self, session: str = "s", source: str = "startup", **more: str) -> dict[str, Any]:
        told = {"kind": "start", "cwd": str(self.folder), "session": session, "source": source}
        return await self.recall.answer(told | more)

    async def prompt(self, session: str = "s", **more: str) -> dict[str, Any]:
        told = {"kind": "prompt", "cwd": str(self.folder), "session": session, "prompt": QUESTION}
        return await self.recall.answer(told | more)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


async def test_a_person_is_told_once_what_only_a_person_can_do(here: Here) -> None:
    """The key is locked, or no daemon was joined; that the daemon is away is no message: it comes back by itself."""
    here.link.is_up = False
    for session, reason in (("a", KeyLockedError()), ("b", NotJoinedError())):
        here.link.reason = reason
        told = (await here.start(session))["message"]
        assert told.startswith("Confide: ")
        assert str(reason) in told
        assert str(reason.hint)[:20] in told
        assert "message" not in await here.start(session, "clear")
    here.link.reason = ConnectionLost(truncated=False)
    assert await here.start("c") == {}


async def test_what_the_daemon_does_costs_no_more_than_an_answer(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is silent, refuses, breaks off or answers in another form: nothing is said, in time; a start has what the disk has."""
    monkeypatch.setattr(recall, "DAEMON_S", 0.1)
    briefings.save(str(here.paths.state), str(here.folder), "a1", ["- kept"])
    wrong: list[Any] = [
        *(
            None,
            RequestError("invalid", "unknown request"),
            RequestError("busy", "later"),
            ConnectionLost(truncated=True),
        ),
        *(
            TimeoutError(),
            {},
            {"result": []},
            {"result": {"results": 7, "memories": 7}},
            {"result": {"results": [7, {}]}},
            {"result": {"memories": [{"level": [], "project": "shop"}, {"level": {}}]}},
        ),
    ]
    for number, says in enumerate(wrong):
        here.link.says = says
        monkeypatch.setattr(recall, "ANSWER_S", 0.1)
        assert await here.prompt(f"p{number}") == {}, says
        monkeypatch.setattr(
            recall, "ANSWER_S", DEADLINE_S
        )  # what the disk takes on a busy machine is not what is asked here
        answer = await here.start(f"s{number}")
        if not (isinstance(says, dict) and isinstance(says.get("result"), dict)):
            assert "- kept" in answer["context"], says
    here.recall.end()


async def test_a_folder_that_is_nobodys_yet_has_no_memory(here: Here, tmp_path: Path) -> None:
    """Whose name it claims was not decided: nothing is asked in its name."""
    stranger = tmp_path / "claims"
    stranger.mkdir()
    (stranger / ".confide.toml").write_text('name = "shop"\n')
    assert await here.prompt(cwd=str(stranger)) == {}
    assert await here.start(cwd=str(stranger)) == {}
    assert here.link.asked == []
    await here.prompt()
    assert {body["project"] for body in here.link.asked} == {"shop"}


async def test_a_start_that_nobody_answered_is_made_up_for_at_the_first_prompt(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the prompt says, once; in a session that had its briefing nothing comes again."""
    monkeypatch.setattr(shown, "TWICE_S", 0.0)  # as if a while went by between all of these
    note = {"title": "Style", "path": "memory/style.md", "project": "shop", "level": "core", "snippet": "We use tabs."}
    note |= {"author": "laptop", "updated": "2026-11-20T10:00:00Z", "class": "owner"}
    here.link.says = {"result": {"results": [], "memories": [note]}}
    state = str(here.paths.state)
    for session in ("first", "second", "\n"):
        session_marks.miss(state, session)
    here.link.is_up = False
    here.link.reason = ConnectionLost(truncated=False)
    assert await here.prompt("first") == {}
    here.link.is_up = True
    assert "We use tabs." in (await here.prompt("first", prompt="hello"))["context"]
    assert await here.prompt("first") == {}
    await here.start("second")
    for session in ("second", "third", "\n", ""):
        assert await here.prompt(session) == {}
    for number in range(1000):
        session_marks.miss(state, f"{number:036}")
    assert session_marks.is_missed(state, f"{999:036}")
    assert (here.paths.state / "hooks/unanswered").stat().st_size < 2 * session_marks.MOST_BYTES


async def test_what_would_come_too_late_for_its_hook_counts_as_never_shown(here: Here) -> None:
    """A hook that has waited for its session has less time left than others, and says how much."""
    found = {"path": "memory/a.md", "project": "shop", "startLine": 3, "heading": "", "snippet": "Row locks."}
    found |= {"author": "laptop", "updatedAt": "2026-11-20T10:00:00Z", "class": "agent"}
    briefings.save(str(here.paths.state), str(here.folder), "a1", [])
    here.link.says = {"result": {"results": [found]}}
    asked = {"kind": "prompt", "cwd": str(here.folder), "session": "s", "prompt": QUESTION}
    assert await here.recall.answer({**asked, "ms": 1}) == {}
    assert "Row locks." in (await here.recall.answer({**asked, "ms": 100_000}))["context"]


async def test_a_hook_that_waits_for_the_daemons_start_gets_its_answer(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first prompt of a session with nothing running before: its hook says how long it waits, and gets briefing and hits."""
    monkeypatch.setattr(recall, "ANSWER_S", 0.01)
    here.link.is_up, here.link.says = None, {"result": {"results": [hit("a")]}}
    asked = {"kind": "prompt", "cwd": str(here.folder), "session": "s", "prompt": QUESTION}
    answer = asyncio.create_task(here.recall.answer({**asked, "ms": int(DEADLINE_S * 1000)}))
    await asyncio.sleep(0.05)
    assert not answer.done()
    here.link.is_up = True
    assert "About a." in (await answer)["context"]
    here.recall.end()


async def briefed(here: Here, text: str) -> None:
    """Wait until the briefing on disk has a text."""
    async with asyncio.timeout(DEADLINE_S):
        while text not in briefings.read(str(here.paths.state), str(here.folder)):  # noqa: ASYNC110 - the disk has no event
            await asyncio.sleep(0.01)


def noted(text: str) -> dict[str, Any]:
    """Return the answer of a daemon with a single note, which has this text."""
    note = {"title": "Style", "path": "memory/style.md", "project": "shop", "level": "core", "snippet": text}
    note |= {"author": "laptop", "updated": "2026-11-20T10:00:00Z", "class": "owner"}
    return {"result": {"results": [], "memories": [note]}}


async def test_a_briefing_that_failed_is_made_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that was busy as a turn ended: the next session begins with what is true, without another turn before."""
    monkeypatch.setattr(recall, "SETTLE_S", 0.01)
    briefings.save(str(here.paths.state), str(here.folder), "a1", ["- We use tabs."])
    here.link.says = TimeoutError()
    await here.recall.answer({"kind": "turn", "cwd": str(here.folder), "session": "s"})
    async with asyncio.timeout(DEADLINE_S):
        while not here.link.asked:  # noqa: ASYNC110 - it notifies nobody
            await asyncio.sleep(0.01)
    here.link.says = noted("We use spaces.")
    await briefed(here, "We use spaces.")
    here.recall.end()


async def test_a_turn_that_ends_while_the_briefing_is_made_is_in_it(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon has answered before the turn ends, so the briefing is made again after it."""
    monkeypatch.setattr(recall, "SETTLE_S", 0.01)
    turn = {"kind": "turn", "cwd": str(here.folder), "session": "s"}
    here.link.says = noted("We use tabs.")
    saving, saved = briefings.save, asyncio.Event()
    loop = asyncio.get_running_loop()

    def save(*told: Any) -> None:
        if not saved.is_set():
            here.link.says = noted("We use spaces.")
            asyncio.run_coroutine_threadsafe(here.recall.answer(turn), loop).result(DEADLINE_S)
            loop.call_soon_threadsafe(saved.set)
        saving(*told)

    monkeypatch.setattr(briefings, "save", save)
    await here.recall.answer(turn)
    await asyncio.wait_for(saved.wait(), DEADLINE_S)
    await briefed(here, "We use spaces.")
    here.recall.end()


def hit(name: str, **more: object) -> dict[str, object]:
    found = {"path": f"memory/{name}.md", "project": "shop", "startLine": 3, "heading": "", "snippet": f"About {name}."}
    return found | {"author": "laptop", "updatedAt": "2026-11-20T10:00:00Z", "class": "agent"} | more


async def counted(here: Here, path: str, **expected: object) -> None:
    """Wait until the counters of a note say this."""
    file = usage.UsageFile(here.paths.state)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            note = file.refresh().notes.get(f"shop\0{path}")
            if note is not None and all(getattr(note, name) == value for name, value in expected.items()):
                return
            await asyncio.sleep(0.01)


async def test_what_a_session_is_shown_and_uses_is_counted(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt's hits; then one of them in a tool call's command, and the other in the agent's answer."""
    monkeypatch.setattr(recall, "ANSWER_S", DEADLINE_S)
    here.link.says = {"result": {"results": [hit("a"), hit("b")]}}
    assert "About a." in (await here.prompt())["context"]
    await counted(here, "memory/a.md", shown={"prompt": 1}, used=0, unused=1)
    call = {"kind": "before", "session": "s", "cwd": str(here.folder), "tool": "Bash", "paths": [], "output": ""}
    await here.recall.answer(call | {"command": f"cat {here.folder}/memory/a.md"})
    await counted(here, "memory/a.md", used=1, unused=0)
    turn = {"kind": "turn", "session": "s", "cwd": str(here.folder), "answer": "I followed memory/b.md."}
    await here.recall.answer(turn)
    await counted(here, "memory/b.md", used=1, unused=0)
    here.recall.end()


async def test_a_note_that_nobody_uses_comes_after_others(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a prompt and at a start, but never one of importance core; a use brings it back, also one by another process."""
    monkeypatch.setattr(recall, "ANSWER_S", DEADLINE_S)
    here.link.says = {"result": {"results": [hit("a"), hit("b")], "memories": []}}

    async def first(session: str) -> str:
        said = (await here.prompt(session))["context"]
        return "ab"["memory/a.md" not in said or said.index("memory/b.md") < said.index("memory/a.md")]

    other = usage.UsageFile(here.paths.state)
    notes = [usage.ShownNote("shop", f"memory/{name}.md") for name in ("a", "core")]
    for _ in range(usage.SINKS_AFTER):
        other.add(lambda state: state.show(usage.PROMPT, notes, tokens=1, now=time.time()))
    other.flush()
    assert await first("before") == "b"

    listed = {"author": "laptop", "updated": "2026-11-20T10:00:00Z", "class": "owner", "project": "shop"}
    rows = [("core", "core"), ("a", "high"), ("b", "high")]
    here.link.says = {
        "result": {
            "results": [hit("a"), hit("b")],
            "memories": [
                {**listed, "title": name, "path": f"memory/{name}.md", "level": level, "snippet": name}
                for name, level in rows
            ],
        }
    }
    said = (await here.start("start"))["context"]
    assert said.index("memory/core.md") < said.index("memory/b.md") < said.index("memory/a.md")

    other.add(lambda state: state.read("shop", ["memory/a.md"], time.time()))
    other.flush()
    assert await first("after") == "a"
    here.recall.end()


async def test_a_failure_that_comes_again_is_counted_once_a_session(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note for it was shown, so that it was of no use; where the failure stays away it was."""
    monkeypatch.setattr(recall, "ANSWER_S", DEADLINE_S)
    line = "fixed \"ModuleNotFoundError: No module named 'psycopg2'\": pip install psycopg2-binary"
    (here.folder / "memory").mkdir()
    (here.folder / "memory/a.md").write_text(f"- {line}\n")
    output = "Exit code 1\nModuleNotFoundError: No module named 'psycopg2'"
    key = error_messages.signature("ModuleNotFoundError: No module named 'psycopg2'")
    entry = {**hit("a"), "id": None, "snippet": line, "triggers": [{"kind": "error", "key": key}]}
    here.link.says = {"version": "1", "entries": [entry], "result": {"results": []}}

    async def fails(session: str) -> dict[str, Any]:
        call = {"kind": "after", "session": session, "cwd": str(here.folder), "tool": "Bash", "paths": []}
        return await here.recall.answer(call | {"command": "pytest -q", "output": output, "failed": True})

    assert "psycopg2-binary" in (await fails("one"))["context"]
    await counted(here, "memory/a.md", shown={"failure": 1}, used=1, again=0)
    for _ in range(3):
        assert await fails("one") == {}
    await counted(here, "memory/a.md", used=0, again=1, unused=1)
    assert "psycopg2-binary" in (await fails("two"))["context"]
    await counted(here, "memory/a.md", shown={"failure": 2}, used=1, again=1, unused=0)
    here.recall.end()


async def test_a_failure_whose_note_came_before_the_command_counts_as_met(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note may name the command and its failure: it comes before the command, and is used if the failure stays away then."""
    monkeypatch.setattr(recall, "ANSWER_S", DEADLINE_S)
    line = "`ModuleNotFoundError: No module named 'prices'`: run `make generate` before `make build`."
    (here.folder / "memory").mkdir()
    (here.folder / "memory/a.md").write_text(f"- {line}\n")
    output = "Exit code 2\nModuleNotFoundError: No module named 'prices'"
    key = error_messages.signature("ModuleNotFoundError: No module named 'prices'")
    triggers = [{"kind": "error", "key": key}, {"kind": "command", "key": "make build"}]
    here.link.says = {"version": "1", "entries": [{**hit("a"), "id": None, "snippet": line, "triggers": triggers}]}
    call = {"session": "s", "cwd": str(here.folder), "tool": "Bash", "paths": [], "command": "make build"}

    assert "make generate" in (await here.recall.answer({**call, "kind": "before"}))["context"]
    await counted(here, "memory/a.md", shown={"action": 1}, used=0, met=0)
    for used, again in ((1, 0), (0, 1), (0, 1)):
        assert await here.recall.answer({**call, "kind": "after", "output": output, "failed": True}) == {}
        await counted(here, "memory/a.md", shown={"action": 1}, met=1, used=used, again=again)
    here.recall.end()
    assert here.recall._usage.state.total(1, time.time())["action"].used == 0


async def test_a_note_about_what_is_gone_never_comes_by_itself(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a prompt, at a start and before an edit; one about what was changed says so. A start without a daemon is not told that
    a note is still true.
    """
    monkeypatch.setattr(recall, "ANSWER_S", DEADLINE_S)
    keys = here.sealing.keyring.keys = SpaceKeys.generate()
    ties = ProjectTies(here.folder, lambda: keys)
    (here.folder / "memory/notes").mkdir(parents=True)
    line = "never edit `made.py` by hand"
    for name in ("kept", "changed", "made"):
        (here.folder / f"{name}.py").write_text("x = 1\n")
        head = "".join(f"  {part}: {seen}\n" for part, seen in ties.seen_for_parts([f"{name}.py"]).items())
        (here.folder / f"memory/notes/{name}.md").write_text(f"---\nid: mem_{name}_1_abcd\nseen:\n{head}---\n{line}\n")
    (here.folder / "changed.py").write_text("x = 2\n")
    note = {"level": "core", "updated": "2026-11-20T10:00:00Z"}
    found = [hit(f"notes/{name}") for name in ("kept", "changed", "made")]
    entry = {**hit("notes/made"), "id": None, "snippet": line, "triggers": [{"kind": "path", "key": "made.py"}]}
    memories = [{**each, **note, "title": each["path"]} for each in found]
    here.link.says = {"version": "1", "entries": [entry], "result": {"results": found, "memories": memories}}
    edit = {"kind": "before", "cwd": str(here.folder), "tool": "Edit", "paths": ["made.py"], "output": ""}

    assert "; changed since" not in (await here.recall.answer({**edit, "session": "a"}))["context"]
    (here.folder / "made.py").write_text("x = 3\n")
    assert "; changed since" in (await here.recall.answer({**edit, "session": "b"}))["context"]
    (here.folder / "made.py").unlink()
    assert await here.recall.answer({**edit, "session": "c"}) == {}
    for said in ((await here.prompt("d"))["context"], (await here.start("e"))["context"]):
        assert "notes/made" not in said
        kept, changed = (
            next(one for one in said.split("\n") if f"notes/{name}" in one) for name in ("kept", "changed")
        )
        assert "changed since" in changed
        assert "2026-11-20): " in kept
    # An important one is counted at a start, without a word of it.
    told = (
        "- 1 important note is about files or code that no longer exist here, so it is left out: confide stale lists it"
    )
    assert told in said
    for each in memories:
        each["level"] = "low"
    assert await here.start("f") == {}
    for each in memories:
        each["level"] = "high"
    assert told in (await here.start("g"))["context"]
    on_disk = briefings.read(str(here.paths.state), str(here.folder))
    assert "notes/kept.md (agent, by laptop, 2026-11-20; not checked since)" in on_disk
    here.recall.end()
