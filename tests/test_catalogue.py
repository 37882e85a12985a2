"""The catalogue that ships with the proxy is the daemon's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import confide_proxy


def test_the_packaged_catalogue_is_the_daemons() -> None:
    """`make catalogue` writes it anew; a client that starts before any daemon is shown the same tools."""
    done = subprocess.run([sys.executable, "-m", "confide_daemon", "catalogue"], capture_output=True, check=True)
    packaged = Path(confide_proxy.__file__).with_name("mcp") / "catalogue.json"
    assert json.loads(packaged.read_bytes()) == json.loads(done.stdout)
