"""Whether a value behind a telling name is a credential, by its looks and by how it was put there."""

from __future__ import annotations

from typing import Final, NamedTuple

from confide_proxy.sealing.detection.entropy import is_random, is_wordy
from confide_proxy.sealing.detection.false_positives import is_placeholder
from confide_proxy.sealing.detection.finding import compiled
from confide_proxy.sealing.detection.key_names import PASSWORDS, Demand, Promise

_IDENTIFIER: Final = r"^[A-Za-z_$@][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*[?!]?$"
_NUMBERED_VARIABLE: Final = (
    r"^(?:[a-z]{0,20}(?:pass|pwd|pw|token|key|secret|value|val|arg|var|str|tmp|temp|match|group|opt|user|name|type|test"
    r"|int|uint|utf|sha|md|rsa|aes)[a-z]{0,20})\d{1,3}$"
)
_ADDRESS: Final = r"https?://|^[a-zA-Z][\w+.-]{1,20}://|^[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{2,64}$|^www\."
_PATH: Final = r"^(?:~?/|\.{1,2}/|[A-Za-z]:\\)[\w.@ /\\-]{1,200}$"
_UUID: Final = r"^\{?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\}?$"
_HEX: Final = r"^[0-9a-fA-F]+$"
_FORTY_CHARS: Final = r"^[A-Za-z0-9/+]{40}$"
_WORDS_AND_NUMBER: Final = r"^(?:[A-Z][a-z]{3,}[-_.]){1,4}(?:[A-Za-z]{3,}[-_.]){0,3}\d{1,4}$"
_TECHNICAL: Final = (
    r"^(?:[\d.,:/-]{1,40}|0x[0-9a-f]{1,16}|v?\d+(?:\.\d+)+|(?:utf|sha|md|hs|rs|es|ps|base|aes|rsa|ed|pbkdf|bcrypt|oauth|http|ipv|int|uint"
    r"|float|str|i|u|f|p|h)-?_?\d{1,5}\w{0,4})$"
)
"""Numbers, dates, versions, names of types and algorithms. Passwords of digits alone are lost with them."""
_CONTINUED: Final = r"^[A-Za-z_]\w*[=(\[]|\]\(|^[(\[]"
"""An argument, a call, a link of markdown."""
_NAMING: Final = ("password", "passwd", "psk", "apikey", "api_key", "secret", "token", "credential")
"""In an identifier they say that it is the name of such a thing: `HTTPPasswordMgr`."""
_MARKS: Final = frozenset("!@#$%^&*?~+=")
_JOINTS: Final = frozenset("_-./:|")
MAX_PASSWORD_CHARS: Final = 128


class Context(NamedTuple):
    """How a value was put there.

    Attributes:
        how: the kind of operator: `sign` (= and :), `spoken` ("is"), `said` (nothing but a blank, or "as the"), `xml`, `attribute`, `pair`
            (of a name and a value), `call` or `option`.
        is_quoted: in quotes.
        is_line: on a line of its own without quotes, as in env files and YAML.
    """

    how: str
    is_quoted: bool
    is_line: bool


def judged(value: str, name: str, promise: Promise, context: Context) -> tuple[str, float] | None:
    """Its kind and how sure that is; None where it is no credential."""
    if len(value) < 5 or any(c.isspace() for c in value) or is_placeholder(value) or _is_name(value, name):
        return None
    if context.how in ("said", "spoken", "pair") and _is_talk(value, name):
        return None
    if name in ("PASS", "Pass") and context.how != "option":
        return None  # "--- PASS: TestUpload/big#01"
    if compiled(_ADDRESS).search(value) or (compiled(_PATH).search(value) and not is_random(value, 24)):
        return None
    if not context.is_quoted and compiled(_IDENTIFIER).search(value) and not _is_chosen(value, promise, context):
        return None
    if promise.kind == "secret-key" and _is_aws(value, name):
        return "aws-secret-key", 0.95
    if compiled(_UUID).search(value):
        return None if promise.demand is Demand.PASSWORD else (promise.kind, 0.6)
    if promise.demand is Demand.LONG:
        return (promise.kind, promise.confidence) if is_random(value.rstrip("="), 32) else None
    # Sixteen hex digits are a short hash more often than a key.
    is_machine_made = is_random(value.rstrip("="), 20 if compiled(_HEX).search(value) else 16)
    if promise.demand is Demand.RANDOM:
        return _random(value, promise, context, is_machine_made=is_machine_made)
    if not is_machine_made and not _is_password(value, context):
        return None
    if promise.kind == "secret":
        return "secret", promise.confidence if is_machine_made else 0.6
    return promise.kind, 0.8 if context.is_quoted or context.is_line else 0.75


