"""How a test's machine keeps its key: in one of the test's own keyrings, or under a passphrase that costs nothing to try."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs.processes import Machine

from confide_crypto.keys.identity import Identity, SealedKey
from confide_crypto.keys.private_files import write_private_file

KEYRINGS = Path(__file__).parent / "keyrings"
WORDS = "correct horse battery staple"


def choose_keyring(machine: Machine, backend: str = "filed.Filed") -> Path:
    """Choose the user's keyring in the file where the library `keyring` looks for it; the file where the test's own ones keep entries."""
    machine.env.pop("XDG_CONFIG_HOME", None)
    chosen = Path(machine.env["HOME"]) / ".config/python_keyring/keyringrc.cfg"
    chosen.parent.mkdir(parents=True, exist_ok=True)
    chosen.write_text(f"[backend]\ndefault-keyring={backend}\nkeyring-path={KEYRINGS}\n")
    entries = machine.home / "keyring.json"
    machine.env["KEYRING_FILE"] = str(entries)
    return entries


def seal(path: Path, identity: Identity, passphrase: str = WORDS) -> None:
    """An identity file as `confide device key move passphrase` leaves it, but for Argon2id's costs: 8 KiB once, not 256 MiB three times.

    The file names its costs, so programs open it as any other. `test_key_forms.py` shows that people's files have the real ones.
    """
    line = SealedKey.seal(identity, passphrase, opslimit=1, memlimit_kib=8).to_line()
    data = f"# Confide identity, sealed with a passphrase: confide device key unlock\n{line}\n".encode()
    write_private_file(path, data, replace=True)


def seal_key(machine: Machine, passphrase: str = WORDS) -> None:
    """Put the device's key, which is in a plain file, under a passphrase."""
    path = machine.home / "proxy" / "identity.key"
    seal(path, Identity.load(path), passphrase)
