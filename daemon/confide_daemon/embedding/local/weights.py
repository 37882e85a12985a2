"""The files of a local model, and the errors for unreadable ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

from confide_daemon.errors import EmbedderError

MODEL = "embedding model"  # as errors call it


def read_weights(path: Path, *, what: str = MODEL) -> bytes:
    """Read a file of a model. Raises EmbedderError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, what) from None


def file_digest(path: Path) -> str:
    """Return twelve hexadecimal digits of the file's SHA-256, for names of models. Raises
    EmbedderError.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:12]
    except OSError as error:
        raise EmbedderError(
            f"cannot read the embedding model at {path}: {error.strerror or type(error).__name__}",
            hint="does daemon.toml name the right file?",
        ) from None


def unreadable(path: Path, error: OSError | ValueError, what: str = MODEL) -> EmbedderError:
    """Return the error for an unreadable file."""
    why = getattr(error, "strerror", None) or type(error).__name__
    return EmbedderError(
        f"cannot read the {what} at {path}: {why}",
        hint="install confide again, with its extra daemon, or set the folder of another model",
    )
