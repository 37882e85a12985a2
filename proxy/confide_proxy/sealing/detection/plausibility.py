"""Check if a value is really a credential, by its form and its context.

The checks separate random strings and chosen passwords from words, templates, examples, variable
names and published defaults. Random strings without any context are the least certain findings:
they are reported and, by default, never acted upon. Nothing is cached, since a cache would contain
values.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from confide_proxy.sealing.detection import wallets
from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.key_names import PASSWORDS, Demand, Promise
from confide_proxy.sealing.detection.prefilter import compile_once

_IDENTIFIER: Final = r"^[A-Za-z_$@][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*[?!]?$"
_NUMBERED_VARIABLE: Final = (
    r"^(?:[a-z]{0,20}(?:pass|pwd|pw|token|key|secret|value|val|arg|var|str|tmp|temp|match|group|opt|user|name|type|test"
    r"|int|uint|utf|sha|md|rsa|aes)[a-z]{0,20})\d{1,3}$"
)
_HTTP: Final = r"https?://"
_ADDRESS: Final = (
    r"^[a-zA-Z][\w+.-]{1,20}://|^[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{2,64}$|^www\.|^unix:|^@[\w.-]{1,64}(?::\d{1,5})?/"
)
_PATH: Final = r"^(?:~?/|\.{1,2}/|[A-Za-z]:\\)[\w.@ /\\-]{1,200}(?:$|\.\w{2,4}[:?])"
"""A path alone, or with its suffix before further text: `/etc/ssl/server.pem:method=…`."""
_ENTRY_POINT: Final = r"^[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){1,8}:[A-Za-z_]\w{0,60}(?:\.\w{1,40})?$"
"""`package.module:Class`"""
_ON_A_CHAIN: Final = r"^(?:0[xX][0-9a-fA-F]{40}|(?:bc|tb|ltc|addr|cosmos|osmo)1[02-9ac-hj-np-z]{38,100})$"
"""A blockchain address of a contract or an account (with Bech32's prefix, BIP 173, or as Ethereum
writes it), which is public: `fromToken: '0x…'` names a token to trade and gives no access.
"""
_UUID: Final = r"^\{?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\}?$"
_HEX: Final = r"^[0-9a-fA-F]+$"
_FORTY_CHARS: Final = r"^[A-Za-z0-9/+]{40}$"
_WORDS_AND_NUMBER: Final = r"^(?:[A-Z][a-z]{3,}[-_.]){1,4}(?:[A-Za-z]{3,}[-_.]){0,3}\d{1,4}$"
_TECHNICAL: Final = (
    r"^(?:[\d.,:/-]{1,40}|0x[0-9a-f]{1,16}|v?\d+(?:\.\d+)+|(?:utf|sha|md|hs|rs|es|ps|base|aes|rsa|ed|pbkdf|bcrypt|oauth|http|ipv|int|uint"
    r"|float|str|i|u|f|p|h)-?_?\d{1,5}\w{0,4})$"
)
"""Numbers, dates, versions, names of types and algorithms. Passwords of digits alone are missed
because of it.
"""
_CONTINUED: Final = r"^[A-Za-z_]\w*[=(\[]|\]\(|^[(\[]"
"""An argument, a call, or a Markdown link."""
_NAMING: Final = ("password", "passwd", "psk", "apikey", "api_key", "secret", "token", "credential")
"""Words in an identifier that make it the name of a credential rather than a value:
`HTTPPasswordMgr`.
"""
_MARKS: Final = frozenset("!@#$%^&*?~+=")
_JOINTS: Final = frozenset("_-./:|")
MAX_PASSWORD_CHARS: Final = 128
_PAIRS: Final = """
se in re er th el on te de en or le at st he et es lf me al ar ti nt ne co an no nd ro tr li ur it ed ta ng ra am ec is na io fi
il tu ex ct ef ri pe ma pa rn od as ot ce si fo ss ea ac di la ve lo rt ge nc pr ca im un ns ad mp ou po om ha rr ue ll ul ch ls
op rs ut pt va mo cl to ai ts em ep ic ck pl rg oc us ke da os ee ho lu hi ty xt um wi su ob lt ap
"""
_FREQUENT: Final = frozenset(_PAIRS.split())
"""The most frequent letter pairs in English prose and in names of Python's standard library.

