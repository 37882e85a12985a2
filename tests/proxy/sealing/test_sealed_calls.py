"""What an agent says in a call, as it goes up: every string of it, wherever it stands, and nothing that is not a secret."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import string
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from tests.support.growth import NEARLY_LINEAR, growth
from tests.support.sealing.sealers import NOTHING_KNOWN
from tests.support.sealing.secret_corpus import positives

from confide_crypto.errors import ConnectionLost, RecordError, RequestError
from confide_crypto.sealing import placeholder
from confide_crypto.sealing.placeholder import Placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_daemon.server.mcp.tool_calls import catalogue
from confide_daemon.tools import machine_tools
from confide_memory.tools.call import ToolAnswer
from confide_proxy.config import Policy
from confide_proxy.errors import BlockedError, NotADeviceError, ToolError, UnsealableError
from confide_proxy.mcp.catalogue import PACKAGED, ToolCatalogue
from confide_proxy.mcp.jsonrpc import encode_message, parse_line
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.offline.queued_writes import QueueReplay
from confide_proxy.sealing import open_secrets, sealed_calls
from confide_proxy.sealing import open_secrets as secret_get
from confide_proxy.sealing.context import Deposit
from confide_proxy.sealing.detection import scanner
from confide_proxy.sealing.sealed_calls import KINDS, SealedCalls, ToolCall
from confide_proxy.sealing.sealer import Fingerprints, Sealer

CATALOGUE = ToolCatalogue(json.loads(PACKAGED.read_bytes()))
PRINTS = Fingerprints(b"k" * 32)
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
PASSWORD = "hunter22xx"


class Space:
    """The keys of a space, as a `Sealing` has them, and a daemon that notes what it is asked, in order."""

    def __init__(self, keys: SpaceKeys | None = None, **policy: Any) -> None:
        self.keys = keys
        self.keyring = self
        self.knows_any = False
        self.sealer = Sealer(Policy(**policy), lambda: self.keys, lambda: PRINTS)
        self.deposit = Deposit(self)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.sensitive: set[str] = set()
        self.refusal: RequestError | None = None
        self.refusal_of_asking: RequestError | None = None
        self.calls = SealedCalls(self, "shop")  # type: ignore[arg-type]

    async def refresh(self, link: Any) -> None: ...

    def may_know(self, said: Any) -> bool:
        return False

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        assert timeout_s > 0
        self.asked.append((op, body))
        if op == "record":
            if self.refusal:
                raise self.refusal
            if body["id"] not in {standin[-33:-1] for standin in self.opened()}:
                raise RequestError("not_found", "there is no such record")
            return {"record": "AAAA"}
        if op == "is-sensitive":
            if self.refusal_of_asking:
                raise self.refusal_of_asking
            return {"sensitive": (body.get("id") or body["path"]) in self.sensitive}
        if self.refusal:
            raise self.refusal
        return {"stored": len(body["records"])} if op == "records" else {}

    def up(self, message: dict[str, Any], catalogue: ToolCatalogue = CATALOGUE) -> dict[str, Any]:
        """The message as it goes up."""
        line = json.dumps({"jsonrpc": "2.0", "id": 7, **message}, ensure_ascii=False).encode("utf-8", "surrogatepass")
        read = json.loads(line)
        if self.calls.is_plain(read, len(line)):
            return {"jsonrpc": "2.0", "id": 7, **message}
        return json.loads(encode_message(self.sent(read, catalogue)))

    def sent(self, read: dict[str, Any], catalogue: ToolCatalogue = CATALOGUE) -> dict[str, Any]:
        """A message that is not plain, as it goes up."""
        params = read.get("params")
        is_lookup = isinstance(params, dict) and str(params.get("name")) in catalogue.read_only
        return asyncio.run(self.calls.prepare(self, read, is_lookup=is_lookup))

    def call(self, tool: str, catalogue: ToolCatalogue = CATALOGUE, /, **given: Any) -> dict[str, Any]:
        """The arguments of a call as they go up."""
        sent = self.up({"method": "tools/call", "params": {"name": tool, "arguments": given}}, catalogue)
        told: dict[str, Any] = sent["params"]["arguments"]
        return told

    def opened(self) -> dict[str, str]:
        """The values that were deposited, by their placeholders."""
        assert self.keys is not None
        found = {}
        for op, body in self.asked:
            for text in body["records"] if op == "records" else ():
                record = SealedRecord.parse(b64decode(text))
                found[f"(sealed:{record.kind}:{record.secret_id.hex()})"] = record.open(self.keys).decode()
        return found


@pytest.fixture
def space() -> Space:
    return Space(SpaceKeys.generate())


def test_every_string_is_looked_at(space: Space) -> None:
    """In the text, the title, a tag, a key and a value of metadata, deep inside, and by the name that it stands under."""
    sent = space.call(
        "memory_store",
        content=f"The token of CI is {TOKEN}.",
        title=f"CI {TOKEN}",
        tags=["ci", f"token:{TOKEN}"],
        metadata={
            TOKEN: "by key",
            "db": {"password": PASSWORD, "port": 5432, "on": True, "none": None},
            "env": [{"name": "DB_PASSWORD", "value": "Xk29-vvQz1"}, ["password=Zz81-kkPq2"]],
        },
    )
    told = json.dumps(sent)
    for value in (TOKEN, PASSWORD, "Xk29-vvQz1", "Zz81-kkPq2"):
        assert value not in told
    assert set(space.opened().values()) == {TOKEN, PASSWORD, "Xk29-vvQz1", "Zz81-kkPq2"}
    back = placeholder.replace(told, lambda one: space.opened()[str(one)])
    assert json.loads(back)["metadata"]["env"][0] == {"name": "DB_PASSWORD", "value": "Xk29-vvQz1"}
    assert sent["metadata"]["db"] == {
        "password": sent["metadata"]["db"]["password"],
        "port": 5432,
        "on": True,
        "none": None,
    }


@pytest.mark.parametrize("value", [PASSWORD, f"  {PASSWORD}\n", "it's-22-Xx", 'say"22"Xx-9', "back\\slash-22x"])
def test_a_password_that_its_name_alone_gives_away(space: Space, value: str) -> None:
    sent = space.call("memory_store", content="c", metadata={"password": value})
    (standin,) = space.opened()
    assert sent["metadata"]["password"].strip() == standin
    assert space.opened()[standin] == value.strip()


def test_a_password_behind_an_option_of_a_command(space: Space) -> None:
    """Each word stands by itself in the list with which a program is called."""
    command = ["mysql", "--password", "Xk29-vvQz1", "--verbose", "shop", ["--port", "5432"]]
    sent = space.call("memory_store", content="c", title="t", metadata={"command": command})
    (standin,) = space.opened()
    assert sent["metadata"]["command"] == [*command[:2], standin, *command[3:]]


def test_what_a_password_is_known_by_is_sealed_wherever_it_stands(space: Space) -> None:
    value = "Xk29-vvQz1-pL"
    sent = space.call("memory_store", content=f"db password: {value}", title=f"{value} is new", keywords=[value])
    assert value not in json.dumps(sent)
    assert len(space.opened()) == 1


@pytest.mark.long
def test_thousands_of_credentials_take_one_walk(space: Space) -> None:
    """A paste of ten thousand took half a minute, in one of the two threads that all of a session's calls share."""
    chance = random.Random(7)  # letters and digits: one in forty with slashes is taken for a path
    every = ["".join(chance.choices(string.ascii_letters + string.digits, k=16)) for _ in range(2_400)]

    def seal(count: int) -> None:
        values = every[:count]
        text = "".join(f"password: '{value}'\n" for value in values)
        sent, _ = sealed_calls.seal(
            {"content": text, "title": f"{values[-1]} is new", "tags": [values[5]]}, space.sealer
        )
        assert not any(value in json.dumps(sent) for value in (values[-1], values[5]))
        assert sent["title"].endswith(") is new")

    assert growth(seal, len(every)) < NEARLY_LINEAR


