"""The commands of `confide device key`: the key of this device (docs/devices.md)."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from confide_crypto.errors import ConfideError, KeyFileError, PassphraseError
from confide_crypto.keys.identity import fingerprint_words, format_public_key
from confide_crypto.keys.private_files import read_private_file, write_private_file
from confide_proxy.cli.console import CommandContext, Output, clock, command, remark, say, seconds, unseen
from confide_proxy.errors import KeyChangeError, NotSetUpError
from confide_proxy.link import device_identity as identities
from confide_proxy.link import founding
from confide_proxy.link.device_identity import Form, Stored
from confide_proxy.link.key_rotation import MachineKeys, exclusive
from confide_proxy.paths import ProxyPaths

_LOCK_WAIT_S = 2.0


@command
def key_show(here: CommandContext) -> Output:
    """Print this device's public key line, for `confided device add`."""
    held = MachineKeys(here.paths).read_keys()
    kept = held.current
    record: dict[str, Any] = {**_public(kept.public_key), "kept": kept.form.value, "file": str(kept.path)}
    until = _unlocked_until(kept)
    if kept.form is Form.PASSPHRASE:
        record["unlockedUntil"] = None if until is None else clock(until)
    if held.following is not None:
        record["next"] = _public(held.following.public_key)

    def print_text() -> None:
        say(record["publicKey"])
        remark(record["words"])

    return Output(record, print_text)


def key_move(
    context: typer.Context,
    form: Annotated[
        Form, typer.Argument(help="A plain `file`, the system's `keyring`, or a file under a `passphrase`.")
    ],
    is_new: Annotated[bool, typer.Option("--new", help="Change the passphrase of a key that has one.")] = False,
) -> None:
    """Keep the key in another place: in a plain file, in the system's keyring, or under a
    passphrase.
    """
    here: CommandContext = context.obj
    paths = here.paths
    if is_new:
        if form is not Form.PASSPHRASE:
            raise typer.BadParameter("goes with passphrase", param_hint="--new")
        _change_passphrase(paths)
        return
    kept = identities.load_stored(paths.identity)
    if kept.form is form:
        say(f"the key is kept like that already ({form.value})")
        return
    if form is Form.PASSPHRASE:
        identities.require_unlocked_place()
    passphrase = _passphrase() if kept.form is Form.PASSPHRASE and _unlocked_until(kept) is None else None
    key = kept.open(passphrase)
    new_passphrase = _new_passphrase() if form is Form.PASSPHRASE else None
    with exclusive(paths, wait_s=_LOCK_WAIT_S):
        _require_unchanged(paths, kept)
        identities.write(paths.identity, key, form, passphrase=new_passphrase, replace=True)
        try:
            kept.forget()
        except ConfideError as error:
            remark(f"note: a copy stays in the {kept.form.value}: {error}")
    say(f"the key is now kept in this form: {form.value}")
    if form is Form.PASSPHRASE:
        say("it is locked; to unlock it: confide device key unlock")


def key_unlock(
    context: typer.Context,
    duration: Annotated[str, typer.Option("--for", help="How long, as in 30m, 8h or 2d; at most 7d.")] = "8h",
) -> None:
    """Unlock the key for a while: Confide asks for the passphrase, or reads stdin."""
    unlocked_s = seconds(duration, "mhd", most_days=7, option="--for", examples="30m, 8h or 2d")
    _require_key(context.obj.paths)
    held = MachineKeys(context.obj.paths).read_keys()
    sealed = [kept for kept in (held.current, held.following) if kept is not None and kept.form is Form.PASSPHRASE]
    if not sealed:
        remark(f"there is nothing to unlock: the key is kept in this form: {held.current.form.value}")
        return
    passphrase = _passphrase()
    until = time.time() + unlocked_s
    for kept in sealed:  # two during a rotation, under one passphrase
        identities.keep_unlocked(kept.open(passphrase), until)
    say(f"unlocked until {clock(until)}; confide device key lock ends it at once")


def key_lock(context: typer.Context) -> None:
    """Lock the key again at once."""
    _require_key(context.obj.paths)
    held = MachineKeys(context.obj.paths).read_keys()
    kept = [each for each in (held.current, held.following) if each is not None]
    was = [identities.lock(each.public_key) for each in kept]
    if held.current.form is not Form.PASSPHRASE:
        remark("note: this key has no passphrase; to set one: confide device key move passphrase")
    say("locked" if any(was) else "it was not unlocked")


