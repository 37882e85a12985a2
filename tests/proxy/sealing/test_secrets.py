"""Finding credentials: those of a corpus made for it, at the place where they stand, and none in ordinary text."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.support.draws import IS_THOROUGH
from tests.support.growth import NEARLY_LINEAR, growth, ratio
from tests.support.sealing import plain_forms
from tests.support.sealing.secret_corpus import TOKENS, Sample, negatives, positives
from tests.support.sealing.secret_texts import MAKERS

from confide_crypto.keys.identity import Identity, word_list
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_crypto.sealing.secret_texts import SECRET_TEXTS
from confide_proxy.sealing.detection.finding import SecretFinding, resolve_overlaps
from confide_proxy.sealing.detection.prefilter import gives_reason, lower
from confide_proxy.sealing.detection.rules import tables
from confide_proxy.sealing.detection.rules.tokens import MARKED, PREFIXED
from confide_proxy.sealing.detection.scanner import scan

SURE = 0.75
SAMPLES = list(positives(17, 10))
ROOT = Path(__file__).parents[3]
LEAST_RECALL = {"password": 0.93, "token": 0.9, "api-key": 0.9, "secret-key": 0.9, "secret": 0.9, "key": 0.9}
"""Of the corpus; whatever has a form of its own is found nearly always."""
UNSURE = {"secret", "key"}
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def found(text: str, least: float = SURE) -> list[tuple[str, str]]:
    """(kind, value) of what is found."""
    return [(each.kind, text[each.start : each.end]) for each in scan(text, least)]


def is_found(sample: Sample) -> bool:
    least = 0.5 if sample.kind in UNSURE else SURE
    return any((each.start, each.end) == (sample.start, sample.end) for each in scan(sample.text, least))


def test_credentials_of_every_kind_are_found_exactly_where_they_are() -> None:
    """In code, configuration, chat, logs, diffs and notes: the value alone, without its name and its quotes."""
    there: Counter[str] = Counter(sample.kind for sample in SAMPLES)
    missed: Counter[str] = Counter(sample.kind for sample in SAMPLES if not is_found(sample))
    assert len(there) > 45
    for kind, count in there.items():
        assert missed[kind] <= (1 - LEAST_RECALL.get(kind, 0.9)) * count, f"{kind}: {missed[kind]} of {count} missed"
    assert missed.total() <= 0.02 * there.total()


def test_a_token_is_called_by_its_kind() -> None:
    """So that a person can see what leaked, wherever it stands."""
    wrong = [
        (sample.kind, each.kind)
        for sample in SAMPLES
        if sample.kind in TOKENS
        for each in scan(sample.text, SURE)
        if each.kind != sample.kind
    ]
    assert len(wrong) <= 0.01 * len(SAMPLES), wrong


def test_what_looks_like_a_credential_is_none() -> None:
    """Placeholders, templates, variables, ids, checksums, lock files, images, minified code, public keys and talk of passwords."""
    told = Counter(what for what, text in negatives(23, 12) for _ in scan(text, SURE))
    assert not told


def test_ordinary_code_and_prose_hold_none() -> None:
    """Less than one finding in 10,000 lines of the standard library and of this project's documents."""
    files = [*sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-f]*.py")), *(ROOT / "docs").glob("*.md")]
    lines = findings = 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        lines += text.count("\n")
        findings += len(scan(text, SURE))
    assert lines > 30_000
    assert findings * 10_000 < lines