19 % of the pairs of random letters are in it, and 70 % of those of words and identifiers. A limit
of 50 % takes 1 % of random strings of 24 characters for words, and 4 % of identifiers for random
strings.
"""
_HEX_DIGITS: Final = frozenset("0123456789abcdef-_")
_WORDY: Final = 0.5
_FEWEST_PAIRS: Final = 3
_CHANGING: Final = 0.4
"""Share of characters whose class (upper case, lower case, digit) differs from the one before. In
random strings it is 6 in 10; in `newPassword2` 3 in 12.
"""
RANDOM_CONFIDENCE: Final = 0.4
_STRING: Final = (
    r"(?<![A-Za-z0-9+/=_.%-])(?=[A-Za-z0-9+/_-]{0,127}[0-9])[A-Za-z0-9+/_-]{24,128}+={0,2}(?![A-Za-z0-9+/=_-])"
)
_LEAST_BITS: Final = 4.0
"""Bits of entropy per character. Base64 carries up to 6, and 32 random characters of it show about
4.6; hex digits of hashes and ids show at most 4.
"""
_PUBLISHED: Final = """
admin administrator changeme changeit change_me default demo dummy empty example fake false foo foobar guest hidden letmein
mypassword mysecret mytoken n/a nil nobody none null nope openssl optional pass passphrase passw0rd password password1
password123 passwd postgres private pwd qwerty redacted required root s3cr3t s3cret sample secret secret123 secretpassword
string supersecret test test123 test1234 testing tbd todo token toor true undefined unknown unset user username value xyzzy
yes abc123 minioadmin mysql redis rabbitmq tiger hunter
"""
_DEFAULTS: Final = frozenset(_PUBLISHED.split())
"""Published default passwords, which hiding doesn't protect, and words that only describe a value.
"""
_VARIABLE: Final = r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_[A-Z]{0,6}(?:PASS|PASSWORD|PASSWD|PWD|SECRET|TOKEN|KEY)$"
"""A name in capitals that a guide uses for a value to fill in."""
_NUMBER: Final = r"[0-9]{1,3}$"
_DISGUISES: Final = str.maketrans("0134579@$!+", "oieastgasit")
"""Digits and punctuation that people use for letters."""
_DISGUISED: Final = (
    r"^(?:my|our|your|the|an?|is|no|not|very|super|strong|weak|long|awesome|secure|safe|good|bad|new|old|some|top|this|test|app|db"
    r"|user|root|admin|foo|bar|baz|qux|change|me|default|pass(?:word|phrase|code|wd)?|pwd|word|phrase|se[ck]r[ei]ts?|private"
    r"|key|token|mysql|rabbit|redis|postgres|mongo|demo|example|hunter|dont|do|use|in|production|only|for|[-_.])+$"
)
_LONGEST_SAID: Final = 48
_TELLING: Final = r"pass|se[ck]r[ei]t|private|foo|hunter|change|default"
_MARKERS: Final = (
    *(
        "example",
        "sample",
        "placeholder",
        "changeme",
        "change_me",
        "change-me",
        "redacted",
        "removed",
        "masked",
        "censored",
    ),
    *("dummy", "notreal", "your", "insert", "replace", "goeshere", "goes_here", "goes-here"),
    *("xxxx", "***", "...", "…", "•••", "-----", "_____", "####"),
)
"""Parts that mark a value as an example."""
_WORDS_OF_NONE: Final = (
    "test",
    "mock",
    "stub",
    "bogus",
    "invalid",
    "wrong",
    "secret",
    "password",
    "foo",
    "bar",
    "some",
    "any",
    "todo",
)
_NEAR_END: Final = 12
_MAY_MARK: Final = (
    *("my_", "my-", "not_a", "not-a"),
    *(word + joint for word in _WORDS_OF_NONE for joint in "_-"),
)
_MARKING: Final = (
    r"(?<![a-z])fake|not[_-]a[_-]?real|(?<![a-z])my[_-]|(?<![a-z])here(?![a-z])|(?<![a-z])(?:"
    + "|".join(_WORDS_OF_NONE)
    + r")(?:[_-]|$)"
)
"""Words that mark an example if they stand alone. Searched only if the value contains one of
`_MAY_MARK`, or ends with one of `_WORDS_OF_NONE`.
"""
_STRICT: Final = r"example|placeholder|redacted|your[_-]|xxxxx|\*\*\*|\.\.\.|…"
"""Marks of an example inside a token of a known form; random characters don't produce them."""
_TEMPLATE: Final = (
    r"[<\[{(].*[>\]})]$|%.*%$|@.+@$|__.+__$|['\"]?\$[A-Za-z_]|\$\d$|%[sdrvq]$|#\{|&[A-Za-z]|![A-Za-z][\w:]*$|\*+$"
    r"|arn:|op://|ref\+|sops|ENC\[|sm://|ssm:"
)
"""Templates and references, matched at the start of a value."""
_IN_TEMPLATE: Final = (
    r"\$\{|\{\{|\$\(|%\(|<%|\{\w*\}|:![A-Za-z][^:]{1,40}:!"
    r"|process\.env|os\.environ|getenv|\benv[.\[:(]|import\.meta|secrets?\.|vault[:.]"
)
"""Templates anywhere in a value. The expression is slow, so `_TEMPLATE_MARKS` are searched first.
"""
_TEMPLATE_MARKS: Final = (
    *(
        "{",
        "$(",
        "%(",
        "<%",
        ":!",
        "process.env",
        "os.environ",
        "getenv",
        "env.",
        "env[",
        "env:",
        "env(",
        "import.meta",
    ),
    *("secret.", "secrets.", "vault:", "vault."),
)
_SEQUENCES: Final = (
    *("0123456789", "1234567890", "123456789", "12345678", "987654321"),
    *("abcdefgh", "zyxwvut", "qwertyui", "deadbeef"),
)


