"""What is kept of a daemon's catalogue: the names of its tools, used when they can be read, passed over when not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.mcp import catalogue

PACKAGED = json.loads(catalogue.PACKAGED.read_bytes())
CORE = ("core",)


def test_an_older_daemons_tools_are_those_it_has(tmp_path: Path) -> None:
    """What it lacks is not shown, also at the next start; and what it calls its tools is not read."""
    older = {**PACKAGED, "instructions": "others", "tools": PACKAGED["tools"][:2]}
    shown = catalogue.common_catalogue(older, CORE, "hash")
    assert [tool["name"] for tool in shown.data["tools"]] == ["memory_search", "memory_read"]
    catalogue.save(tmp_path / "c.json", shown)
    kept = catalogue.load(tmp_path / "c.json", CORE)
    assert (kept.data, kept.digest, kept.unknown) == (shown.data, "hash", ())
    answer = kept.answer("initialize", {"protocolVersion": "2025-06-18"})
    assert answer is not None
    assert answer["instructions"] == PACKAGED["instructions"]


def test_a_newer_daemons_tools_are_told_to_the_person_alone(tmp_path: Path) -> None:
    """By their names, as long as these are names; a version that comes to know them shows them."""
    new = {"name": "memory_forecast", "description": "x"}
    newer = {**PACKAGED, "tools": [*PACKAGED["tools"], new], "prompts": [{"name": "plan"}], "resourceTemplates": []}
    shown = catalogue.common_catalogue(newer, CORE, "hash")
    assert shown.unknown == ("memory_forecast", "prompts:plan")
    assert shown.data == {**PACKAGED, "prompts": [], "resourceTemplates": []}
    catalogue.save(tmp_path / "c.json", shown)
    assert catalogue.load(tmp_path / "c.json", CORE).unknown == shown.unknown


def test_a_group_that_was_not_asked_for_is_not_shown() -> None:
    """Neither to the agent nor as something new."""
    everything = catalogue.packaged_catalogue().data
    assert catalogue.common_catalogue(everything, CORE, "").data == PACKAGED
    assert catalogue.common_catalogue(everything, CORE, "").unknown == ()


@pytest.mark.parametrize(
    "listing",
    [
        None,
        7,
        [],
        {},
        {"tools": 3},
        {"tools": [], "prompts": [], "resourceTemplates": []},
        {"tools": [{}], "prompts": [], "resourceTemplates": []},
        {"tools": ["evil"], "prompts": [], "resourceTemplates": []},
        {"tools": PACKAGED["tools"], "prompts": {}, "resourceTemplates": []},
        {"tools": PACKAGED["tools"], "prompts": []},
    ],
)
def test_what_is_no_catalogue_is_passed_over(tmp_path: Path, listing: Any) -> None:
    """Whatever a daemon sends, or is in the file: a client that starts gets the packaged tools."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        catalogue.common_catalogue(listing, CORE, "")
    (tmp_path / "c.json").write_text(json.dumps(listing))
    assert catalogue.load(tmp_path / "c.json", CORE).data == PACKAGED


@pytest.mark.parametrize("text", ["", "{", "\x00", "[" * 100_000, "NaN"])
def test_a_broken_file_is_passed_over(tmp_path: Path, text: str) -> None:
    """The same where it is no JSON."""
    (tmp_path / "c.json").write_text(text)
    assert catalogue.load(tmp_path / "c.json", CORE).data == PACKAGED


def test_an_unknown_version_is_offered_the_newest() -> None:
    """MCP lifecycle: the server answers with a version of its own."""
    answer = catalogue.load(Path("/no/such/file"), CORE).answer("initialize", {"protocolVersion": "1999-01-01"})
    assert answer is not None
    assert answer["protocolVersion"] == PACKAGED["protocolVersions"][-1]
