"""`confide key …`: this machine's key, for people (docs/keys.md)."""

from __future__ import annotations

import asyncio
import getpass
import re
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_crypto.errors import ConfideError, KeyFileError, PassphraseError
from confide_crypto.keys import fingerprint_words, format_public_key
from confide_crypto.private import read_private_file, write_private_file
from confide_proxy import identity as identities
from confide_proxy.errors import KeyChangeError
from confide_proxy.identity import Form, Stored
from confide_proxy.key_rotation import MachineKeys, exclusive
from confide_proxy.options import AsJson, err, out, print_json
from confide_proxy.paths import Paths

if TYPE_CHECKING:
    from confide_proxy.cli import Here

key_app = typer.Typer(help="This machine's key.", no_args_is_help=True)

_LOCK_WAIT_S = 2.0
_MOST_TYPED = 4096


@key_app.command("show")
def key_show(context: typer.Context, as_json: AsJson = False) -> None:
    """Print this machine's public key line, for `confided callers add`."""
    paths = _here(context).paths
    held = MachineKeys(paths).held()
    kept = held.current
    line = format_public_key(kept.public_key, socket.gethostname())
    words = fingerprint_words(kept.public_key)
    until = _unlocked_until(kept)
    if not as_json:
        out.print(line, markup=False)
        err.print(words, markup=False)
        return
    record: dict[str, Any] = {"publicKey": line, "words": words, "kept": kept.form.value, "file": str(kept.path)}
    if kept.form is Form.PASSPHRASE:
        record["unlockedUntil"] = None if until is None else _clock(until)
    if held.following is not None:
        record["next"] = {
            "publicKey": format_public_key(held.following.public_key, socket.gethostname()),
            "words": fingerprint_words(held.following.public_key),
        }
    print_json(record)


@key_app.command("move")
def key_move(
    context: typer.Context,
    form: Annotated[Form, typer.Argument(help="Where to keep the key from now on.")],
) -> None:
    """Keep the key elsewhere: in a plain file, in the system's keyring, or under a passphrase."""
    paths = _here(context).paths
    kept = identities.stored(paths.identity)
    if kept.form is form:
        out.print(f"the key is kept like that already ({form.value})", markup=False)
        return
    passphrase = _passphrase() if kept.form is Form.PASSPHRASE and _unlocked_until(kept) is None else None
    key = kept.open(passphrase)
    new_passphrase = _new_passphrase() if form is Form.PASSPHRASE else None
    with exclusive(paths, wait_s=_LOCK_WAIT_S):
        _require_unchanged(paths, kept)
        identities.write(paths.identity, key, form, passphrase=new_passphrase, replace=True)
        try:
            kept.forget()
        except ConfideError as error:
            err.print(f"note: a copy stays in the {kept.form.value}: {error}", markup=False)
    out.print(f"the key is now kept in this form: {form.value}", markup=False)
    if form is Form.PASSPHRASE:
        out.print("it is locked; unlock it with: confide key unlock", markup=False)


@key_app.command("unlock")
def key_unlock(
    context: typer.Context,
    duration: Annotated[str, typer.Option("--for", help="How long, as in 30m, 8h or 2d; at most 7d.")] = "8h",
) -> None:
    """Ask for the passphrase (or read it from stdin), and let this user's sessions use the key for a while."""
    from confide_proxy import unlocked

    seconds = _seconds(duration)
    held = MachineKeys(_here(context).paths).held()
    sealed = [kept for kept in (held.current, held.following) if kept is not None and kept.form is Form.PASSPHRASE]
    if not sealed:
        err.print(f"there is nothing to unlock: the key is kept in this form: {held.current.form.value}", markup=False)
        return
    passphrase = _passphrase()
    until = time.time() + seconds
    for kept in sealed:  # two during a rotation, under one passphrase
        unlocked.keep(kept.open(passphrase), until)
    out.print(f"unlocked until {_clock(until)}; confide key lock ends it at once", markup=False)


@key_app.command("lock")
def key_lock(context: typer.Context) -> None:
    """Forget an unlocked key at once."""
    from confide_proxy import unlocked

    held = MachineKeys(_here(context).paths).held()
    kept = [each for each in (held.current, held.following) if each is not None]
    was = [unlocked.forget(each.public_key) for each in kept]
    if held.current.form is not Form.PASSPHRASE:
        err.print("note: this key has no passphrase; one is set with: confide key move passphrase", markup=False)
    out.print("locked" if any(was) else "it was not unlocked", markup=False)


