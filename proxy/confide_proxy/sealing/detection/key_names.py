"""Decide by the name before a value if the value may be a credential: `DB_PASSWORD` and
`clientSecret` name credentials, `token_type` and `public_key` don't.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from confide_proxy.sealing.detection.prefilter import compile_once


class Demand(Enum):
    """The form that a value after a name must have to count as a credential."""

    PASSWORD = "a person may have thought of it"  # noqa: S105
    RANDOM = "a device has made it by chance"
    LONG = "at least 32 characters made by chance"


@dataclass(frozen=True, slots=True)
class Promise:
    """The kind of credential that a name indicates, how likely it is (0 to 1), and the form that
    its value must have.
    """

    kind: str
    confidence: float
    demand: Demand


_PASSWORD: Final = Promise("password", 0.8, Demand.PASSWORD)
_API_KEY: Final = Promise("api-key", 0.8, Demand.RANDOM)
_TOKEN: Final = Promise("token", 0.75, Demand.RANDOM)
_CLIENT_SECRET: Final = Promise("secret-key", 0.8, Demand.RANDOM)
_SECRET: Final = Promise("secret", 0.65, Demand.PASSWORD)
_KEY: Final = Promise("key", 0.6, Demand.LONG)

_CALLED: Final = """
password passwd passphrase passcode pwd passw dbpass dbpassword dbpasswd pgpassword rootpassword adminpassword userpassword
smtppassword mysqlpwd contraseña contrasena passwort kennwort motdepasse senha wachtwoord
"""
PASSWORDS: Final = frozenset(_CALLED.split())
_SHORT: Final = frozenset({"pass", "pw"})
"""Names for passwords too, but only as the last word of a longer name or before `=`: "pass: 3 of 4"
holds none.
"""
_PASSED_ON: Final = frozenset({"fastcgi", "proxy", "uwsgi", "scgi", "grpc", "memcached"})
"""Words before `_pass` in nginx directives that forward requests, such as `fastcgi_pass`."""


def _each(words: str, promise: Promise) -> dict[str, Promise]:
    return dict.fromkeys(words.split(), promise)


_OF_WORDS: Final = {
    **_each("apikey apikeys appkey authkey accesskey accountkey licensekey servicekey subscriptionkey", _API_KEY),
    **_each("secretkey clientsecret appsecret apisecret secretaccesskey", _CLIENT_SECRET),
    **_each("privatekey encryptionkey masterkey psk", _CLIENT_SECRET),
    **_each("token authtoken accesstoken refreshtoken bearertoken apitoken pat jwt", _TOKEN),
    **_each("credential credentials", _SECRET),
}
_OF_KEYS: Final = {
    **_each("api auth access account app application subscription license service ingest write", _API_KEY),
    **_each("openai anthropic stripe github gitlab sendgrid twilio slack datadog mailgun gemini mistral", _API_KEY),
    **_each("secret private encryption master signing storage deploy preshared", _CLIENT_SECRET),
}
"""Kinds by the word before "key"."""
_OWNERS: Final = """
client app api consumer signing webhook oauth shared jwt session cookie token auth hmac application bot encryption
"""
_OF_SECRETS: Final = frozenset(_OWNERS.split())
_HARMLESS: Final = """
type url uri name names id ids field fields file files filename path paths dir count limit limits length len size expiry
expires expire expiration ttl policy hint label prompt prompts regex pattern patterns prefix suffix header headers endpoint
error errors message required reset min max num number total budget usage used hash hashed digest fingerprint algorithm alg
format class provider manager strength rule rules validator validation public pub cache primary foreign sort partition
object index map row column event routing idempotency input output button link page form text placeholder description title
help docs doc kind scope scopes version status created updated date time timestamp at age rotation history
storage_type ref reference arn env variable parser stream list array dict set enabled disabled needed confirm
confirmation mask masked visible show hide toggle is has no not without eos bos pad unk cls sep start end next prev previous
first last begin csrf xsrf checksum integrity sha sha1 sha256 md5 etag lookup ring board word words stroke frame val code
codes mode state level group keyid startswith endswith contains icontains istartswith iendswith iexact exact
"""
_NEUTRAL: Final = frozenset(_HARMLESS.split())
"""Words that make a name harmless: `token_url`, `password_hash`, `public_key`, `max_tokens`."""

_PARTS: Final = r"[A-Z]+(?![a-z])|[A-Z]?[a-zà-ÿ]+|\d+"


@lru_cache(maxsize=1024)
def promise_of(name: str) -> Promise | None:
    """Return the kind of credential that a name indicates, or None if it indicates none."""
    parts = [part.lower() for part in compile_once(_PARTS).findall(name)]
    if parts and parts[-1].isdigit():
        parts.pop()
    found = _of_parts(parts)
    if found is None or not found[1]:
        return found[0] if found else None
    begin, end = found[1]
    others = {*parts[int(parts[0] == "set") : begin], *parts[end:]}  # `setPassword("…")`
    return None if others & _NEUTRAL else found[0]


def _of_parts(parts: list[str]) -> tuple[Promise, tuple[int, int] | None] | None:
    """Return the promise of the last sensitive word of a name, and the range of parts that form
    that word.
    """
    for at in range(len(parts) - 1, -1, -1):
        part, before = parts[at], parts[at - 1] if at else ""
        span = (at, at + 1)
        wide = (at - 1, at + 1)
        if part in PASSWORDS or part.endswith(("password", "passwd", "passphrase")):
            return _PASSWORD, span
        if part == "word" and before == "pass":
            return _PASSWORD, wide
        if part in _SHORT and at == len(parts) - 1:
            return None if before in _PASSED_ON else (_PASSWORD, span)
        if part in _OF_WORDS:
            return _OF_WORDS[part], span
        if part in ("key", "keys") and before in _OF_KEYS:
            # `secret_access_key`, `aws_secret_key`: the word before counts too.
            is_secret = "secret" in parts[:at]
            return (_CLIENT_SECRET if is_secret else _OF_KEYS[before]), wide
        if part in ("secret", "secrets"):
            return (_CLIENT_SECRET, wide) if before in _OF_SECRETS else (_SECRET, span)
        if part == "key":
            return _KEY, span
    return None
