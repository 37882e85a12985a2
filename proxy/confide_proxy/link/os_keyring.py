"""This machine's seed in the operating system's keyring: the library `keyring`, asked in a thread that nobody waits on for long.

A keyring that is locked may open a dialog that nobody sees, and an entry that was written may turn out to lie in a plain file. So every
call has a deadline, and backends that keep nothing, or keep it in the open, are refused.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError, KeyFileError
from confide_crypto.keys.identity import PUBLIC_KEY_WORD, Identity, format_public_key
from confide_proxy.errors import KeyringError
from confide_proxy.paths import runtime_folders

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE: Final = "confide"
DEADLINE_S: Final = 5.0
"""Long enough for a keyring that has to be started; an agent's call waits for ten seconds at most."""
_WAY_OUT: Final = "keep the key in a file (confide key move file) or under a passphrase (confide key move passphrase)"


def entry(public_key: bytes) -> str:
    """The name of this identity's entry: its public key as text."""
    return format_public_key(public_key, "").removeprefix(f"{PUBLIC_KEY_WORD} ")


def save(identity: Identity) -> None:
    """Put a seed into the keyring, and see that it gives it back.

    Raises:
        KeyringError: it cannot be used, does not answer, or does not give back what it was given.
    """
    text = identity.to_line()
    _ask(lambda backend: backend.set_password(SERVICE, entry(identity.public_key), text))
    if load(identity.public_key) != identity:
        raise KeyringError("the keyring does not give back what it was given", hint=_WAY_OUT)


def load(public_key: bytes) -> Identity:
    """The identity with this public key.

    Raises:
        KeyringError: the keyring cannot be used, does not answer, or does not have it.
    """
    name = entry(public_key)
    text = _ask(lambda backend: backend.get_password(SERVICE, name))
    gone = KeyringError(
        f"the keyring has no entry {name} of the service {SERVICE}, where this machine's key should be",
        hint="if the keyring is another one than it was, use that one again; else move identity.key away and join again",
    )
    if not isinstance(text, str):
        raise gone
    try:
        identity = Identity.parse(Path(name), text.encode("ascii", "replace"))
    except KeyFileError:
        raise gone from None  # its text may quote nothing, but names a file that there is not
    if identity.public_key != public_key:
        raise gone
    return identity


def delete(public_key: bytes) -> None:
    """Take a seed out of the keyring. Raises KeyringError as `load` does."""
    _ask(lambda backend: backend.delete_password(SERVICE, entry(public_key)))


_stuck: Future[Any] | None = None
"""The call that hangs."""


def _ask(ask: Callable[[KeyringBackend], Any]) -> Any:
    global _stuck
    late = KeyringError(
        f"the keyring did not answer within {DEADLINE_S:.0f} s; it may be locked, and ask for its password where nobody sees it",
        hint=f"unlock it (log in on the desktop), or {_WAY_OUT}",
    )
    # An agent's session tries again and again: one call that hangs is waited for, not joined by others.
    if (before := _stuck) is not None:  # other sessions of this process wait for it too, and forget it
        if not wait([before], DEADLINE_S).done:
            raise late
        if _stuck is before:
            _stuck = None
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(ask(_backend()))
        except BaseException as error:
            answer.set_exception(error)

    # A daemon thread, so that one that hangs holds up nobody's exit.
    threading.Thread(target=work, name="keyring", daemon=True).start()
    if not wait([answer], DEADLINE_S).done:
        _stuck = answer
        raise late
    error = answer.exception()
    if error is None or isinstance(error, ConfideError):
        return answer.result()
    # The library's errors come from any backend and may say anything: the class is enough, and quotes no secret.
    raise KeyringError(f"the keyring cannot be used: {type(error).__name__}", hint=_WAY_OUT) from None


def _backend() -> KeyringBackend:
    try:
        import keyring
    except ImportError:
        raise KeyringError(
            "the library for the keyring is not installed", hint="pip install 'confide[keyring]'"
        ) from None
    _find_the_session_bus()
    backend = keyring.get_keyring()
    for each in getattr(backend, "backends", None) or [backend]:
        _refuse_if_open(each)
    return backend


def _find_the_session_bus() -> None:
    """An agent's client may start us without the variable that leads to the desktop's keyring; the bus has a usual place."""
    for runtime in runtime_folders():
        bus = runtime / "bus"
        with suppress(OSError):  # none there, or another user's
            status = bus.stat()
            if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
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