@pytest.mark.parametrize(
    "text",
    [
        "password=changeme",
        "password: <your-password>",
        "API_KEY=${API_KEY}",
        "token: {{ vault_token }}",
        "aws_access_key_id = AKIA" + "IOSFODNN7EXAMPLE",
        "TOKEN=gh" + "p_" + "x" * 36,
        "password = settings.DATABASE_PASSWORD",
        "password=hash_password(raw_password2)",
        "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        "the session is 0a6afc57-2f31-4cb4-8ff0-01247f50c64c",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "postgres://user:password@localhost/db",
        "postgres://shop:${PASSWORD}@db/shop",
        "https://user:hunter22x@example.com/",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "Authorization: Bearer <token>",
        "the token is expired, and the password is wrong",
        "public_key = 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "max_tokens: 4096, token_type: oauth2",
        "mysql://scott:tiger@localhost/foo",
        "dbtype://username:apples%2Foranges@hostspec/database",
        "fastcgi_pass unix:/var/run/php5-fpm.sock;",
        "proxy_pass = unix:/run/shop2.sock",
        'User.objects.filter(password__startswith="md5$$")',
        "FIELDS = ['email*', 'password1*', 'password2*']",
        "HTPasswdAuth = buildbot.www.auth:HTPasswdAuth",
        "ssl:port=443:privateKey=/etc/ssl/server.pem:extraCertChain=/etc/ssl/chain.pem:sslmethod=SSLv3_METHOD",
        "MongoClient(username='user1', password='pass1')",
        "smtp_pass = hunter2",
        'tpp_password: "Str0ngPa$$w0rd"',
        "passphrase: mySup3rS3cretP@ssphr4se1",
        "the iframe height is stored in pairs of three bytes inside which every reader looks until nobody asks again",
        "seed: " + "abandon " * 11 + "about",
        "\n".join(word_list()[200:400]),
        "connection = mysql+pymysql://cinder:CINDER_DBPASS@controller/cinder",
        "mysql+pymysql://root:secretmysql@127.0.0.1/nova",
        '-d \'{"user": {"password": "\'$NEW_PASS2\'"}}\'',
        "ciphers = 'AES:!EXPORT:!DES:!PSK:!aECDH:!EDH-DSS-DES-CBC3-SHA:!KRB5-DES-CBC3-SHA'",
        "--db=postgresql://jupyterhub:<password>@localhost:5433/jupyterhub",
        "token=eyJhbGciOiJIUzI1NiJ9aB3...",
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAxV9zY3R1Q2xvY2tXb3JrT3JhbmdlQmx1ZVJlZEdyZWVu",
    ],
)
def test_examples_and_references_are_left_alone(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DB_PASSWORD=S3cr&t,x9\nPORT=1", "S3cr&t,x9"),
        ('{"password": "Qu\\"ote7d"}', 'Qu\\"ote7d'),
        ("the password is Tr0ub4dor&3.", "Tr0ub4dor&3"),
        ("- **Password:** `hunter22x`", "hunter22x"),
        ("postgres://shop:p%40ss9word@db:5432/shop?sslmode=on", "p%40ss9word"),
        ("postgres://shop:p@ss9word@db/shop", "p@ss9word"),
        ("İstanbul: the password is hunter22x", "hunter22x"),
        ("🔑 parola\npassword=hunter22x\n", "hunter22x"),
    ],
)
def test_the_place_is_the_value_alone(text: str, value: str) -> None:
    assert [each for _, each in found(text)] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "password:\u00a0hunter22xx",
        "\ufeffpassword: hunter22xx\n",
        "password\u3000=\u3000hunter22xx",
        "password\uff1ahunter22xx",
        "password=\u200bhunter22xx",
        "DB_PASSWORD=\u201chunter22xx\u201d",
        "Das Kennwort lautet \u201ehunter22xx\u201c.",
    ],
)
def test_the_blanks_and_quotes_of_other_keyboards_hide_nothing(text: str) -> None:
    """As web pages, word processors and Notepad put them there."""
    assert [value for _, value in found(text)] == ["hunter22xx"]


@pytest.mark.parametrize("form", plain_forms.FORMS)
def test_plain_forms_are_seen(form: str) -> None:
    """Tables, CSV, lists, other languages, and a token that is hidden a little: all of the value goes, in nine of ten at least."""
    samples = list(plain_forms.samples(form, 5, 200))
    seen = [plain_forms.is_covered(one, [(each.start, each.end) for each in scan(one.text, SURE)]) for one in samples]
    assert sum(seen) >= 0.9 * len(samples)


