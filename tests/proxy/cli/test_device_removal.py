"""What a removed device could open, as the daemon tells it: texts for a terminal, and a list that ends."""

from __future__ import annotations

from typing import Any

import pytest

from confide_proxy.cli import device_removal
from confide_proxy.errors import UnfitAnswerError


class Telling:
    """A daemon that answers each request with the next of these, the last again and again."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        assert (op, timeout_s > 0, body["limit"]) == ("record-list", True, 1000)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.mark.parametrize(
    "wrong", [{"kind": "token\x1b]0;owned\x07"}, {"at": "\x1b[2J"}, {"epoch": 0}, {"id": "AB" * 16}]
)
async def test_what_the_daemon_tells_commands_no_terminal(wrong: dict[str, Any]) -> None:
    evil = {"id": "ab" * 16, "kind": "token", "at": "2026-11-21T12:00:00Z", "epoch": 1, **wrong}
    with pytest.raises(UnfitAnswerError):
        await device_removal.sealed_secrets(Telling({"records": [evil], "next": None}))


@pytest.mark.parametrize(
    "answer",
    [{}, {"records": 7, "next": None}, {"records": [{"id": 7, "kind": "x", "at": ""}], "next": None}, {"records": []}],
)
async def test_an_answer_of_another_form_is_said_to_be_one(answer: dict[str, Any]) -> None:
    with pytest.raises(UnfitAnswerError):
        await device_removal.sealed_secrets(Telling(answer))


async def test_a_list_that_does_not_go_on_is_none() -> None:
    """Nor one that goes back, or goes on with nothing: it would have no end."""
    one = {"id": "ab" * 16, "kind": "token", "at": "2026-11-21T12:00:00+00:00", "epoch": 1}
    for page in ([one], []):
        with pytest.raises(UnfitAnswerError):
            await device_removal.sealed_secrets(Telling({"records": page, "next": "cd" * 16}))


def test_whom_to_revoke_is_said_by_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon's name for the machine may have been changed, and this one be another's."""
    device = {"name": "laptop", "words": "one two three four five six", "isPaper": False}
    result = {"removed": device, "alsoRemoved": [], "added": [], "letIn": [], "apps": [], "exposed": []}
    device_removal.print_removal({**result, "hasAccess": True, "databaseKey": "server"})
    told = capsys.readouterr()
    assert "removed: laptop  one two three four five six" in told.out
    assert "can still read and write your memory. On the server, run: confided device rm NAME" in told.err
    assert "the name that confided device shows beside these words" in told.err
    assert "revoke laptop" not in told.err


def test_a_removal_is_told_though_the_secrets_cannot_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The access has ended by then; what is left to do is named."""
    device = {"name": "laptop", "words": "one two three four five six", "isPaper": False}
    result = {"removed": device, "alsoRemoved": [], "added": [], "letIn": ["ghost"], "apps": ["chat"], "exposed": None}
    device_removal.print_removal(
        {**result, "hasAccess": False, "databaseKey": "waiting", "problem": "the vault is away"}
    )
    told = capsys.readouterr()
    for line in ("removed: laptop", "its access to the daemon has ended", "ended: ghost", "ended: chat, an app"):
        assert line in told.out
    assert "could not be listed: the vault is away; run it again: confide device lost laptop" in told.err
