"""Which versions work together, and what is answered where one end is too old to know a request."""

from __future__ import annotations

from typing import Any, cast

import pytest

from confide_crypto.errors import EXIT_UNREACHABLE, RequestError
from confide_memory import versions
from confide_memory.documents import RequestChannel
from confide_memory.errors import UnknownRequestError
from confide_memory.versions import is_behind, parse_version
from confide_memory.wire.revisions import HISTORY
from confide_memory.wire.session import PING


@pytest.mark.parametrize(
    ("older", "newer", "is_far"),
    [
        ("0.1.0", "0.1.9", False),
        ("0.1.0", "0.3.0", False),
        ("0.1.0", "0.3.99.dev1", False),
        ("0.1.0", "0.4.0", True),
        ("0.1.0", "0.4.0.dev0", True),
        ("0.9.0", "0.10.0", False),
        ("0.9.0", "0.12.0", True),
        ("0.4.0", "1.0.0", True),
        ("1.2", "1.4rc1", False),
        ("", "0.4.0", False),
        ("0.1.0", "?", False),
        ("0.1.0", "0.4.0; rm", False),
    ],
)
def test_two_minor_versions_apart_is_the_most(older: str, newer: str, is_far: bool) -> None:
    """The newer one is behind nobody, and of what is no version nothing is said."""
    assert is_behind(older, newer) == is_far
    assert not is_behind(newer, older)


def test_a_label_is_no_version() -> None:
    assert parse_version("0.2.0.dev0") == (0, 2)
    assert [parse_version(text) for text in ("", "1", "1.", "v1.2", "1.2 3", "9999999.1", "1.2\n")] == [None] * 7


class Old:
    """A daemon that knows no request of this name."""

    def __init__(self, code: str, sentence: str) -> None:
        self._refusal = RequestError(code, sentence, "do the versions of confide and confided fit?")

    async def request(self, _op: str, _body: dict[str, Any], **_named: Any) -> dict[str, Any]:
        raise self._refusal


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("invalid", "this daemon does not know that request"),
        ("unavailable", "confided 0.2.0 does not know that request"),
    ],
    ids=["0.1.0", "later"],
)
async def test_a_person_is_told_which_version_has_what_the_daemon_does_not_know(
    monkeypatch: pytest.MonkeyPatch, code: str, sentence: str
) -> None:
    """Not as a mistake of theirs: it is worth trying again once the daemon is upgraded."""
    old = cast("RequestChannel", Old(code, sentence))
    with pytest.raises(UnknownRequestError) as caught:
        await PING.ask(old, {}, timeout_s=1)
    assert (caught.value.code, caught.value.exit_code) == ("unavailable", EXIT_UNREACHABLE)
    assert caught.value.message == sentence
    monkeypatch.setitem(versions.SINCE, "ping", "0.3.0")
    with pytest.raises(UnknownRequestError, match=f"^{sentence}, which came with version 0.3.0$") as caught:
        await PING.ask(old, {}, timeout_s=1)
    assert "upgrade confided" in str(caught.value.hint)


async def test_other_refusals_pass_as_they_are() -> None:
    with pytest.raises(RequestError) as caught:
        await PING.ask(cast("RequestChannel", Old("invalid", "the project is not attached")), {}, timeout_s=1)
    assert caught.value.code == "invalid"


def test_members_that_are_not_known_are_passed_over() -> None:
    """A newer end may send more."""
    body = {"project": "p", "path": "a.md", "later": {"x": [1]}}
    assert HISTORY.read(body) == HISTORY.read({"project": "p", "path": "a.md"})
