"""Values of sealed secrets for `confide run`, from a running agent session of this device, which
has its link and its keys open already.

The values come over the Unix socket of the hooks, encrypted with a key that derives from the seed
of this device's private key. A process without the seed gets nothing; one with the seed could open
the sealed records itself. So the session need not check who asks. Only `confide run` knows whether
a person or a rule allows the use.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt, crypto_aead_xchacha20poly1305_ietf_encrypt
from nacl.exceptions import CryptoError

from confide_crypto.sealing.placeholder import Placeholder

KIND: Final = "run"
"""The kind of these requests, beside those of hooks."""
MOST_REFERENCES: Final = 32
NONCE_BYTES: Final = 16
ANSWER_S: Final = 1.0
"""Time for the answer. Without one the asker makes a link of its own, which takes about as long."""
PAGE: Final = 80
"""Values of one page of all: with `LONGEST` bytes each they fit into an answer."""
LONGEST: Final = 256
PAGE_S: Final = 5.0
"""Time for a page. Without one the asker goes on as before (`run.run_masks`)."""
_KEY_PERSON: Final = b"confide-run-1"
_LABEL: Final = b"confide/run-values/1\0"
_CIPHER_NONCE: Final = 24


class SessionValues(NamedTuple):
    """Secrets as a session has opened them. The repr shows no value.

    Attributes:
        secrets: the secret that each requested reference names.
        values: the values, in the order of `secrets`.
        space: the id of their space, 16 bytes.
        first_key: the key of the space's first epoch, by which a device recognizes secret values
            that it has seen (`sealing.known_values`).
        following: for one page of all secrets: the id after which the next page begins; None for
            the last page.
    """

    secrets: Mapping[str, Placeholder]
    values: Sequence[bytes]
    space: bytes
    first_key: bytes
    following: str | None = None

    def __repr__(self) -> str:
        return f"SessionValues({len(self.values)})"


def request(references: Sequence[str], nonce: bytes, cwd: str) -> bytes:
    """Return the request, as one JSON line, for the values of some secrets.

    Args:
        nonce: `NONCE_BYTES` random bytes, which bind the answer to this request.
        cwd: the working folder of the command that uses them.
    """
    asked = {"kind": KIND, "cwd": cwd, "references": list(references), "nonce": b64encode(nonce).decode()}
    return json.dumps(asked).encode() + b"\n"


def page_request(after: str, nonce: bytes, cwd: str) -> bytes:
    """Return the request, as one JSON line, for a page of the values of all secrets.

    Args:
        after: the id after which the page begins, in hex; "" for the first page.
        nonce: `NONCE_BYTES` random bytes, which bind the answer to this request.
    """
    asked = {"kind": KIND, "cwd": cwd, "after": after, "nonce": b64encode(nonce).decode()}
    return json.dumps(asked).encode() + b"\n"


def time_for(asked: Mapping[str, object]) -> float:
    """Return how many seconds to wait for the answer to a request for values or for a page of them."""
    return PAGE_S if "after" in asked else ANSWER_S


def seal_values(found: SessionValues, seed: bytes, nonce: bytes) -> dict[str, object]:
    """Encrypt a session's answer with a key from this device's seed, so that only a holder of the
    seed can read it.
    """
    secrets = [
        [reference, one.kind, one.secret_id.hex(), b64encode(value).decode()]
        for (reference, one), value in zip(found.secrets.items(), found.values, strict=True)
    ]
    told = {
        "secrets": secrets,
        "space": found.space.hex(),
        "first": found.first_key.hex(),
        "following": found.following,
    }
    cipher_nonce = os.urandom(_CIPHER_NONCE)
    data = crypto_aead_xchacha20poly1305_ietf_encrypt(
        json.dumps(told).encode(), _LABEL + nonce, cipher_nonce, _key(seed)
    )
    return {"values": b64encode(cipher_nonce + data).decode()}


def open_values(answer: Mapping[str, Any], seed: bytes, nonce: bytes) -> SessionValues | None:
    """Decrypt a session's answer to the request with this nonce. Return None if it contains no
    values, or was not encrypted with this seed and nonce.
    """
    try:
        data = b64decode(answer.get("values", ""), validate=True)
        told = json.loads(
            crypto_aead_xchacha20poly1305_ietf_decrypt(
                data[_CIPHER_NONCE:], _LABEL + nonce, data[:_CIPHER_NONCE], _key(seed)
            )
        )
        rows = told["secrets"]
        secrets = {reference: Placeholder(kind, bytes.fromhex(digits)) for reference, kind, digits, _ in rows}
        values = [b64decode(value) for *_, value in rows]
        keys = bytes.fromhex(told["space"]), bytes.fromhex(told["first"])
        return SessionValues(secrets, values, *keys, told.get("following"))  # an older session has none
    except (CryptoError, ValueError, TypeError, KeyError):
        return None


def _key(seed: bytes) -> bytes:
    return hashlib.blake2b(key=seed, person=_KEY_PERSON, digest_size=32).digest()