@pytest.mark.parametrize("count", [12, 15, 18, 21, 24])
@pytest.mark.parametrize(
    "written", ["{}", "Seed phrase: {}", "my words are {} and more", ", ", "\n", "\n> ", "1.", "Caps"]
)
def test_a_seed_phrase_is_found(count: int, written: str) -> None:
    """A wallet's twelve to twenty-four words, on a line, in lines, numbered, in capitals: the list and its checksum tell."""
    words = _phrase(random.Random(count), count)
    if written == "1.":
        said = "\n".join(f"{number}. {word}" for number, word in enumerate(words, 1))
    elif written == "Caps":
        said = " ".join(words).title()
    else:
        said = written.format(" ".join(words)) if "{}" in written else written.join(words)
    [(kind, value)] = found(said)
    assert kind == "seed-phrase"
    assert re.findall(r"[a-z]+", value.lower()) == words


def _phrase(chance: random.Random, count: int) -> list[str]:
    """So many words with their checksum, made from a seed."""
    entropy = chance.randbytes(count * 4 // 3)
    bits = "".join(f"{byte:08b}" for byte in (*entropy, hashlib.sha256(entropy).digest()[0]))[: count * 11]
    return [word_list()[int(bits[at : at + 11], 2)] for at in range(0, len(bits), 11)]


def test_words_without_the_checksum_are_no_seed_phrase() -> None:
    for seed in range(20):
        words = _phrase(random.Random(seed), 12)
        others = [" ".join([*words[:-1], other]) for other in word_list()[:: len(word_list()) // 16]]
        assert sum(bool(found(said)) for said in others) <= 5


def test_a_private_key_without_its_first_line_is_found() -> None:
    """As somebody copies it who thinks that the dashes are what makes it a key."""
    made = (
        ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        rsa.generate_private_key(65537, 2048).private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        ),
    )
    for pem in made:
        body = "\n".join(pem.decode().splitlines()[1:-1])
        for written in (body, body.replace("\n", ""), body.replace("\n", "\n    ")):
            assert found(f"the key:\n{written}\n\nThat is all.\n") == [("private-key", written)]


def test_the_other_half_of_an_aws_key_is_found_alone() -> None:
    """Forty characters made by chance, with nothing that says so; a checksum, a path, a text in base64, a line of more are none."""
    chance = random.Random(3)
    letters = string.ascii_letters + string.digits + "+/"
    values = ["".join(chance.choices(letters, k=40)) for _ in range(100)]
    assert sum(found(f"and the second one: {value}\n") == [("aws-secret-key", value)] for value in values) >= 95
    none = (
        hashlib.sha1(b"commit").hexdigest(),
        base64.b64encode(b"thirty bytes of some plain text"[:30]).decode(),
        "src/main/java/org/shop2/gateway/Handler1",
        "\n".join(values[:3]),
        f"https://registry.internal/{values[4]}",
    )
    assert [found(f"see {text} for it") for text in none] == [[]] * len(none)


def test_a_token_is_found_with_emphasis_inside_and_behind_another_word() -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    for mark, end in (("**", "**"), ("*", "*"), ("<b>", "</b>")):
        written = f"{token[:4]}{end}{token[4:]}"
        assert found(f"use {mark}{written} now") == [("github-token", written)]
    assert found(f"mytoken{token}") == [("github-token", token)]
    assert found(f"old_{token}") == [("github-token", token)]


SAID = ("{}", "Confide recovery code: {}", "my recovery code is {}", "- `{}`\n", "If everything is lost: {}.", "x={}")


@pytest.mark.parametrize(("mark", "make"), MAKERS, ids=[f"{mark}{at}" for at, (mark, _) in enumerate(MAKERS)])
def test_every_secret_of_our_own_is_found(mark: str, make: Callable[[], str]) -> None:
    """A machine's key, sealed or not, an invite, a recovery code: they open everything, and had been unknown."""
    kinds = {form.mark: form.kind for form in SECRET_TEXTS}
    for _ in range(20):
        value = make()
        for written in (value, value.lower(), value.upper()):
            assert [found(said.format(written)) for said in SAID] == [[(kinds[mark], written)]] * len(SAID)


def test_a_recovery_code_is_found_however_it_was_copied() -> None:
    """From paper, by hand: in other groups or none, across lines of a quotation, with O for 0 and L for 1."""
    for _ in range(50):
        code = RecoveryCode.generate().to_string()
        bare = code.replace("-", "")
        fours = "-".join(bare[at : at + 4] for at in range(0, 40, 4))
        for written in (code.replace("-", " "), code.replace("-", "  ").lower(), bare, fours, code.replace("-", "-\n")):
            assert found(f"note: {written}\n") == [("confide-recovery-code", written)]
        assert found(code.replace("0", "O").replace("1", "L").lower())
        quoted = code[:24] + "\n> " + code[24:]
        assert found(f"> {quoted}\n") == [("confide-recovery-code", quoted)]
        groups = code.split("-")
        for between in ("\u2013", "\u2011", "\u2014", "\u2212", "\u00a0", ", ", ".", "/", " | ", "_", "\n- "):
            assert found(f"| {between.join(groups)} |") == [("confide-recovery-code", between.join(groups))]
        listed = groups[0] + "".join(f"\n{number}. {group}" for number, group in enumerate(groups[1:], 2))
        assert found(f"1. {listed}\n") == [("confide-recovery-code", listed)]


@pytest.mark.parametrize(("mark", "make"), MAKERS, ids=[f"{mark}{at}" for at, (mark, _) in enumerate(MAKERS)])
def test_a_secret_of_our_own_is_found_in_disguise(mark: str, make: Callable[[], str]) -> None:
    """Behind a word, half of it bold, in letters of full width, with a mark of direction in it."""
    kinds = {form.mark: form.kind for form in SECRET_TEXTS}
    value = make()
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in value)
    middle = len(value) // 2
    for written in (f"{value[:middle]}**{value[middle:]}", wide, f"{value[:middle]}\u200e{value[middle:]}"):
        assert found(f"note: {written}\n") == [(kinds[mark], written)]
    assert found(f"note: my_{value}\n") == [(kinds[mark], value)]


def test_what_only_looks_like_a_recovery_code_is_none() -> None:
    """Its checksum says so; a machine's key with a typing error, which leaves little to guess, is found all the same."""
    for _ in range(50):
        code = RecoveryCode.generate().to_string()
        wrong = code[:-1] + ("7" if code[-1] != "7" else "8")
        assert found(f"part number {wrong}") == []
        key = Identity.generate().to_line()
        assert found(f"{key[:-1]}{'Q' if key[-1] != 'Q' else 'P'}")[0][0] == "confide-key"
    assert found("CONFIDE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ") == []


def test_what_is_used_again_is_found_again() -> None:
    """The same value where nothing says what it is, as a word of its own."""
    text = "password = 'Fj3kd8Lw'\n\nrun: deploy Fj3kd8Lw now; Fj3kd8Lwx is something else\n"
    assert found(text) == [("password", "Fj3kd8Lw")] * 2


def test_however_many_are_used_again_all_are_found() -> None:
    """From the 65th on they were not; one that another begins with is told from it."""
    values = [f"Fj{number:03}kd8Lw" for number in range(80)]
    values.append(f"{values[0]}-x9")
    said = "".join(f"password = '{value}'\n" for value in values)
    again = "".join(f"run: deploy {value} now\n" for value in values)
    assert [value for _, value in found(said + again)] == values * 2


def test_a_key_that_is_cut_off_is_found_as_far_as_it_goes() -> None:
    """A message may end, or go on with other text, in the middle of a key."""
    key = next(sample for sample in SAMPLES if sample.kind == "private-key" and sample.context == "shell")
    lines = key.text[key.start : key.end].splitlines()[:-1]
    text = "\n".join([*lines, "", "That is all I have."])
    assert found(text) == [("private-key", "\n".join(lines))]


def test_of_those_that_overlap_the_surest_counts() -> None:
    """And of equally sure ones the longest; what touches does not overlap."""
    weak, sure = SecretFinding("secret", 0, 30, 0.65, "assignment"), SecretFinding("github-token", 5, 25, 0.95, "token")
    long, behind = (
        SecretFinding("github-token", 5, 28, 0.95, "token"),
        SecretFinding("password", 28, 40, 0.8, "assignment"),
    )
    assert resolve_overlaps([weak, sure, long, behind]) == [long, behind]
    token = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert found(f"TOKEN={token}") == [("github-token", token)]


def test_a_finding_shows_nothing_of_the_value() -> None:
    """Not in its repr, and no exception can carry what it does not hold."""
    for sample in SAMPLES[:200]:
        value = sample.text[sample.start : sample.end]
        for each in scan(sample.text):
            rest = value.removeprefix(each.prefix)
            assert not any(rest[at : at + 8] in repr(each) for at in range(0, max(1, len(rest) - 7), 4))


def test_the_cheap_look_passes_over_nothing() -> None:
    """Whatever is found, the words that make a text worth a closer look are in it."""
    for sample in SAMPLES:
        assert not scan(sample.text) or gives_reason(lower(sample.text))


def test_the_name_of_a_days_file_is_no_reason() -> None:
    """It is as long as a token, and nearly every store names it; what stands with it in one word is looked at."""
    assert not gives_reason("what is in memory/2026-11-26.md ?")
    for other in (
        "memory/2026-11-26.md.akia",
        "xmemory/2026-11-26.md",
        "memory/2026-11-26-a.md",
        "memory/2026-11-26.md akiaiosfodnn7example",
    ):
        assert gives_reason(other)


def test_lower_case_keeps_every_character_in_its_place() -> None:
    """Of all of Unicode: offsets into one text are offsets into the other."""
    every = "".join(map(chr, range(0x110000)))
    assert len(lower(every)) == len(every)
    assert lower("PASSWORD") == "password"


def test_ordinary_messages_load_no_detector() -> None:
    """Most tool calls hold nothing that could be one, and `confide mcp` pays nothing for them."""
    script = (
        "import json, sys\n"
        "from confide_proxy.mcp import stdio\n"
        "from confide_proxy.sealing import context, sealed_calls\n"
        "said = 'We moved the deploy to Friday, because the gateway was busy. See memory/deploy.md.'\n"
        "assert not sealed_calls.gives_reason(said)\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('confide_proxy.sealing.detection.')]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    detection = "confide_proxy.sealing.detection"
    assert set(json.loads(done.stdout)) <= {f"{detection}.{name}" for name in ("prefilter", "decoding", "finding")}


HOSTILE = (
    *("%41%", "\\u0041", "&#65;", "aB3-", "QUJD" * 20 + "/", "ghp_\n", "a1b2c3d4e5f6g7h8\n> ", "\u200bghp_"),
    *("password,a\n", "|password|\n|---|\n", "tokens: [", "passwords:\n- ", "clave ", "пароль ", "cookie: session=", "kind: secret\n"),
    *("password=", "password: ", "password is ", '"password",', "pass pass ", 'token="a', "password='\\a", "://a:b", "://a:bb@", "a:"),
    *("eyJ", "eyJ.", "bearer ", "basic QUJD", "curl ", "mysql ", "login ", "creds: a/"),
    *("AZDO", "Q~", ":AA", "$2", "otpauth://", "discord M", "a1B2", "x.", "İ", "password {", "key,\n"),
    *("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\nAAAA", "PuTTY-User-Key-File-2: x\n"),
    *("password for a b c ", "password as the ", "key: a_", "password: aaaa = "),
    *("abandon ", "abandon, ", "1. zoo\n", "ghp_**", "a*b", "MIIEowIBAAK", "b3BlbnNzaC1rZXktdjEA"),
    *("password=passpasswordwordthean ", "aB3d" * 10 + "\n", "fo0" * 16 + " "),
    *("cr ", "cr-", "CR8F3 ", "cr8f3 k2m4p 7qrst ", "invite1", "invite1q", "CONFIDE-SECRET-KEY-1", "confide-sealed-key-1q-"),
)  # fmt: skip


@pytest.mark.parametrize(("part", "most"), [("password=", 30.0), ("CRVFH-", 10.0)])
def test_what_begins_as_a_credential_again_and_again_costs_little_more_than_ordinary_lines(
    part: str, most: float
) -> None:
    """Each of them reaches over those behind it: 12 and 5 times the cost of a line with a name in it, and 60 and 17 times before."""
    ordinary = "the token: Xy7 and some words\n"
    cost = ratio(
        lambda size: scan(part * (size // len(part))), lambda size: scan(ordinary * (size // len(ordinary))), 32 * 1024
    )
    assert cost < most


HOSTILE_BYTES = (128 if IS_THOROUGH else 16) * 1024


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_text_costs_no_more_than_its_length(part: str) -> None:
    """So many beginnings that lead nowhere, and for none of them is all of the text read again."""
    assert growth(lambda size: scan(part * (size // len(part))), HOSTILE_BYTES) < NEARLY_LINEAR


def test_an_item_under_many_names_is_judged_once_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line names a list of all that follow it. Counted, since 256 times the work is still within the time limit."""
    judged: list[str] = []
    monkeypatch.setattr(tables, "_judge", lambda value, *_, **__: judged.append(value))
    scan("passwords:\n- " * 1_000 + "tokens:\n- " * 1_000)
    assert len(judged) <= 4 * 2_000


def test_many_values_that_begin_alike_cost_no_more_than_their_length() -> None:
    values = "".join(f"password: Xk29vvQz{number:06}a\n" for number in range(4_000))
    assert len(scan(values + values.replace("password: ", "then ").replace("a\n", "b\n"))) == 4_000
    nested = "".join(f"password: {'a1B2c3D4-' * count}\n" for count in range(1, 100))
    scan(nested + "a1B2c3D4-" * 10_000)


def test_every_pattern_has_a_bound_and_a_name() -> None:
    """No expression of the table may run over the whole text, however it is written."""
    for expression in [each.rest for each in PREFIXED] + [each.expression for each in MARKED]:
        assert not unbounded(re._parser.parse(expression)), expression  # type: ignore[attr-defined]
    assert unbounded(re._parser.parse("a(?:b[c]+)?"))  # type: ignore[attr-defined]
    assert all(each.kind == each.kind.lower() and " " not in each.kind for each in (*PREFIXED, *MARKED))


def unbounded(tree: Any) -> bool:
    """Whether a parsed expression holds a repetition without a limit."""
    if isinstance(tree, tuple) and len(tree) == 3 and tree[1] == re._constants.MAXREPEAT:  # type: ignore[attr-defined]
        return True
    parts = getattr(tree, "data", tree)  # a part that is in a group
    return isinstance(parts, list | tuple) and any(unbounded(each) for each in parts)


@pytest.mark.parametrize(
    "form",
    [
        "fromToken: '{}'", '"toToken": "{}",', "WETH_TOKEN={}", "token = {}", "tokenAddress: {}", "| USDC token | {} |",
        "| token | address |\n|---|---|\n| USDC | {} |", "The token contract is at {}.", "--token {}", "the token is {}",
    ],
)  # fmt: skip
def test_an_address_on_a_chain_is_public(form: str) -> None:
    """Twenty bytes behind 0x open nothing, whatever key names them a token; a private key has 32, and a password is what somebody says."""
    chance = random.Random(form)
    for prefix in ("0x", "0X"):
        address = prefix + "".join(chance.choices("0123456789abcdefABCDEF", k=40))
        assert not scan(form.format(address)), form
        longer = prefix + "".join(chance.choices("0123456789abcdef", k=64))
        assert scan(f"private_key: {longer}")
        assert scan(f"password: {address}")
        assert scan(f"API_TOKEN={address[2:]}")
    checked = "".join(chance.choices("023456789acdefghjklmnpqrstuvwxyz", k=38))
    assert not scan(form.format(f"bc1q{checked}")), form
    assert not scan(form.format(f"addr1{checked}{checked}")), form
    assert scan(f"password: bc1q{checked}")


def base58(data: bytes) -> str:
    """As Bitcoin writes it."""
    number, word = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        word = BASE58[digit] + word
    return BASE58[0] * (len(data) - len(data.lstrip(b"\0"))) + word


def checked(data: bytes) -> str:
    return base58(data + hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4])


@pytest.mark.parametrize(
    "form", ["{}", "wallet: {}", "`{}` opens it", "PUBLIC_KEY={}", "imported {}\n", "the token is {}"]
)
def test_a_private_key_in_base58_is_known_by_what_it_holds(form: str) -> None:
    """By its checksum, or its public half; one wrong letter, a hash or a signature is as long, and is none."""
    chance = random.Random(form)
    seed = chance.randbytes(32)
    pair = seed + ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    keys = [checked(version + seed + more) for version in (b"\x80", b"\xef", b"\x9e", b"\xb0") for more in (b"", b"\1")]
    for key in (*keys, checked(b"\x01\x42" + chance.randbytes(37)), base58(pair)):
        text = form.format(key)
        assert [(each.kind, text[each.start : each.end]) for each in scan(text)] == [("wallet-key", key)]
        wrong = form.format(key[:-1] + ("2" if key[-1] != "2" else "3"))
        assert "wallet-key" not in {each.kind for each in scan(wrong)}
    for other in (base58(chance.randbytes(64)), checked(b"\x04" + seed), base58(chance.randbytes(38))):
        assert "wallet-key" not in {each.kind for each in scan(form.format(other))}


@pytest.mark.parametrize(
    "form",
    [
        "fromToken: '{}'", "TOKEN_MINT={}", "TOKEN_ADDRESS={}", 'tokenMint: "{}"', "public key: {}", "mint_authority_key={}",
        "the token {} on Solana", "| Solana token | {} |", "my wallet is {}", "tokenIn = {}",
    ],
)  # fmt: skip
def test_an_address_in_base58_is_public(form: str) -> None:
    """Solana's have no checksum, so it takes a name that says so; Bitcoin's have one. What a name calls a secret stays one."""
    chance = random.Random(form)
    for address in (
        base58(b"\x7f" + chance.randbytes(31)),
        checked(b"\0" + chance.randbytes(20)),
        checked(b"\5" + chance.randbytes(20)),
    ):
        assert not scan(form.format(address), 0.5), form
        for secret in ("password: {}", "api_key: {}", "the secret key is {}"):
            assert scan(secret.format(address), 0.5)
    token = base58(b"\x7f" + chance.randbytes(31))
    for secret in ("token: {}", "API_TOKEN={}", "key: {}", "WALLET_KEY={}"):
        assert scan(secret.format(token), 0.5)


def test_the_private_key_of_a_wallet_is_known_by_its_form() -> None:
    """Whoever has it has all that the wallet holds (BIP 32). The public one beside it is for others to see."""
    body = "".join(random.Random(1).choices(BASE58, k=107))
    text = f"the wallet is xprv{body}, on the shelf"
    (found,) = scan(text)
    assert (found.kind, text[found.start : found.end]) == ("wallet-key", f"xprv{body}")
    assert not [found for found in scan(f"the wallet shows xpub{body}") if found.kind == "wallet-key"]
