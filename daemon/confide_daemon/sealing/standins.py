"""What stands in a text in place of what was sealed or redacted on a machine (PROTOCOL.md 10.4); the daemon can open none of it."""

from __future__ import annotations

from confide_crypto.sealing.placeholders import STANDIN


def only(text: str) -> bool:
    """Whether a text consists of them and blanks alone."""
    return not STANDIN.sub("", text).strip()


def in_order(text: str) -> tuple[str, ...]:
    """Those in a text."""
    return tuple(STANDIN.findall(text))


def warnings(text: str) -> list[str]:
    """What whoever had this stored may not know: a credential that was given in clear stands in it no more."""
    found = set(in_order(text))
    sealed = sum(one.startswith("(sealed:") for one in found)
    redacted = len(found) - sealed
    said = []
    if sealed:
        places = "its placeholder" if sealed == 1 else "their placeholders"
        said.append(f"{_values(sealed)} sealed; the file has {places}, for secret_get or confide secrets show to open")
    if redacted:
        said.append(f"{_values(redacted)} redacted, and left the machine in no form")
    return said


def _values(count: int) -> str:
    return "one value is" if count == 1 else f"{count} values are"


def is_sealed_from(after: str, before: str) -> bool:
    """Whether `after` is `before` with stand-ins in the places of some of its parts, and is the same in all others."""
    first, *others = STANDIN.split(after)
    if not others:
        return after == before
    *between, last = others
    if not before.startswith(first):
        return False
    at = len(first)
    for part in between:
        # The first place is as good as any later one: it leaves the most for those that follow.
        found = before.find(part, at + 1)
        if found < 0:
            return False
        at = found + len(part)
    return before.endswith(last) and len(before) - len(last) > at