class Context(NamedTuple):
    """How a value was written in the text.

    Attributes:
        how: the kind of operator before the value: `sign` (= and :), `spoken` ("is"), `said` (only
            a blank, or "as the"), `xml`, `attribute`, `pair` (of a name and a value), `call` or
            `option`.
        is_quoted: True if the value is in quotes.
        is_line: True if the assignment fills its line, without quotes, as in env files and YAML.
    """

    how: str
    is_quoted: bool
    is_line: bool


def _is_told(value: str, name: str, context: Context) -> bool:
    """Return True if a string is no value but prose, a name, a placeholder or a test result."""
    if len(value) < 5 or value.split() != [value] or is_placeholder(value) or _is_name(value, name):
        return True
    if context.how in ("said", "spoken", "pair") and _is_talk(value, name):
        return True
    return name in ("PASS", "Pass") and context.how != "option"  # "--- PASS: TestUpload/big#01"


def _is_place(value: str) -> bool:
    """Return True if the value is an address, a path or an entry point."""
    if "://" in value and compile_once(_HTTP).search(value):
        return True
    is_path = compile_once(_PATH).match(value) and not is_random(value, 24)
    return bool(compile_once(_ADDRESS).match(value) or is_path or compile_once(_ENTRY_POINT).match(value))


def _is_public(value: str, name: str, kind: str) -> bool:
    """Return True if a token or key is an address on a blockchain, which is public."""
    return (kind == "token" and bool(compile_once(_ON_A_CHAIN).match(value))) or wallets.is_address(value, name)


def judge_value(value: str, name: str, promise: Promise, context: Context) -> tuple[str, float] | None:
    """Return the kind and confidence of a value that follows `name`; None if it is no credential."""
    if _is_told(value, name, context) or _is_place(value):
        return None
    if len(value) > MAX_PASSWORD_CHARS and not is_random(value.rstrip("="), 16):
        return None  # no person chooses one this long
    if not context.is_quoted and compile_once(_IDENTIFIER).match(value) and not _is_chosen(value, promise, context):
        return None
    if promise.kind == "secret-key" and _is_aws(value, name):
        return "aws-secret-key", 0.95
    if promise.kind in ("token", "key") and _is_public(value, name, promise.kind):
        return None
    if compile_once(_UUID).match(value):
        return None if promise.demand is Demand.PASSWORD else (promise.kind, 0.6)
    if promise.demand is Demand.LONG:
        return (promise.kind, promise.confidence) if is_random(value.rstrip("="), 32) else None
    # Sixteen hex digits are a short hash more often than a key.
    is_machine_made = is_random(value.rstrip("="), 20 if compile_once(_HEX).match(value) else 16)
    if promise.demand is Demand.RANDOM:
        return _random(value, promise, context, is_machine_made=is_machine_made)
    if not is_machine_made and not _is_password(value, context):
        return None
    if promise.kind == "secret":
        return "secret", promise.confidence if is_machine_made else 0.6
    return promise.kind, 0.8 if context.is_quoted or context.is_line else 0.75


def is_unmistakable(value: str) -> bool:
    """Return True if a value is distinctive enough to be the same secret wherever it occurs:
    random, or mixed with digits and punctuation.
    """
    return is_random(value, 16) or _is_mixed(value) or (any(c.isdigit() for c in value) and bool(_signs(value)))


def _is_talk(value: str, name: str) -> bool:
    """Return True if a sentence continues: "pass `mode=2`", or "the password \\r\\n" in a protocol
    description.
    """
    return name.lower() == "pass" or "\\" in value or compile_once(_CONTINUED).search(value) is not None