def test_the_corpus_is_sealed_in_any_argument(space: Space) -> None:
    samples = list(positives(3, 6))
    sent = space.call("memory_store", content="c", metadata={"all": [sample.text for sample in samples]})
    changed = [text != sample.text for sample, text in zip(samples, sent["metadata"]["all"], strict=True)]
    alone = [space.sealer.seal(sample.text, "tools").text != sample.text for sample in samples]
    assert changed == alone
    assert sum(alone) > 0.9 * len(samples)  # the rest is below the usual confidence
    opened = space.opened()
    assert all(str(one) in opened for text in sent["metadata"]["all"] for _, _, one in placeholder.find(text))


def test_the_records_come_before_the_text_and_once(space: Space) -> None:
    space.call("memory_store", content=f"token {TOKEN}", title="t")
    assert [op for op, _ in space.asked] == ["records"]
    space.call("memory_store", content=f"again {TOKEN}", title="t")
    assert [op for op, _ in space.asked] == ["records"]


def test_who_only_asks_leaves_nothing(space: Space) -> None:
    """A search for a value asks for its placeholder, so that it finds where it is sealed."""
    standin = space.call("memory_store", content=TOKEN, title="t")["content"]
    space.asked.clear()
    assert space.call("memory_search", query=TOKEN) == {"query": standin}
    read = space.up({"method": "resources/read", "params": {"uri": f"confide://x/{TOKEN}"}})
    asked = space.up({"method": "prompts/get", "params": {"name": "recall", "arguments": {"topic": f"token {TOKEN}"}}})
    completed = space.up(
        {
            "method": "completion/complete",
            "params": {"ref": {"type": "ref/prompt", "name": "recall"}, "argument": {"name": "topic", "value": TOKEN}},
        }
    )
    assert TOKEN not in json.dumps([read, asked, completed])
    assert asked["params"] == {"name": "recall", "arguments": {"topic": f"token {standin}"}}
    assert not space.asked


