"""The catalogue that ships with the proxy is the daemon's."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from confide_daemon.server.mcp.tool_calls import catalogue, toolsets
from confide_memory.tools.call import catalogue_hash
from confide_proxy.mcp import catalogue as catalogues

GROUPS = [list(groups) for size in (1, 2, 3) for groups in combinations(toolsets(), size)]


@pytest.mark.addons
def test_the_packaged_catalogue_is_the_daemons() -> None:
    """`make catalogue` writes it anew; a client that starts before any daemon is shown the same tools."""
    assert catalogues.packaged_catalogue(("core",)).data == catalogue(["core"])
    assert catalogues.packaged_catalogue(("all",)).data == catalogue(["all"])


@pytest.mark.addons
@pytest.mark.parametrize("groups", [*GROUPS, ["all"]], ids="-".join)
def test_a_session_shows_what_its_daemon_would(groups: list[str], tmp_path: Path) -> None:
    """Chosen by names alone, it is the daemon's own for any groups; and so it is the next time, before there is a daemon."""
    shown = catalogues.common_catalogue(catalogue(groups), groups, catalogue_hash(catalogue(groups)))
    assert shown.data == catalogue(groups)
    assert catalogue_hash(shown.data) == catalogue_hash(catalogue(groups))
    catalogues.save(tmp_path / "c.json", shown)
    assert catalogues.load(tmp_path / "c.json", groups).data == catalogue(groups)
    # And so it is the first time, also where the last session had other groups.
    assert catalogues.load(tmp_path / "none.json", groups).data == catalogue(groups)
    others = ["core"] if groups != ["core"] else ["all"]
    assert catalogues.load(tmp_path / "c.json", others).data == catalogue(others)


@pytest.mark.addons
def test_a_name_of_no_group_is_passed_over_and_told() -> None:
    assert tuple(toolsets()) == catalogues.TOOLSETS
    assert catalogues.packaged_catalogue(("nots",)).data == catalogue(["nots"]) == catalogue(["core"])
    assert catalogues.unknown_toolsets(("nots", "core", "all")) == ["nots"]
