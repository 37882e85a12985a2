"""A daemon that lies by a grammar: for each request of PROTOCOL.md 9 and each tool an answer of the right form whose every text attacks,
and everything that can be wrong with it: fields of other types, missing, further, huge or nested without end, errors of any code,
messages that nobody asked for, wrong ids, answers that come twice or late, and requests to the machine. What is sealed it keeps as an
honest daemon does, and lies about it by PROTOCOL.md 10 (`sealed_lies`).

What it does is drawn, so that a seed tells it again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from tests.support.crypto.channels import HOST, Door
from tests.support.daemon.sealed_lies import LABEL, Keeper, lie
from tests.support.programs.processes import Machine
from websockets.asyncio.server import ServerConnection, serve

from confide_crypto.channel.protocol import FrameType
from confide_crypto.errors import ConfideError, ConnectionLost, RequestError
from confide_crypto.keys.identity import format_daemon_key, parse_public_key
from confide_crypto.transport.inbox import Body
from confide_crypto.transport.open_channel import Connection, accept, websocket_options
from confide_daemon.server.mcp.tool_calls import catalogue
from confide_memory import forms
from confide_memory.documents import text_hash

EVIL: Final = (
    "evil\x1b]52;c;ZXZpbA==\x1b\\\x1b]0;title\x07\x1b[2J\x9b2J\x9d0;x\x9c\x7f\x00\x08\r\v\f\x85\u2028\u202e[bold red]x[/] [/] \\[ "
    ":lock: \ud800\nspace is confirmed\n"
)
"""Clipboard, title, erased screens in 7 and 8 bits, turned letters, markup, half a character, and a line of our own."""
LINE: Final = "[bold red]evil[/] \\[ :lock: space is confirmed"
"""A name that may be one, and is made of what a console reads as orders."""
PIECE: Final = {
    "path": "memory/a.md",
    "project": "project",
    "startLine": 1,
    "endLine": 2,
    "snippet": EVIL,
    "heading": EVIL,
}
HASH: Final = "ab" * 32
ID: Final = "0f" * 16
TIME: Final = "2026-11-21T10:00:00Z"
KEY: Final = "cd" * 32

# PROTOCOL.md 9.1, in its order: each result with all of its fields. Not here: what only takes (`rotate` would change the device's key).
RESULTS: Final[dict[str, dict[str, Any]]] = {
    "attach": {
        "space": EVIL,
        "project": EVIL,
        "daemonVersion": EVIL,
        "limits": {"documentBytes": 4194304},
        "catalogue": EVIL,
        "sealing": {"number": 1, "head": HASH, "epoch": 1, "custody": "caller", "needs": [1]},
    },
    "catalogue": catalogue(["all"]),
    "receipt": {"receipt": EVIL},
    "digest": {"differ": [0, 1]},
    "compare": {
        "send": ["memory/a.md"],
        "adopt": [["memory/a.md", 1]],
        "pull": [["memory/b.md", 1, HASH], [f"memory/{EVIL}.md", 1, HASH]],
        "drop": [["memory/c.md", 1]],
    },
    "put": {"revision": 1, "hash": HASH, "merged": False, "clash": False, "indexed": True, "queued": 0},
    "remove": {"revision": 1, "removed": True},
    "pull": {"revision": 1, "hash": text_hash(EVIL.replace("\ud800", "")), "text": EVIL},
    "call": {"result": {"path": EVIL, "warnings": [EVIL]}},
    "lookup": {"result": {"results": [{"path": EVIL, "snippet": EVIL, "class": "owner"}], "memories": []}},
    "days": {
        "days": [{"day": EVIL, "project": EVIL, "kind": EVIL, "count": 1}],
        "ages": [{"days": 1, "recalls": 1}, {"days": None, "recalls": 1}],
    },
    "relations": {
        "relations": [
            {
                "id": EVIL,
                "title": EVIL,
                "relation": EVIL,
                "otherId": EVIL,
                "otherTitle": EVIL,
                "otherProject": EVIL,
                "path": EVIL,
                "otherPath": EVIL,
                "target": EVIL,
            }
        ]
    },
    "trust": {
        "class": "untrusted",
        "hash": HASH,
        "doubted": [{"first": 1, "last": 2, "why": EVIL}],
        "trusted": False,
    },
    "lower": {"lowered": True, "class": "untrusted"},
    "forget-plan": {
        "key": KEY,
        "documents": [{"project": EVIL, "path": EVIL}],
        "total": 1,
        "shared": [{"project": EVIL, "path": EVIL}],
        "names": "",
        "texts": "",
        "parts": "",
        "ofParts": 0,
        "sealed": "",
    },
    "forget-take": {"documents": 1, "done": True},
    "forget-sync": {
        "records": [{"record": "", "signature": KEY * 2, "key": KEY}],
        "complete": True,
        "wanted": [KEY[:32]],
    },
    "forget-undo": {"count": 1},
    "forget-receipt": {"receipt": "", "signature": KEY * 2},
    "forget-backups": {"dropped": [EVIL]},
    "gateway": {"clients": [{"name": "chat", "scope": "read", "trusted": False, "expires": TIME, "used": None}]},
    "sign-in": {"application": EVIL, "registered": True, "redirect": EVIL, "scope": "write", "expires": TIME},
    "sign-in-approve": {"scope": "write"},
    "history": {
        "revisions": [{"revision": 1, "author": EVIL, "time": TIME, "bytes": 2, "deleted": False, "clash": False}]
    },
    "documents": {
        "documents": [
            {
                "path": EVIL,
                "revision": 1,
                "author": EVIL,
                "time": TIME,
                "bytes": 2,
                "lines": 1,
                "title": EVIL,
                "id": EVIL,
                "clash": True,
                "words": EVIL,
            }
        ],
        "total": 2,
        "offset": 0,
        "folders": [{"path": EVIL, "documents": 1}],
    },
    "changes": {
        "changes": [
            {
                "path": EVIL,
                "revision": 1,
                "author": EVIL,
                "time": TIME,
                "bytes": 2,
                "deleted": False,
                "clash": True,
                "words": EVIL,
            }
        ]
    },
    "briefing": {
        name: [PIECE | {"author": LINE, "updatedAt": TIME, "class": kind} for kind in ("owner", EVIL)]
        for name in ("head", "newest")
    },
    "actions": {
        "version": "1",
        "entries": [
            {
                **{"project": "p", "path": EVIL, "startLine": 1, "id": EVIL, "snippet": EVIL, "author": LINE},
                **{"updatedAt": TIME, "triggers": [{"kind": "path", "key": EVIL}], "class": EVIL},
            }
        ],
    },
    "deleted": {
        "documents": [{"path": EVIL, "revision": 1, "bytes": 2, "author": EVIL, "time": TIME, "restorableUntil": TIME}]
    },
    "restore": {"revision": 2, "hash": HASH, "changed": True, "indexed": True, "queued": 0},
    "forget": {"documents": ["memory/a.md"], "total": 1, "complete": True},
    "projects": {"projects": [{"name": LINE, "files": 1, "updated": TIME, "linked": True}], "complete": True},
    "links": {"linked": [EVIL]},
    "link": {"linked": [EVIL]},
    "unlink": {"linked": [EVIL]},
    "transcript": {"version": 1, "offset": 0, "head": EVIL, "mark": EVIL, "forgotten": False, "taken": True},
    "import": {"results": [{"state": "refused", "id": EVIL, "why": EVIL, "project": EVIL}]},
    "export": {
        "documents": [{"path": "memory/a.md", "text": EVIL, "note": {"title": EVIL}}, {"path": EVIL, "problem": EVIL}],
        "complete": True,
    },
    "refill": {"results": [{"state": "differs", "why": EVIL}]},
    "task-claim": {
        "slot": {
            "task": "0f" * 8,
            "at": 1,
            "attempt": 1,
            "fence": 1,
            "order": "e30=",
            "signature": forms.to_base64(bytes(64)),
            "approvals": [{"key": KEY, "signature": forms.to_base64(bytes(64))}],
            "leaseS": 90,
            "limitMicrousd": 1,
        },
        "waitS": 60,
    },
    "task-started": {"leaseS": 90},
    "task-renew": {"leaseS": 90, "cancelled": False},
    "task-ended": {"state": "succeeded", "effects": True, "path": EVIL},
    "task-show": {
        "task": "0f" * 8,
        "order": "e30=",
        "signature": forms.to_base64(bytes(64)),
        "approvals": [{"key": KEY, "signature": forms.to_base64(bytes(64))}],
        "device": EVIL,
        "state": EVIL,
        "why": EVIL,
        "slots": [
            {
                "at": 1,
                "state": EVIL,
                "attempt": 1,
                "reason": EVIL,
                "runner": EVIL,
                "microusd": 1,
                "tokens": 1,
                "durationMs": 1,
                "checked": True,
                "commit": EVIL,
                "path": EVIL,
                "ended": TIME,
            }
        ],
    },
    "task-orders": {"orders": [], "next": "0" * 16},
    "task-resign": {"state": EVIL},
    "task-approve": {"state": EVIL},
    "task-set": {"state": EVIL},
    "task-logs": {"parts": [{"part": 0, "record": "e30="}], "next": None},
    "task-report": {
        "lines": [EVIL],
        "open": True,
        "counts": [{"state": "lost", "count": 1}],
        "ids": ["0f" * 8],
    },
    "ping": {},
    "roster": {
        "space": KEY[:32],
        "entries": ["AAAA"],
        "number": 0,
        "head": HASH,
        "custody": "caller",
        "isLocked": False,
        "needs": [1],
        "waiting": [{"key": KEY, "name": EVIL, "card": "A" * 1748 + "AA==", "request": None}],
    },
    "extend": {"number": 1},
    "records": {"stored": 1},
    "record": {"record": "AAAA"},
    "record-list": {"records": [{"id": ID, "kind": "token", "epoch": 1, "at": TIME}], "next": None},
    "pair": {"answer": "A" * 135 + "="},
    "pair-answer": {},
    "invite": {"expiresAt": TIME},
    "unlock": {"isLocked": False},
    "is-sensitive": {"sensitive": False},
    "stored-texts": {
        "texts": [
            {"id": 1, "project": EVIL, "path": EVIL, "revision": 1, "isNewest": True, "hash": HASH, "packed": "AAAA"}
        ],
        "next": None,
        "total": 1,
        "isClean": True,
    },
    "rewrite": {"results": ["rewritten"]},
    "erase": {"bytes": 1, "damagedCopies": 0},
    "unsealed": {"findings": 3, "seenAt": TIME, "isDue": True},
    "move-state": {"state": "settled", "revisions": 1, "records": 1},
    "move-out": {
        "revisions": [
            {
                "id": 1,
                "project": LINE,
                "path": "memory/a.md",
                "revision": 1,
                "hash": HASH,
                "author": EVIL,
                "time": 1_795_000_000_000_000,
                "bytes": 9,
                "packed": "eJwDAAAAAAE=",
            }
        ],
        "next": 1,
        "total": 1,
    },
    "move-facts": {
        "documents": [
            {
                "id": 1,
                "project": LINE,
                "path": "memory/a.md",
                "revision": 1,
                "author": EVIL,
                "time": 1,
                "bare": False,
                "uses": 1,
                "used": 1,
            }
        ],
        "sessions": [
            {
                "id": 1,
                "project": LINE,
                "agent": "claude-code",
                "session": EVIL,
                "version": 1,
                "offset": 1,
                "head": EVIL,
                "mark": EVIL,
                "forgotten": False,
                "time": 1,
                "parts": ["sessions/a.md"],
            }
        ],
        "links": [{"one": LINE, "other": "other", "time": 1}],
        "next": 1,
    },
    "move-hold": {"changes": 1},
    "move-roster": {"number": 0},
    "move-in": {"taken": 1},
    "move-tasks": {
        "tasks": [],
        "slots": [],
        "logs": [],
        "runners": [{"key": "ab" * 32, "name": EVIL, "recipes": [], "seen": 1}],
        "spent": [],
        "unreadable": {
            "tasks": [
                {
                    "order": "e30=",
                    "signature": "A" * 86 + "==",
                    "approvals": [],
                    "state": "paused",
                    "why": EVIL,
                    "plannedTo": 1,
                    "freshSince": 1,
                    "created": 1,
                    "task": "0f" * 8,
                    "project": LINE,
                    "recipe": "review",
                    "repo": EVIL,
                    "priority": 5,
                    "signer": "ab" * 32,
                }
            ],
            "slots": [],
            "logs": [],
        },
        "next": EVIL[:60],
    },
    "move-end": {"damaged": 0},
}
_FACTORS: Final = (
    "relevance",
    "votes",
    "dated",
    "source",
    "exact",
    "rank",
    "keyword",
    "terms",
    "vector",
    "best",
    "score",
)
_HIT: Final = {
    "path": EVIL,
    "startLine": 1,
    "endLine": 2,
    "score": 0.5,
    "heading": EVIL,
    "project": EVIL,
    "snippet": EVIL,
    "supersededBy": [{"title": EVIL, "path": EVIL}],
}
_EXPLAINED: Final = {"keywordRank": 1, "bm25": 1.5, "vectorRank": 1, "cosine": 0.5, **dict.fromkeys(_FACTORS, 0.5)}
TOOLS: Final[dict[str, dict[str, Any]]] = {
    "memory_search": {
        "results": [_HIT],
        "warnings": [EVIL],
        "searchMode": EVIL,
        "explain": {
            "matched": EVIL,
            "exact": EVIL,
            "days": EVIL,
            "keywordCandidates": 1,
            "vectorCandidates": 1,
            "timingsMs": {EVIL: 1.0},
            "hits": [_EXPLAINED],
        },
    },
    "memory_read": {
        "content": EVIL,
        "fromLine": 1,
        "toLine": 1,
        "totalLines": 2,
        "warnings": [EVIL],
    },
    "memory_store": {"path": EVIL, "revision": 1, "queued": False, "warnings": [EVIL]},
    "memory_status": {
        "link": {"state": EVIL, "caller": EVIL, "machine": EVIL, "space": EVIL, "scope": EVIL},
        "sealing": {"canSeal": True, "spaceWords": EVIL},
        "daemonVersion": EVIL,
        "totalFiles": 1,
        "totalChunks": 1,
        EVIL: EVIL,
    },
    "memory_sync": {
        "filesScanned": 1,
        "sent": 1,
        "removed": 0,
        "pulled": 0,
        "skipped": [{"path": EVIL, "reason": EVIL}],
        "queued": 0,
        "warnings": [EVIL],
    },
}
PATHS: Final = (
    *("memory/b.md", "MEMORY.md", "memory/new/deep.md", "memory/é.md", "memory/link/x.md", "memory/link.md"),
    *(
        "../x.md",
        "/tmp/evil.md",
        "memory/../../x.md",
        ".confide.toml",
        "memory/.x.md",
        "memory/x.sh",
        "memory/a\x1bb.md",
    ),
    *("~/x.md", "C:\\x.md", "memory/" + "x" * 300 + ".md", "sessions/claude-code/x.md", "memory/CON.md", ""),
)
"""Where a daemon would have a machine write."""
ASKED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("apply", {"path": "", "revision": 3, "hash": HASH, "baseHash": None, "text": "from elsewhere\n"}),
    ("apply", {"path": "", "revision": 3, "hash": HASH, "baseHash": HASH, "text": None}),
    ("flush", {"path": "memory/a.md"}),
    ("backlog", {}),
    ("workplace", {}),
    ("scan", {"force": True}),
    ("roster", {"number": 1, "waiting": True}),
    ("read", {"path": "/etc/passwd"}),
    ("exec", {"command": "id"}),
)
CODES: Final = (
    "invalid",
    "denied",
    "not_found",
    "conflict",
    "busy",
    "locked",
    "unavailable",
    "too_large",
    "internal",
    EVIL.replace("\ud800", ""),
)


def deep(levels: int) -> Any:
    value: Any = EVIL
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


WRONG: Final[tuple[Any, ...]] = (
    *(None, True, 7, -1, 0, 10**300, 2**63, 0.5, float("inf"), "", "x", EVIL, "/etc/passwd", "../../x.md"),
    *([], {}, [[]], [None], [7], ["x"] * 1000, {"x": EVIL}, "x" * 300_000, deep(40), deep(400)),
)


def places(value: Any, levels: int = 12) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, and a name or number in it; not without end."""
    if levels and isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, name
            yield from places(inner, levels - 1)