def test_a_placeholder_in_a_question_is_not_looked_up(space: Space) -> None:
    """It stands for a credential and is none, whatever its digits look like."""
    topics = [f"token (sealed:github-token:{hashlib.sha256(bytes([n])).hexdigest()[:32]})" for n in range(256)]
    for topic in topics:
        assert space.call("memory_search", query=topic) == {"query": topic}
    assert not space.asked


@pytest.mark.parametrize("how", ["{}", "where is {} used?", "is it '{}'?", "we changed {}."])
def test_a_password_alone_in_a_question_is_known_by_its_name(space: Space, how: str) -> None:
    """Nothing there says what it is, so the daemon is asked for it by a name that tells it nothing."""
    asked = how.format("Xk29-vvQz1!")
    assert space.call("memory_search", query=asked) == {"query": asked}
    space.call("memory_store", content="db password: Xk29-vvQz1!\n", title="t")
    (standin,) = space.opened()
    assert space.call("memory_search", query=asked) == {"query": how.format(standin)}
    assert {op for op, _ in space.asked} == {"record", "records"}
    assert "Xk29" not in json.dumps(space.asked)
    space.refusal = RequestError("busy", "the daemon is busy")
    with pytest.raises(RequestError, match="busy"):
        space.call("memory_search", query=asked)


def test_what_is_sealed_as_several_kinds_is_asked_for_as_each(space: Space) -> None:
    """A password that is set in one place stands in a connection string in another."""
    for text in ("db password: Xk29-vvQz1!\n", "postgres://shop:Xk29-vvQz1!@db.internal:5432/shop\n"):
        space.call("memory_store", content=text, title="t")
    standins = " ".join(space.opened())
    assert {standin.split(":")[1] for standin in standins.split()} == {"password", "connection-string"}
    assert space.call("memory_search", query="where is Xk29-vvQz1! used") == {"query": f"where is {standins} used"}


def test_every_kind_that_is_known_by_what_stands_before_it_is_asked_for() -> None:
    kinds = {
        each.kind
        for sample in positives(17, 10)
        for each in scanner.scan(sample.text)
        if each.detector in ("address", "assignment", "header", "login")
    }
    assert kinds == set(KINDS)


