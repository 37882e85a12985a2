"""The text forms of all secrets that Confide itself creates (PROTOCOL.md 2.3, 5.1, 10.8), for code
that detects credentials.

Each form has a checksum, so ordinary text is never mistaken for a secret. A form that is missing
here would never be detected, so a test compares the list with every prefix that the code writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from confide_crypto.errors import RecoveryCodeError
from confide_crypto.handshake.invite import INVITE_PREFIX
from confide_crypto.keys import bech32m
from confide_crypto.keys.identity_file import SEALED_PREFIX, SEED_PREFIX
from confide_crypto.sealing.recovery_code import MARK, RecoveryCode


class SecretText(NamedTuple):
    """A text form of a secret.

    Attributes:
        kind: the kind of secret that a placeholder for it names (PROTOCOL.md 10.4).
        mark: its prefix in lower case; texts have it in upper or lower case.
        symbols: the valid numbers of letters and digits after the prefix.
        is_whole: a function that checks, by the checksum, if a text without blanks and hyphens is
            such a secret.
        is_grouped: True if users copy the secret from paper, in groups of characters.
    """

    kind: str
    mark: str
    symbols: tuple[int, ...]
    is_whole: Callable[[str], bool]
    is_grouped: bool = False


def _bech32m(kind: str, prefix: str, *lengths: int) -> SecretText:
    def is_whole(text: str) -> bool:
        try:
            found, data = bech32m.decode(text)
        except ValueError:
            return False
        return found == prefix and len(data) in lengths

    symbols = tuple(-(-8 * length // 5) + bech32m.CHECKSUM_LENGTH for length in lengths)
    return SecretText(kind, f"{prefix}1", symbols, is_whole)


def _is_recovery_code(text: str) -> bool:
    try:
        RecoveryCode.parse(text)
    except RecoveryCodeError:
        return False
    return True


SECRET_TEXTS: Final[tuple[SecretText, ...]] = (
    _bech32m("confide-key", SEED_PREFIX, 32),
    _bech32m("confide-key", SEALED_PREFIX, 129),
    _bech32m("confide-invite", INVITE_PREFIX, 49, 65),
    SecretText("confide-recovery-code", MARK.lower(), (38,), _is_recovery_code, is_grouped=True),
)
"""The forms. A sealed key is one too, since its passphrase can be guessed offline."""
