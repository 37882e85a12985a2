"""Keyring backends for tests, chosen by PYTHON_KEYRING_BACKEND as the library itself has it: stand-ins for the operating system's."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class Filed(KeyringBackend):
    """Keeps its entries in the file that KEYRING_FILE names."""

    priority = 1  # type: ignore[assignment]  # the library's own type is a property of the class

    def get_password(self, service: str, username: str) -> str | None:
        return self._entries().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write({**self._entries(), f"{service}/{username}": password})

    def delete_password(self, service: str, username: str) -> None:
        entries = self._entries()
        if entries.pop(f"{service}/{username}", None) is None:
            raise PasswordDeleteError
        self._write(entries)

    def _entries(self) -> dict[str, str]:
        try:
            entries: dict[str, str] = json.loads(Path(os.environ["KEYRING_FILE"]).read_text())
        except FileNotFoundError:
            return {}
        return entries

    def _write(self, entries: dict[str, str]) -> None:
        Path(os.environ["KEYRING_FILE"]).write_text(json.dumps(entries))


class Forgetful(Filed):
    """Says that it keeps, and does not."""

    def set_password(self, service: str, username: str, password: str) -> None:
        pass


class Silent(Filed):
    """Waits for a dialog that nobody sees, for as long as KEYRING_FILE does not exist."""

    def _entries(self) -> dict[str, str]:
        while not Path(os.environ["KEYRING_FILE"]).exists():
            time.sleep(0.05)
        return super()._entries()


class Failing(Filed):
    """Fails with a text that tells too much."""

    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError(f"could not store {password}")


class PlaintextKeyring(Filed):
    """By its name, one that keeps everything in the open."""