@pytest.mark.parametrize(
    "query", ["what was decided on 2026-11-21 about v1.2.3-4", "who maintains the deployment", "x" * 15]
)
def test_an_ordinary_question_is_not_asked_about(space: Space, query: str) -> None:
    assert space.call("memory_search", query=query) == {"query": query}
    assert not space.asked


def test_without_keys_who_asks_is_answered_and_who_tells_is_refused() -> None:
    waiting = Space()
    assert waiting.call("memory_search", query=TOKEN)["query"].startswith("(redacted:github-token:")
    with pytest.raises(UnsealableError, match="github-token"):
        waiting.call("memory_store", content=f"token {TOKEN}", title="t")
    with pytest.raises(UnsealableError):
        waiting.call("memory_store", content="under the stone", sensitive=True)
    assert waiting.call("memory_store", content="nothing to hide", title="t")["content"] == "nothing to hide"


@pytest.mark.parametrize("tool", ["memory_store", "memory_update", "memory_keep"])
def test_what_only_asks_is_not_the_daemons_to_say(space: Space, tool: str) -> None:
    """A daemon that lists a tool that stores as one that reads, or lists one of its own, gets no sensitive text and no stand-in in vain."""
    listed_so = {"name": tool, "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}
    lying = ToolCatalogue({**CATALOGUE.data, "tools": [listed_so]})
    sent = space.call(tool, lying, content="under the stone", title="t", sensitive=True)
    assert "under" not in json.dumps(sent)
    (note,) = space.opened().values()
    assert note == "under the stone"
    with pytest.raises(UnsealableError):
        Space().call(tool, lying, content=f"token {TOKEN}", title="t")


@pytest.mark.addons
def test_what_only_asks_is_as_the_daemon_lists_it() -> None:
    asking = {tool["name"] for tool in catalogue(("all",))["tools"] if tool["annotations"]["readOnlyHint"]}
    # `secret_get` asks as well, and is not listed so: clients let such tools through without a person.
    assert asking | {"secret_get"} == sealed_calls.LOOKUPS


def test_the_policy_holds_for_calls() -> None:
    blocked = Space(SpaceKeys.generate(), tools="block")
    for tool, name in (("memory_store", "content"), ("memory_search", "query")):
        with pytest.raises(BlockedError, match="github-token"):
            blocked.call(tool, **{name: TOKEN})
    redacting = Space(SpaceKeys.generate(), tools="redact")
    assert redacting.call("memory_store", content=TOKEN, title="t")["content"].startswith("(redacted:")
    allowing = Space(SpaceKeys.generate(), allow=(PRINTS.of("github-token", TOKEN),))
    assert allowing.call("memory_store", content=TOKEN, title="t")["content"] == TOKEN
    assert not redacting.asked + allowing.asked


def test_what_is_the_protocols_stays(space: Space) -> None:
    """Ids, names, the operation and what the client says of itself: nothing of it is an agent's."""
    message = {
        "id": TOKEN,
        "method": "tools/call",
        "params": {
            "name": "memory_search",
            "arguments": {"query": "x"},
            "_meta": {"confide/operation": os.urandom(16).hex(), "progressToken": TOKEN},
        },
    }
    assert space.up(message) == {"jsonrpc": "2.0", **message}
    told = space.up({"method": "notifications/cancelled", "params": {"requestId": TOKEN, "reason": f"token {TOKEN}"}})
    assert told["params"]["requestId"] == TOKEN
    assert TOKEN not in told["params"]["reason"]


@pytest.mark.parametrize(
    "message",
    [
        {"method": "tools/call", "params": {"name": TOKEN, "arguments": {"query": "x"}}},
        {"method": "tools/call", "params": {"name": "memory_search", "arguments": {"query": "x"}, "context": TOKEN}},
        {"method": "tools/call", "params": {"name": "memory_search", "arguments": {"query": "x"}}, "context": [TOKEN]},
        {"method": "tools/call", "params": {"name": "memory_search", "arguments": [TOKEN]}},
        {"method": "prompts/get", "params": {"name": TOKEN}},
        {"method": "resources/subscribe", "params": {"uri": f"confide://shop/{TOKEN}"}},
        {"method": "ping", "params": TOKEN},
        {"result": {"roots": [{"uri": f"file:///{TOKEN}"}]}},
        {"error": {"code": 1, "message": TOKEN}},
    ],
)
def test_nothing_goes_up_unseen(space: Space, message: dict[str, Any]) -> None:
    """A tool that is called by a wrong name, a field that no protocol knows: an agent makes such mistakes."""
    sent = space.up(message)
    assert TOKEN not in json.dumps(sent)
    assert json.dumps(sent).count("(sealed:github-token:") == 1
    assert not space.asked


@pytest.mark.parametrize("padding", [0, sealed_calls.LARGE_BYTES])
def test_a_name_that_stands_twice_hides_nothing(space: Space, padding: int) -> None:
    """Only the last one counts, for us and for the daemon; the first was passed on with it, unseen."""
    told = f'{{"content":"{TOKEN}","content":"x{" " * padding}","title":"t","metadata":{{"a":"{TOKEN}","a":1}}}}'
    params = f'{{"name":"memory_store","arguments":{{"content":"{TOKEN}"}},"arguments":{told}}}'
    line = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()
    message, line = parse_line(line)
    assert TOKEN.encode() not in line  # which goes up as it is where the message is plain
    sent = encode_message(space.sent(message))
    assert TOKEN.encode() not in sent
    given = {"content": "x" + " " * padding, "title": "t", "metadata": {"a": 1}}
    assert json.loads(sent)["params"] == {"name": "memory_store", "arguments": given}


def test_a_sensitive_text_is_one_secret(space: Space) -> None:
    text = "---\ntitle: not front matter here\n---\nUnder the third stone.\n"
    sent = space.call(
        "memory_store", content=text, sensitive=True, title="Spare key", metadata={"pin": f"token {TOKEN}"}
    )
    (note,) = [standin for standin in space.opened() if standin.startswith("(sealed:note:")]
    assert sent["content"].strip() == note
    assert space.opened()[note] == text.strip()
    assert TOKEN not in json.dumps(sent)
    misspelt = space.call("memory_store", content=text, sensitive="true")
    assert misspelt["content"] == sent["content"], "the daemon refuses it without having seen the text"
    again = space.call("memory_store", content=sent["content"], sensitive=True, title="Spare key")
    assert again["content"] == sent["content"]
    more = space.call("memory_update", id="mem_x", content=f"{note}\n\nand the fourth\n", sensitive=True)
    assert more["content"].startswith(f"{note}\n\n(sealed:note:")
    assert "the fourth" not in more["content"]


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("memory_update", {"id": "mem_x"}),
        ("memory_store", {"path": "memory/secret.md"}),
        ("memory_store", {"path": "memory/secret.md", "mode": "replace"}),
    ],
)
def test_the_daemon_is_asked_whether_a_note_is_sensitive(space: Space, tool: str, given: dict[str, Any]) -> None:
    assert space.call(tool, content="under the stone", **given)["content"] == "under the stone"
    space.sensitive = {"mem_x", "memory/secret.md"}
    assert space.call(tool, content="under the stone", **given)["content"].startswith("(sealed:note:")
    assert [op for op, _ in space.asked] == ["is-sensitive", "is-sensitive", "records"]


