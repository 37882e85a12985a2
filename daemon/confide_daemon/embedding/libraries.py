"""Loading of third-party libraries without network access, and of files packaged with Confide.

All imports of these libraries go through this module, which configures them first.

ONNX Runtime 1.31 writes a machine id and an event database below the user's home when a model is
loaded, and looks up its vendor's address to send them; `disable_telemetry_events()` after the
import does not stop it. FastEmbed imports huggingface_hub, which may contact its hub. The
environment's own values are overwritten: nothing there may make a private daemon connect.
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
"""Environment variables that the libraries read when imported."""


def onnxruntime(what: str) -> Any:
    """Import and return ONNX Runtime, with its telemetry turned off. Raises EmbedderError if it is
    not installed; the message names `what` could not be loaded, such as a model.
    """
    os.environ.update(SILENCE)
    try:
        import onnxruntime
    except ImportError:
        raise _missing("ONNX Runtime", what) from None
    return onnxruntime


def tokenizers(what: str) -> Any:
    """Import and return the library that reads a `tokenizer.json`. It is installed together with
    ONNX Runtime.

    Raises EmbedderError if it is not installed; the message names `what` could not be loaded, such
    as a model.
    """
    # The tokenizer's Rayon threads would compete with the model's for the cores, for batches of
    # four texts.
    os.environ.update(SILENCE)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError:
        raise _missing("tokenizers", what) from None
    return tokenizers


def _missing(library: str, what: str) -> EmbedderError:
    return EmbedderError(f"cannot load the {what}: {library} is not installed", hint=with_extra("daemon", "onnx"))


def import_fastembed() -> Any:
    """Import and return FastEmbed, configured to use no network. Raises ImportError if it is not
    installed.
    """
    os.environ.update(SILENCE)
    import fastembed

    return fastembed


# Of the packaged files; where they come from is in `data/ORIGIN.md`.
SHA256 = {
    "cl100k_base.tiktoken": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "minilm.tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def read_packaged(name: str) -> bytes:
    """Return the decompressed content of a file that is packaged with Confide. Raises StorageError
    if it is missing or belongs to another version.
    """
    try:
        data = gzip.decompress((resources.files("confide_daemon.embedding") / "data" / f"{name}.gz").read_bytes())
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise StorageError(
            f"cannot read the packaged file {name}: {type(error).__name__}", hint="reinstall confide"
        ) from error
    if hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise StorageError(f"the packaged file {name} has been changed", hint="reinstall confide")
    return data
