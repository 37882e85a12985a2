"""A labelled corpus of credentials and of what looks like them, made anew from a seed: every value is random and opens nothing.

The forms are put together when it runs, so that no scanner of repositories finds one in this file. A positive is a text with one value in
it; the contexts are those that memory files, transcripts and tool calls have. The negatives are what detectors take for credentials.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# ruff: noqa: E501 - texts as they are

LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS
HEX = "0123456789abcdef"
URL64 = ALNUM + "-_"
BASE64 = ALNUM + "+/"
_SOME = "harbor lemon granite violet copper meadow falcon winter orbit maple cinder velvet tundra saddle quartz bramble pepper anchor"
WORDS = _SOME.split()


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, and where in it the one credential of that kind stands."""

    kind: str
    context: str
    text: str
    start: int
    end: int


def _of(chance: random.Random, alphabet: str, size: int) -> str:
    """Random characters; from 20 on with a digit and a letter among them, as all but one in thousands have."""
    while True:
        made = "".join(chance.choices(alphabet, k=size))
        if (
            size < 20
            or not (set(alphabet) & set(DIGITS))
            or (any(c in DIGITS for c in made) and any(c in LOWER + UPPER for c in made))
        ):
            return made


def _form(*parts: str | tuple[str, int]) -> Callable[[random.Random], str]:
    """A maker of values: literal parts, and (alphabet, length) for random ones."""
    return lambda chance: "".join(part if isinstance(part, str) else _of(chance, *part) for part in parts)