@pytest.mark.parametrize("code", ["internal", "busy", "storage_full", "something new"])
def test_a_text_waits_where_the_daemon_cannot_say(space: Space, code: str) -> None:
    space.refusal_of_asking = RequestError(code, "something went wrong")
    with pytest.raises(RequestError, match="went wrong"):
        space.call("memory_update", id="mem_x", content="under the stone")
    space.refusal_of_asking = RequestError("invalid", "no such request")
    assert space.call("memory_update", id="mem_x", content="under the stone")["content"] == "under the stone"


def test_a_file_that_is_replaced_keeps_its_front_matter(space: Space) -> None:
    space.sensitive = {"memory/secret.md"}
    given = {"path": "memory/secret.md", "content": f"---\ntitle: Of {TOKEN}\n---\nunder the stone\n"}
    replaced = space.call("memory_store", mode="replace", **given)["content"]
    assert re.fullmatch(r"---\ntitle: Of \(sealed:github-token:\w+\)\n---\n\(sealed:note:\w+\)\n", replaced)
    assert re.fullmatch(r"\(sealed:note:\w+\)\n", space.call("memory_store", **given)["content"])


def test_a_text_is_in_clear_again_only_where_that_is_said(space: Space) -> None:
    space.sensitive = {"mem_x"}
    assert space.call("memory_update", id="mem_x", content="no secret", sensitive=False)["content"] == "no secret"
    assert space.call("memory_update", id="mem_x", tags=["a"]) == {"id": "mem_x", "tags": ["a"]}
    assert not space.asked


