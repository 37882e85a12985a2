"""Secrets that their form alone identifies: tokens with a prefix or mark of their issuer, private
keys, and signed JSON Web Tokens (RFC 7519).

A token is found by its mark, matched against its expression, and must look random. An expression is
compiled when its mark is first found, so a text without marks costs some substring searches and no
`re`. The forms are those that issuers document; lengths allow for growth where they have grown
before. Every expression has a bounded length.
"""

# ruff: noqa: E501 - one row for one token

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from confide_crypto.sealing.secret_texts import SECRET_TEXTS
from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.plausibility import is_random, is_sample, is_wordy
from confide_proxy.sealing.detection.prefilter import SHORTEST_TOKEN, compile_once, places

_W = r"[A-Za-z0-9]"
_U = r"[A-Za-z0-9_-]"
_H = r"[0-9a-f]"
MAX_BLOCK_CHARS: Final = 64 * 1024
"""Longest key block. An RSA key of 16,384 bits has 12 KiB; a PGP key with its signatures a few
times that.
"""
_FEWEST_BODY_CHARS: Final = 40
"""Shortest base64 body of a key. An Ed25519 key in PKCS #8 has 64 characters."""
_BEGIN: Final = r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----"
_BODY: Final = (
    # Words have fewer than 16 letters; a shorter last line is recognized by its padding.
    r"(?:(?:\\+[nr]|\r?\n|[ \t]){1,40}+(?:[>+|#*-]{1,3}+(?=[ \t\w=/+])|[\"'][ \t]{0,4}\+?)?[ \t]{0,40}+[\"']?"
    r"(?:[A-Z][A-Za-z-]{2,30}: [^\r\n\\]{0,200}+|(?:[A-Za-z0-9+/=]{16,100}+|[A-Za-z0-9+/]{1,15}={1,2})[\"',\\]{0,2}+))+"
)
_RUN_OF_KEY: Final = r"[A-Za-z0-9+/]{20,65536}+={0,2}"
_NOT_BODY: Final = r"[A-Z][A-Za-z-]{2,30}: [^\r\n\\]*|\\+[nrt]|[^A-Za-z0-9+/=]"
_PUTTY: Final = "PuTTY-User-Key-File-"
_PUTTY_END: Final = r"[0-9a-f]{40,64}"


class Prefixed(NamedTuple):
    """A kind of token that begins with one of `marks`; `rest` is the regular expression for what
    follows.
    """

    kind: str
    marks: tuple[str, ...]
    rest: str
    confidence: float = 0.95


class Marked(NamedTuple):
    """A kind of token that contains `mark`, `before` characters after its start. Group 1 of the
    regular expression, if it has one, is the value.
    """

    kind: str
    mark: str
    before: tuple[int, ...]
    expression: str
    confidence: float = 0.95


