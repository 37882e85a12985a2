"""What the second daemon keeps: enough of PROTOCOL.md 9, and of the tools, for the real client to work with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.interop.bodies import Incoming
from tests.interop.peer import Daemon, Served
from tests.interop.requests import RefusedError
from tests.interop.rotations import rotated_to
from tests.interop.serving import Answer
from tests.interop.texts import blake2b

NOTE = "# Decisions\n\nWe chose postgres over mysql for its row locks.\n"
DOCUMENT_BYTES = 4 << 20
CATALOGUE = {"core": {"tools": [], "capabilities": {"tools": {}}, "serverInfo": {"name": "second", "version": "2"}}}


def hash_of(text: str) -> str:
    """The `hash` of section 9."""
    return blake2b(256, text.encode()).hex()


@dataclass(slots=True)
class Notes:
    """Documents by project and path, newest revision last; None is a deletion. `asked` lists every request.

    `before_tool` runs before a tool does; `reply` makes a tool's whole answer, right or wrong, out of its call.
    """

    documents: dict[tuple[str, str], list[str | None]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    bodies: int = 0
    called: list[dict[str, Any]] = field(default_factory=list)
    callers: set[bytes] = field(default_factory=set)
    before_tool: Callable[[Served], Awaitable[object]] | None = None
    reply: Callable[[dict[str, Any]], bytes] | None = None

    def daemon(self) -> Daemon:
        """A second daemon with these notes."""
        return Daemon(answer=self._answers, talk=self._talk, callers=self.callers)

    def put(self, project: str, path: str, text: str | None) -> int:
        """A new revision."""
        revisions = self.documents.setdefault((project, path), [])
        revisions.append(text)
        return len(revisions)

    def text(self, project: str, path: str) -> str | None:
        """What a path holds now."""
        revisions = self.documents.get((project, path))
        return revisions[-1] if revisions else None

    def ops(self, name: str) -> list[dict[str, Any]]:
        """The parameters of all requests of one kind."""
        return [parameters for op, parameters in self.asked if op == name]

    def _answers(self, served: Served) -> Answer:
        attached: set[str] = set()

        async def answer(op: str, parameters: dict[str, Any], body: Incoming | None) -> dict[str, Any]:
            self.asked.append((op, parameters))
            if op == "attach":
                attached.add(parameters["project"])
                return {
                    "space": "second",
                    "project": parameters["project"],
                    "daemonVersion": "2",
                    "limits": {"documentBytes": DOCUMENT_BYTES},
                    "catalogue": hash_of("second"),
                }
            if op == "rotate":
                self.callers.add(rotated_to(parameters, served.session.records.session_id, served.caller.key))
                return {}
            if not attached:
                raise RefusedError("invalid", "attach comes first")
            if op == "catalogue":
                return CATALOGUE["core"]
            if op == "put" and body is not None:
                self.bodies += 1
                parameters["text"] = (await body.whole()).decode()
            work = {"compare": self._compare, "put": self._put, "remove": self._remove, "pull": self._pull}.get(op)
            if work is None:
                raise RefusedError("invalid", f"the second daemon does not know {op}")
            return work(parameters)

        return answer

    def _compare(self, asked: dict[str, Any]) -> dict[str, Any]:
        project = asked["project"]
        result: dict[str, list[Any]] = {"send": [], "adopt": [], "pull": [], "drop": []}
        gone = dict(asked["gone"])
        entries = {path: (hashed, base) for path, hashed, base in asked["entries"]}
        for path, (hashed, base) in entries.items():
            revisions = self.documents.get((project, path), [])
            text = revisions[-1] if revisions else None
            if text is not None and hash_of(text) == hashed:
                if base != len(revisions):
                    result["adopt"].append([path, len(revisions)])
            elif base and base < len(revisions) and hash_of(revisions[base - 1] or "") == hashed:
                kind = "drop" if text is None else "pull"
                result[kind].append([path, len(revisions), *([] if text is None else [hash_of(text)])])
            else:
                result["send"].append(path)
        for (at, path), revisions in self.documents.items():
            text = revisions[-1]
            if at != project or path in entries or text is None:
                continue
            if gone.get(path) == len(revisions):
                result["drop"].append([path, self.put(project, path, None)])
            else:
                result["pull"].append([path, len(revisions), hash_of(text)])
        return result

    def _put(self, asked: dict[str, Any]) -> dict[str, Any]:
        if hash_of(asked["text"]) != asked["hash"]:
            raise RefusedError("invalid", "hash and text do not fit")
        revision = self.put(asked["project"], asked["path"], asked["text"])
        done = {"merged": False, "clash": False, "indexed": True, "queued": 0}
        return {"revision": revision, "hash": asked["hash"], **done}

    def _remove(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"revision": self.put(asked["project"], asked["path"], None), "removed": True}

    def _pull(self, asked: dict[str, Any]) -> dict[str, Any]:
        revisions = self.documents.get((asked["project"], asked["path"]), [])
        revision = asked.get("revision") or len(revisions)
        text = revisions[revision - 1] if 0 < revision <= len(revisions) else None
        if text is None:
            raise RefusedError("not_found", "there is no such document")
        return {"revision": revision, "hash": hash_of(text), "text": text}

    async def _talk(self, served: Served) -> None:
        """Answer the MCP session of one connection."""
        with contextlib.suppress(ConnectionError):
            while True:
                message = json.loads(await served.session.messages.get())
                if "id" not in message:
                    continue
                self.called.append(message)
                if self.before_tool is not None:
                    await self.before_tool(served)
                if self.reply is not None:
                    await served.session.send_message(self.reply(message))
                    continue
                parameters = message.get("params", {})
                result = await self._tool(served, parameters.get("name", ""), parameters.get("arguments", {}))
                if parameters.get("_meta", {}).get("confide/structured") is not True:  # PROTOCOL.md 7.13
                    result.pop("structuredContent", None)
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                await served.session.send_message(json.dumps(answer).encode())

    async def _tool(self, served: Served, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        project = next(each["project"] for each in self.ops("attach"))
        if name == "memory_search":
            structured = self._search(project, arguments["query"])
        elif name == "memory_store":
            structured = await self._store(served, project, arguments["content"])
        elif name == "memory_status":
            structured = self._status(project)
        else:
            return {"content": [{"type": "text", "text": f"no tool {name}"}], "isError": True}
        text = json.dumps(structured)
        return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}

    def _search(self, project: str, query: str) -> dict[str, Any]:
        """Lines that hold a word of the query."""
        results = []
        for (at, path), revisions in self.documents.items():
            for number, line in enumerate((revisions[-1] or "").splitlines(), 1):
                if at == project and any(word in line for word in query.split()):
                    where = {"path": path, "project": at, "startLine": number, "endLine": number, "heading": ""}
                    scores = dict.fromkeys(("vector", "keyword", "recency", "importance", "usage"), 0.5)
                    when = {"source": "memory", "author": "second", "updatedAt": "2026-11-21T00:00:00Z"}
                    results.append({**where, **when, "score": 0.5, "scores": scores, "snippet": line})
        return {"results": results, "searchMode": "keyword", "indexAge": 0.0, "warnings": []}

    async def _store(self, served: Served, project: str, content: str) -> dict[str, Any]:
        """Have the client put what it has, write, and have it written there."""
        path = "memory/2026-11-21.md"
        await served.session.request("flush", project=project, path=path)
        before = self.text(project, path)
        text = (before or "") + content + "\n"
        revision = self.put(project, path, text)
        applied = await served.session.request(
            "apply",
            project=project,
            path=path,
            revision=revision,
            hash=hash_of(text),
            baseHash=None if before is None else hash_of(before),
            text=text,
        )
        kept = {"path": path, "project": project, "linesWritten": 1, "revision": revision, "indexed": True}
        state = {"queued": False, "queuedChunks": 0, "onDisk": applied["applied"]}
        return {**kept, **state, "duplicates": [], "suggestions": {}, "warnings": []}

    def _status(self, project: str) -> dict[str, Any]:
        count = len(self.documents)
        return {
            **{"provider": "none", "model": "none", "embedder": "off", "totalChunks": count, "totalFiles": count},
            **{"sources": {"memory": {"files": count, "chunks": count}}, "projects": [project], "lastSync": None},
            **{"pendingUploads": 0, "queuedOffline": 0, "deadLetters": 0, "queuedChunks": 0, "indexAge": 0.0},
            **{"dbSize": 0, "atRest": "nothing at rest", "searchLatencyMs": {"p50": None, "p95": None}},
            **{"daemonVersion": "2", "proxyVersion": "?", "project": project, "warnings": []},
            "link": {"state": "up", "caller": "second", "machine": "?", "space": "second", "scope": "write"},
        }


async def ask_backlog(served: Served, count: int) -> int:
    """Ask the client for `backlog` that many times, at most 60 at once; returns how many it answered in full."""
    good = 0

    async def some(number: int) -> None:
        nonlocal good
        for _ in range(number):
            answer = await served.session.request("backlog")
            good += {"pendingUploads", "queuedOffline", "deadLetters"} <= set(answer)

    await asyncio.gather(*(some(count // 60 + (index < count % 60)) for index in range(60)))
    return good
