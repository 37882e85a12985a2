"""The share of the process's resources that the gateway may use, known without loading a web
server.
"""

from __future__ import annotations

from typing import Final

MOST_FILES: Final = 640
"""Most file descriptors that HTTP clients hold at once."""