def _is_name(value: str, name: str) -> bool:
    """Return True if the value only repeats its name: `password: "Passwort2"`."""
    lowered = value.lower()
    is_identifier = compile_once(_IDENTIFIER).match(value) is not None
    if is_identifier and any(word in lowered for word in _NAMING):
        return True
    return lowered == name.lower() or lowered.rstrip("0123456789!?*") in PASSWORDS


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
    return is_named and compile_once(_FORTY_CHARS).match(value) is not None and not compile_once(_HEX).match(value)


def _is_chosen(value: str, promise: Promise, context: Context) -> bool:
    """Return True if a value that could be a variable's name is more likely a credential."""
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
    is_variable = not has_digit or "_" in value or "." in value or compile_once(_NUMBERED_VARIABLE).match(value.lower())
    return is_stated and not is_variable


def _is_striking(value: str, *, is_cased: bool) -> bool:
    """Return True if a value stands out in a sentence: digits with mixed letters, or with
    punctuation and both cases.
    """
    has_digit = any(c.isdigit() for c in value)
    return has_digit and (_is_mixed(value) or (bool(_signs(value)) and is_cased and len(value) >= 8))


def _is_password(value: str, context: Context) -> bool:
    """Return True if a person may have chosen the value as a password: letters with digits or
    punctuation, and not the name of a thing.
    """
    if len(value) > MAX_PASSWORD_CHARS or compile_once(_TECHNICAL).match(value.lower()):
        return False
    if not any(c.isalpha() for c in value):
        return False
    has_digit = any(c.isdigit() for c in value)
    inside = _MARKS & set(value[1:-1])
    is_cased = not value.islower() and not value.isupper()
    is_odd = has_digit or (inside and is_cased) or _is_mixed(value)
    if context.how in ("call", "spoken", "said") and (len(value) < 8 or not is_odd):
        return False
    if context.how == "said" and not context.is_quoted and not _is_striking(value, is_cased=is_cased):
        return False
    if has_digit:
        # `user_password_1`, `oauth2-token`, `v1/secrets`: words that are joined name a thing.
        is_name = _JOINTS & set(value) and is_wordy(value) and not compile_once(_WORDS_AND_NUMBER).match(value)
        return bool(_signs(value)) or not is_name
    # A word with a mark behind it is said, not chosen: "Required!".
    return (bool(inside) and len(value) >= 7 and (is_cased or len(_signs(value)) > 1)) or _is_mixed(value)


def _is_mixed(value: str) -> bool:
    """Return True if letters of both cases, with or without digits, alternate without forming
    words.
    """
    value = value.replace("_", "").replace("-", "")
    uppers, lowers = sum(c.isupper() for c in value), sum(c.islower() for c in value)
    digits = sum(c.isdigit() for c in value)
    if is_wordy(value) or uppers + lowers + digits < len(value):
        return False
    return len(value) >= (8 if digits else 12) and min(uppers, lowers) >= (2 if digits else 4)


def _signs(value: str) -> set[str]:
    """Return the characters that neither words nor names of things contain."""
    return {c for c in value if c.isascii() and not c.isalnum() and c not in _JOINTS}


