"""Storage of this device's private key: in a plain file, in the operating system's keyring, or
under a passphrase (PROTOCOL.md 2.5).

In each form, the file `identity.key` names the form and holds the public key. The seed of the
private key is in that file, in the keyring, or, for a key under a passphrase that was unlocked, in
a file in the user's runtime folder. That folder is in memory and is emptied when the user logs out.
`confide device key unlock` writes the file with its expiry time, since `confide mcp` has no
terminal to ask for a passphrase.

The library `keyring` accesses the keyring, in a thread with a deadline: a locked keyring may open a
dialog that no user sees. Backends of the library that store nothing, or store it unencrypted in a
file, are refused.
"""

from __future__ import annotations

import enum
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confide_crypto import portable
from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity import (
    KEY_LENGTH,
    PUBLIC_KEY_WORD,
    Identity,
    SealedKey,
    format_public_key,
)
from confide_crypto.keys.identity_file import SEALED_PREFIX, identity_line, is_pem
from confide_crypto.keys.private_files import (
    check_private_dir,
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_memory.errors import with_extra
from confide_proxy.errors import KeyChangeError, KeyLockedError, KeyringError
from confide_proxy.paths import runtime_folders

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

KEYRING_SERVICE: Final = "confide"
KEYRING_DEADLINE_S: Final = 5.0
"""Seconds for one keyring call: enough to start a keyring, while an agent's call waits for ten
seconds at most.
"""
_WAY_OUT: Final = (
    "keep the key in a file (confide device key move file) or under a passphrase (confide device key move passphrase)"
)
_KEYRING_PREFIX: Final = "confide-keyring-key-"
_FOLDER: Final = "confide"
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


class Form(enum.StrEnum):
    FILE = "file"
    KEYRING = "keyring"
    PASSPHRASE = "passphrase"  # noqa: S105 - the name of a form


class Stored(NamedTuple):
    """The contents of this device's identity file.

    Attributes:
        path: the file.
        form: how the seed is stored.
        public_key: the Ed25519 public key, 32 bytes; known in every form.
        identity: the key pair, if the file holds the seed in plain; otherwise None.
        sealed: the seed encrypted under the passphrase; None in the other forms.
    """

    path: Path
    form: Form
    public_key: bytes
    identity: Identity | None = None
    sealed: SealedKey | None = None

    def open(self, passphrase: str | None = None) -> Identity:
        """Return the device's key pair.

        Args:
            passphrase: decrypts the seed, also if it is unlocked already.

        Raises:
            KeyLockedError: the seed is under a passphrase, is not unlocked, and none was given.
            PassphraseError: the passphrase is wrong.
            KeyringError: the keyring cannot be used, does not answer, or does not have the seed.
        """
        if self.identity is not None:
            return self.identity
        if self.sealed is None:
            return load_from_keyring(self.public_key)
        if passphrase is not None:
            return self.sealed.open(passphrase)
        found = find_unlocked(self.public_key)
        if found is None:
            raise KeyLockedError
        return found.identity

    def forget(self) -> None:
        """Delete the copies of the seed outside of the identity file: the keyring's entry, or the
        unlocked copy.

        Raises KeyringError if the keyring's entry cannot be deleted.
        """
        if self.form is Form.KEYRING:
            delete_from_keyring(self.public_key)
        if self.form is Form.PASSPHRASE:
            lock(self.public_key)


def identity(path: Path) -> Identity:
    """Return this device's key pair; create it in a plain file if there is none.

    Raises:
        KeyFileError: others can read the file or its folder, it belongs to another user, or it is
            damaged.
        KeyLockedError, KeyringError: the key cannot be opened, as for `Stored.open`.
    """
    return load_stored(path).open()


def load_stored(path: Path) -> Stored:
    """Read this device's identity file; create it with a new key if there is none.

    Raises KeyFileError if others can read it, if it is damaged, or if it cannot be created.
    """
    if not path.exists() and not path.is_symlink():
        with suppress(FileExistsError):  # another session was first
            Identity.generate().save(path)
    return read(path)


def read(path: Path) -> Stored:
    """Read an identity file.

    Raises KeyFileError if others can read it or its folder, if it belongs to another user, or if it
    is damaged.
    """
    check_private_dir(path.parent)
    return parse(path, read_private_file(path))


def parse(path: Path, data: bytes) -> Stored:
    """Parse the contents of an identity file; errors name `path`. Raises KeyFileError if they are
    invalid.
    """
    prefix, payload = ("", b"") if is_pem(data) else identity_line(path, data)
    if prefix == SEALED_PREFIX:
        sealed = SealedKey.parse(path, payload)
        return Stored(path, Form.PASSPHRASE, sealed.public_key, sealed=sealed)
    if prefix == _KEYRING_PREFIX and len(payload) == KEY_LENGTH:
        return Stored(path, Form.KEYRING, payload)
    plain = Identity.parse(path, data)
    return Stored(path, Form.FILE, plain.public_key, identity=plain)


def write(path: Path, key: Identity, form: Form, *, passphrase: str | None = None, replace: bool = False) -> None:
    """Store a key pair in one of the forms. The identity file is written last, once the seed can be
    read back from where it is kept.

    Args:
        passphrase: for `Form.PASSPHRASE`.
        replace: overwrite an existing file.

    Raises FileExistsError if the file exists and `replace` is False; KeyFileError, KeyringError or
    PassphraseError if the key cannot be stored in this form.
    """
    match form:
        case Form.FILE:
            data = key.to_file()
        case Form.KEYRING:
            save_to_keyring(key)
            marker = bech32m.encode(_KEYRING_PREFIX, key.public_key).upper()
            where = f"service {KEYRING_SERVICE}, entry {keyring_entry(key.public_key)}"
            data = f"# Confide identity, in this user's keyring: {where}\n{marker}\n".encode()
        case Form.PASSPHRASE:
            assert passphrase is not None
            line = SealedKey.seal(key, passphrase).to_line()
            data = f"# Confide identity, sealed with a passphrase: confide device key unlock\n{line}\n".encode()
    # Checked as it will be read later, before it replaces a file.
    if parse(path, data).open(passphrase) != key:
        raise KeyFileError(path, "would not hold the key that was written")
    write_private_file(path, data, replace=replace)


class Unlocked(NamedTuple):
    """The seed of a key under a passphrase while it is unlocked, with its expiry time in seconds
    since 1970.
    """

    identity: Identity
    until: float


def keep_unlocked(identity: Identity, until: float) -> None:
    """Keep the seed of a key under a passphrase readable until a time, in seconds since 1970.

    Raises KeyChangeError if the device has no runtime folder in memory; KeyFileError if the seed
    cannot be written there.
    """
    record = {"key": identity.to_line(), "from": time.time(), "until": until}
    path = _runtime_place() / _unlocked_name(identity.public_key)
    write_private_file(path, json.dumps(record).encode(), replace=True)


def find_unlocked(public_key: bytes) -> Unlocked | None:
    """Return the unlocked seed of the key with this public key, or None. An expired one is deleted."""
    for runtime in runtime_folders():
        path = runtime / _FOLDER / _unlocked_name(public_key)
        try:
            if not os.path.lexists(path):
                continue
            _check_in_memory(runtime)
            check_private_dir(path.parent)
            found = _read_unlocked(path)
            if found is not None and found.identity.public_key == public_key:
                return found
            remove_private_file(path)
        except (ConfideError, OSError):
            continue  # locked, then: `confide device key unlock` says what is wrong with the place
    return None


def lock(public_key: bytes) -> bool:
    """Delete the unlocked seed of a key; return True if there was one. Raises KeyFileError if the
    file cannot be deleted.
    """
    there = [
        path for runtime in runtime_folders() if os.path.lexists(path := runtime / _FOLDER / _unlocked_name(public_key))
    ]
    for path in there:
        remove_private_file(path)
    return bool(there)


def _read_unlocked(path: Path) -> Unlocked | None:
    try:
        record = json.loads(read_private_file(path))
        since, until = float(record["from"]), float(record["until"])
        identity = Identity.parse(path, str(record["key"]).encode())
    except (KeyFileError, ValueError, KeyError, TypeError):
        return None  # damaged, or open to others: not to be left lying either
    # The clock may have been set back, which must not extend the time.
    return Unlocked(identity, until) if since <= time.time() < until else None


def _unlocked_name(public_key: bytes) -> str:
    return f"{public_key.hex()[:32]}.unlocked"


def require_unlocked_place() -> None:
    """Raise KeyChangeError if this device has no folder in memory for an unlocked seed: a key under
    a passphrase could never be used.
    """
    _runtime_place()


def _runtime_place() -> Path:
    problems = []
    for runtime in runtime_folders():
        try:
            _check_in_memory(runtime)
            make_private_dir(runtime / _FOLDER)
        except ConfideError as error:
            problems.append(str(error))
            continue
        return runtime / _FOLDER
    raise KeyChangeError(
        f"there is no safe place to keep the key unlocked: {'; '.join(problems)}",
        hint="log in so that XDG_RUNTIME_DIR is a folder in memory of your own (loginctl enable-linger makes one), "
        "or use the keyring: confide device key move keyring",
    )


def _check_in_memory(runtime: Path) -> None:
    """Raise KeyFileError unless this is a folder in memory that only this user can access."""
    if not runtime.is_absolute():
        raise KeyFileError(runtime, "is not an absolute path")
    check_private_dir(runtime)
    if _filesystem(runtime) not in _IN_MEMORY:
        raise KeyFileError(runtime, "is not in memory (tmpfs), so a key would stay on the disk")


def _filesystem(path: Path) -> str:
    """Return the type of the file system that holds `path`, or "" if the system does not report it."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        # proc_pid_mountinfo(5): the third field is the device; the type follows a single hyphen.
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0]
    return ""


def keyring_entry(public_key: bytes) -> str:
    """Return the name under which the keyring holds the seed of a key: the public key as text."""
    return format_public_key(public_key, "").removeprefix(f"{PUBLIC_KEY_WORD} ")


def save_to_keyring(identity: Identity) -> None:
    """Store a seed in the keyring, and check that it can be read back.

    Raises KeyringError if the keyring cannot be used, does not answer, or returns another seed.
    """
    text = identity.to_line()
    _call_keyring(lambda backend: backend.set_password(KEYRING_SERVICE, keyring_entry(identity.public_key), text))
    if load_from_keyring(identity.public_key) != identity:
        raise KeyringError("the keyring does not return what was stored in it", hint=_WAY_OUT)


def load_from_keyring(public_key: bytes) -> Identity:
    """Load the key pair with this public key from the keyring.

    Raises KeyringError if the keyring cannot be used, does not answer, or does not have the seed.
    """
    name = keyring_entry(public_key)
    text = _call_keyring(lambda backend: backend.get_password(KEYRING_SERVICE, name))
    missing = KeyringError(
        f"the keyring has no entry {name} of the service {KEYRING_SERVICE}, where this device's key should be",
        hint="if the keyring is another one than it was, use that one again; else move identity.key away and join again",
    )
    if not isinstance(text, str):
        raise missing
    try:
        identity = Identity.parse(Path(name), text.encode("ascii", "replace"))
    except KeyFileError:
        raise missing from None  # its text may quote nothing, but names a file that there is not
    if identity.public_key != public_key:
        raise missing
    return identity


def delete_from_keyring(public_key: bytes) -> None:
    """Delete the seed of a key from the keyring.

    Raises KeyringError if the keyring cannot be used, or does not answer.
    """
    _call_keyring(lambda backend: backend.delete_password(KEYRING_SERVICE, keyring_entry(public_key)))


_stuck: Future[Any] | None = None
"""The keyring call that has not returned in time, if any."""


def _call_keyring(ask: Callable[[KeyringBackend], Any]) -> Any:
    global _stuck
    late = KeyringError(
        f"the keyring did not answer within {KEYRING_DEADLINE_S:.0f} s; "
        "it may be locked, and ask for its password in a window that you do not see",
        hint=f"unlock it (log in on the desktop), or {_WAY_OUT}",
    )
    # An agent's session retries often: while one call hangs, no further ones are started.
    if (before := _stuck) is not None:  # other sessions of this process wait for it too, and forget it
        if not wait([before], KEYRING_DEADLINE_S).done:
            raise late
        if _stuck is before:
            _stuck = None
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(ask(_backend()))
        except BaseException as error:
            answer.set_exception(error)

    # A daemon thread, so that a call that hangs does not delay the exit.
    threading.Thread(target=work, name="keyring", daemon=True).start()
    if not wait([answer], KEYRING_DEADLINE_S).done:
        _stuck = answer
        raise late
    error = answer.exception()
    if error is None or isinstance(error, ConfideError):
        return answer.result()
    # Errors come from any backend and may contain anything: the class is enough, and quotes no
    # secret.
    raise KeyringError(f"the keyring cannot be used: {type(error).__name__}", hint=_WAY_OUT) from None


def _backend() -> KeyringBackend:
    try:
        import keyring
    except ImportError:
        raise KeyringError(
            "the library for the keyring is not installed",
            hint=with_extra("keyring"),
        ) from None
    _find_the_session_bus()
    backend = keyring.get_keyring()
    for each in getattr(backend, "backends", None) or [backend]:
        _refuse_if_open(each)
    return backend


def _find_the_session_bus() -> None:
    """Set the variable that leads to the desktop's keyring if the agent's client started this
    process without it; the bus has a usual place.
    """
    for runtime in runtime_folders():
        bus = runtime / "bus"
        with suppress(OSError):  # none there, or another user's
            status = bus.stat()
            if not stat.S_ISSOCK(status.st_mode) or status.st_uid != portable.user():
                continue
            os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", f"unix:path={bus}")


def _refuse_if_open(backend: KeyringBackend) -> None:
    module, name = type(backend).__module__, type(backend).__name__
    if module.startswith(("keyring.backends.fail", "keyring.backends.null", "keyring.backends.chainer")):
        raise KeyringError("there is no keyring here, as on most machines without a desktop", hint=_WAY_OUT)
    if module.startswith("keyrings.alt") or "plaintext" in name.lower():
        raise KeyringError(
            f"the keyring chosen here ({module}.{name}) keeps its entries in plain or home-made files, no safer than our own",
            hint=_WAY_OUT,
        )
