"""The limit of the file descriptors that HTTP clients may occupy, in a module that loads no web
server.
"""

from __future__ import annotations

from typing import Final

MOST_FILES: Final = 640
"""Most file descriptors that HTTP clients hold at once."""