def entropy(value: str) -> float:
    """Return the Shannon entropy in bits per character."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values()) if size else 0.0


def is_wordy(value: str) -> bool:
    """Return True if a value reads like words: frequent letter pairs, and fewer changes of case and
    digits than in a random string.
    """
    classes = value.translate(_CLASSES) if value.isascii() else "".join(map(_class, value))
    # Two different characters cannot overlap with themselves, so these counts are exact.
    if sum(map(classes.count, _CHANGES)) >= _CHANGING * len(value):
        return False
    # Hex digits make no words, though "ed", "ea" and "ce" are frequent in those.
    if classes.count("0") * 5 >= len(value) and _HEX_DIGITS.issuperset(value.lower()):
        return False
    lowered = value.lower()
    letters = classes.lower() if value.isascii() else "".join("a" if c.isalpha() else "-" for c in lowered)
    runs = letters.count("-a") + letters.count("0a") + letters.startswith("a")
    pairs = letters.count("a") - runs
    frequent = sum(map(_FREQUENT.__contains__, map(operator.add, lowered, lowered[1:])))
    return pairs >= _FEWEST_PAIRS and frequent >= _WORDY * pairs


def _class(letter: str) -> str:
    return "A" if letter.isupper() else "a" if letter.islower() else "0" if letter.isdigit() else "-"


_CLASSES: Final = {code: _class(chr(code)) for code in range(128)}
_CHANGES: Final = ("Aa", "aA", "A0", "0A", "a0", "0a")


def _is_joined(value: str) -> bool:
    """Return True if the value is lower-case words and small numbers with hyphens between them:
    `quartz-saddle-v2`.
    """
    parts = value.replace("_", "-").replace(".", "-").split("-")
    return len(parts) > 1 and all(
        (len(part) >= 3 and part.isalpha() and part.islower()) or (len(part) <= 3 and part.lstrip("v").isdigit())
        for part in parts
    )


def is_random(value: str, least: int = 16) -> bool:
    """Return True if a value of at least `least` characters looks random: digits among letters, few
    repetitions, no words.

    Letters alone pass from 24 characters on.
    """
    size = len(value)
    if size < least or len(set(value)) < min(8, size // 2) or is_wordy(value) or _is_joined(value):
        return False
    letters = sum(c.isalpha() for c in value)
    digits = sum(c.isdigit() for c in value)
    if not digits:
        return letters >= 24 and entropy(value) >= 3.5
    return letters > 0 and digits + letters >= 0.7 * size and entropy(value) >= min(3.0, 0.75 * math.log2(size))


def find_random(text: str) -> Iterator[SecretFinding]:
    """Yield each string that looks random, except checksums, ids, paths and base64 data."""
    for match in compile_once(_STRING).finditer(text):
        value = match[0].rstrip("=")
        is_checksum = (
            text[max(0, match.start() - 7) : match.start()]
            .lower()
            .endswith(("sha256-", "sha384-", "sha512-", "sha1-", "base64,"))
        )
        if "/" in value and sum(c in "/-_" for c in value) * 6 > len(value):
            continue  # a path
        is_mixed = not value.islower() and not value.isupper()
        if (
            is_mixed
            and not is_checksum
            and not value.startswith("sha")
            and not compile_once(_ON_A_CHAIN).match(value)
            and is_random(value, 24)
            and entropy(value) >= _LEAST_BITS
            and not is_sample(value)
        ):
            yield SecretFinding("high-entropy", match.start(), match.end(), RANDOM_CONFIDENCE, "entropy")


def is_template(value: str) -> bool:
    """Return True if the value is filled in later: `${VAR}`, `<your token>`, `{{ name }}`, `%s`,
    `$VAR`.
    """
    if compile_once(_TEMPLATE, re.IGNORECASE).match(value):
        return True
    lowered = value.lower()
    may_be = not value.isascii() or any(mark in lowered for mark in _TEMPLATE_MARKS)
    return may_be and compile_once(_IN_TEMPLATE, re.IGNORECASE).search(value) is not None


def is_placeholder(value: str) -> bool:
    """Return True if the value is a template, an example, a published default, or a repeated
    character.
    """
    lowered = value.lower()
    return (
        _is_published(lowered.strip("!.?"))
        or compile_once(_VARIABLE).match(value) is not None
        or _is_monotonous(lowered)
        or is_template(value)
        or _is_marked(lowered)
    )


def _is_marked(lowered: str) -> bool:
    """Return True if a part of the value marks it as an example: `your-token`, `test_…`."""
    if any(mark in lowered for mark in _MARKERS):
        return True
    if lowered.endswith(_WORDS_OF_NONE) and compile_once(_MARKING).search(lowered, max(0, len(lowered) - _NEAR_END)):
        return True
    may_be = "fake" in lowered or "here" in lowered
    if not may_be and ("_" in lowered or "-" in lowered):
        may_be = any(mark in lowered for mark in _MAY_MARK)
    return may_be and compile_once(_MARKING).search(lowered) is not None


def _is_published(lowered: str) -> bool:
    """Return True for a published default, also with a small number after it, and for words that
    describe a password: `S3cr3t`, `MyStr0ngPa$$w0rd`.
    """
    bare = compile_once(_NUMBER).sub("", lowered) if lowered[-1:].isdigit() else lowered
    if lowered in _DEFAULTS or bare in _DEFAULTS:
        return True
    if len(lowered) > _LONGEST_SAID:
        return False
    for written in {lowered, bare}:
        letters = written.translate(_DISGUISES)
        if compile_once(_TELLING).search(letters) and compile_once(_DISGUISED).match(letters):
            return True
    return False


def is_sample(value: str) -> bool:
    """Return True if a token of a known form is an example: it has few different characters, or a
    mark that random characters don't produce.
    """
    lowered = value.lower()
    return _is_monotonous(lowered) or compile_once(_STRICT).search(lowered) is not None


def _is_monotonous(lowered: str) -> bool:
    kinds = len(set(lowered))
    return kinds <= 3 or (len(lowered) >= 20 and kinds <= 6) or any(each in lowered for each in _SEQUENCES)