def test_no_call_is_sent_whose_records_the_daemon_does_not_take(space: Space) -> None:
    space.refusal = RequestError("busy", "the daemon is busy")
    with pytest.raises(RequestError, match="busy"):
        space.call("memory_store", content=f"token {TOKEN}", title="t")


async def test_keys_that_change_all_the_time_bury_no_call(space: Space, tmp_path: Path) -> None:
    """A conflict over records is not about the call: what waits on this machine goes on waiting, and is sent afterwards."""
    journal = Journal(tmp_path / "journal")
    given = {"content": f"token {TOKEN}", "title": "t"}
    said = "2026-11-21T20:00:00+00:00"
    journal.append(QueuedCall("1" * 32, time.time(), said, "shop", "memory_store", "memory/notes/t.md", "shop", given))
    replay = QueueReplay(journal, tmp_path / "seats", space.calls)
    space.refusal = RequestError("conflict", "the records are not of the newest epoch")
    outcome = await replay.run(space)
    assert (outcome.sent, outcome.refused) == (0, 0)
    assert outcome.why
    assert {op for op, _ in space.asked} == {"records"}
    space.refusal = None
    assert (await replay.run(space)).sent == 1
    assert space.asked[-1][0] == "call"
    assert TOKEN not in json.dumps(space.asked)


