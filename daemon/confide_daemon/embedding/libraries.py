"""What a model is loaded with: libraries that speak to others unless told not to, and files that ship inside the package.

The only way to these libraries: they are told here, before they are imported.

ONNX Runtime 1.31 writes a number for the machine and a database of events below the user's home as soon as a model is loaded, and asks
for its maker's address to send them to; `disable_telemetry_events()` after the import does not stop it. FastEmbed brings
huggingface_hub, which may ask its hub. What stands in the environment of the process is overwritten: nothing there may make a private
daemon speak.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from importlib import resources
from typing import Any, Final

from confide_daemon.errors import EmbedderError, StorageError
from confide_memory.errors import with_extra

SILENCE: Final = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "1"}
"""Read by the libraries when they are imported."""


def onnxruntime(what: str) -> Any:
    """ONNX Runtime, silent. Raises EmbedderError: the extra is not installed; `what` cannot be loaded then."""
    os.environ.update(SILENCE)
    try:
        import onnxruntime
    except ImportError:
        raise _missing("ONNX Runtime", what) from None
    return onnxruntime


def tokenizers(what: str) -> Any:
    """The library that reads a `tokenizer.json`; comes with ONNX Runtime, and raises as that."""
    # Rayon threads of the tokenizer would fight with the model's for the same cores, for batches of four texts.
    os.environ.update(SILENCE)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError:
        raise _missing("tokenizers", what) from None
    return tokenizers


def _missing(library: str, what: str) -> EmbedderError:
    return EmbedderError(f"cannot load the {what}: {library} is not installed", hint=with_extra("daemon", "onnx"))


def fastembed() -> Any:
    """FastEmbed, with an ONNX Runtime and a huggingface_hub that are silent. Raises ImportError where the extra is not installed."""
    os.environ.update(SILENCE)
    import fastembed

    return fastembed


# Of the packaged files; where they come from is in `data/ORIGIN.md`.
SHA256 = {
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "minilm.tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def packaged(name: str) -> bytes:
    """The unpacked bytes of one packaged file. Raises StorageError: the file is missing or not the one this version was built with."""
    try:
        data = gzip.decompress((resources.files("confide_daemon.embedding") / "data" / f"{name}.gz").read_bytes())
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise StorageError(
            f"cannot read the packaged file {name}: {type(error).__name__}", hint="reinstall confide"
        ) from error
    if hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise StorageError(f"the packaged file {name} has been changed", hint="reinstall confide")
    return data
