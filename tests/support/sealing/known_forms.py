"""Values that a space knows, and the forms in which they may be said again: made anew from a seed, for the tests and the measurement."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from urllib.parse import quote

from tests.support.sealing.secret_corpus import ALNUM, HEX, URL64, WORDS

SIGNS = ALNUM + "!#$%&*+,-./:;=?@^_~"


def value(chance: random.Random) -> str:
    """A credential as a manager of passwords or a person makes it: 8 to 40 characters, without blanks."""
    form = chance.randrange(5)
    if form == 0:
        return "".join(chance.choices(ALNUM, k=chance.randint(10, 24)))
    if form == 1:
        return "".join([*chance.choices(ALNUM, k=1), *chance.choices(SIGNS, k=chance.randint(10, 18)), "7q"])
    if form == 2:
        return f"{chance.choice(WORDS).title()}{chance.randint(1950, 2030)}{chance.choice('!#$%&*?')}"
    if form == 3:
        return f"{chance.choice(WORDS)}-{chance.randint(10, 99)}-{chance.choice(WORDS).title()}"
    return "".join(chance.choices(HEX if chance.random() < 0.5 else URL64, k=32)) + "a1"


def _plain(value: str, chance: random.Random) -> str:
    return chance.choice(["{}", '"{}"', "`{}`", "({})", "{}.", "admin / {}", "https://shop.test/?next=1&t={}"]).format(
        value
    )


def _base64(value: str, chance: random.Random) -> str:
    before, behind = chance.choice(
        [("", ""), ("admin:", ""), ('{"user": "shop", "word": "', '"}\n'), ("x" * chance.randint(1, 5) + " ", " ok")]
    )
    data = f"{before}{value}{behind}".encode()
    made = (base64.urlsafe_b64encode if chance.random() < 0.5 else base64.b64encode)(data).decode()
    return made.rstrip("=") if chance.random() < 0.5 else made


def _percent(value: str, chance: random.Random) -> str:
    if chance.random() < 0.5 and not value.isalnum():
        return quote(value, safe="")
    return "".join(f"%{byte:02X}" for byte in value.encode())


def _hex(value: str, chance: random.Random) -> str:
    digits = f"user={value};".encode().hex() if chance.random() < 0.3 else value.encode().hex()
    return chance.choice(["{}", "0x{}", "{}"]).format(digits.upper() if chance.random() < 0.5 else digits)


def _escapes(value: str, chance: random.Random) -> str:
    some = [f"\\u{ord(one):04x}" if chance.random() < 0.4 else json.dumps(one)[1:-1] for one in value]
    form = chance.randrange(3)
    if form == 0:
        return '{"note": "' + "".join(some) + '"}'
    return "".join(f"\\x{ord(one):02x}" for one in value) if form == 1 else "".join(f"&#{ord(one)};" for one in value)


def _invisible(value: str, chance: random.Random) -> str:
    at = sorted(chance.sample(range(1, len(value)), 2))
    sign = chance.choice("\u200b\u200c\u200d\u2060\u00ad\ufeff")
    return value[: at[0]] + sign + value[at[0] : at[1]] + sign + value[at[1] :]


def _wrapped(value: str, chance: random.Random) -> str:
    at = chance.randrange(1, len(value))
    return value[:at] + chance.choice(["\n", "\r\n", "\n    ", "\n> ", "\\\n  "]) + value[at:]


FORMS: dict[str, Callable[[str, random.Random], str]] = {
    "plain": _plain,
    "base64": _base64,
    "percent": _percent,
    "hex": _hex,
    "escapes": _escapes,
    "invisible characters": _invisible,
    "cut by a line end": _wrapped,
}
"""The five encodings, and the two ways of breaking a value in two."""
SAYINGS = ("rolled out with {} on friday", "{}", "Done:\n\n- {}\n- next week the rest\n")


def said_again(form: str, values: list[str], seed: int) -> Iterator[tuple[str, str]]:
    """(value, a text that says it in that form) of each."""
    chance = random.Random(f"{seed} {form}")
    for one in values:
        yield one, chance.choice(SAYINGS).replace("{}", FORMS[form](one, chance))
