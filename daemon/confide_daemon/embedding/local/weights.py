"""Reads the files of a local model, and builds the errors for files that cannot be read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from confide_daemon.errors import EmbedderError

MODEL = "embedding model"  # as errors call it


def read_weights(path: Path, *, what: str = MODEL) -> bytes:
    """Return the content of a model's file. Raises EmbedderError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, what) from None


def file_digest(path: Path) -> str:
    """Return the first twelve hexadecimal digits of a file's SHA-256, to be used in the name of a
    model. Raises EmbedderError if the file cannot be read.
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
    """Build the error for a model's file that cannot be read."""
    why = getattr(error, "strerror", None) or type(error).__name__
    return EmbedderError(
        f"cannot read the {what} at {path}: {why}",
        hint="install confide again, with its extra daemon, or set the folder of another model",
    )
