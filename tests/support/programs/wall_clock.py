"""A wall clock that jumps, for real processes, where there is a C compiler: `wall_clock.c`, put before the C library.

libfaketime was tried: it turns sleeps that end at a moment of the monotonic clock into errors.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.deadline import DEADLINE_S

COMPILER: Final = shutil.which("cc") if sys.platform == "linux" else None
SOURCE: Final = Path(__file__).with_suffix(".c")


class WallClock:
    """The time of day of the processes that are started with `env`; the monotonic clock and the times of files stay right."""

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` holds the compiled library and the file that the processes look at. There must be a compiler."""
        assert COMPILER is not None
        library = folder / "wall_clock.so"
        if not library.exists():
            subprocess.run(
                [COMPILER, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True, timeout=DEADLINE_S
            )
        self._file = folder / f"{name}.clock"
        self._file.write_bytes(bytes(8))
        self.env: Final = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Be off by so much from now on."""
        with self._file.open("r+b") as file:  # in place: the processes have mapped it
            file.write(struct.pack("=q", seconds))
