"""What the daemon's answers carry (PROTOCOL.md 9): a table has them all, none is used unread, and whatever comes is read or refused."""

from __future__ import annotations

import ast
import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.hostile import RESULTS, sendable, wronged
from tests.support.draws import draws

import confide_http.door.wire  # noqa: F401 - each of these adds what it has
import confide_memory.wire.revisions
import confide_memory.wire.sealing  # noqa: F401
import confide_night.order.wire  # noqa: F401
import confide_transfer.move.shared.moved
import confide_transfer.shared.wire  # noqa: F401
from confide_memory.errors import UnfitAnswerError
from confide_memory.tools import result as results
from confide_memory.wire.operation import OPERATIONS, Nothing, Operation
from confide_proxy.mcp.catalogue import packaged_catalogue

ROOT = Path(__file__).parents[2]
PROXY = ROOT / "proxy" / "confide_proxy"
PASSES_ON = {"link/daemon_link.py", "gateway/exchange.py"}
"""Links pass on what they are asked, and read nothing of it; the first of them asks by `ask` all the same."""


def test_every_request_of_the_protocol_has_its_answer() -> None:
    rows = re.findall(r"^\| client \| (`[^|]*) \|", (ROOT / "crypto/PROTOCOL.md").read_text(), re.MULTILINE)
    assert {op for row in rows for op in re.findall(r"`([a-z-]+)`", row)} == {*OPERATIONS}


def test_one_module_has_a_request() -> None:
    with pytest.raises(ValueError, match=r"of one name: ping$"):
        Operation("ping", Nothing, Nothing)


class Said:
    """A daemon that has one answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.answer

    upload = request


def read(op: str, answer: dict[str, Any]) -> dict[str, Any]:
    """What a machine reads of an answer to a request."""
    return asyncio.run(OPERATIONS[op].ask(Said(answer), {}, timeout_s=1))


def test_no_answer_is_used_unread() -> None:
    """Whoever asks does it by `Operation.ask`, which reads what comes: a check that a caller has to think of is forgotten."""
    raw = [
        f"{path.relative_to(PROXY)}:{node.lineno}"
        for path in PROXY.rglob("*.py")
        if str(path.relative_to(PROXY)) not in PASSES_ON and "timeout_s" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("request", "upload")
        and any(keyword.arg == "timeout_s" for keyword in node.keywords)
    ]
    assert raw == []


@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_whatever_is_wrong_is_said_to_be_so(op: str) -> None:
    """One error, whatever the field."""
    good = sendable(RESULTS.get(op, {}))
    read(op, good)
    for seed in range(draws(300, 20)):
        wrong = wronged(random.Random(f"{op}{seed}"), good)
        with suppress(UnfitAnswerError):
            read(op, sendable(wrong) if isinstance(wrong, dict) else {})


@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        ("compare", {"pull": [["memory/a.md", -1, "h"]]}),
        ("compare", {"drop": [["memory/a.md"]]}),
        ("compare", {"send": [7]}),
        ("pull", {"text": "another than the hash is of"}),
        ("put", {"revision": 2**63}),
        ("projects", {"complete": None}),
        ("roster", {"head": "AB" * 32}),
        ("roster", {"number": True}),
        ("record-list", {"records": [{"id": "0f" * 16, "kind": "\x1b[2J", "epoch": 1, "at": "2026-11-21T10:00:00Z"}]}),
        ("deleted", {"documents": "none"}),
        ("history", {"revisions": [{}]}),
        ("unsealed", {"seenAt": "yesterday"}),
        ("invite", {"expiresAt": "0001-01-01T00:00:00"}),
    ],
)
def test_a_field_of_another_form_is_refused(op: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(UnfitAnswerError):
        read(op, {**sendable(RESULTS[op]), **wrong})


def test_an_end_that_is_left_out_is_none() -> None:
    """A list that stops for want of `next` would be taken for all of it."""
    with pytest.raises(UnfitAnswerError):
        read("record-list", {"records": []})


def test_a_newer_daemons_fields_are_left_out() -> None:
    told = read("put", {"revision": 3, "hash": "h", "merged": False, "newer": [1]})
    assert told == {"revision": 3, "text": None}


@pytest.mark.parametrize(
    "wrong", [{"results": 7}, {"results": [{"score": "high"}]}, {"warnings": [7]}, {"results": [{"score": 10**300}]}]
)
def test_a_tools_result_is_of_its_own_schema(wrong: dict[str, Any]) -> None:
    schema = packaged_catalogue().outputs["memory_search"]
    good = {"results": [{"score": 0.5, "path": "memory/a.md"}], "warnings": []}
    assert results.read(schema, good) == good
    with pytest.raises(UnfitAnswerError):
        results.read(schema, {**good, **wrong})
    with pytest.raises(UnfitAnswerError):
        results.read(schema, good)["results"][0]["heading"]