@key_app.command("passphrase")
def key_passphrase(context: typer.Context) -> None:
    """Change the passphrase."""
    paths = _here(context).paths
    kept = identities.stored(paths.identity)
    if kept.form is not Form.PASSPHRASE:
        raise KeyChangeError("this key has no passphrase", hint="one is set with: confide key move passphrase")
    key = kept.open(_passphrase("the passphrase until now"))
    new = _new_passphrase()
    with exclusive(paths, wait_s=_LOCK_WAIT_S):
        _require_unchanged(paths, kept)
        identities.write(paths.identity, key, Form.PASSPHRASE, passphrase=new, replace=True)
    out.print("the passphrase is changed", markup=False)


@key_app.command("import")
def key_import(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(help="An unencrypted Ed25519 key as PKCS#8 PEM, or an identity file of confide.")
    ],
    as_json: AsJson = False,
) -> None:
    """Take a key that exists as this machine's. Never replaces one."""
    paths = _here(context).paths
    data = read_private_file(file)
    kept = identities.parse(file, data)
    if kept.form is Form.KEYRING:
        raise KeyFileError(
            file,
            "only names an entry of a keyring",
            hint="where that keyring is: confide key move file, then copy the file",
        )
    with exclusive(paths, wait_s=_LOCK_WAIT_S):
        for path in (paths.identity, paths.next_identity):
            if path.exists() or path.is_symlink():
                raise _taken(path)
        try:
            # A sealed one stays sealed; everything else becomes the one form that is written here.
            write_private_file(paths.identity, data if kept.identity is None else kept.identity.to_file())
        except FileExistsError:  # a session has made one meanwhile
            raise _taken(paths.identity) from None
    words = fingerprint_words(kept.public_key)
    if as_json:
        line = format_public_key(kept.public_key, socket.gethostname())
        print_json({"publicKey": line, "words": words, "kept": kept.form.value, "file": str(paths.identity)})
        return
    out.print(f"this machine is now {words}", markup=False)
    out.print(f"{file} is still there, and holds the same secret: delete it where it is not needed", markup=False)


@key_app.command("rotate")
def key_rotate(context: typer.Context, as_json: AsJson = False) -> None:
    """Make a new key for this machine, and have the daemon take it in place of the old one."""
    from confide_proxy import key_rotation

    here = _here(context)
    is_sealed = identities.stored(here.paths.identity).form is Form.PASSPHRASE
    passphrase = _passphrase() if is_sealed else None
    old, new = asyncio.run(key_rotation.rotate(here.paths, here.config, passphrase=passphrase))
    if as_json:
        names = socket.gethostname()
        print_json(
            {
                side: {"publicKey": format_public_key(key, names), "words": fingerprint_words(key)}
                for side, key in (("old", old), ("new", new))
            }
        )
        return
    out.print(f"old key: {fingerprint_words(old)}  (it opens nothing any more)", markup=False)
    out.print(f"new key: {fingerprint_words(new)}", markup=False)


def _taken(path: Path) -> KeyChangeError:
    return KeyChangeError(
        f"this machine has a key already, in {path}",
        hint=f"confide key show tells which; to use another one, move it away first: mv {path} {path}.old",
    )


def _require_unchanged(paths: Paths, kept: Stored) -> None:
    held = MachineKeys(paths).held()
    if held.following is not None:
        raise KeyChangeError("a rotation of this key is not finished", hint="confide status finishes it")
    if held.current != kept:
        raise KeyChangeError("the key was changed meanwhile", hint="try again")


def _unlocked_until(kept: Stored) -> float | None:
    if kept.form is not Form.PASSPHRASE:
        return None
    from confide_proxy import unlocked

    found = unlocked.find(kept.public_key)
    return found.until if found else None


def _passphrase(prompt: str = "passphrase") -> str:
    """Asked for at the terminal, or the next line of stdin. Never an argument or a variable, which others could see."""
    try:
        typed = getpass.getpass(f"{prompt}: ") if sys.stdin.isatty() else sys.stdin.readline(_MOST_TYPED).rstrip("\r\n")
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


def _seconds(duration: str) -> float:
    from confide_proxy import unlocked

    match = re.fullmatch(r"(\d{1,6})([mhd])", duration.strip())
    seconds = int(match[1]) * {"m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0
    if not 0 < seconds <= unlocked.LONGEST_S:
        raise typer.BadParameter("a time looks like 30m, 8h or 2d, and is at most 7d", param_hint="--for")
    return float(seconds)


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _here(context: typer.Context) -> Here:
    here: Here = context.obj
    return here