def wrong(draw: random.Random) -> Any:
    """One of `WRONG`, which nothing that is done to it changes."""
    return json.loads(json.dumps(draw.choice(WRONG)))


def wronged(draw: random.Random, good: dict[str, Any]) -> Any:
    """An answer with one to three things wrong."""
    answer: dict[str, Any] = json.loads(json.dumps(good))
    for _ in range(draw.randint(1, 3)):
        found = list(places(answer))
        if not found:
            break
        container, name = draw.choice(found)
        match draw.randrange(6):
            case 0 if isinstance(container, dict):
                del container[name]
            case 1 if isinstance(container, dict):
                container[draw.choice((EVIL, "id", "code", "__class__", "extra"))] = wrong(draw)
            case 2 if isinstance(container, list):
                container += [wrong(draw), container[name]] * draw.choice((1, 100))
            case _:
                container[name] = wrong(draw)
    return answer


class HostileDaemon:
    """One daemon and what it does next; `draw` None: its answers have the right form, and their texts attack.

    Attributes:
        connections: all that were made.
        asked: by what name, in order.
        heard: all that came from the machine, as it came.
        keeper: what it has of the space's devices and records.
        door: whom it takes in.
        is_rude: it also answers twice, what it was not asked, or not at all.
    """

    def __init__(self, machine: Machine, draw: random.Random | None, *, is_rude: bool = False) -> None:
        self.door = Door(parse_public_key(machine.run("key", "show").splitlines()[0])[0])
        self.draw = draw
        self.is_rude = is_rude
        self.connections: list[Connection] = []
        self.asked: list[str] = []
        self.heard: list[bytes] = []
        self.keeper = Keeper()
        self.url = ""
        self._project = machine.project.name
        self._asking: set[asyncio.Task[None]] = set()

    async def handle(self, ws: ServerConnection) -> None:
        with suppress(ConfideError):
            connection = await accept(ws, HOST, self.door)
            self.connections.append(connection)

            async def on_message(data: bytes) -> None:
                self.heard.append(data)
                for said in self._said(json.loads(data)):
                    await connection.send_message(said)

            async def on_request(op: str, body: dict[str, Any]) -> dict[str, Any]:
                self.heard.append(json.dumps(body, ensure_ascii=False).encode())
                if self.draw is not None and op in ("attach", "compare") and self.draw.random() < 0.5:
                    task = asyncio.create_task(self._ask(connection, self.draw))
                    self._asking.add(task)
                    task.add_done_callback(self._asking.discard)
                if self.is_rude and self.draw is not None:
                    await self._be_rude(connection, self.draw)
                return await self._answer(op, body)

            async def on_stream(op: str, params: dict[str, Any], body: Body) -> dict[str, Any]:
                self.heard.append(await body.read(16 * 2**20))
                return await on_request(op, params)

            await connection.serve(on_message=on_message, on_request=on_request, on_stream=on_stream)

    async def _be_rude(self, connection: Connection, draw: random.Random) -> None:
        """Answer what was answered, or never asked; or nothing, ever."""
        match draw.randrange(12):
            case 0 | 1:
                for stream in (draw.randrange(1, 40) for _ in range(draw.randint(1, 3))):
                    said = json.dumps({"ok": sendable(RESULTS[draw.choice(sorted(RESULTS))])}).encode()
                    await connection._outbox.send(FrameType.RES, stream, said)
            case 2:
                await asyncio.Event().wait()

    async def _ask(self, connection: Connection, draw: random.Random) -> None:
        """What a daemon may ask of a machine, of every form (PROTOCOL.md 9.4)."""
        for _ in range(draw.randint(1, 3)):
            op, body = draw.choice(ASKED)
            good = {**deepcopy(body), "project": draw.choice([self._project, "global", EVIL])}
            if op == "apply":
                good["path"] = draw.choice(PATHS)
            made = wronged(draw, good) if draw.random() < 0.5 else good
            with suppress(RequestError, ConnectionLost, TimeoutError):
                answer = await connection.request(op, sendable(made), timeout_s=5)
                self.heard.append(json.dumps(answer, ensure_ascii=False).encode())

    async def _answer(self, op: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(op)
        good = RESULTS.get(op, {})
        if self.draw is None:
            return sendable(good)
        if op == "attach":
            good = {**good, "space": LABEL, "sealing": self.keeper.status}
        honest = self.keeper.answer(op, body)
        good = good if honest is None else honest
        match self.draw.randrange(12):
            case 0:
                raise RequestError(self.draw.choice(CODES), EVIL.replace("\ud800", ""), EVIL.replace("\ud800", ""))
            case 1 | 2 | 3:
                made = wronged(self.draw, good)
                return sendable(made) if isinstance(made, dict) else {}
            case 4 | 5:
                return lie(self.draw, self.keeper, op, good) or sendable(good)
            case 6:
                await asyncio.sleep(0.05)  # late, behind what was asked after it
        return sendable(good)

    def _said(self, message: dict[str, Any]) -> list[bytes]:
        identifier, params = message.get("id"), message.get("params", {})
        if identifier is None or "method" not in message:
            return []
        name = params.get("name") if isinstance(params, dict) else None
        self.asked.append(str(name or message["method"]))
        good = TOOLS.get(name, {}) if isinstance(name, str) else {}
        if self.draw is None:
            return [encoded(identifier, {"result": result(good)})]
        said = [self._unasked(self.draw, identifier) for _ in range(self.draw.randrange(4))]
        outcome: dict[str, Any] = {"result": result(good)}
        match self.draw.randrange(6):
            case 0:
                outcome = {"error": {"code": self.draw.choice((-32602, -32042, 7)), "message": EVIL, "data": WRONG[-2]}}
            case 1:
                outcome = wronged(self.draw, {"result": result(good)})
            case 2 | 3:
                outcome = {"result": result(wronged(self.draw, good))}
        said.append(encoded(identifier, outcome))
        if self.draw.random() < 0.3:
            said.append(encoded(identifier, {"result": result({"forged": True})}))  # once more
        return said

    def _unasked(self, draw: random.Random, identifier: Any) -> bytes:
        forged = {"jsonrpc": "2.0", "id": identifier, "result": result({"forged": True})}
        return draw.choice(UNASKED)(forged, identifier)


def sendable(answer: dict[str, Any]) -> dict[str, Any]:
    """Without half characters, which our own end of the channel does not write."""
    found: dict[str, Any] = json.loads(json.dumps(answer).replace("\\ud800", ""))
    return found


def result(structured: Any) -> dict[str, Any]:
    """A tool's result with this."""
    return {"content": [{"type": "text", "text": EVIL}], "structuredContent": structured}


def encoded(identifier: Any, outcome: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, **outcome}).encode()