def _any(*makers: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    return lambda chance: chance.choice(makers)(chance)


def _jwt(chance: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": str(chance.randrange(10**6)), "iat": chance.randrange(10**9), "role": chance.choice(WORDS)}
    return f"{part({'alg': chance.choice(['HS256', 'RS256', 'ES256']), 'typ': 'JWT'})}.{part(claims)}.{_of(chance, URL64, 43)}"


def _private_key(chance: random.Random) -> str:
    kind = chance.choice(["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "PGP"])
    name = f"PGP PRIVATE KEY{' BLOCK'}" if kind == "PGP" else f"{kind}PRIVATE KEY"
    lines = [_of(chance, BASE64, 64) for _ in range(chance.randint(2, 24))] + [_of(chance, BASE64, 30) + "=="]
    head = (
        ["Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{_of(chance, HEX.upper(), 32)}", ""]
        if kind == "RSA "
        else []
    )
    return "\n".join([f"-----BEGIN {name}-----", *head, *lines, f"-----END {name}-----"])


def _person(chance: random.Random) -> str:
    """As people make them up."""
    word = chance.choice(WORDS)
    return chance.choice(
        [
            f"{word}{chance.randint(10, 9999)}",
            f"{word.title()}{chance.randint(1950, 2030)}{chance.choice('!#$%&*?')}",
            word.replace("a", "4").replace("e", "3").replace("o", "0")
            + chance.choice("!@#")
            + str(chance.randint(1, 99)),
            f"{word.title()}-{chance.choice(WORDS)}-{chance.randint(2, 99)}",
            f"{word.title()}{chance.choice('!@#&*')}{chance.choice(WORDS).title()}",
        ]
    )


_generated = _any(
    _form((ALNUM, 12)),
    _form((ALNUM, 20)),
    _form((ALNUM + "!@#%^&*-_=+?", 16)),
    _form((HEX, 32)),
    _form((URL64, 24)),
)
"""As a manager of passwords makes them."""

_password = _any(_person, _generated, _generated)

TOKENS: dict[str, Callable[[random.Random], str]] = {
    "aws-access-key-id": _any(_form("AK" + "IA", (UPPER + "234567", 16)), _form("AS" + "IA", (UPPER + "234567", 16))),
    "github-token": _any(
        *(_form(f"gh{c}" + "_", (ALNUM, 36)) for c in "pousr"), _form("github_" + "pat_", (ALNUM, 22), "_", (ALNUM, 59))
    ),
    "gitlab-token": _any(
        _form("glp" + "at-", (URL64, 20)), _form("gld" + "t-", (URL64, 20)), _form("glr" + "t-", (URL64, 20))
    ),
    "slack-token": _any(
        _form("xo" + "xb-", (DIGITS, 12), "-", (DIGITS, 13), "-", (ALNUM, 24)),
        _form("xo" + "xp-", (DIGITS, 11), "-", (DIGITS, 11), "-", (DIGITS, 12), "-", (HEX, 32)),
        _form("xa" + "pp-1-A", (UPPER + DIGITS, 10), "-", (DIGITS, 13), "-", (HEX, 64)),
    ),
    "slack-webhook": _form(
        "https://hooks." + "slack.com/services/T", (UPPER + DIGITS, 10), "/B", (UPPER + DIGITS, 10), "/", (ALNUM, 24)
    ),
    "stripe-key": _any(
        _form("sk_" + "live_", (ALNUM, 24)), _form("rk_" + "live_", (ALNUM, 99)), _form("wh" + "sec_", (ALNUM, 32))
    ),
    "google-api-key": _form("AI" + "za", (URL64, 35)),
    "google-oauth-secret": _form("GOC" + "SPX-", (URL64, 28)),
    "google-oauth-token": _any(_form("ya" + "29.a0", (URL64, 160)), _form("1/" + "/0", (URL64, 61))),
    "npm-token": _form("np" + "m_", (ALNUM, 36)),
    "pypi-token": _form("py" + "pi-AgEIcHlwaS5vcmc", (URL64, 150)),
    "docker-token": _form("dck" + "r_pat_", (URL64, 27)),
    "twilio-key": _form("S" + "K", (HEX, 32)),
    "sendgrid-key": _form("S" + "G.", (URL64, 22), ".", (URL64, 43)),
    "mailgun-key": _form("ke" + "y-", (HEX, 32)),
    "mailchimp-key": _form((HEX, 32), "-u" + "s", (DIGITS[1:], 1)),
    "azure-storage-key": _form((BASE64, 86), "=="),
    "azure-client-secret": _form((ALNUM, 3), "8" + "Q~", (ALNUM + "_.-", 34)),
    "anthropic-key": _any(
        _form("sk-" + "ant-api03-", (URL64, 93), "AA"), _form("sk-" + "ant-oat01-", (URL64, 86), "AA")
    ),
    "openai-key": _any(
        _form("sk-" + "proj-", (URL64, 74), "T3Blbk" + "FJ", (URL64, 74)),
        _form("sk-", (ALNUM, 20), "T3Blbk" + "FJ", (ALNUM, 20)),
    ),
    "openrouter-key": _form("sk-" + "or-v1-", (HEX, 64)),
    "huggingface-token": _form("h" + "f_", (LOWER + UPPER, 34)),
    "groq-key": _form("gs" + "k_", (ALNUM, 52)),
    "telegram-token": _form((DIGITS[1:], 10), ":A" + "A", (URL64, 33)),
    "digitalocean-token": _form("dop" + "_v1_", (HEX, 64)),
    "shopify-token": _form("shp" + "at_", (HEX, 32)),
    "confide-token": _form("cfd" + "_", (URL64, 43)),
    "vault-token": _form("hv" + "s.", (URL64, 90)),
    "linear-key": _form("lin" + "_api_", (ALNUM, 40)),
    "notion-token": _form("nt" + "n_", (ALNUM, 46)),
    "grafana-token": _form("gl" + "sa_", (ALNUM, 32), "_", (HEX, 8)),
    "databricks-token": _form("da" + "pi", (HEX, 32)),
    "tailscale-key": _form("ts" + "key-auth-", (ALNUM, 12), "CNTRL-", (ALNUM, 32)),
    "atlassian-token": _form("ATA" + "TT3xFfGF0", (URL64, 170), "=", (HEX.upper(), 8)),
    "age-key": _form("AGE-" + "SECRET-KEY-1", ("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    "wallet-key": _form("xpr" + "v", ("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", 107)),
    "private-key": _private_key,
    "jwt": _jwt,
}

_ANYWHERE: dict[str, str] = {
    "env": "# production\nSERVICE_CREDENTIAL={}\nPORT=8010\n",
    "shell": "export CREDENTIAL='{}'\nmake deploy",
    "yaml": "service:\n  credential: {}\n  replicas: 3\n",
    "json": '{{"name": "shop", "credential": "{}", "replicas": 3}}',
    "python": 'client = Client("{}", timeout=30)\n',
    "chat": "User: here it is: {} please use it for the deploy and do not lose it",
    "log": "2026-11-20T10:41:07Z INFO deploy: calling with {}, attempt 2 of 3",
    "diff": "@@ -3,2 +3,2 @@\n-credential: old\n+credential: {}\n context",
    "markdown": "- The deploy account uses `{}` (rotated in May).\n- Port 8010.",
    "table": "| service | value |\n|---|---|\n| shop | {} |\n",
    "escaped": '{{"text": "first line\\n{}\\nlast line"}}',
    "url": "https://api.shop.internal/v1/orders?limit=5&auth={}",
}

_CONNECTIONS = {
    "connection": "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={};EndpointSuffix=core.windows.net",
    "env": "STORAGE=DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={}\n",
}

_PASSWORDS: dict[str, str] = {
    "env": "DB_HOST=db.internal\nDB_PASSWORD={}\nDB_PORT=5432\n",
    "env quoted": "SMTP_PASSWORD='{}'\n",
    "shell": 'export PGPASSWORD="{}"; psql -h db.internal shop',
    "option": "mysqldump --user=shop --password={} shop > dump.sql",
    "yaml": "database:\n  user: shop\n  password: {}\n",
    "yaml quoted": 'redis:\n  password: "{}"  # rotated in May\n',
    "json": '{{"user": "shop", "password": "{}"}}',
    "escaped": '{{"body": "{{\\"user\\": \\"shop\\", \\"password\\": \\"{}\\"}}"}}',
    "python": 'connection = connect(host="db.internal", user="shop", password="{}")\n',
    "constant": "ADMIN_PASSWORD = '{}'\n",
    "xml": "<server><username>deploy</username><password>{}</password></server>",
    "ini": "[client]\nuser = shop\npassword = {}\n",
    "typescript": "const dbPassword: string = '{}';",
    "chat": "the password is {} - can you try it?",
    "markdown": "- **Password:** `{}`\n",
    "diff": "-  password: old\n+  password: {}\n",
    "log": "debug connecting with user=shop password={}, host=db.internal",
    "properties": "spring.datasource.password={}\n",
    "list": "    environment:\n      - POSTGRES_PASSWORD={}\n",
    "php": "'host' => 'db', 'password' => '{}',",
    "constant call": "define('DB_PASSWORD', '{}');",
    "ado": "Server=db;Database=shop;User Id=sa;Password={};Encrypt=true",
    "terraform": 'variable "db_password" {{\n  type = string\n  default = "{}"\n}}\n',
    "kubernetes": '        - name: DB_PASSWORD\n          value: "{}"\n',
    "next line": "db_password:\n    {}\n",
    "sql": "CREATE USER shop WITH PASSWORD '{}';",
    "wrapped": 'let password = String::from("{}");',
    "login": "docker login -u shop -p {} registry.internal",
    "call": 'client = Credentials("shop", "{}")',
    "for": "Password for staging: {}",
    "reversed": 'Use "{}" as the admin password from now on.',
    "pair": "creds: shop / {}\n",
    "setter": 'server.setPassword("{}");',
    "fenced": "Password:\n```\n{}\n```\n",
    "nested option": "helm install shop --set auth.password={}",
    "netrc": "machine git.internal login shop password {}\n",
}

_SECRETS: dict[str, str] = {
    "env": "{name}={value}\n",
    "env quoted": 'export {name}="{value}"\n',
    "yaml": "shop:\n  {name}: {value}\n",
    "json": '{{"{name}": "{value}"}}',
    "python": '{name} = "{value}"\n',
    "javascript": "const config = {{ {name}: '{value}', retries: 3 }};",
    "option": "shopctl --{name} {value} deploy",
    "header": "curl -H '{name}: {value}' https://api.shop.internal/v1",
    "query": "GET https://api.shop.internal/v1?{name}={value}&page=2",
    "pair": '{{"name": "{name}", "value": "{value}"}}',
    "call": 'settings.set("{name}", "{value}")',
    "powershell": '$env:{name} = "{value}"',
    "java": "-D{name}={value} -jar shop.jar",
    "subscript": 'os.environ["{name}"] = "{value}"\n',
    "diff": "+{name}={value}\n",
    "markdown": "- {name}: `{value}`\n",
}
_NAMES = {
    "api-key": ("API_KEY", "api_key", "apiKey", "X-Api-Key", "WEATHER_API_KEY", "maps-api-key", "API key"),
    "token": ("TOKEN", "access_token", "authToken", "DEPLOY_TOKEN", "bot-token", "refresh_token", "Access token"),
    "secret-key": (
        "SECRET_KEY",
        "client_secret",
        "clientSecret",
        "APP_SECRET",
        "jwt_secret",
        "signing_key",
        "Client secret",
    ),
    "secret": ("SECRET", "mySecret", "shop_secret", "the-secret"),
    "key": ("KEY", "hmac_key", "shop-key", "salt_key"),
}
_random = _any(_form((ALNUM, 24)), _form((ALNUM, 32)), _form((HEX, 32)), _form((HEX, 40)), _form((URL64, 43)))
_long = _any(_form((HEX, 32)), _form((HEX, 64)), _form((ALNUM, 40)))


def positives(seed: int, count: int) -> Iterator[Sample]:
    """So many samples of each kind, over its contexts."""
    chance = random.Random(seed)
    for kind, make in TOKENS.items():
        contexts = _CONNECTIONS if kind == "azure-storage-key" else _ANYWHERE
        for context, template in _spread(chance, contexts, count):
            yield _made(kind, context, template.format("\0"), make(chance))
    for context, template in _spread(chance, _PASSWORDS, 4 * count):
        made = _password(chance)
        if context in ("option", "login", "nested option"):
            made = made.replace("&", "+").replace("#", "+").replace("*", "+")  # a shell's own
        yield _made("password", context, template.format("\0"), made)
    for kind, names in _NAMES.items():
        make = _long if kind == "key" else _random
        for context, template in _spread(chance, _SECRETS, count):
            name = chance.choice(names)
            yield _made(kind, context, template.format(name=name, value="\0"), make(chance))
    yield from _carried(chance, count)


def _carried(chance: random.Random, count: int) -> Iterator[Sample]:
    """Addresses and headers."""
    for _ in range(count):
        scheme = chance.choice(["postgres", "postgresql+asyncpg", "mysql", "mongodb+srv", "redis", "amqp"])
        user, name = (
            chance.choice(["shop", "app", "svc-deploy", "" if scheme == "redis" else "root"]),
            chance.choice(WORDS),
        )
        password = (
            chance.choice([_person, _form((ALNUM, 16)), _form((URL64, 24))])(chance)
            .replace("#", "%23")
            .replace("?", "%3F")
        )
        where = chance.choice(
            ["DATABASE_URL={}\n", "url: {}\n", 'connect("{}")', "it lives at {}.", "- `{}`\n", "engine = '{}';"]
        )
        yield _made(
            "connection-string",
            "address",
            where.replace("{}", f"{scheme}://{user}:\0@{name}.internal:5432/shop"),
            password,
        )
        where = chance.choice(["git clone {}", "remote: {}\n", "see <{}>", '"url": "{}"'])
        yield _made(
            "url-password",
            "address",
            where.replace("{}", f"https://{chance.choice(WORDS)}:\0@git.{name}.internal/shop.git"),
            _of(chance, ALNUM, 20),
        )
        pair = base64.b64encode(f"{name}:{_password(chance)}".encode()).decode()
        where = chance.choice(
            [
                "Authorization: Basic \0\n",
                "curl -H 'Authorization: Basic \0' https://x.internal",
                'headers = {"Authorization": "Basic \0"}',
            ]
        )
        yield _made("basic-auth", "header", where, pair)
        yield _made("password", "curl", "curl -s -u shop:\0 https://api.shop.internal/v1", _of(chance, ALNUM, 16))
        where = chance.choice(
            [
                "Authorization: Bearer \0\n",
                "curl -H 'Authorization: Bearer \0' https://x.internal",
                '{"authorization": "bearer \0"}',
                '-H "Authorization: token \0"',
            ]
        )
        yield _made("bearer-token", "header", where, _of(chance, URL64, chance.choice([24, 40, 64])))
        where = chance.choice(
            [
                "AWS_SECRET_ACCESS_KEY=\0\n",
                "aws_secret_access_key = \0\n",
                '"SecretAccessKey": "\0"',
                'secret_access_key: "\0"',
            ]
        )
        yield _made("aws-secret-key", "assignment", where, _of(chance, BASE64, 40))


def _spread(chance: random.Random, contexts: dict[str, str], count: int) -> Iterator[tuple[str, str]]:
    every = list(contexts.items())
    for number in range(count):
        yield every[number % len(every)]


def _made(kind: str, context: str, template: str, value: str) -> Sample:
    if kind == "private-key" and "\n" in value:
        before = template[: template.index("\0")]
        indent = before[before.rfind("\n") + 1 :]
        if context in ("json", "python", "escaped"):
            value = value.replace("\n", "\\n")
        elif indent.startswith("+"):
            value = value.replace("\n", "\n+")
        elif context in ("yaml", "shell", "env", "chat", "log", "markdown", "table", "url"):
            value = value.replace("\n", "\n    " if context == "yaml" else "\n")
    at = template.index("\0")
    return Sample(kind, context, template.replace("\0", value, 1), at, at + len(value))


def negatives(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """(what it is, text): so many of each thing that looks like a credential, and is none."""
    chance = random.Random(seed)
    for _ in range(count):
        sha = hashlib.sha256(chance.randbytes(8)).hexdigest()
        word, other = chance.choice(WORDS), chance.choice(WORDS)
        b64 = base64.b64encode(hashlib.sha512(chance.randbytes(8)).digest()).decode()
        some = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        yield "uuids", f"{some}\n- order {some} was shipped\nsession: {some}\n"
        yield (
            "commits",
            f"commit {sha[:40]}\nMerge: {sha[:9]} {sha[9:18]}\nAuthor: Ann <ann@example.com>\n\n    Rotate the {word} token\n",
        )
        yield "checksums", f"{sha}  {word}-1.{len(other)}.tar.gz\nsha256:{sha}\nthe digest is {sha}\n"
        yield (
            "lock file",
            f'"{word}": {{"version": "2.1.{len(word)}", "integrity": "sha512-{b64}", "resolved": "https://r.invalid/{word}/-/{word}.tgz"}}',
        )
        yield "pinned", f"{word}=={len(word)}.2 \\\n    --hash=sha256:{sha}\n"
        yield "image", f"![{word}](data:image/png;base64,{base64.b64encode(chance.randbytes(300)).decode()})"
        yield (
            "minified",
            f'!function(e,t){{var n=e.{word},r="{other}Token";t.password=n(r,e.key),e.token=t["{word}"],this.apiKey=r}}(a,b);',
        )
        yield (
            "templates",
            (
                f"DB_PASSWORD=${{DB_PASSWORD}}\nAPI_KEY=<your-api-key>\nTOKEN={{{{ {word}_token }}}}\npassword: $PASSWORD\n"
                f'api_key = os.environ["API_KEY"]\nsecret: !vault |\ntoken: ${{{{ secrets.{word.upper()}_TOKEN }}}}\npassword = %s\n'
            ),
        )
        yield (
            "placeholders",
            (
                "password=changeme\nAWS_ACCESS_KEY_ID=AKIA"
                + "IOSFODNN7EXAMPLE\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY"
                + "EXAMPLEKEY\n"
                f"token: xxxxxxxxxxxxxxxxxxxxxxxx\napi_key: sk-{'x' * 32}\nTOKEN=gh"
                + f"p_{'x' * 36}\npassword: ********\npassword = 'example-password'\n"
                "postgres://user:password@localhost/db\nhttps://user:pass@example.com/\nAuthorization: Bearer <token>\nAuthorization: Bearer YOUR_ACCESS_TOKEN_HERE\n"
            ),
        )
        yield (
            "code",
            (
                f"password = getpass.getpass()\ntoken = self.{word}_token\nkey = {word}_key2\nreturn {{password: user.password, token}}\n"
                f'if token == "{word}":\n    raise KeyError("{other}")\nprimary_key="{word}_{other}_id"\ncache_key = "{word}:{other}:{len(word)}"\n'
                f'parser.add_argument("--password", help="The {word} password.")\nTOKEN_URL = "https://{word}.internal/oauth2/token"\n'
                f'public_key = "{b64[:44]}"\npassword: Optional[str] = None\ntoken: "{word}-{other}-v2"\nmax_tokens = 4096\npassword_hash = "{sha}"\n'
            ),
        )
        yield (
            "prose",
            (
                f"The password is stored in the {word} vault. Token: the {other} service issues one every 15 minutes. The secret is patience.\n"
                f"You can pass `strict_{word}=False` or pass mode={word}2 to it; request.Password{word.title()}Mgr takes a token.\n"
                f"Key: {word.title()} comes before {other}. Our API key is rotated quarterly; the key is in 1Password under {word.title()}.\n"
                f"- **Password:** ask {other.title()}\n- token is expired\n- passed: 41, failed: 2\n- key: value\n"
            ),
        )
        yield (
            "logs",
            f'2026-11-20T10:41:07Z request_id={sha[:32]} trace={sha[32:48]} token_count={len(sha)} --- PASS: Test{word.title()}/big#01 (0.0s) etag="{sha[:32]}" path=/v1/tokens/{word}\n',
        )
        yield (
            "public keys",
            f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64[:43]} ann@{word}\n-----BEGIN CERTIFICATE-----\n{b64[:64]}\n-----END CERTIFICATE-----\n",
        )
        yield (
            "key readers",
            'if "-----BEGIN PRIVATE KEY-----" in text:\n    return load("-----BEGIN RSA PRIVATE KEY-----\\n...\\n-----END RSA PRIVATE KEY-----")\n',
        )
