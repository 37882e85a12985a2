"""A daemon written from PROTOCOL.md alone, on blocking sockets and `noiseprotocol`, against the real `confide`."""

from __future__ import annotations

import hashlib
import json
import random
import string
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from tests.interop.blocking_handshake import Identity, bech32m, unbech32m
from tests.interop.blocking_peer import PeerDaemon
from tests.interop.blocking_session import Session
from tests.interop.blocking_streams import Event
from tests.interop.blocking_wire import REKEY_RECORDS, Type
from tests.support.programs import Machine

MEMORY_STATUS = {"link": {"pendingUploads": 0}, "totalFiles": 7, "totalChunks": 21}
HIT = {
    "path": "memory/boat.md",
    "startLine": 3,
    "endLine": 3,
    "score": 0.9,
    "heading": "Boat",
    "project": "any",
    "snippet": "The outboard motor needs a new impeller.",
}


def hash_of(data: bytes) -> str:
    """`hash` of section 9."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def letters(size: int) -> str:
    """A text of that many bytes that looks the same nowhere."""
    return "".join(random.Random(7).choices(string.ascii_letters + " \n", k=size))


class Memory:
    """What the daemon holds, and enough of section 9 for the real client."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.streamed: list[str] = []
        self.tools: list[str] = []
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.callers: set[bytes] = set()
        self.rotated_in: list[Session] = []
        self.before_tool: list[Any] = []

    def handle(self, session: Session, event: Event) -> dict[str, Any] | None:
        """One event of a session."""
        if event.type is Type.MSG:
            self._call(session, event.json)
        if event.type is not Type.REQ:
            return None
        request = event.json
        self.asked.setdefault(request["op"], []).append(request)
        match request["op"]:
            case "attach":
                return {"ok": {"space": "here", "project": request["project"], "daemonVersion": "0", **_LIMITS}}
            case "compare":
                unknown = [path for path, digest, _ in request["entries"] if not self._has(path, digest)]
                return {"ok": {"send": unknown, "adopt": [], "pull": [], "drop": []}}
            case "put":
                return self._put(request, event.body)
            case "rotate":
                self.rotated_in.append(session)
                self.callers.add(bytes.fromhex(request["key"]))
                return {"ok": {}}
        return {"error": {"code": "not_found", "message": "no such request here", "hint": None}}

    def _has(self, path: str, digest: str) -> bool:
        return path in self.documents and hash_of(self.documents[path]) == digest

    def _put(self, request: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        if body is not None:
            assert "text" not in request
            self.streamed.append(request["path"])
        data = request["text"].encode() if body is None else body
        assert hash_of(data) == request["hash"]
        self.documents[request["path"]] = data
        stored = {"revision": 1, "hash": request["hash"], "merged": False, "clash": False}
        return {"ok": {**stored, "indexed": True, "queued": 0}}

    def _call(self, session: Session, message: dict[str, Any]) -> None:
        name = message["params"]["name"]
        self.tools.append(name)
        for before in self.before_tool:
            before(session)
        found = {"results": [HIT], "warnings": [], "searchMode": "hybrid", "indexAge": 0.0}
        content = MEMORY_STATUS if name == "memory_status" else found
        result = {"content": [], "structuredContent": content, "isError": False, "resultType": "complete"}
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        session.send_message(Type.MSG, 0, json.dumps(reply).encode())


_LIMITS = {"limits": {"documentBytes": 4 << 20}, "catalogue": "0" * 64}


@pytest.fixture
def memory() -> Memory:
    """Empty."""
    return Memory()


@pytest.fixture
def daemon(memory: Memory) -> Iterator[PeerDaemon]:
    """It listens, and at the end no session of it has failed unless a test took the failures out."""
    with PeerDaemon(memory.handle) as running:
        running.callers = memory.callers
        yield running
        assert running.failures == []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With the real `confide`, knowing no daemon."""
    return Machine(tmp_path, "laptop")


def pin(machine: Machine, daemon: PeerDaemon, *, enter: bool = True) -> bytes:
    """5.4: the machine's key goes to the daemon, the daemon's to the machine."""
    line = next(line for line in machine.run("key", "show").splitlines() if "confide-ed25519 " in line)
    machine.run("pin", f"ws://127.0.0.1:{daemon.port}", bech32m("confided", daemon.identity.static_public))
    key = unbech32m("confide", line.partition("confide-ed25519 ")[2].split()[0])
    if enter:
        daemon.callers.add(key)
    return key


def test_join(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """An invite made here lets the real client in, once; then its own key does."""
    invite = daemon.invite()
    assert "7 files, 21 pieces" in machine.run("join", invite)
    assert daemon.invites == {}
    assert len(daemon.callers) == 1
    assert memory.tools == ["memory_status"]
    assert [request["toolsets"] for request in memory.asked["attach"]] == [["core"]] * len(memory.asked["attach"])
    assert daemon.ended == ["done", "done"]


def test_status_and_search_after_pin(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """Keys exchanged by hand, no live exchange."""
    pin(machine, daemon)
    assert "link up" in machine.run("status")
    machine.write("memory/boat.md", "# Boat\n\nThe outboard motor needs a new impeller.\n")
    assert "memory/boat.md:3-3" in machine.run("search", "outboard")
    assert memory.documents == {"memory/boat.md": b"# Boat\n\nThe outboard motor needs a new impeller.\n"}


def test_large_files_arrive_byte_exact(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """200 KB, and 3 MiB that need credit from here to get through."""
    texts = {"memory/middle.md": letters(200_000), "memory/large.md": letters(3 << 20)}
    pin(machine, daemon)
    for path, text in texts.items():
        machine.write(path, text)
    machine.run("search", "anything")
    assert memory.documents == {path: text.encode() for path, text in texts.items()}
    assert "memory/large.md" in memory.streamed


def test_machine_answers_what_the_daemon_asks(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """`apply` as REQ and as a stream beyond the credit, `backlog`, `scan`, and a refusal of a path outside."""
    pin(machine, daemon)
    answers: dict[str, Any] = {}
    large = letters(2 << 20)

    def ask(session: Session) -> None:
        project = next(r["project"] for r in memory.asked["attach"] if r["project"] != "global")
        new = {"project": project, "revision": 3, "baseHash": None}
        small = {**new, "path": "memory/made.md", "hash": hash_of(b"made"), "text": "made"}
        answers["small"] = session.ask("apply", small)
        streamed = {**new, "path": "memory/streamed.md", "hash": hash_of(large.encode())}
        answers["large"] = session.ask("apply", streamed, large.encode())
        answers["outside"] = session.ask("apply", {**small, "path": "src/made.md"})
        machine.write("memory/made.md", "edited by hand")
        answers["edited"] = session.ask("apply", {**small, "hash": hash_of(b"other"), "text": "other", "revision": 4})
        answers["backlog"] = session.ask("backlog", {})
        answers["flush"] = session.ask("flush", {"project": project, "path": "memory/made.md"})
        answers["other"] = session.ask("put", {"project": project})

    memory.before_tool.append(ask)
    machine.run("status")
    assert answers["small"] == answers["large"] == {"ok": {"applied": True}}
    assert (machine.project / "memory/made.md").read_text() == "edited by hand"
    assert (machine.project / "memory/streamed.md").read_text() == large
    assert answers["outside"]["error"]["code"] == "invalid"
    assert not (machine.project / "src").exists()
    kept = {"hash": hash_of(b"edited by hand"), "text": "edited by hand", "base": 3}
    assert answers["edited"]["ok"] == {"applied": False, **kept}
    assert set(answers["backlog"]["ok"]) == {"pendingUploads", "queuedOffline", "deadLetters"}
    assert "ok" in answers["flush"]
    assert memory.documents == {"memory/made.md": b"edited by hand"}
    assert answers["other"]["error"]["code"] == "invalid"


def test_machine_rekeys(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """More than 2^14 records of ours in one session are opened."""
    pin(machine, daemon)

    def much(session: Session) -> None:
        while session.records.sent <= REKEY_RECORDS + 10:
            session.send(Type.KEEPALIVE)

    memory.before_tool.append(much)
    assert "link up" in machine.run("status")


def test_answer_after_goaway(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """7.6: what was asked before GOAWAY is still answered, and the machine ends with CLOSE."""
    pin(machine, daemon)
    memory.before_tool.append(lambda session: session.send(Type.GOAWAY, 0, b"restart"))
    assert "link up" in machine.run("status")
    assert daemon.ended == ["done"]


def test_closed_with_a_word(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """CLOSE before the answer: the command fails, and says so."""
    pin(machine, daemon)
    memory.before_tool.append(lambda session: session.close(b"restart"))
    assert "it was closed" in machine.run("status", code=5)
    daemon.failures.clear()


def test_unknown_caller(machine: Machine, daemon: PeerDaemon) -> None:
    """A sealed denial is told as one."""
    pin(machine, daemon, enter=False)
    assert "not enrolled" in machine.run("status", code=6)


def test_wrong_pin(machine: Machine, daemon: PeerDaemon) -> None:
    """An endpoint that does not hold the pinned key learns nothing, and the machine says that it does not hold it."""
    pin(machine, daemon)
    daemon.identity = Identity()
    machine.run("status", code=6)
    assert daemon.hellos == []
    assert len(daemon.failures) > 0
    daemon.failures.clear()


def test_daemon_that_breaks_a_rule(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """A WINDOW of 0 ends the connection at once, with 4401 and no CLOSE."""
    pin(machine, daemon)
    memory.before_tool.append(lambda session: session.send(Type.WINDOW, 0, bytes(4)))
    assert "broke the protocol" in machine.run("status", code=1)
    assert (daemon.ended, daemon.close_codes) == ([None], [4401])


def test_new_key_of_the_machine(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """7.10: `rotate` carries both keys' signatures over this session; the machine then uses the new key alone."""
    old = pin(machine, daemon)
    machine.run("status")
    machine.run("key", "rotate")
    (asked,), (session,) = memory.asked["rotate"], memory.rotated_in
    new, session_id = bytes.fromhex(asked["key"]), bytes.fromhex(session.session_id)
    by_old = Ed25519PublicKey.from_public_bytes(old)
    by_new = Ed25519PublicKey.from_public_bytes(new)
    by_old.verify(bytes.fromhex(asked["old"]), b"confide/rotate-old/1\0" + session_id + new)
    by_new.verify(bytes.fromhex(asked["new"]), b"confide/rotate-new/1\0" + session_id + old)
    daemon.callers.remove(old)
    assert "link up" in machine.run("status")


def rotation(old: Identity, new: Identity, *, signed_by: Identity) -> dict[str, Any]:
    """The member of 7.11, with the old end's signature by `signed_by`."""
    until = int(time.time()) + 3600
    signed = b"confide/daemon-rotation/1\0" + old.static_public + new.static_public + new.public
    signed += struct.pack(">Q", until)
    signatures = {"old": signed_by.signing.sign(signed).hex(), "new": new.signing.sign(signed).hex()}
    return {"static": new.static_public.hex(), "key": new.public.hex(), "until": until, **signatures}


def test_new_key_of_the_daemon(machine: Machine, daemon: PeerDaemon) -> None:
    """7.11: the machine follows a rotation that both keys have signed, and connects to the new key alone."""
    pin(machine, daemon)
    new = Identity()
    machine.run("status")  # the first session shows the Ed25519 key that alone may name a successor
    daemon.welcome["rotation"] = rotation(daemon.identity, new, signed_by=daemon.identity)
    machine.run("status")
    daemon.welcome.clear()
    daemon.identity = new
    assert "link up" in machine.run("status")


def test_new_key_that_the_old_one_has_not_signed(machine: Machine, daemon: PeerDaemon) -> None:
    """7.11: it is ignored, and the pin stays."""
    pin(machine, daemon)
    new, old = Identity(), daemon.identity
    machine.run("status")
    daemon.welcome["rotation"] = rotation(old, new, signed_by=new)
    assert "link up" in machine.run("status")
    daemon.welcome.clear()
    daemon.identity = new
    machine.run("status", code=6)
    daemon.failures.clear()
    daemon.identity = old
    assert "link up" in machine.run("status")


def test_signature_of_another_over_the_static_key(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """4.7: the client verifies it, and asks nothing of a daemon whose signature is wrong."""
    pin(machine, daemon)
    daemon.signs_as = Identity()
    assert "did not finish the handshake" in machine.run("status", code=6)
    assert daemon.ended == [None]
    assert memory.asked == {}


def test_another_frame_first(machine: Machine, daemon: PeerDaemon, memory: Memory) -> None:
    """4.7: nothing is accepted before the first record."""
    pin(machine, daemon)
    daemon.before_first = lambda session: session.send(Type.KEEPALIVE)
    assert "did not finish the handshake" in machine.run("status", code=6)
    assert daemon.ended == [None]
    assert memory.asked == {}
