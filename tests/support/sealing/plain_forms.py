"""Plain ways of writing a credential down that tell what it is to a person: tables, lists, other languages, and a token that is hidden a
little. Made anew from a seed; every value is random and opens nothing."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator

from tests.support.sealing.secret_corpus import ALNUM, HEX, TOKENS, URL64, WORDS, Sample, _of, _password

_AMONG = [name for name in TOKENS if name not in ("private-key", "jwt", "slack-webhook", "azure-storage-key")]
_HEADS = {
    "password": (
        "password",
        "Password",
        "passwd",
        "db_password",
        "DB Password",
        "PASSWORD",
        "pwd",
        "Passwort",
        "userPassword",
        "pass",
    ),
    "key": (
        "api_key",
        "API Key",
        "apiKey",
        "API_KEY",
        "x-api-key",
        "access token",
        "auth_token",
        "Client Secret",
        "secret key",
        "token",
    ),
}
_SAID = (
    ("Das Kennwort lautet {}", "Passwort für den Server: {}", "Das Passwort ist {}."),
    ("le mot de passe est {}", "Mot de passe : {}", "mot de passe de la base : {}"),
    ("la clave es {}", "La contraseña nueva es {}", "contraseña: {}", "Clave: {}"),
    ("пароль: {}", "пароль от базы: {}", "Новый пароль — {}"),
    ("密码：{}", "密码是{}", "数据库密码: {}", "密碼：{}"),
    ("パスワード: {}", "パスワードは{}です", "パスワードは「{}」です"),
    ("비밀번호: {}", "비밀번호는 {} 입니다"),
    ("a senha é {}", "Senha: {}", "palavra-passe: {}"),
    ("la password è {}", "Password del server: {}", "parola d'ordine: {}"),
    ("het wachtwoord is {}", "wachtwoord: {}"),
    ("hasło: {}", "hasło to {}"),
    ("heslo je {}", "Heslo: {}"),
    ("lösenordet är {}", "lösenord: {}"),
    ("şifre: {}", "parola: {}"),
)
Made = tuple[str, str]
"""A text with `\\0` in the place of a value, and that value."""


def _value(chance: random.Random, head: str) -> str:
    if head in _HEADS["password"]:
        return _password(chance)
    return chance.choice([_of(chance, ALNUM, 24), _of(chance, HEX, 40), _of(chance, URL64, 32)])


def _row(chance: random.Random, heads: list[str], at: int) -> list[str]:
    row = [
        chance.choice([f"{word}.internal", word, str(chance.randint(1, 9000)), f"{word} server"])
        for word in chance.sample(WORDS, len(heads))
    ]
    row[at] = "\0"
    return row


def _columns(chance: random.Random) -> tuple[list[str], int, str]:
    heads = chance.sample(["host", "user", "port", "notes", "service", "Name", "owner"], chance.randint(1, 3))
    head = chance.choice(_HEADS[chance.choice(["password", "key"])])
    at = chance.randint(0, len(heads))
    heads.insert(at, head)
    return heads, at, head


def _table(chance: random.Random) -> Made:
    heads, at, head = _columns(chance)
    rows = [[cell.replace("\0", "-") for cell in _row(chance, heads, at)] for _ in range(chance.randint(0, 2))]
    rows.insert(chance.randint(0, len(rows)), _row(chance, heads, at))
    mark = chance.choice(["", "**", "`"])
    lines = [[f"{mark}{one}{mark}" if mark != "`" else one for one in heads], ["---" for _ in heads], *rows]
    value = _value(chance, head).replace("|", "/")
    if mark == "`":
        lines = [[cell.replace("\0", "`\0`") for cell in line] for line in lines]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"## Access\n\n{text}\n\nAsk Cleo.\n", value


def _csv(chance: random.Random) -> Made:
    heads, at, head = _columns(chance)
    between = chance.choice([",", ",", ";", "\t"])
    rows = [_row(chance, heads, at)]
    if chance.random() < 0.5:
        rows.insert(0, [cell if place != at else "n/a" for place, cell in enumerate(_row(chance, heads, at))])
    quoted = chance.random() < 0.3
    value = _value(chance, head).translate(str.maketrans(',;\t"', "++++"))
    lines = [between.join(f'"{cell}"' if quoted else cell for cell in line) for line in (heads, *rows)]
    return chance.choice(["", "The export:\n\n", "```csv\n"]) + "\n".join(lines) + "\n", value


def _list(chance: random.Random) -> Made:
    name = chance.choice(
        ["passwords", "Passwords", "old_passwords", "api_keys", "apiKeys", "tokens", "API keys", "client_secrets"]
    )
    value = _password(chance) if "assword" in name else _of(chance, ALNUM, 28)
    others = [f"${{{word.upper()}}}" for word in chance.sample(WORDS, chance.randint(0, 2))]
    items = [*others, "\0"]
    form = chance.randrange(4)
    if form == 0:
        return f"service:\n  {name.replace(' ', '_')}:\n" + "".join(
            f"    - {one}\n" for one in items
        ) + "  port: 1\n", value
    if form == 1:
        return f"{name}:\n\n" + "".join(f"- `{one}`\n" for one in items) + "\nThat is all.\n", value
    if form == 2:
        return json.dumps({name: ["V" if one == "\0" else one for one in items]}).replace('"V"', '"\0"'), value
    return f"{name.replace(' ', '_')} = [" + ", ".join(f"'{one}'" for one in items) + "]\n", value.replace("'", "+")


def _language(chance: random.Random) -> Made:
    value = _of(chance, ALNUM, 12) if chance.random() < 0.5 else _password(chance)
    return chance.choice(["", "- ", "Notiz: "]) + chance.choice(chance.choice(_SAID)).replace("{}", "\0") + "\n", value


def _token(chance: random.Random) -> str:
    return TOKENS[chance.choice(_AMONG)](chance)


def _invisible(chance: random.Random) -> Made:
    value = _token(chance) if chance.random() < 0.6 else ""
    plain = value or _password(chance)
    at = chance.randrange(1, len(plain))
    hidden = plain[:at] + chance.choice("\u200b\u200c\u200d\u2060\u00ad\ufeff") + plain[at:]
    return ("use \0 for it" if value else "The password is: \0\n"), hidden


def _wrapped(chance: random.Random) -> Made:
    value = _token(chance)
    at = chance.randrange(4, len(value) - 3)
    cut = chance.choice(["\n", "\r\n", "\n  ", "\n> ", "\\\n"])
    return "> use \0 for it" if cut == "\n> " else "use \0 for it", value[:at] + cut + value[at:]


def _escaped(chance: random.Random) -> Made:
    form = chance.randrange(5)
    if form == 0:  # the name, and not the value
        name = "".join(
            f"\\u{ord(one):04x}" if place == 0 or chance.random() < 0.3 else one for place, one in enumerate("password")
        )
        return f'{{"user": "shop", "{name}": "\0"}}', _of(chance, ALNUM, 16)
    value = _token(chance)
    at = {0, *chance.sample(range(1, len(value)), 3)}
    if form == 1:
        return '{"note": "\0"}', "".join(
            f"\\u{ord(one):04x}" if place in at else one for place, one in enumerate(value)
        )
    if form == 2:
        return "x = '\0'", "".join(f"\\x{ord(one):02x}" if place in at else one for place, one in enumerate(value))
    if form == 3:
        return "<p>\0</p>", "".join(f"&#{ord(one)};" if place in at else one for place, one in enumerate(value))
    return "GET /cb?next=\0&x=1", "".join(
        f"%{ord(one):02X}" if place in at or not one.isalnum() else one for place, one in enumerate(value)
    )


def _encoded(chance: random.Random) -> Made:
    value = _token(chance)
    said = chance.choice([value, f"export TOKEN={value}\n", f'{{"token": "{value}"}}'])
    if chance.random() < 0.25:
        return "hex: \0\n", said.encode().hex()
    if chance.random() < 0.2:
        return "next=\0 ", "".join(f"%{byte:02x}" for byte in value.encode())
    made = (base64.b64encode if chance.random() < 0.5 else base64.urlsafe_b64encode)(said.encode()).decode()
    return chance.choice(["b64: \0\n", "echo \0 | base64 -d", "- `\0`\n", '"data": "\0"']), made.rstrip(
        "="
    ) if chance.random() < 0.3 else made


def _cloud(chance: random.Random) -> Made:
    if chance.random() < 0.5:
        key = base64.b64encode(_password(chance).encode()).decode()
        return (
            f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop\ntype: Opaque\ndata:\n  {chance.choice(['admin', 'db', 'value', 'auth.txt'])}: \0\n",  # noqa: E501
            key,
        )
    name = "AK" + "IA" + _of(chance, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)
    return chance.choice([f"{name},\0\n", f"id {name}\nsecret part: \0\n"]), _of(chance, ALNUM + "/+", 40)


def _command(chance: random.Random) -> Made:
    return chance.choice(
        [
            ("log in as admin with \0", _of(chance, ALNUM, 14)),
            ("admin / \0\n", _of(chance, ALNUM, 14)),
            ("echo '\0' | sudo -S systemctl restart shop", _of(chance, ALNUM, 14)),
            ("Cookie: session=\0", _of(chance, HEX, 40)),
            ("Set-Cookie: auth=\0; HttpOnly", _of(chance, URL64, 44)),
            ("2FA secret: \0", _of(chance, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32)),
            ("private key 0x\0", _of(chance, HEX, 64)),
        ]
    )


FORMS: dict[str, Callable[[random.Random], Made]] = {
    "tables": _table,
    "CSV": _csv,
    "lists": _list,
    "other languages": _language,
    "invisible characters": _invisible,
    "wrapped": _wrapped,
    "escaped": _escaped,
    "encoded": _encoded,
    "Kubernetes, AWS": _cloud,
    "commands, sayings": _command,
}


def samples(form: str, seed: int, count: int) -> Iterator[Sample]:
    """So many texts of a form; one is found where a finding covers all of its value."""
    chance = random.Random(f"{seed} {form}")
    for _ in range(count):
        text, value = FORMS[form](chance)
        at = text.index("\0")
        yield Sample(form, form, text.replace("\0", value), at, at + len(value))


def is_covered(sample: Sample, findings: list[tuple[int, int]]) -> bool:
    """Whether nothing of the value would stay: it may be sealed with what stands beside it, or in two parts."""
    left = set(range(sample.start, sample.end))
    for start, end in findings:
        left -= set(range(start, end))
    return not left
