"""What an import calls a note is made of its text, by cutting and without markup: no part of a credential is in it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.support.sealing.secret_corpus import positives

from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.config import Policy
from confide_proxy.sealing.sealer import Fingerprints, Sealer
from confide_transfer.local import plan
from confide_transfer.local.formats.account_export import first_line
from confide_transfer.local.formats.sections import plain, title_of
from confide_transfer.local.reader import MemoryRecord

KEYS = SpaceKeys.generate()
SEALER = Sealer(Policy(), lambda: KEYS, lambda: Fingerprints(bytes(32)))
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3


def bare(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum())


@pytest.mark.parametrize("called", [title_of, first_line, lambda text: plain(text.split("\n")[0])])
def test_no_part_of_a_credential_is_in_a_title(called: Callable[[str], str | None]) -> None:
    seen = 0
    for sample in positives(3, 2):
        for words in (0, 14, 20, 34):
            text = f"{'ab ' * words}{sample.text}".strip()
            values = SEALER.seal(text, "imports").values.values()
            title = called(text)
            record = MemoryRecord("x", "1", text, title=title, status=title, tags=(title or "none",))
            sealed = plan.seal_record(record, SEALER)[0]
            said = bare(json.dumps([sealed.title, sealed.status, sealed.tags]))
            for value in map(bare, values):
                assert not any(value[at : at + 9] in said for at in range(max(1, len(value) - 8))), sample.kind
                seen += 1
    assert seen > 300


def test_a_title_is_kept_as_far_as_it_tells_nothing() -> None:
    def titled(title: str, content: str) -> str | None:
        return plan.seal_record(MemoryRecord("x", "1", content, title=title), SEALER)[0].title

    assert titled("How we deploy", f"token {TOKEN}") == "How we deploy"
    assert titled(f"Of {TOKEN.replace('_', '')} and more", f"use {TOKEN}") == "Of …"
    assert titled(TOKEN[:20], f"token {TOKEN}") is None
    redacting = Sealer(Policy(imports="redact"), lambda: None, lambda: Fingerprints(bytes(32)))
    record = MemoryRecord("x", "1", f"use {TOKEN}", title=f"Use {TOKEN[:20]}")
    assert plan.seal_record(record, redacting)[0].title == "Use …"
    named = titled(f"Deploys with {TOKEN} at night", f"token {TOKEN}")
    assert named is not None
    assert named.startswith("Deploys with (sealed:github-token:")
    assert named.endswith(") at night")


def test_a_sensitive_record_is_not_called_by_its_text() -> None:
    def titled(title: str) -> str | None:
        record = MemoryRecord("x", "1", "# Under the stone\n\nlies the key", title=title, metadata={"sensitive": True})
        return plan.seal_record(record, SEALER)[0].title

    assert titled("Under the stone") is None
    assert titled("Under the st…") is None
    assert titled("Spare key") == "Spare key"
