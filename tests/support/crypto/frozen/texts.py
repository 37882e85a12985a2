"""Keys, pins, fingerprints and invites in the forms that people pass on (PROTOCOL.md 2.3, 2.4, 5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.crypto.frozen.fixed import CLIENT, DAEMON, OTHER, TOKEN, Case

from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.bech32m import encode
from confide_crypto.keys.identity import fingerprint_words, format_daemon_key, format_public_key

_KEY = encode("confide", CLIENT.public_key)
_PIN = format_daemon_key(DAEMON.static_key)
_PAYLOAD = bytes([1]) + DAEMON.static_key + TOKEN
_TAIL = encode("invite", _PAYLOAD)


def keys() -> Iterator[Case]:
    """Key lines, pins, fingerprints."""
    hexed = CLIENT.public_key.hex()
    line = format_public_key(CLIENT.public_key, "laptop")
    for name, text, spoken in (
        ("key line", line, "laptop"),
        ("key line without a name", f"confide-ed25519 {_KEY}", ""),
        ("key line with a name of two words", f"{line} at home", "laptop at home"),
        ("key line with a name of 64 characters", f"confide-ed25519 {_KEY} {'n' * 64}", "n" * 64),
        ("key line in capitals", f"confide-ed25519 {_KEY.upper()} laptop", "laptop"),
        ("key line with white space around", f"  {line}\r\n", "laptop"),
    ):
        yield {
            "name": name,
            "section": "2.3",
            "reads": "key line",
            "text": text,
            "key": hexed,
            "is": spoken,
            "error": None,
        }
    for name, text in (
        ("no line", ""),
        ("key line of ssh", line.replace("confide-ed25519", "ssh-ed25519")),
        ("key line without a key", "confide-ed25519"),
        ("key line with a changed character", line.replace(_KEY[30], "q" if _KEY[30] != "q" else "p", 1)),
        ("key line cut short", f"confide-ed25519 {_KEY[:-1]}"),
        ("key line in mixed letters", f"confide-ed25519 {_KEY[:20] + _KEY[20:].upper()}"),
        ("key line with a pin", f"confide-ed25519 {_PIN}"),
        ("key line of 31 bytes", f"confide-ed25519 {encode('confide', bytes(31))}"),
        ("key line of 33 bytes", f"confide-ed25519 {encode('confide', bytes(33))}"),
        ("key line with a name of 65 characters", f"confide-ed25519 {_KEY} {'n' * 65}"),
        ("key line with an escape in its name", f"{line}\x1b[2J"),
        ("key line in Bech32, not Bech32m", "confide-ed25519 a12uel5l"),
    ):
        yield {"name": name, "section": "2.3", "reads": "key line", "text": text, "error": "KeyTextError"}
    for name, text in (("pin", _PIN), ("pin in capitals", _PIN.upper()), ("pin with white space around", f" {_PIN}\n")):
        yield {
            "name": name,
            "section": "2.3",
            "reads": "pin",
            "text": text,
            "key": DAEMON.static_key.hex(),
            "error": None,
        }
    for name, text in (
        ("no pin", ""),
        ("pin with a changed character", _PIN[:-1] + ("q" if _PIN[-1] != "q" else "p")),
        ("pin that is a public key", _KEY),
        ("pin of 31 bytes", encode("confided", bytes(31))),
        ("pin with something behind", f"{_PIN} host"),
        ("pin over 1023 characters", encode("confided", bytes(700))),
    ):
        yield {"name": name, "section": "2.3", "reads": "pin", "text": text, "error": "KeyTextError"}
    for name, key in (
        ("fingerprint of the client", CLIENT.public_key),
        ("fingerprint of the daemon", DAEMON.public_key),
        ("fingerprint of another", OTHER.public_key),
        ("fingerprint of zeros", bytes(32)),
        ("fingerprint of ones", b"\xff" * 32),
    ):
        words = fingerprint_words(key)
        yield {"name": name, "section": "2.4", "reads": "fingerprint", "key": key.hex(), "is": words, "error": None}


def invites() -> Iterator[Case]:
    """Addresses of every form, and what is no invite."""
    for name, address in (
        ("plain", "confide://notes.example:7733/"),
        ("without a port", "confide://notes.example/"),
        ("without a slash", "confide://notes.example"),
        ("with tls", "confides://notes.example:443/memory/"),
        ("as ws", "ws://10.0.0.1:1234/"),
        ("as wss", "wss://notes.example/a/b"),
        ("ipv6", "confide://[2001:db8::1]:9/"),
        ("host in capitals", "confide://Notes.EXAMPLE:7733/"),
        ("greatest port", "confide://h:65535/"),
    ):
        yield _good(name, f"{address}#{_TAIL}")
    yield _good("in quotes", f"'confide://h:7733/#{_TAIL}'")
    yield _good("in capitals", f"confide://h:7733/#{_TAIL.upper()}")
    yield _good("of another token", "confide://h:7733/#" + encode("invite", _PAYLOAD[:33] + bytes(16)))
    other = "q" if _TAIL[40] != "q" else "p"
    for name, text in (
        ("nothing", ""),
        ("no fragment", "confide://h:7733/"),
        ("empty fragment", "confide://h:7733/#"),
        ("changed character", f"confide://h:7733/#{_TAIL[:40]}{other}{_TAIL[41:]}"),
        ("swapped characters", f"confide://h:7733/#{_TAIL[:50]}{_TAIL[51]}{_TAIL[50]}{_TAIL[52:]}"),
        ("last character missing", f"confide://h:7733/#{_TAIL[:-1]}"),
        ("one character more", f"confide://h:7733/#{_TAIL}q"),
        ("mixed letters", f"confide://h:7733/#{_TAIL[:30]}{_TAIL[30:].upper()}"),
        ("another prefix", "confide://h:7733/#" + encode("confide", _PAYLOAD)),
        ("no payload", "confide://h:7733/#" + encode("invite", b"")),
        ("version 0", "confide://h:7733/#" + encode("invite", b"\0" + _PAYLOAD[1:])),
        ("version 2", "confide://h:7733/#" + encode("invite", b"\2" + _PAYLOAD[1:])),
        ("one byte short", "confide://h:7733/#" + encode("invite", _PAYLOAD[:-1])),
        ("one byte long", "confide://h:7733/#" + encode("invite", _PAYLOAD + b"\0")),
        ("reserved length, with a pair secret", "confide://h:7733/#" + encode("invite", _PAYLOAD + bytes(16))),
        ("another scheme", f"https://h:7733/#{_TAIL}"),
        ("no host", f"confide:///#{_TAIL}"),
        ("a user", f"confide://user@h:7733/#{_TAIL}"),
        ("a query", f"confide://h:7733/?a=b#{_TAIL}"),
        ("port 65536", f"confide://h:65536/#{_TAIL}"),
        ("a port of letters", f"confide://h:x/#{_TAIL}"),
        ("a space in the address", f"confide://h /#{_TAIL}"),
        ("an escape in the address", f"confide://h/\x1b[2J#{_TAIL}"),
        ("a letter beyond ASCII in the address", f"confide://hö/#{_TAIL}"),
    ):
        yield {"name": name, "section": "5.1", "text": text, "error": "InviteError"}


def _good(name: str, text: str) -> Case:
    read = Invite.parse(text)
    return {
        "name": name,
        "section": "5.1",
        "text": text,
        "host": read.host,
        "port": read.port,
        "tls": read.is_secure,
        "websocket_url": read.websocket_url,
        "written": read.to_string(),
        "daemon_static": read.daemon_static.hex(),
        "token": read.token.hex(),
        "invite_id": read.invite_id.hex(),
        "invite_psk": read.invite_psk.hex(),
        "error": None,
    }
