"""The cached catalogue: used when it is whole, passed over when it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from confide_proxy.mcp import catalogue

PACKAGED = json.loads(catalogue.PACKAGED.read_bytes())


def test_what_was_saved_is_used(tmp_path: Path) -> None:
    """The daemon's own catalogue of the last connection answers the next start."""
    other = {**PACKAGED, "instructions": "others"}
    catalogue.save(tmp_path / "c.json", other)
    answer = catalogue.load(tmp_path / "c.json").answer("initialize", {"protocolVersion": "2025-06-18"})
    assert answer is not None
    assert answer["instructions"] == "others"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"tools": []}',
        json.dumps({**PACKAGED, "protocolVersions": []}),
        json.dumps({**PACKAGED, "tools": [{}]}),
    ],
)
def test_a_broken_cache_is_passed_over(tmp_path: Path, text: str) -> None:
    """Whatever is in the file, a client that starts gets the packaged tools."""
    (tmp_path / "c.json").write_text(text)
    assert catalogue.load(tmp_path / "c.json").data == PACKAGED


def test_an_unknown_version_is_offered_the_newest() -> None:
    """MCP lifecycle: the server answers with a version of its own."""
    loaded = catalogue.load(Path("/no/such/file"))
    answer = loaded.answer("initialize", {"protocolVersion": "1999-01-01"})
    assert answer is not None
    assert answer["protocolVersion"] == PACKAGED["protocolVersions"][-1]