def _change_passphrase(paths: ProxyPaths) -> None:
    _require_key(paths)
    kept = identities.load_stored(paths.identity)
    if kept.form is not Form.PASSPHRASE:
        raise KeyChangeError("this key has no passphrase", hint="to set one: confide device key move passphrase")
    key = kept.open(_passphrase("the passphrase until now"))
    new = _new_passphrase()
    with exclusive(paths, wait_s=_LOCK_WAIT_S):
        _require_unchanged(paths, kept)
        identities.write(paths.identity, key, Form.PASSPHRASE, passphrase=new, replace=True)
    say("the passphrase is changed")


@command
def key_import(
    here: CommandContext,
    file: Annotated[
        Path, typer.Argument(help="An unencrypted Ed25519 key as PKCS#8 PEM, or an identity file of confide.")
    ],
) -> Output:
    """Use an existing key for this device; it never replaces one."""
    paths = here.paths
    if not file.exists():
        raise KeyFileError(
            file, "is not there", hint="name a file with an Ed25519 key, such as one that confide device key move wrote"
        )
    data = read_private_file(file)
    kept = identities.parse(file, data)
    if kept.form is Form.KEYRING:
        hint = "on the device of that keyring: confide device key move file, then copy the file"
        raise KeyFileError(file, "only names an entry of a keyring", hint=hint)
    with exclusive(paths, wait_s=_LOCK_WAIT_S):
        for path in (paths.identity, paths.next_identity):
            if path.exists() or path.is_symlink():
                raise _key_exists_error(path)
        try:
            # A sealed key stays sealed; any other is written in our own format.
            write_private_file(paths.identity, data if kept.identity is None else kept.identity.to_file())
        except FileExistsError:  # a session has created one meanwhile
            raise _key_exists_error(paths.identity) from None
    public = _public(kept.public_key)
    message = (
        f"this device is now {public['words']}\n{file} still holds the same secret: delete it if you do not need it"
    )
    return Output({**public, "kept": kept.form.value, "file": str(paths.identity)}, message)


@command
def key_rotate(here: CommandContext) -> Output:
    """Replace this device's key with a new one, also on the daemon."""
    from confide_proxy.devices.device_rotation import (
        rotate,  # imports a lot, and no other command here needs it
    )

    _require_key(here.paths)

    is_sealed = identities.load_stored(here.paths.identity).form is Form.PASSPHRASE
    passphrase = _passphrase() if is_sealed else None
    old, new = map(_public, asyncio.run(rotate(here.paths, here.config, passphrase=passphrase)))
    message = f"old key: {old['words']}  (no longer valid)\nnew key: {new['words']}"
    return Output({"old": old, "new": new}, message)


def _public(key: bytes) -> dict[str, str]:
    return {"publicKey": format_public_key(key, socket.gethostname()), "words": fingerprint_words(key)}


def _key_exists_error(path: Path) -> KeyChangeError:
    return KeyChangeError(
        f"this device already has a key, in {path}",
        hint=f"confide device key show prints it; to use another one, move it away first: mv {path} {path}.old",
    )


def _require_key(paths: ProxyPaths) -> None:
    """Raise NotSetUpError if this device has no key: locking, opening or changing one creates none."""
    if not any(each.exists() or each.is_symlink() for each in (paths.identity, paths.next_identity)):
        raise NotSetUpError(founding.why_failed(paths))


def _require_unchanged(paths: ProxyPaths, kept: Stored) -> None:
    held = MachineKeys(paths).read_keys()
    if held.following is not None:
        raise KeyChangeError("a rotation of this key is not finished", hint="confide status finishes it")
    if held.current != kept:
        raise KeyChangeError("the key was changed meanwhile", hint="try again")


def _unlocked_until(kept: Stored) -> float | None:
    if kept.form is not Form.PASSPHRASE:
        return None
    found = identities.find_unlocked(kept.public_key)
    return found.until if found else None


def _passphrase(prompt: str = "passphrase") -> str:
    try:
        typed = unseen(prompt)
    except UnicodeDecodeError:
        raise PassphraseError(
            "the passphrase is not UTF-8", hint="check the terminal's or the script's encoding"
        ) from None
    if not typed:
        raise PassphraseError("no passphrase was given", hint="type it, or pass it on stdin")
    return typed


def _new_passphrase() -> str:
    typed = _passphrase("new passphrase")
    if sys.stdin.isatty() and _passphrase("the same again") != typed:
        raise PassphraseError("the two passphrases differ", hint="try again")
    return typed
