"""Files that ship inside the package, unpacked and checked; where they come from is in `data/ORIGIN.md`."""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources

from confide_daemon.errors import StorageError

SHA256 = {
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "minilm.tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def packaged(name: str) -> bytes:
    """The unpacked bytes of one packaged file.

    Raises:
        StorageError: the file is missing or not the one this version was built with.
    """
    try:
        data = gzip.decompress((resources.files("confide_daemon") / "data" / f"{name}.gz").read_bytes())
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise StorageError(
            f"cannot read the packaged file {name}: {type(error).__name__}", hint="reinstall confide"
        ) from error
    if hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise StorageError(f"the packaged file {name} has been changed", hint="reinstall confide")
    return data
