"""The PostgreSQL that `[store]` in daemon.toml names. The driver is loaded when one is opened, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.files import read_private_file
from confide_daemon.config import StoreConfig
from confide_daemon.datadir.credentials import credential
from confide_daemon.errors import EngineError, StorageError
from confide_memory.errors import with_extra

if TYPE_CHECKING:
    from confide_cluster.daemon.log.engine import Engine

PASSWORD: Final = "store-password"  # noqa: S105 - the name of a credential
_MOST_PASSWORD: Final = 1024


def open_engine(config: StoreConfig, *, most: int | None = None) -> Engine:
    """Connections to the database of the store, none of which is made yet.

    `most`: at once, where that is not what is configured. Raises StorageError: the extra is not installed.
    """
    try:
        from confide_cluster.daemon.log.engine import Engine
    except ImportError:
        raise StorageError(
            "cannot use the store: the driver of PostgreSQL is not installed",
            hint=with_extra("daemon", "postgres"),
        ) from None
    return Engine(config.url, lambda: _password(config), most or config.connections)


def _password(config: StoreConfig) -> str:
    try:
        if config.password_file:
            return read_private_file(Path(config.password_file).expanduser()).decode("utf-8").strip()
        handed = credential(PASSWORD)
        if handed is None:
            return ""
        with handed.open("rb") as file:
            return file.read(_MOST_PASSWORD).decode("utf-8").strip()
    except KeyFileError as error:
        raise EngineError(f"cannot use the password of the store: {error}", hint=error.hint) from None
    except (OSError, UnicodeDecodeError):
        raise EngineError("cannot use the password of the store: it cannot be read", hint="is it text?") from None
