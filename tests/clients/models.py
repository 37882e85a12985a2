"""A model that plays a script, behind the wire formats of four clients, on loopback.

A client is pointed here by its own settings, so that it starts our MCP server and calls our tools with nobody logged in and no model. Each
request of the agent's own loop is answered with the next step of the script, and kept: what the client put before the model is in there.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """What the model does next: call the first tool that is offered and whose name ends so, or say something.

    `input_tokens`: what it says that the request has cost, which is how a client is made to compact.
    """

    tool: str = ""
    arguments: Json = field(default_factory=dict)
    text: str = "done"
    input_tokens: int = 100


class Model:
    """The steps, taken in order by requests that offer tools; others (titles, summaries) take none."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)
        self._lock = threading.Lock()
        self._requests: list[Json] = []
        self.port = 0

    @property
    def requests(self) -> list[Json]:
        """The bodies of the agent's own requests so far."""
        with self._lock:
            return list(self._requests)

    def step(self, _body: Json) -> Step:
        """The next step of the script."""
        return self._steps.pop(0) if self._steps else Step()

    def next(self, body: Json, offered: Sequence[str]) -> tuple[int, Step]:
        """The number of a request and the step that answers it, its tool by the whole name that the client gives it."""
        with self._lock:
            if not offered:
                return 0, Step(text="a title")
            self._requests.append(body)
            step = self.step(body)
            number = len(self._requests)
        name = next((name for name in offered if step.tool and name.endswith(step.tool)), step.tool)
        return number, Step(name, step.arguments, step.text, step.input_tokens)


@contextmanager
def playing(*steps: Step, model: Model | None = None) -> Iterator[Model]:
    """A model that listens on `port`: one that plays these steps, or another one."""
    model = model or Model(steps)
    handler = type("Scripted", (_Handler,), {"model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    model.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._plain(200, {})

    def do_GET(self) -> None:
        listed = [{"id": "fake", "object": "model", "type": "model", "display_name": "fake"}]
        if self.path.partition("?")[0].endswith("/models"):
            self._plain(200, {"object": "list", "data": listed, "has_more": False})
        else:
            self._nothing()

    def do_POST(self) -> None:
        raw = self._body()
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        path = self.path.partition("?")[0]
        if path.endswith("/v1/messages"):
            self._anthropic(body)
        elif path.endswith("/count_tokens"):
            self._plain(200, {"input_tokens": max(1, len(raw) // 4)})
        elif path.endswith("/responses"):
            self._responses(body)
        elif path.endswith("/chat/completions"):
            self._chat(body)
        elif path.endswith((":streamGenerateContent", ":generateContent")):
            self._gemini(body, is_stream=":stream" in path)
        elif path.endswith(":countTokens"):
            self._plain(200, {"totalTokens": max(1, len(raw) // 4)})
        else:
            self._nothing()

    # Anthropic messages (Claude Code)

    def _anthropic(self, body: Json) -> None:
        number, step = self.model.next(body, [tool.get("name", "") for tool in body.get("tools") or []])
        usage = {"input_tokens": step.input_tokens, "output_tokens": 20}
        usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        whole: Json = {"type": "text", "text": step.text}
        begun, delta, reason = {**whole, "text": ""}, {"type": "text_delta", "text": step.text}, "end_turn"
        if step.tool:
            whole = {"type": "tool_use", "id": f"toolu_{number:08}", "name": step.tool, "input": step.arguments}
            begun, reason = {**whole, "input": {}}, "tool_use"
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
        message = {"id": f"msg_{number:08}", "type": "message", "role": "assistant", "model": body.get("model", "fake")}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            self._plain(200, message | {"content": [whole], "stop_reason": reason})
            return
        ended = {"stop_reason": reason, "stop_sequence": None}
        self._events(
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": begun},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": usage},
            {"type": "message_stop"},
        )

    # OpenAI responses (Codex) and chat completions (OpenCode)

    def _responses(self, body: Json) -> None:
        spaces: dict[str, Json] = {}
        for tool in body.get("tools") or []:
            is_space = tool.get("type") == "namespace"
            for each in tool.get("tools") or [] if is_space else [tool]:
                spaces[each.get("name") or ""] = {"namespace": tool.get("name")} if is_space else {}
        number, step = self.model.next(body, list(spaces))
        said = [{"type": "output_text", "text": step.text, "annotations": []}]
        item: Json = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": said}
        if step.tool:
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": step.tool}
            item |= {"arguments": json.dumps(step.arguments), **spaces.get(step.tool, {})}
        item["status"] = "completed"
        usage = {"input_tokens": step.input_tokens, "output_tokens": 20, "total_tokens": step.input_tokens + 20}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": f"resp_{number}", "object": "response", "created_at": int(time.time()), "output": []}
        response |= {"status": "in_progress", "model": body.get("model", "fake")}
        ended = response | {"status": "completed", "output": [item], "usage": usage}
        if not body.get("stream"):
            self._plain(200, ended)
            return
        self._events(
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": ended},
        )

    def _chat(self, body: Json) -> None:
        offered = [(tool.get("function") or {}).get("name", "") for tool in body.get("tools") or []]
        number, step = self.model.next(body, offered)
        delta: Json = {"role": "assistant", "content": step.text}
        if step.tool:
            function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
            call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            delta = {"role": "assistant", "tool_calls": [call]}
        reason = "tool_calls" if step.tool else "stop"
        base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": int(time.time())}
        base["model"] = body.get("model", "fake")
        usage = {"prompt_tokens": step.input_tokens, "completion_tokens": 20, "total_tokens": step.input_tokens + 20}
        if not body.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": reason}
            self._plain(200, base | {"object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self._events(
            base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            base | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            base | {"choices": [], "usage": usage},
            "[DONE]",
        )

    # Gemini

    def _gemini(self, body: Json, *, is_stream: bool) -> None:
        declared = [each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations") or []]
        number, step = self.model.next(body, [each.get("name", "") for each in declared])
        part: Json = {"text": step.text}
        if step.tool:
            part = {"functionCall": {"id": f"call_{number}", "name": step.tool, "args": step.arguments}}
        elif not declared:  # it asks which model to take, and who speaks next
            choice = {"complexity_reasoning": "x", "complexity_score": 1, "model_choice": "flash", "reasoning": "x"}
            part = {"text": json.dumps(choice | {"next_speaker": "user"})}
        usage = {"promptTokenCount": step.input_tokens, "candidatesTokenCount": 20}
        usage["totalTokenCount"] = step.input_tokens + 20
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}
        if is_stream:
            self._events(answer)
        else:
            self._plain(200, answer)

    # HTTP

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _nothing(self) -> None:
        self._plain(404, {"type": "error", "error": {"type": "not_found_error", "message": "not here"}})

    def _plain(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _events(self, *events: Json | str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            # Anthropic's client goes by the event's name, the others by its data.
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.wfile.flush()
        self.close_connection = True