def _said(**message: Any) -> Callable[[Any, Any], bytes]:
    return lambda _forged, _identifier: json.dumps({"jsonrpc": "2.0", **message}).encode()


UNASKED: Final[tuple[Callable[[Any, Any], bytes], ...]] = (
    _said(id=1, method="elicitation/create", params={"message": EVIL}),
    _said(id=EVIL, method="sampling/createMessage", params={"messages": []}),
    _said(id=None, method="roots/list"),
    _said(id={}, method=7),
    _said(method="notifications/x", params={"a": EVIL}),
    _said(method="notifications/tools/list_changed"),
    _said(method="notifications/message", params={"level": "error", "data": EVIL}),
    _said(method="notifications/progress", params={"progressToken": 1, "progress": EVIL, "total": [], "message": 7}),
    _said(method="notifications/progress", params=EVIL),
    lambda _forged, identifier: _said(method="notifications/cancelled", params={"requestId": identifier})(None, None),
    lambda _forged, identifier: encoded([identifier], {"result": {}}),
    lambda _forged, identifier: encoded(str(identifier) + "0", {"result": result({"forged": True})}),
    lambda forged, _identifier: (
        b'{"jsonrpc":"2.0","method":"notifications/x","params":[\n' + json.dumps(forged).encode() + b"\n]}"
    ),
    lambda forged, _identifier: (
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xe2\x80\xa8'
        + json.dumps(json.dumps(forged))[1:-1].encode()
        + b'\xe2\x80\xa8"}}'
    ),
)
"""What is no end of the connection."""


@asynccontextmanager
async def hostile(
    machine: Machine, draw: random.Random | None = None, *, is_rude: bool = False
) -> AsyncIterator[HostileDaemon]:
    """A hostile daemon that the machine has pinned."""
    daemon = await asyncio.to_thread(HostileDaemon, machine, draw, is_rude=is_rude)
    async with serve(daemon.handle, "127.0.0.1", 0, **websocket_options()) as server:
        port = server.sockets[0].getsockname()[1]
        url, key = f"ws://127.0.0.1:{port}/", format_daemon_key(HOST.static_key)
        await asyncio.to_thread(machine.run, "pin", url, key)
        daemon.url = url
        yield daemon


def files_of(machine: Machine) -> dict[Path, bytes]:
    """Everything around the machine that is neither Confide's own nor memory, which a daemon may bring."""
    root = machine.project.parent
    memory = (machine.project / "memory", machine.project / "MEMORY.md")
    own = (machine.home, root / ".cache", root / ".local", *memory)
    found = (path for path in root.rglob("*") if path.is_file() and not any(path.is_relative_to(one) for one in own))
    return {path: path.read_bytes() for path in found}