def is_unmistakable(value: str) -> bool:
    """Whether the same value elsewhere can hardly be anything else: made by chance, or with digits and signs in it."""
    return is_random(value, 16) or _is_mixed(value) or (any(c.isdigit() for c in value) and bool(_signs(value)))


def _is_talk(value: str, name: str) -> bool:
    """Whether a sentence goes on: "pass `mode=2`", "the password \\r\\n" of a protocol."""
    return name.lower() == "pass" or "\\" in value or compiled(_CONTINUED).search(value) is not None


def _is_name(value: str, name: str) -> bool:
    """Whether it only says again what it is: `password: "Passwort2"`."""
    lowered = value.lower()
    is_identifier = compiled(_IDENTIFIER).search(value) is not None
    if is_identifier and any(word in lowered for word in _NAMING):
        return True
    return lowered == name.lower() or lowered.rstrip("0123456789!?") in PASSWORDS


def _random(value: str, promise: Promise, context: Context, *, is_machine_made: bool) -> tuple[str, float] | None:
    if is_machine_made:
        is_sure = context.how not in ("call", "spoken", "said") and len(value) >= 20
        return promise.kind, 0.8 if is_sure else 0.75
    # The keys of web frameworks are often typed, or begin with a word: `django-insecure-…`.
    is_typed = promise.kind == "secret-key" and len(value) >= 12 and _signs(value) and _is_password(value, context)
    return (promise.kind, 0.75) if is_typed else None


def _is_aws(value: str, name: str) -> bool:
    squeezed = name.lower().replace("_", "").replace("-", "")
    is_named = "aws" in squeezed or "secretaccesskey" in squeezed
    return is_named and compiled(_FORTY_CHARS).search(value) is not None and not compiled(_HEX).search(value)


def _is_chosen(value: str, promise: Promise, context: Context) -> bool:
    """Whether what could be a variable's name is rather a credential."""
    has_digit = any(c.isdigit() for c in value)
    if is_random(value, 16):
        return has_digit  # of random names of 24 characters one in a hundred has none; names of code have none mostly
    if promise.demand is not Demand.PASSWORD:
        return False
    is_stated = context.is_line or context.how in ("option", "xml", "spoken", "pair", "said")
    if promise.kind == "password" and (is_stated or has_digit) and _is_mixed(value):
        return True
    if context.how == "said":
        return False
    is_variable = not has_digit or "_" in value or "." in value or compiled(_NUMBERED_VARIABLE).search(value.lower())
    return is_stated and not is_variable


def _is_password(value: str, context: Context) -> bool:
    """Whether a person may have thought it out: letters with digits or signs among them, and no name of a thing."""
    if len(value) > MAX_PASSWORD_CHARS or compiled(_TECHNICAL).search(value.lower()):
        return False
    if not any(c.isalpha() for c in value):
        return False
    has_digit = any(c.isdigit() for c in value)
    inside = _MARKS & set(value[1:-1])
    is_cased = not value.islower() and not value.isupper()
    is_odd = has_digit or (inside and is_cased) or _is_mixed(value)
    if context.how in ("call", "spoken", "said") and (len(value) < 8 or not is_odd):
        return False
    if (
        context.how == "said"
        and not context.is_quoted
        and not ((has_digit and _is_mixed(value)) or (has_digit and _signs(value) and is_cased and len(value) >= 8))
    ):
        return False
    if has_digit:
        # `user_password_1`, `oauth2-token`, `v1/secrets`: words that are joined name a thing.
        is_name = _JOINTS & set(value) and is_wordy(value) and not compiled(_WORDS_AND_NUMBER).search(value)
        return bool(_signs(value)) or not is_name
    # A word with a mark behind it is said, not chosen: "Required!".
    return (bool(inside) and len(value) >= 7 and (is_cased or len(_signs(value)) > 1)) or _is_mixed(value)


def _is_mixed(value: str) -> bool:
    """Whether letters of both cases, perhaps with digits, follow one another without making words or names."""
    value = value.replace("_", "").replace("-", "")
    uppers, lowers = sum(c.isupper() for c in value), sum(c.islower() for c in value)
    digits = sum(c.isdigit() for c in value)
    if is_wordy(value) or uppers + lowers + digits < len(value):
        return False
    return len(value) >= (8 if digits else 12) and min(uppers, lowers) >= (2 if digits else 4)


def _signs(value: str) -> set[str]:
    """Its characters that neither words nor the names of things have."""
    return {c for c in value if c.isascii() and not c.isalnum() and c not in _JOINTS}
