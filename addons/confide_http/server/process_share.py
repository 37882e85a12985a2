"""How much of the daemon's process the gateway may take, known without loading a web server."""

from __future__ import annotations

from typing import Final

MOST_FILES: Final = 640
"""That whoever comes by HTTP holds at once."""
