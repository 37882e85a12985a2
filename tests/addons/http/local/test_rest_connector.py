"""`configs/drawlatch-confide.json`: a connector that drawlatch takes as it is, and that reaches what there is."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path

from confide_http.local.rest import route_table
from confide_http.local.running_gateway import PORT

FILE = Path(__file__).parents[4] / "configs" / "drawlatch-confide.json"


def test_the_connector_names_routes_that_there_are() -> None:
    """All of REST, nothing else of the gateway, and no token's text."""
    connector = json.loads(FILE.read_text())
    here = f"http://127.0.0.1:{PORT}"
    assert connector["headers"] == {"Authorization": "Bearer ${CONFIDE_TOKEN}"}
    assert connector["secrets"] == {"CONFIDE_TOKEN": "${CONFIDE_TOKEN}"}
    assert connector["testConnection"]["url"] == f"{here}/api/auth-check"
    allowed = connector["allowedEndpoints"]
    for each in route_table.OPERATIONS:
        url = here + each.path.replace("{", "").replace("}", "")
        assert any(fnmatch.fnmatch(url, pattern) for pattern in allowed), url
    for other in ("/mcp", "/health", "/panel", "/apis", "/api"):
        assert not any(fnmatch.fnmatch(here + other, pattern) for pattern in allowed), other
