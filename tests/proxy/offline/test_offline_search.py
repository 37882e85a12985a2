"""Search, read and store from this machine's files alone: what is found, what is not, and in which form."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.deadline import DEADLINE_S

from confide_crypto.errors import DeniedError, RequestError, UnreachableError
from confide_memory.note_names import id_of_path
from confide_memory.tools.call import ToolAnswer
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import DaemonMissingError, KeyLockedError, NotJoinedError
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.mcp.catalogue import PACKAGED, ToolCatalogue
from confide_proxy.offline import local_corpus, offline_calls
from confide_proxy.offline.offline_calls import Offline, OfflineCall
from confide_proxy.offline.outage import Outage
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.sealed_calls import SealedCalls
from confide_proxy.sync.project import Project

CATALOGUE = ToolCatalogue(json.loads(PACKAGED.read_bytes()))
UNREACHABLE = UnreachableError("memory.example:7733", "connection refused")
SAID = "2026-11-20T23:59:58+01:00"

NOTES = {
    "MEMORY.md": "# Decisions\n\nWe chose postgres over mysql for its row locks.\n\n## Ports\n\nThe API listens on 8010.\n",
    "memory/2026-11-03.md": "- The deploy failed with ERR_CONN_42.\n- Ben is away until Monday.\n",
    "memory/2026-11-19.md": "- postgres was upgraded to 18.\n",
    "memory/deploy/steps.md": "# Deploy\n\n1. Build the image.\n2. Run `make ship`.\n\n```\n# no heading\nrsync -a src/app.py box:\n```\n",
}


class Desk:
    """A project and the global folder, without any daemon."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project"
        self.paths = ProxyPaths(root / "proxy.toml", root / "state", root / "global", root / "daemon")
        for path, text in NOTES.items():
            self.write(path, text)
        self.write("MEMORY.md", "Tabs are four spaces, everywhere.\n", at=self.paths.global_folder)
        sealed = SealedCalls(SessionSealing(self.paths, ProxyConfig(), MachineKeys(self.paths)), "shop")
        self.offline = Offline(self.paths, ProxyConfig(), Project("shop", self.project, is_git=False), sealed)
        self.trouble = Outage(UNREACHABLE, time.time() - 60)

    def write(self, path: str, text: str, *, at: Path | None = None) -> None:
        file = (at or self.project) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    async def call(self, tool: str, **arguments: Any) -> ToolAnswer:
        """The answer, which fits the tool's schema if it is not an error."""
        described = CATALOGUE.tools[tool]
        answer = await self.offline.answer(OfflineCall(described, arguments, None, SAID), self.trouble)
        if answer.structured is not None:
            jsonschema.validate(answer.structured, CATALOGUE.outputs[tool])
        return answer

    async def search(self, query: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.call("memory_search", query=query, **arguments)
        assert answer.structured is not None, answer.text
        assert answer.structured["searchMode"] == "offline"
        return answer.structured

    async def found(self, query: str, **arguments: Any) -> list[str]:
        """The paths of the results, best first."""
        return [hit["path"] for hit in (await self.search(query, **arguments))["results"]]

    async def store(self, content: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.call("memory_store", content=content, **arguments)
        assert answer.structured is not None, answer.text
        return answer.structured

    async def read(self, path: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.call("memory_read", path=path, **arguments)
        assert answer.structured is not None, answer.text
        return answer.structured


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_hit_is_a_small_piece_with_its_lines_and_heading(desk: Desk) -> None:
    result = await desk.search("why postgres row locks")
    best = result["results"][0]
    assert (best["path"], best["project"], best["heading"]) == ("MEMORY.md", "shop", "Decisions")
    assert best["snippet"] == "# Decisions\n\nWe chose postgres over mysql for its row locks."
    assert (best["startLine"], best["endLine"]) == (1, 3)
    assert "connection refused" in result["warnings"][0]
    assert "(since " in result["warnings"][0]


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("ERR_CONN_42", "memory/2026-11-03.md"),
        ("which port does the API listen on", "MEMORY.md"),
        ("src/app.py", "memory/deploy/steps.md"),
        ("deploying steps", "memory/deploy/steps.md"),
        ('"four spaces"', "MEMORY.md"),
    ],
)
async def test_words_and_identifiers_are_found(desk: Desk, query: str, path: str) -> None:
    assert (await desk.found(query))[0] == path


@pytest.mark.parametrize("query", ["quantum chromodynamics", "???", '"', "NEAR( OR *", "a" * 4000])
async def test_what_is_not_there_is_not_found(desk: Desk, query: str) -> None:
    """Nothing irrelevant comes back, and no text of a query acts as search syntax."""
    assert await desk.found(query) == []


async def test_filters_are_honoured(desk: Desk) -> None:
    postgres = {"minScore": 0.0, "query": "postgres"}
    assert set(await desk.found(**postgres)) == {"MEMORY.md", "memory/2026-11-19.md"}
    assert await desk.found(**postgres, path="memory") == ["memory/2026-11-19.md"]
    assert await desk.found(**postgres, path="memory/2026-*") == ["memory/2026-11-19.md"]
    assert await desk.found(**postgres, path="./MEMORY.md") == ["MEMORY.md"]
    assert "memory/2026-11-19.md" not in await desk.found(**postgres, until="2026-11-10")
    for since in ("2026-11-10", "2026-11-10T08:00:00Z", "2026-11-10t08:00:00z"):
        assert "memory/2026-11-03.md" not in await desk.found("deploy", minScore=0, since=since)
    assert len(await desk.found(**postgres, maxResults=1)) == 1
    assert len(await desk.found(**postgres, maxTokens=50)) == 2
    assert await desk.found("tabs spaces", scope="project") == []
    assert await desk.found("tabs spaces", scope="global") == ["MEMORY.md"]
    assert await desk.found("tabs spaces", project="global") == ["MEMORY.md"]
    assert await desk.found("unheard", keywords=["upgraded"]) == ["memory/2026-11-19.md"]
    assert await desk.found("postgres", minScore=0.99) == []
    told = (await desk.search("postgres", path="src", type=["any"]))["warnings"]
    assert "the search was limited to path 'src' and type 'any': leave them out to search everything" in told


NOTE = """---
id: mem_kiln_1_0000000{number}
title: {title}
tags: [{tags}]
type: episodic
entity: Kiln Room
importance: {importance}
created: 2026-11-01
relations:
- relation: see_also
  id: mem_other_1_00000000
---
{text}
"""


async def test_a_glob_means_what_it_means_to_the_daemon(desk: Desk) -> None:
    """Two stars stand for no folder too, and one stays in its folder (the same rows: `tests/daemon/notes/test_notes_searched.py`)."""
    for path, found in (
        ("**/*.md", {"MEMORY.md", "memory/2026-11-19.md"}),
        ("memory/**/*.md", {"memory/2026-11-19.md"}),
        ("./memory/", {"memory/2026-11-19.md"}),
        ("memory/2026-11-1?.md", {"memory/2026-11-19.md"}),
        ("*.md", {"MEMORY.md"}),
        ("*/*/*.md", set()),
        (".", {"MEMORY.md", "memory/2026-11-19.md"}),
    ):
        hits = (await desk.search("postgres", path=path))["results"]
        assert {hit["path"] for hit in hits} == found, path


def note(number: int, title: str, text: str, *, tags: str = "heat", importance: str = "normal") -> str:
    return NOTE.format(number=number, title=title, text=text, tags=tags, importance=importance)


async def test_notes_are_found_by_their_fields_and_shown_without_them(desk: Desk) -> None:
    """As with the daemon, in a toolset that lists none of the filters as well."""
    desk.write("memory/notes/a.md", note(1, "Firing", "Raise it slowly.", tags="heat, Überseehandel"))
    desk.write("memory/notes/b.md", note(2, "Cooling", "Wait a day. Slowly.", importance="core"))
    desk.write("memory/notes/odd.md", "---\ntags: [unclosed\n---\nSlowly, by hand.\n")
    (hit,) = (await desk.search("firing", minScore=0))["results"]
    assert (hit["snippet"], hit["startLine"], hit["id"], hit["title"], hit["tags"]) == (
        "Raise it slowly.",
        13,
        "mem_kiln_1_00000001",
        "Firing",
        ["heat", "Überseehandel"],
    )
    assert await desk.found("slowly mem_other_1_00000000", tags=["ÜBERSEEHANDEL", "heat"], minScore=0) == [
        "memory/notes/a.md"
    ]
    both = {"memory/notes/a.md", "memory/notes/b.md"}
    assert set(await desk.found("slowly", minScore=0)) == both | {"memory/notes/odd.md"}
    for narrowed in ({"type": ["EPISODIC", "other"]}, {"entity": "kiln  room"}, {"tags": ["heat"]}):
        assert set(await desk.found("slowly", minScore=0, **narrowed)) == both, narrowed
    assert await desk.found("slowly", minScore=0, category="facts") == []
    assert set(await desk.found("slowly", tags=["#heat"], minScore=0)) == both
    apart = await desk.found("slowly", tags=["heat", "überseehandel"], minScore=0)
    assert apart
    assert await desk.found("slowly", tags="heat, #überseehandel", minScore=0) == apart
    assert await desk.found("postgres", minScore=0, tags=["heat"]) == []
    assert (await desk.found("slowly", minScore=0, rank="importance"))[0] == "memory/notes/b.md"
    related = await desk.search("slowly", minScore=0, includeRelated=True, explain=True)
    assert "only the daemon knows relations, and which note supersedes another" in related["warnings"]


async def test_a_note_is_read_by_its_id(desk: Desk) -> None:
    """Whole or short, said by its file or given by the file's name; a short one that several begin with is refused."""
    desk.write("memory/notes/firing-0a1b2c3d.md", note(1, "Firing", "Raise it.").replace("00000001", "0a1b2c3d"))
    desk.write("memory/notes/renamed.md", note(2, "Cooling", "Wait a day.").replace("00000002", "0a1bffff"))
    desk.write("memory/notes/by-hand.md", "Raise it slowly.\n")
    hits = {hit["path"]: hit for hit in (await desk.search("raise wait", minScore=0))["results"]}
    assert hits["memory/notes/firing-0a1b2c3d.md"]["shortId"] == "mem_0a1b2c"
    assert hits["memory/notes/renamed.md"]["shortId"] == "mem_0a1bff"
    by_hand = hits["memory/notes/by-hand.md"]
    assert by_hand["id"] == id_of_path("shop", "memory/notes/by-hand.md")
    for said, text in (
        ("mem_0a1b2", "Raise it."),
        ("mem_kiln_1_0a1b2c3d", "Raise it."),
        ("mem_0a1bf", "Wait a day."),
        (by_hand["shortId"], "Raise it slowly."),
    ):
        assert text in (await desk.call("memory_read", path=said)).text
    told = (await desk.call("memory_read", path="mem_0a1b")).text
    assert "mem_0a1b is the id of several notes" in told
    assert "mem_kiln_1_0a1b2c3d, mem_kiln_1_0a1bffff" in told
    assert "no such note on this device" in (await desk.call("memory_read", path="mem_0a1c")).text


async def test_a_newer_note_stands_above_what_it_supersedes(desk: Desk) -> None:
    """Also in a chain, and in a circle nothing goes round for ever."""
    old, newer = "relation: see_also\n  id: mem_other", "relation: supersedes\n  id: mem_kiln"
    desk.write("memory/notes/a.md", note(1, "A", "The kiln, the kiln, the kiln."))
    desk.write(
        "memory/notes/b.md", note(2, "B", "The kiln, the kiln now.").replace(f"{old}_1_00000000", f"{newer}_1_00000001")
    )
    desk.write("memory/notes/c.md", note(3, "C", "No kiln.").replace(f"{old}_1_00000000", f"{newer}_1_00000002"))
    expected = ["memory/notes/c.md", "memory/notes/b.md", "memory/notes/a.md"]
    assert await desk.found("kiln", minScore=0) == expected
    desk.write("memory/notes/a.md", note(1, "A", "The kiln.").replace(f"{old}_1_00000000", f"{newer}_1_00000003"))
    assert sorted(await desk.found("kiln", minScore=0)) == sorted(expected)


async def test_notes_of_the_past_are_left_out_as_online(desk: Desk) -> None:
    """The newest comes in for those that it supersedes, and names them; what is done is not shown."""
    old, newer = "relation: see_also\n  id: mem_other", "relation: supersedes\n  id: mem_kiln"
    desk.write("memory/notes/a.md", note(1, "A", "The kiln is fired with gas."))
    desk.write(
        "memory/notes/b.md", note(2, "B", "The kiln is fired.").replace(f"{old}_1_00000000", f"{newer}_1_00000001")
    )
    desk.write("memory/notes/c.md", note(3, "C", "Nothing there.").replace(f"{old}_1_00000000", f"{newer}_1_00000002"))
    desk.write("memory/notes/d.md", "---\nstatus: resolved\n---\nThe kiln is fired with oil.\n")
    (hit,) = (await desk.search("with what is the kiln fired"))["results"]
    assert hit["path"] == "memory/notes/c.md"
    assert {one["path"] for one in hit["supersedes"]} == {"memory/notes/a.md", "memory/notes/b.md"}
    asked = await desk.found("with what was the kiln fired before?")
    assert set(asked) >= {"memory/notes/a.md", "memory/notes/b.md", "memory/notes/d.md"}
    (desk.project / "memory/notes/c.md").unlink()
    (desk.project / "memory/notes/b.md").unlink()
    (desk.project / "memory/notes/a.md").unlink()
    left = await desk.search("with what is the kiln fired")
    assert not left["results"]
    assert any("superseded or done" in warning for warning in left["warnings"])


async def test_each_of_several_questions_is_answered(desk: Desk) -> None:
    desk.write("memory/notes/a.md", "The API listens on port 8443.\n")
    desk.write("memory/notes/b.md", "Billing belongs to Ann Miller, who owns it.\n")
    result = await desk.search("Which port does the API listen on?\nWho owns billing?\nWho waters the bamboo orchid?")
    assert {hit["path"] for hit in result["results"]} >= {"memory/notes/a.md", "memory/notes/b.md"}
    assert "nothing was found for: Who waters the bamboo orchid?" in result["warnings"]


async def test_notes_of_tasks_are_left_out_until_they_are_asked_for(desk: Desk) -> None:
    desk.write("memory/notes/a.md", "The glaze is blue.\n")
    desk.write("memory/tasks/audit/b.md", "The glaze is red.\n")
    desk.write("memory/tasks/other/c.md", "The glaze is green.\n")
    desk.write("memory/tasks/audit/d.md", "The glaze is gone.\n", at=desk.paths.global_folder)
    glaze = {"query": "glaze", "minScore": 0.0}
    assert await desk.found(**glaze) == ["memory/notes/a.md"]
    assert set(await desk.found(**glaze, taskId="audit")) == {"memory/notes/a.md", "memory/tasks/audit/b.md"}
    assert len(await desk.found(**glaze, scope="task", taskId="audit", project="*")) == 3
    assert len(await desk.found(**glaze, path="memory/tasks")) == 3
    assert "needs 'taskId'" in (await desk.call("memory_search", **glaze, scope="task")).text
    assert "not with 'global'" in (await desk.call("memory_search", **glaze, scope="global", taskId="x")).text


async def test_what_only_the_daemon_has_is_named(desk: Desk) -> None:
    every = await desk.search("postgres", project="*")
    assert every["results"]
    assert "other projects are searched by the daemon alone; here are global and shop" in every["warnings"]
    other = await desk.search("postgres", project="elsewhere")
    assert other["results"] == []
    assert "other projects" in other["warnings"][1]
    talks = await desk.search("postgres", sources=["sessions"])
    assert talks["results"] == []
    assert "only the daemon searches session transcripts" in talks["warnings"]
    read = await desk.call("memory_read", path="MEMORY.md", project="elsewhere")
    assert read.structured is None


async def test_the_newest_first_where_that_is_asked(desk: Desk) -> None:
    today = datetime.now(UTC).date()
    for age in (40, 2, 20):
        desk.write(f"memory/{today - timedelta(days=age)}.md", "- The kiln was fired.\n")
    found = await desk.found("kiln fired", rank="recency", minScore=0)
    assert found == [f"memory/{today - timedelta(days=age)}.md" for age in (2, 20, 40)]


async def test_edits_are_seen_by_the_next_search(desk: Desk) -> None:
    """New, changed and deleted files; what is unchanged is not read again."""
    assert await desk.found("capybara") == []
    desk.write("memory/animals.md", "The capybara sleeps.\n")
    assert await desk.found("capybara") == ["memory/animals.md"]
    desk.write("memory/animals.md", "The okapi sleeps in the morning.\n")
    assert await desk.found("capybara") == []
    assert await desk.found("okapi") == ["memory/animals.md"]
    (desk.project / "memory/animals.md").unlink()
    assert await desk.found("okapi") == []
    desk.offline.close()
    assert (await desk.found("ERR_CONN_42"))[0] == "memory/2026-11-03.md", "what was given back is made anew"


async def test_links_and_foreign_files_are_not_followed(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("The capybara is secret.\n")
    (desk.project / "memory/link.md").symlink_to(tmp_path / "secret.md")
    desk.write("notes.md", "The capybara is not memory.\n")
    (desk.project / "memory/bytes.md").write_bytes(b"\xff\xfe capybara")
    result = await desk.search("capybara")
    assert result["results"] == []
    assert any("could not be read" in warning for warning in result["warnings"])
    for path in ("memory/link.md", "notes.md", "../secret.md", "/etc/passwd.md"):
        assert (await desk.call("memory_read", path=path)).structured is None


async def test_reading_counts_lines_as_the_daemon_does(desk: Desk) -> None:
    desk.write("memory/long.md", "one\ntwo\x0ctwo\nthree\n")
    part = await desk.read("memory/long.md", fromLine=2, lines=1)
    assert (part["content"], part["fromLine"], part["toLine"], part["totalLines"]) == ("two\x0ctwo", 2, 2, 3)
    assert part["revision"] == 0
    assert (await desk.read("MEMORY.md", project="global"))["content"].startswith("Tabs")
    missing = await desk.call("memory_read", path="memory/deploy/step.md")
    assert "memory/deploy/steps.md" in missing.text


async def test_what_waits_is_shown_in_its_place(desk: Desk) -> None:
    """Appended, below its heading, in place of a section or of the file, in a new file: as the daemon will have it."""
    await desk.store("The panel listens on 8011.", path="MEMORY.md", heading="Ports")
    await desk.store("Only the new way.", path="memory/deploy/steps.md", mode="replace", heading="# Deploy")
    await desk.store("- postgres was upgraded to 19.", path="memory/2026-11-19.md")
    await desk.store("Spaces are tabs now.", path="MEMORY.md", project="global", mode="replace")
    kept = await desk.store("- The kiln was fired.")
    assert kept["path"] == "memory/2026-11-20.md", "the day of whoever said it"
    assert (kept["queued"], kept["onDisk"], kept["linesWritten"]) == (True, False, 1)
    ports = "## Ports\n\nThe API listens on 8010.\n\nThe panel listens on 8011."
    assert (await desk.read("MEMORY.md"))["content"].endswith(ports)
    assert (await desk.read("memory/deploy/steps.md"))["content"] == "# Deploy\n\nOnly the new way."
    assert (await desk.read("memory/2026-11-19.md"))["content"].endswith("18.\n- postgres was upgraded to 19.")
    assert (await desk.read("MEMORY.md", project="global"))["content"] == "Spaces are tabs now."
    assert (await desk.found("kiln fired")) == ["memory/2026-11-20.md"]
    assert "queue" in (await desk.search("panel 8011"))["warnings"][-1]
    assert "queue" not in (await desk.search("ERR_CONN_42"))["warnings"][-1]
    assert not (desk.project / "memory/2026-11-20.md").exists()


@pytest.mark.parametrize("reason", [UNREACHABLE, KeyLockedError(), DeniedError("disabled"), DeniedError("busy"), None])
async def test_what_waiting_can_mend_is_waited_for(desk: Desk, reason: Any) -> None:
    desk.trouble = Outage(reason, time.time())
    assert (await desk.store("- waits"))["queued"]
    assert await desk.found("ERR_CONN_42")


@pytest.mark.parametrize("reason", [DeniedError("revoked"), DeniedError("unknown"), DeniedError("expired")])
async def test_nothing_is_queued_for_a_daemon_that_says_no(desk: Desk, reason: DeniedError) -> None:
    desk.trouble = Outage(reason, time.time())
    refused = await desk.call("memory_store", content="- for nobody")
    assert refused.structured is None
    assert str(reason) in refused.text
    assert desk.offline.journal.counts().queued == 0
    found = await desk.search("ERR_CONN_42")
    assert found["results"], "its own files are its own"
    assert str(reason) in found["warnings"][0]
    assert f"hint: {reason.hint}" in found["warnings"]


@pytest.mark.parametrize(
    "reason",
    [NotJoinedError(), DaemonMissingError("not installed"), RequestError("denied", "no grant for the project")],
)
async def test_where_nothing_is_set_up_or_granted_every_call_says_so(desk: Desk, reason: Any) -> None:
    desk.trouble = Outage(reason, time.time())
    for tool, arguments in (("memory_search", {"query": "x"}), ("memory_store", {"content": "x"})):
        answer = await desk.call(tool, **arguments)
        assert answer.structured is None
        assert str(reason) in answer.text


async def test_thousands_of_files_are_searched(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not look like a search that takes too long."""
    monkeypatch.setattr(offline_calls, "ANSWER_DEADLINE_S", DEADLINE_S)
    for number in range(3000):
        desk.write(f"memory/many/{number}.md", f"# Note {number}\n\nThe weather of day {number} was fair.\n" * 3)
    assert (await desk.found("ERR_CONN_42"))[0] == "memory/2026-11-03.md"
    assert (await desk.found("weather of day 2048"))[0] == "memory/many/2048.md"


async def test_a_python_without_full_text_search_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SQLite of such a Python is stood in for by one that knows no fts5; reading and storing work all the same."""

    class Without(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:  # type: ignore[override]
            return super().execute(sql.replace("fts5", "no_such_module"), *values)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return Without(*arguments, **options)

    monkeypatch.setattr(local_corpus.sqlite3, "connect", connect)
    answer = await desk.call("memory_search", query="postgres")
    assert answer.structured is None
    assert "FTS5" in answer.text
    assert (await desk.read("MEMORY.md"))["content"]
    assert (await desk.store("- x"))["queued"]


def test_a_session_loads_none_of_this_before_it_is_needed(tmp_path: Path) -> None:
    """`confide mcp` is spawned for every agent; what serves an absence is imported in one."""
    script = (
        "import json, sys\n"
        "from confide_proxy.mcp import stdio, agent_session, tunnel, fallback; from confide_proxy.link import daemon_link\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    loaded = set(json.loads(done.stdout))
    names = ("journal", "answers", "local_corpus", "local_tools", "queued_writes")
    assert not loaded & {
        "sqlite3",
        "confide_memory.markdown_blocks",
        *(f"confide_proxy.offline.{name}" for name in names),
    }


TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3


async def test_no_credential_is_shown(desk: Desk) -> None:
    """Without keys of a space it is redacted, and what stands around it is found as ever."""
    desk.write("memory/deploy.md", f"# Registry\n\nexport GITHUB_TOKEN={TOKEN}\n")
    found = await desk.call("memory_search", query="registry token", minScore=0.0)
    assert found.structured is not None
    (hit,) = (hit for hit in found.structured["results"] if hit["path"] == "memory/deploy.md")
    assert "(redacted:github-token:" in hit["snippet"]
    read = await desk.call("memory_read", path="memory/deploy.md")
    assert read.structured is not None
    assert "(redacted:github-token:" in read.structured["content"]
    assert TOKEN not in f"{found}{read}"
    asked = await desk.call("memory_search", query=f"where is {TOKEN} used?")
    assert asked.structured is not None
    assert [hit["path"] for hit in asked.structured["results"]][:1] == ["memory/deploy.md"]
    assert TOKEN not in str(asked)


async def test_another_day_is_no_certain_answer_offline(tmp_path: Path) -> None:
    """As on the daemon: what is from the day before, and what tells of a day to come."""
    desk = Desk(tmp_path)
    desk.write("memory/2025-11-24.md", "# 2025-11-24\n\n- cooked lentil soup with Jo\n")
    desk.write("memory/2025-11-25.md", "# 2025-11-25\n\n- took the train to Hamburg\n")
    desk.write("memory/2025-11-27.md", "# 2025-11-27\n\n- the train to Bremen leaves on 12 December\n")
    soup = await desk.search("who cooked lentil soup on 25 November 2025?", minScore=0)
    assert next(hit for hit in soup["results"] if "lentil" in hit["snippet"])["score"] < 0.5
    assert (await desk.search("who cooked lentil soup on 24 November 2025?"))["results"][0]["score"] > 0.5
    train = await desk.search("where does the train to Bremen go on 12 December?")
    assert train["results"][0]["score"] > 0.5
    assert any("what is from then comes first" in warning for warning in train["warnings"])
    assert await desk.found("what happened on 2025-11-26?") == []
