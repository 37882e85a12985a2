"""What stands where a credential would stand, and is none: templates, examples, names of variables, published defaults."""

from __future__ import annotations

import re
from typing import Final

from confide_proxy.sealing.detection.finding import compiled

_PUBLISHED: Final = """
admin administrator changeme changeit change_me default demo dummy empty example fake false foo foobar guest hidden letmein
mypassword mysecret mytoken n/a nil nobody none null nope openssl optional pass passphrase passw0rd password password1
password123 passwd postgres private pwd qwerty redacted required root s3cr3t s3cret sample secret secret123 secretpassword
string supersecret test test123 test1234 testing tbd todo token toor true undefined unknown unset user username value xyzzy
yes abc123 p@ssw0rd p@ssword p4ssw0rd pa55w0rd pa$$word minioadmin mysql redis rabbitmq
"""
_DEFAULTS: Final = frozenset(_PUBLISHED.split())
"""Published everywhere, so that hiding them protects nothing; and words that only name what would stand there."""
_MARKERS: Final = (
    r"example|sample|placeholder|changeme|change[_-]me|redacted|removed|masked|censored|dummy|(?<![a-z])fake|notreal|not[_-]a[_-]?real"
    r"|your|(?<![a-z])my[_-]|insert|replace|goes[_-]?here|(?<![a-z])here(?![a-z])|xxxx|\*\*\*|\.\.\.|…|•••|-----|_____|####"
    r"|(?<![a-z])(?:test|mock|stub|bogus|invalid|wrong|secret|password|foo|bar|some|any|todo)(?:[_-]|$)"
)
_STRICT: Final = r"example|placeholder|redacted|your[_-]|xxxxx|\*\*\*|\.\.\.|…"
"""In a token of a known form: what chance does not write."""
_TEMPLATE: Final = (
    r"^[<\[{(].*[>\]})]$|^%.*%$|^@.+@$|^__.+__$|\$\{|\{\{|\$\(|%\(|<%|\{\w*\}|^\$[A-Za-z_]|^\$\d$|^%[sdrvq]$|^#\{|^&[A-Za-z]|^![A-Za-z][\w:]*$|^\*+$"
    r"|process\.env|os\.environ|getenv|\benv[.\[:(]|import\.meta|secrets?\.|vault[:.]|^arn:|^op://|^ref\+|^sops|^ENC\[|^sm://|^ssm:"
)
_SEQUENCES: Final = (
    *("0123456789", "1234567890", "123456789", "12345678", "987654321"),
    *("abcdefgh", "zyxwvut", "qwertyui", "deadbeef"),
)


def is_template(value: str) -> bool:
    """Whether something else is put in its place later: `${VAR}`, `<your token>`, `{{ name }}`, `%s`, `$VAR`."""
    return compiled(_TEMPLATE, re.IGNORECASE).search(value) is not None


def is_placeholder(value: str) -> bool:
    """Whether it is a template, an example, a published default, or one character again and again."""
    lowered = value.lower()
    return (
        lowered.strip("!.?") in _DEFAULTS
        or _is_monotonous(lowered)
        or is_template(value)
        or compiled(_MARKERS, re.IGNORECASE).search(lowered) is not None
    )


def is_sample(value: str) -> bool:
    """The same of a token whose form alone says what it is: only what chance does not write makes it a sample."""
    lowered = value.lower()
    return _is_monotonous(lowered) or compiled(_STRICT, re.IGNORECASE).search(lowered) is not None


def _is_monotonous(lowered: str) -> bool:
    kinds = len(set(lowered))
    return kinds <= 3 or (len(lowered) >= 20 and kinds <= 6) or any(each in lowered for each in _SEQUENCES)