PREFIXED: Final[tuple[Prefixed, ...]] = (
    Prefixed("aws-access-key-id", ("AKIA", "ASIA", "ABIA", "ACCA"), r"[A-Z0-9]{16}"),
    Prefixed("aws-bedrock-key", ("ABSK",), r"[A-Za-z0-9+/]{109,269}={0,2}"),
    Prefixed("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_W}{{36,255}}"),
    Prefixed("github-token", ("github_pat_",), r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    Prefixed(
        "gitlab-token",
        (
            *("glpat-", "gldt-", "glrt-", "glrtr-", "glft-", "glsoat-", "glcbt-", "glptt-", "glagent-", "glimt-", "gloas-"),
            *("glffct-", "glwt-", "GR1348941"),
        ),
        r"[A-Za-z0-9_-]{20,300}(?:\.[0-9a-z]{2}\.[0-9a-z]{9}|\.[0-9a-z]{9})?",
    ),
    Prefixed("slack-token", ("xoxb-", "xoxp-", "xoxa-", "xoxo-", "xoxs-", "xoxr-"), r"[0-9A-Za-z-]{20,250}"),
    Prefixed("slack-token", ("xapp-",), r"\d-[A-Z0-9]{8,15}-\d{8,15}-[a-z0-9]{40,80}"),
    Prefixed("slack-token", ("xoxe.xox", "xoxe-"), r"[A-Za-z0-9-]{60,300}"),
    Prefixed("slack-token", ("xoxc-", "xoxd-"), r"[A-Za-z0-9%/+-]{40,400}"),
    Prefixed("slack-webhook", ("https://hooks.slack.com/",), r"(?:services|workflows|triggers)/[A-Za-z0-9]{8,14}/[A-Za-z0-9]{8,20}/[A-Za-z0-9]{20,48}"),
    Prefixed("stripe-key", ("sk_live_", "rk_live_", "sk_test_", "rk_test_"), rf"{_W}{{16,247}}"),
    Prefixed("stripe-key", ("whsec_",), r"[A-Za-z0-9+/]{24,64}={0,2}"),
    Prefixed("google-api-key", ("AIza",), rf"{_U}{{35}}"),
    Prefixed("google-oauth-token", ("ya29.",), r"[A-Za-z0-9_.-]{30,400}"),
    Prefixed("google-oauth-token", ("1//0",), rf"{_U}{{38,200}}"),
    Prefixed("google-oauth-secret", ("GOCSPX-",), rf"{_U}{{28}}"),
    Prefixed("npm-token", ("npm_",), rf"{_W}{{36}}"),
    Prefixed("confide-token", ("cfd_",), rf"{_U}{{43}}"),  # of `confide http serve`, our own
    Prefixed("pypi-token", ("pypi-AgEIcHlwaS5vcmc", "pypi-AgENdGVzdC5weXBpLm9yZw"), rf"{_U}{{50,500}}"),
    Prefixed("rubygems-token", ("rubygems_",), rf"{_H}{{48}}"),
    Prefixed("crates-token", ("cio",), rf"{_W}{{32}}"),
    Prefixed("nuget-key", ("oy2",), r"[a-z0-9]{43}"),
    Prefixed("docker-token", ("dckr_pat_", "dckr_oat_"), rf"{_U}{{27,64}}"),
    Prefixed("twilio-key", ("SK",), rf"{_H}{{32}}"),
    Prefixed("sendgrid-key", ("SG.",), rf"{_U}{{20,24}}\.{_U}{{39,50}}"),
    Prefixed("mailgun-key", ("key-",), rf"{_H}{{32}}"),
    Prefixed("brevo-key", ("xkeysib-", "xsmtpsib-"), rf"{_H}{{64}}-{_W}{{16}}"),
    Prefixed("anthropic-key", ("sk-ant-",), rf"(?:[a-z]{{2,8}}\d{{2}}-)?{_U}{{60,160}}"),
    Prefixed("openai-key", ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-"), rf"{_U}{{40,220}}"),
    Prefixed("openrouter-key", ("sk-or-v1-",), rf"{_H}{{64}}"),
    Prefixed("openai-key", ("sk-",), rf"(?:{_W}{{20}}T3BlbkFJ{_W}{{20}}|{_W}{{48}}|{_H}{{32}})"),
    Prefixed("huggingface-token", ("hf_",), r"[A-Za-z0-9]{30,40}"),
    Prefixed("huggingface-token", ("api_org_",), r"[A-Za-z]{34}"),
    Prefixed("groq-key", ("gsk_",), rf"{_W}{{48,56}}"),
    Prefixed("replicate-token", ("r8_",), rf"{_W}{{37}}"),
    Prefixed("perplexity-key", ("pplx-",), rf"{_W}{{40,56}}"),
    Prefixed("xai-key", ("xai-",), rf"{_W}{{70,90}}"),
    Prefixed("nvidia-key", ("nvapi-",), rf"{_U}{{60,70}}"),
    Prefixed("langsmith-key", ("lsv2_pt_", "lsv2_sk_"), rf"{_H}{{32}}_{_H}{{10}}"),
    Prefixed("pinecone-key", ("pcsk_",), r"[A-Za-z0-9_]{50,90}"),
    Prefixed("tavily-key", ("tvly-",), r"[A-Za-z0-9-]{28,60}"),
    Prefixed("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), rf"{_H}{{64}}"),
    Prefixed("shopify-token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9a-fA-F]{32}"),
    Prefixed("square-token", ("sq0atp-", "sq0csp-"), rf"{_U}{{22,50}}"),
    Prefixed("square-token", ("EAAA",), rf"{_U}{{60}}"),
    Prefixed("facebook-token", ("EAAC", "EAAB", "EAAE", "EAAF", "EAAG", "EAAJ", "EAAM"), rf"{_W}{{80,300}}"),
    Prefixed("vault-token", ("hvs.", "hvb.", "hvr."), rf"{_U}{{24,300}}"),
    Prefixed("atlassian-token", ("ATATT3", "ATBB", "ATCTT3", "ATOAT"), r"[A-Za-z0-9_=-]{24,300}"),
    Prefixed("linear-key", ("lin_api_", "lin_oauth_"), rf"{_W}{{40,64}}"),
    Prefixed("notion-token", ("ntn_",), rf"{_W}{{40,50}}"),
    Prefixed("figma-token", ("figd_",), rf"{_U}{{40,44}}"),
    Prefixed("postman-key", ("PMAK-",), rf"{_H}{{24}}-{_H}{{34}}"),
    Prefixed("new-relic-key", ("NRAK-", "NRIQ-", "NRII-"), r"[A-Za-z0-9_-]{27,32}"),
    Prefixed("sentry-token", ("sntrys_",), r"eyJ[A-Za-z0-9+/=_-]{60,400}"),
    Prefixed("sentry-token", ("sntryu_",), rf"{_H}{{64}}"),
    Prefixed("grafana-token", ("glsa_",), rf"{_W}{{32}}_[0-9A-Fa-f]{{8}}"),
    Prefixed("grafana-token", ("glc_",), r"[A-Za-z0-9+/]{32,400}={0,3}"),
    Prefixed("doppler-token", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), r"(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    Prefixed("databricks-token", ("dapi",), rf"{_H}{{32}}(?:-\d)?"),
    Prefixed("planetscale-token", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[A-Za-z0-9_.=-]{32,64}"),
    Prefixed("supabase-token", ("sbp_",), rf"{_H}{{40}}"),
    Prefixed("supabase-token", ("sb_secret_",), rf"{_U}{{20,64}}"),
    Prefixed("fly-token", ("fo1_",), rf"{_U}{{43}}"),
    Prefixed("fly-token", ("fm1_", "fm2_", "fm1a_", "fm1r_"), r"[A-Za-z0-9+/]{100,900}={0,3}"),
    Prefixed("netlify-token", ("nfp_", "nfc_"), rf"{_W}{{36,60}}"),
    Prefixed("heroku-key", ("HRKU-AA",), rf"{_U}{{58}}"),
    Prefixed("airtable-token", ("pat",), rf"{_W}{{14}}\.{_H}{{64}}"),
    Prefixed("dropbox-token", ("sl.",), rf"{_U}{{130,400}}"),
    Prefixed("easypost-key", ("EZAK", "EZTK"), rf"{_W}{{54}}"),
    Prefixed("alibaba-key-id", ("LTAI",), rf"{_W}{{17,21}}"),
    Prefixed("tailscale-key", ("tskey-",), r"(?:auth|api|client|scim|webhook)-[A-Za-z0-9]{8,32}-[A-Za-z0-9]{16,64}"),
    Prefixed("pulumi-token", ("pul-",), rf"{_H}{{40}}"),
    Prefixed("1password-token", ("ops_eyJ",), r"[A-Za-z0-9+/_-]{200,1500}={0,3}"),
    Prefixed("plaid-token", ("access-production-", "access-sandbox-", "access-development-"), rf"{_H}{{8}}(?:-{_H}{{4}}){{3}}-{_H}{{12}}"),
    Prefixed("typeform-token", ("tfp_",), r"[A-Za-z0-9_.=-]{40,70}"),
    Prefixed("contentful-token", ("CFPAT-",), rf"{_U}{{43}}"),
    Prefixed("artifactory-key", ("AKCp",), rf"{_W}{{60,75}}"),
    Prefixed("sonar-token", ("sqp_", "squ_", "sqa_"), rf"{_H}{{40}}"),
    Prefixed("buildkite-token", ("bkua_",), rf"{_H}{{40}}"),
    Prefixed("circleci-token", ("CCIPAT_", "CCIPRJ_"), r"[A-Za-z0-9]{16,32}_[0-9a-f]{40}"),
    Prefixed("clojars-token", ("CLOJARS_",), r"[a-f0-9]{60}"),
    Prefixed("prefect-key", ("pnu_", "pnb_"), r"[A-Za-z0-9]{36}"),
    Prefixed("shippo-token", ("shippo_live_", "shippo_test_"), rf"{_H}{{40}}"),
    Prefixed("adobe-secret", ("p8e-", "p8e_"), rf"{_U}{{32}}"),
    Prefixed("mapbox-token", ("sk.eyJ1",), r"[A-Za-z0-9_-]{40,200}\.[A-Za-z0-9_-]{22}"),
    Prefixed("infracost-key", ("ico-",), rf"{_W}{{32}}"),
    Prefixed("age-key", ("AGE-SECRET-KEY-1",), r"[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    Prefixed("wallet-key", ("xprv", "yprv", "zprv", "tprv", "uprv", "vprv"), r"[1-9A-HJ-NP-Za-km-z]{107,108}"),
    Prefixed("discord-webhook", ("https://discord.com/api/webhooks/", "https://discordapp.com/api/webhooks/"), rf"\d{{17,20}}/{_U}{{60,80}}"),
    Prefixed("azure-storage-key", ("AccountKey=", "SharedAccessKey=", "SharedSecret="), r"([A-Za-z0-9+/]{42,86}={1,2})"),
)  # fmt: skip
"""Matched only where no word character precedes the mark. If `rest` has a group, the mark is a name
and not a part of the value.
"""

MARKED: Final[tuple[Marked, ...]] = (
    Marked("telegram-token", ":AA", (10, 9, 8), r"(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    Marked("mailchimp-key", "-us", (32,), r"[0-9a-f]{32}-us\d{1,2}"),
    Marked("azure-client-secret", "Q~", (4,), r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    Marked("azure-devops-token", "AZDO", (76,), r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}"),
    Marked("azure-sas", "sig=", (1,), r"[?&;]sig=([A-Za-z0-9%+/]{40,70}(?:%3[Dd]|=))"),
    Marked("terraform-token", ".atlasv1.", (14,), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}"),
    Marked("teams-webhook", ".webhook.office.com/webhookb2/", tuple(range(9, 60)), r"https://[a-z0-9-]{1,50}\.webhook\.office\.com/webhookb2/[0-9a-f-]{36}@[0-9a-f-]{36}/IncomingWebhook/[0-9a-f]{32}/[0-9a-f-]{36}"),
    Marked("totp-seed", "otpauth://", (0,), r"otpauth://[^\s\"']{1,200}?[?&]secret=([A-Za-z2-7]{16,128})"),
    Marked("npm-token", ":_authToken=", (0,), r":_authToken=([A-Za-z0-9_+/=-]{20,200})"),
    Marked("npm-token", ":_password=", (0,), r":_password=([A-Za-z0-9+/]{12,200}={0,2})"),
    Marked("password-hash", "$2", (0,), r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}", 0.8),
    Marked("password-hash", "$argon2", (0,), r"\$argon2(?:id|i|d)\$v=\d{1,3}\$m=\d{1,9},t=\d{1,5},p=\d{1,4}\$[A-Za-z0-9+/]{8,90}\$[A-Za-z0-9+/]{16,180}", 0.8),
    Marked("password-hash", "$6$", (0,), r"\$6\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{86}", 0.8),
    Marked("password-hash", "$y$", (0,), r"\$y\$[./A-Za-z0-9]{1,10}\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}", 0.8),
)  # fmt: skip

_BECH32M: Final = r"[02-9ac-hj-np-z]{40,300}+(?![0-9a-z])"
_BETWEEN: Final = r"(?>[^0-9a-z]{0,6}\n[^0-9a-z]{0,4}[1-9][.)][^0-9a-z]|[^0-9a-z]{0,6})"
_GROUPED: Final = rf"(?:{_BETWEEN}[0-9a-tv-z]){{38}}(?![0-9a-z])"
"""The symbols of a secret in printed groups, other groups or none.

Between them may stand the dashes that programs make of hyphens, commas, and the line marks of a
quotation, a table or a numbered list. The checksum decides.
"""
_NOT_SYMBOLS: Final = re.compile(r"\n[^0-9a-z]{0,4}[1-9][.)][^0-9a-z]|[^0-9a-z]+", re.IGNORECASE)
_TELLING_MARK: Final = 4
_BODIES: Final = (
    "b3BlbnNzaC1rZXktdjEA",
    "IBAAK",
    "IBADANBgkqhkiG9w0BAQEFAA",
    "MIGHAgEAMBMGByqGSM49",
    "MC4CAQAwBQYDK2VwBCIE",
)
"""Starts, or nearly, of private keys in base64: OpenSSH's own format, and DER of PKCS #1 and #8
(RFC 8017, 5208, 8410).
"""
_BEFORE_VERSION: Final = r"MII[A-Za-z0-9+/]{3,4}$"
_FEWEST_KEY_CHARS: Final = 60
"""Shortest private key in base64: Ed25519 has 64 characters, all others more than twice as many."""
_ESCAPED: Final = frozenset("nrtb")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DISCORD: Final = r"(?<![\w.-])[MNO][A-Za-z\d_-]{23,25}\.[A-Za-z\d_-]{6}\.[A-Za-z\d_-]{27,38}(?![\w.-])"
_JWT_MARK: Final = "eyJ"
"""Base64 of `{"`."""
_JWT: Final = r"eyJ[A-Za-z0-9_-]{8,2000}+(?:\.[A-Za-z0-9_-]{0,8000}+){2,4}+"


def find(text: str, long: Iterable[str] | None = None) -> Iterator[SecretFinding]:
    """Yield each token in the text; they may overlap.

    `long` are the text's words of at least SHORTEST_TOKEN characters, if known.
    """
    # Searching the whole text for each mark would cost more than all else. Long words are a small
    # part of most texts.
    words = "\n".join(long if long is not None else [word for word in text.split() if len(word) >= SHORTEST_TOKEN])
    if not words:
        return
    for pattern in PREFIXED:
        for mark in pattern.marks:
            if mark in words:
                yield from _find_prefixed(text, pattern, mark, text.find(mark))
    for marked in MARKED:
        if marked.mark in words:
            yield from _find_marked(text, marked)
    if "iscord" in text or "DISCORD" in text:
        # Discord tokens have no constant part, so they are searched only if the name occurs.
        for match in compile_once(_DISCORD).finditer(text):
            if not is_wordy(match[0]):
                yield SecretFinding("discord-token", match.start(), match.end(), 0.95, "token")


def find_secret_texts(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield each of Confide's own secrets in its text form (`SECRET_TEXTS`). `lowered` is the text
    in lower case with the same positions.
    """
    for form in SECRET_TEXTS:
        expression = compile_once(_GROUPED if form.is_grouped else _BECH32M)
        for at in places(lowered, form.mark):
            begin = at + len(form.mark)
            match = expression.match(lowered, begin)
            if match is None:
                continue
            # A valid checksum is enough, even directly after a word.
            is_word = starts_word(text, at)
            # Only a grouped form, which people copy from paper, may mix upper and lower case.
            said = _NOT_SYMBOLS.sub("", text[at : match.end()]) if form.is_grouped else text[at : match.end()]
            if match.end() - begin >= form.symbols[0] and form.is_whole(said):
                yield SecretFinding(form.kind, at, match.end(), 0.95, "token", text[at:begin])
            elif is_word and not form.is_grouped and not is_sample(said[len(form.mark) :]):
                # Mistyped or truncated, it is useless as it is but leaves little to guess.
                yield SecretFinding(form.kind, at, match.end(), 0.8, "token", text[at:begin])


def _find_prefixed(text: str, pattern: Prefixed, mark: str, at: int) -> Iterator[SecretFinding]:
    expression = compile_once(rf"{pattern.rest}(?![A-Za-z0-9])")
    while at >= 0:
        begin = at + len(mark)
        is_word = starts_word(text, at)
        # Text may directly precede a token whose mark is long and ends with punctuation, so that it
        # is hardly part of a word.
        match = expression.match(text, begin) if is_word or (len(mark) >= _TELLING_MARK and mark[-1] in "_-") else None
        if match is None or not (is_word or _is_made_by_chance(match[0])):
            at = text.find(mark, at + 1)
            continue
        if match.re.groups:
            start, end, prefix = match.start(1), match.end(1), ""
        else:
            start, end, prefix = at, match.end(), mark
        rest = text[begin:end]
        # Enough digits rule out words. In forms with few or none, letter pairs separate names with
        # the same start (`npm_package_config`) from tokens.
        is_name = not rest.isupper() and sum(c.isdigit() for c in rest) * 10 < len(rest) and is_wordy(rest)
        if not is_sample(rest) and not is_name:
            yield SecretFinding(pattern.kind, start, end, pattern.confidence, "token", prefix)
        at = text.find(mark, match.end())


def _is_made_by_chance(rest: str) -> bool:
    return not _HEX.issuperset(rest) and is_random(rest, 16)


def _find_marked(text: str, pattern: Marked) -> Iterator[SecretFinding]:
    expression = compile_once(rf"{pattern.expression}(?![A-Za-z0-9])")
    at = text.find(pattern.mark)
    while at >= 0:
        matches = (expression.match(text, at - before) for before in pattern.before if before <= at)
        match = next((each for each in matches if each and starts_word(text, each.start())), None)
        if match is None:
            at = text.find(pattern.mark, at + 1)
            continue
        start, end = match.span(match.re.groups)
        if not is_sample(text[start:end]):
            yield SecretFinding(pattern.kind, start, end, pattern.confidence, "token")
        at = text.find(pattern.mark, match.end())


def starts_word(text: str, at: int) -> bool:
    """Return True if a word may begin here: after anything but a letter, digit or `_`, or after an
    escape such as `\\n` or `%3D`.
    """
    if at == 0 or not ((before := text[at - 1]).isalnum() or before == "_"):
        return True
    if at > 1 and before in _ESCAPED and text[at - 2] == "\\":
        return True
    return at > 2 and text[at - 3] == "%" and {before, text[at - 2]} <= _HEX


def find_private_keys(text: str) -> Iterator[SecretFinding]:
    """Yield each private key in the text: PEM (RFC 7468), OpenSSH, PGP (RFC 9580) and PuTTY; also
    indented, in a diff, or escaped in JSON.

    The value is the whole block with its first and last line, since the lines between are useless
    without them. A truncated block ends where its lines stop looking like a key. First and last
    lines alone, as in code that reads such files, are no finding.
    """
    if "PRIVATE KEY" in text:
        for match in compile_once(_BEGIN).finditer(text):
            end = _end(text, match.end(), f"-----END {match[1]}-----")
            body = compile_once(_NOT_BODY).sub("", text[match.end() : end])
            if len(body) >= _FEWEST_BODY_CHARS and len(set(body)) >= 12 and "..." not in text[match.end() : end]:
                yield SecretFinding("private-key", match.start(), end, 0.95, "private-key", match[0])
    for at in places(text, _PUTTY):
        last = text.find("Private-MAC: ", at, at + MAX_BLOCK_CHARS)
        code = compile_once(_PUTTY_END).match(text, last + len("Private-MAC: ")) if last >= 0 else None
        if code and text.count(_PUTTY, at, last) == 1 and "Private-Lines: " in text[at:last]:
            yield SecretFinding("private-key", at, code.end(), 0.95, "private-key", _PUTTY)


def find_key_bodies(text: str, long: Iterable[str]) -> Iterator[SecretFinding]:
    """Yield each private key in base64 whose first line is missing. `long` are the text's long
    words.
    """
    behind = 0
    words = "\n".join(long)
    for mark in (mark for mark in _BODIES if mark in words):
        for at in places(text, mark):
            length = compile_once(_BEFORE_VERSION).search(text, max(0, at - 7), at) if mark.startswith("IB") else None
            start = length.start() if length else at
            if at < behind or (mark.startswith("IB") and not length) or not starts_word(text, start):
                continue
            first = compile_once(_RUN_OF_KEY).match(text, start)
            end = first.end() if first else start
            if lines := compile_once(_BODY).match(text, end, start + MAX_BLOCK_CHARS):
                end = lines.end()
            body = compile_once(_NOT_BODY).sub("", text[start:end])
            if len(body) >= _FEWEST_KEY_CHARS and "..." not in text[start : end + 3]:
                yield SecretFinding("private-key", start, end, 0.9, "private-key")
                behind = end


def _end(text: str, begin: int, last: str) -> int:
    at = text.find(last, begin, begin + MAX_BLOCK_CHARS)
    if at >= 0 and "-----BEGIN" not in text[begin:at]:
        return at + len(last)
    cut = compile_once(_BODY).match(text, begin, begin + MAX_BLOCK_CHARS)
    return cut.end() if cut else begin


def find_jwts(text: str) -> Iterator[SecretFinding]:
    """Yield each signed or encrypted JSON Web Token.

    Its first base64url part is a JSON object that names an algorithm. Unsigned tokens, and the
    example that most tutorials show, are skipped.
    """
    at = text.find(_JWT_MARK)
    while at >= 0:
        match = compile_once(_JWT).match(text, at) if starts_word(text, at) else None
        at = text.find(_JWT_MARK, match.end() if match else at + 1)
        if match is None:
            continue
        parts = match[0].split(".")
        header, body = _decode(parts[0]), _decode(parts[1])
        if not isinstance(header, dict) or header.get("alg") in (None, "none"):
            continue
        if len(parts[-1]) < 20 or (isinstance(body, dict) and body.get("sub") == "1234567890"):
            continue
        yield SecretFinding("jwt", match.start(), match.end(), 0.9, "jwt", _JWT_MARK)


def _decode(part: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return None
