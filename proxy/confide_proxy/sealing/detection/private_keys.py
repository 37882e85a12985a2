"""Private keys as text: PEM (RFC 7468), OpenSSH, PGP (RFC 9580), PuTTY; also indented, in a diff, or escaped inside JSON.

The value is the whole block with its first and last line, for the lines between are of no use without them. A block that is cut off ends
where its lines stop looking like one. Lines alone, as code has them that reads such files, are no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confide_proxy.sealing.detection.finding import Finding, compiled

MAX_BLOCK_CHARS: Final = 64 * 1024
"""An RSA key of 16,384 bits has 12 KiB; a PGP key with its signatures a few times that."""
_FEWEST_BODY_CHARS: Final = 40
"""An Ed25519 key in PKCS #8 has 64."""
_BEGIN: Final = r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----"
_BODY: Final = (
    # Words have fewer than 16 letters; a last line that is shorter is told by its padding.
    # Line ends may be escaped, lines quoted, indented or marked by a diff; PEM and PGP have headers, as `Proc-Type: 4,ENCRYPTED`.
    r"(?:(?:\\+[nr]|\r?\n|[ \t]){1,40}+(?:[>+|#*-]{1,3}+(?=[ \t\w=/+])|[\"'][ \t]{0,4}\+?)?[ \t]{0,40}+[\"']?"
    r"(?:[A-Z][A-Za-z-]{2,30}: [^\r\n\\]{0,200}+|(?:[A-Za-z0-9+/=]{16,100}+|[A-Za-z0-9+/]{1,15}={1,2})[\"',\\]{0,2}+))+"
)
_NOT_BODY: Final = r"[A-Z][A-Za-z-]{2,30}: [^\r\n\\]*|\\+[nrt]|[^A-Za-z0-9+/=]"
_PUTTY: Final = "PuTTY-User-Key-File-"
_PUTTY_END: Final = r"[0-9a-f]{40,64}"


def find(text: str) -> Iterator[Finding]:
    """Every private key in the text."""
    if "PRIVATE KEY" in text:
        for match in compiled(_BEGIN).finditer(text):
            end = _end(text, match.end(), f"-----END {match[1]}-----")
            body = compiled(_NOT_BODY).sub("", text[match.end() : end])
            if len(body) >= _FEWEST_BODY_CHARS and len(set(body)) >= 12 and "..." not in text[match.end() : end]:
                yield Finding("private-key", match.start(), end, 0.95, "private-key", match[0])
    at = text.find(_PUTTY)
    while at >= 0:
        last = text.find("Private-MAC: ", at, at + MAX_BLOCK_CHARS)
        code = compiled(_PUTTY_END).match(text, last + len("Private-MAC: ")) if last >= 0 else None
        if code and text.count(_PUTTY, at, last) == 1 and "Private-Lines: " in text[at:last]:
            yield Finding("private-key", at, code.end(), 0.95, "private-key", _PUTTY)
        at = text.find(_PUTTY, at + 1)


def _end(text: str, begin: int, last: str) -> int:
    at = text.find(last, begin, begin + MAX_BLOCK_CHARS)
    if at >= 0 and "-----BEGIN" not in text[begin:at]:
        return at + len(last)
    cut = compiled(_BODY).match(text, begin, begin + MAX_BLOCK_CHARS)
    return cut.end() if cut else begin
