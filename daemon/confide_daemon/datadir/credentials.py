"""Where a provider's key comes from. It is read when a request is made, so that a new key counts at once, and shown nowhere."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.identity import read_private_file
from confide_daemon.errors import QuotaError

# Longer than any provider's key; what is longer is some other file.
MAX_KEY = 1024
CREDENTIALS = "CREDENTIALS_DIRECTORY"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """The places where a key may be, in this order: a file of mode 0600, a systemd credential, the daemon's environment.

    Attributes:
        provider: its name for people, as in "OpenAI".
        file: a path, "" for none.
        credential: the name of a file in `$CREDENTIALS_DIRECTORY` (systemd.exec(5), LoadCredential=).
        variable: of the environment.
        is_needed: whether the provider cannot be asked without one.
    """

    provider: str
    file: str
    credential: str
    variable: str
    is_needed: bool = True

    def read(self) -> str | None:
        """The key; None where there is none and none is needed.

        Raises:
            QuotaError: there is none, its file is loose or cannot be read, or it is not a key. Never shows it.
        """
        found = self._from_file() or self._from_credential() or os.environ.get(self.variable, "")
        key = found.strip()
        if not key:
            if not self.is_needed:
                return None
            raise QuotaError(
                f"there is no key for {self.provider}",
                hint="write it into a file of mode 0600 and name that file as key_file in daemon.toml"
                + (f", or set {self.variable} where the daemon starts" if self.variable else ""),
            )
        if len(key) > MAX_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise QuotaError(
                f"what was found as the key for {self.provider} is not one", hint="it is one word, alone in its file"
            )
        return key

    def _from_file(self) -> str:
        if not self.file:
            return ""
        try:
            return read_private_file(Path(self.file).expanduser()).decode("ascii", errors="replace")
        except KeyFileError as error:
            raise QuotaError(f"cannot use the key for {self.provider}: {error}", hint=error.hint) from None

    def _from_credential(self) -> str:
        folder = os.environ.get(CREDENTIALS)
        if not folder or not self.credential:
            return ""
        try:
            # systemd gives the folder to the service alone and makes its files 0400; their owner may be root.
            with open(Path(folder) / self.credential, "rb") as file:
                return file.read(MAX_KEY + 1).decode("ascii", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise QuotaError(
                f"cannot read the credential {self.credential}: {error.strerror or type(error).__name__}"
            ) from None