def test_an_ordinary_call_gives_no_reason_to_look() -> None:
    prose = "We decided to keep the deployment in one region, since the data may not leave it. " * 6
    line = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "memory_store",
            "arguments": {"content": prose, "title": "One region", "tags": ["infra"], "keywords": ["deploy"]},
            "_meta": {"confide/operation": "0" * 32},
        },
    }
    assert Space().calls.is_plain(line, len(json.dumps(line).encode()))
    deep: Any = "password"
    for _ in range(sealed_calls.MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(ToolError, match="nested"):
        sealed_calls.seal({"metadata": deep}, Space().sealer)


def test_what_waits_is_shown_as_it_will_be_sealed(space: Space) -> None:
    asked = ToolCall("memory_store", {"content": f"token {TOKEN}", "sensitive": True, "title": f"for {TOKEN}"}, "shop")
    shown = space.calls.seal_for_display(asked)
    assert TOKEN not in json.dumps(shown)
    assert shown == space.call("memory_store", **asked.arguments)
    assert Space().calls.seal_for_display(asked)["content"].startswith("(redacted:note:")


class Vault:
    """A daemon with one answer to `record`, and the keys of a machine, which may have to look again."""

    def __init__(self, record: Any, keys: SpaceKeys | None, *, later: SpaceKeys | None = None) -> None:
        self.keys, self._later, self._record = keys, later, record
        self.problem = NotADeviceError("six words of this machine are here")
        self.keyring = self
        self.known_values = NOTHING_KNOWN

    async def refresh(self, _link: Any) -> None:
        self.keys = self._later or self.keys

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        assert (op, len(body["id"])) == ("record", 32)
        assert timeout_s > 0
        if isinstance(self._record, Exception):
            raise self._record
        return {"record": b64encode(self._record).decode() if isinstance(self._record, bytes) else self._record}

    def get(self, named: str) -> ToolAnswer:
        return asyncio.run(secret_get.answer({"id": named}, self, self))  # type: ignore[arg-type]


def test_a_secret_is_opened_or_it_is_said_why_not() -> None:
    """Whatever the daemon answers: the value that was named, or a sentence; and no epoch that this machine could have had is missed."""
    keys = SpaceKeys.generate()
    newer = keys.next_epoch()
    record, other = SealedRecord.seal(newer, "token", b"tr\xc3\xa8s"), SealedRecord.seal(newer, "token", b"another")
    name = str(Placeholder("token", record.secret_id))
    opened = {"id": record.secret_id.hex(), "kind": "token", "value": "très"}
    assert Vault(record.encode(), newer).get(name).structured == opened
    assert Vault(record.encode(), newer).get(name[-33:-1]).structured == opened
    assert Vault(record.encode(), keys, later=newer).get(name).structured == opened
    assert Vault(record.encode(), None, later=newer).get(name).structured == opened
    assert Vault(record.encode(), newer).get(name).text == "très"
    damaged = record.encode()[:-1] + bytes([record.encode()[-1] ^ 1])
    for vault, named, told in (
        (Vault(record.encode(), None), name, "confide device approve"),
        (Vault(record.encode(), keys), name, "store the value again"),
        (Vault(damaged, newer), name, "damaged"),
        (Vault(record.encode()[:40], newer), name, "damaged"),
        (Vault(other.encode(), newer), name, "another secret's record"),
        (Vault(record.encode(), newer), name.replace(":token:", ":password:"), "another secret's record"),
        (Vault("?", newer), name, "agreed form"),
        (Vault(7, newer), name, "agreed form"),
        (Vault(RequestError("not_found", "no"), newer), name, "no such sealed secret"),
        (Vault(RequestError("busy", "the daemon is busy"), newer), name, "busy"),
        (Vault(ConnectionLost(truncated=False), newer), name, "the link to the daemon broke"),
        (Vault(TimeoutError(), newer), name, "did not answer in time"),
        (Vault(record.encode(), newer), "x" * 40, "not the placeholder of a sealed secret"),
        (Vault(record.encode(), newer), f"(redacted:github-token:{'0' * 24})", "was redacted cannot be opened"),
        (Vault(record.encode(), newer), "short", "too short"),
    ):
        answer = vault.get(named)
        assert answer.structured is None, told
        assert told in answer.text, answer.text


def test_a_secret_opens_under_no_other_kind() -> None:
    """As `confide secrets show` opens it, too: a text may not pass a note off as a password."""
    keys = SpaceKeys.generate()
    record = SealedRecord.seal(keys, "note", b"under the stone")
    vault = Vault(record.encode(), keys)
    named = f"(sealed:password:{record.secret_id.hex()})"
    with pytest.raises(RecordError, match="another secret's record"):
        asyncio.run(open_secrets.open_secret(vault, vault, named))  # type: ignore[arg-type]


def test_the_tool_is_as_the_daemon_lists_it() -> None:
    wire = machine_tools.SECRET_GET.wire()
    properties = {
        name: {key: value for key, value in each.items() if key != "description"}
        for name, each in wire["inputSchema"]["properties"].items()
    }
    assert secret_get.TOOL["name"] == wire["name"]
    assert secret_get.TOOL["inputSchema"]["properties"] == properties
    assert secret_get.TOOL["inputSchema"]["required"] == wire["inputSchema"]["required"]


async def test_what_a_note_has_seen_goes_without_credentials() -> None:
    """A file named by one is left out, one that only sounds like one is not; other calls say nothing."""
    value = "0123456789abcdef - - 2026-11-20"
    seen = {f"src/{TOKEN}.py": value, "src/token.py#password": value}
    space: Any = Space(SpaceKeys.generate())
    sealed = SealedCalls(space, "p", seen=lambda _tool, _arguments: seen)
    assert await sealed.seen_parts(ToolCall("memory_store", {}, "p")) == {"src/token.py#password": value}
    assert await sealed.seen_parts(ToolCall("memory_search", {}, "p")) is None
    assert await SealedCalls(space, "p").seen_parts(ToolCall("memory_store", {}, "p")) is None
