"""The daemon's configuration: one frozen dataclass, read from `daemon.toml`.

`configs/daemon.toml` lists every option with its default, and a test keeps the file in step with
this module. Secrets are not in daemon.toml; it names files of mode 0600 that contain them.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, get_type_hints

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.strict_modes import check_strict_modes
from confide_crypto.limits import LEAST_KEEPALIVE_S, MOST_KEEPALIVE_S
from confide_daemon.datadir.key_state import KEEPERS, Keeper
from confide_daemon.embedding import providers
from confide_daemon.embedding.settings import AUTO, KEY_LIKE, EmbeddingSettings, url_problem
from confide_daemon.entry_points import ADDONS, entries
from confide_daemon.errors import ConfigError

DEFAULT_PORT = 7733
RANKINGS = ("confide", "original")
BALANCED = ("balanced_score", "balanced_recency", "balanced_importance", "balanced_usage", "balanced_project")
# Named values of `[index] chunks`: tokens in a chunk, tokens of overlap.
CHUNKINGS = {"small": (48, 0), "original": (400, 80)}

# Meaning of "auto" in [at_rest] for a daemon that other devices reach.
SHARED_CUSTODY: Keeper = "caller"

# With fewer, spaces would be closed and reopened all the time.
FEWEST_OPEN: Final = 8

TOKEN: Final = "token"  # noqa: S105 - no secret
KUBERNETES: Final = "kubernetes"
# Path at which Kubernetes provides and renews a pod's own token.
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_VAULT_PATH: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_ROLE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Prefixes of Vault and OpenBao tokens: service, batch and recovery, new and old.
_TOKEN_LIKE: Final = re.compile(r"(hv[sbr]|[sbr])\.[A-Za-z0-9_-]{20,}")
# The form that `openssl rand -hex 32` prints.
_SPOKEN_TOKEN: Final = re.compile(r"[0-9A-Fa-f]{32,}")

KEY_HINT = "write the key into a file of mode 0600 and name that file as key_file; if others have seen daemon.toml, make a new key"
TOKEN_HINT = (
    "write the token into a file of mode 0600 and name that file as token_file; if others have seen it, revoke it"  # noqa: S105 - no secret
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    listen: str = f"127.0.0.1:{DEFAULT_PORT}"  # host and port of the one socket
    # what invites contain, where it differs from `listen` (a tunnel, a reverse proxy):
    # `confides://memory.example.org:443/confide`
    public_url: str = ""
    idle_exit_s: int = 900  # a daemon started on demand ends after this many seconds without a connection
    max_sessions: int = 4096  # connections of all callers together
    max_sessions_per_caller: int = 8  # connections that one key may hold at once
    max_session_s: int = 7200  # a connection that is older is closed; machines move to a fresh one every hour
    keepalive_s: int = 25  # seconds of silence before a keepalive; after 3.6 times as many the session ends


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Ranking weights of a search, and defaults for arguments that the agent leaves out.

    Attributes:
        ranking: `confide`, or `original` for the first formula: 0.7 times the cosine similarity
            plus 0.3 divided by the rank in the keyword search.
        vector_weight, keyword_weight: weights of the vector search and of the keyword search in the
            ranking `confide`.
        exact_weight, dated_weight, sessions_weight: factors of a chunk's relevance for exact names,
            for days that the query names, and for transcripts when notes are searched too.
        half_life_days: age in days at which the recency factor is one half.
        usage_full: number of reads and appearances in results at which the usage factor reaches 1.
        balanced_score and those after it: weight of each factor in the rank `balanced`.
        reranker: the folder of a cross-encoder (`model.onnx` and `tokenizer.json`) that reranks the
            best hits; "" for none.
    """

    min_score: float = 0.25
    ranking: str = "confide"
    vector_weight: float = 0.32
    keyword_weight: float = 0.68
    exact_weight: float = 1.0
    dated_weight: float = 0.5
    sessions_weight: float = 0.6
    half_life_days: float = 30.0
    usage_full: int = 100
    balanced_score: float = 0.4
    balanced_recency: float = 0.2
    balanced_importance: float = 0.2
    balanced_usage: float = 0.2
    balanced_project: float = 0.1
    reranker: str = ""


@dataclass(frozen=True, slots=True)
class IndexConfig:
    # tokens in a piece and tokens repeated from the piece before, as `48/0`, or by name: `small`
    # (48/0), `original` (400/80)
    chunks: str = "small"


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    size: int = 48  # tokens at most; LoCoMo recall within 500 tokens: 48 80.8, 56 77.3, 64 75.2, 80 70.3, 100 67.7
    overlap: int = 0  # tokens repeated from the piece before, at most
    name: str = field(init=False)
    """Name stored with each document; a document chunked under another name is chunked again. The
    last number is the algorithm's version.
    """

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 2000 or not 0 <= self.overlap <= self.size // 2:
            raise ValueError(
                f"a chunk size is 16 to 2000 tokens and an overlap at most half of it, not {self.size}/{self.overlap}"
            )
        object.__setattr__(self, "name", f"{self.size}/{self.overlap}/9")

    @classmethod
    def parse(cls, name: str) -> ChunkSettings:
        """Parse the name of a preset (`small`, `original`) or two numbers such as `48/0`. Raises
        ValueError, with a message for the user, if the text is neither.
        """
        if name in CHUNKINGS:
            return cls(*CHUNKINGS[name])
        size, slash, overlap = name.partition("/")
        if not (slash and size.isdecimal() and overlap.isdecimal() and len(name) < 12):
            raise ValueError(f"it is {' or '.join(CHUNKINGS)}, or two numbers such as 48/0")
        return cls(int(size), int(overlap))


@dataclass(frozen=True, slots=True)
class EmbeddingConfig(EmbeddingSettings):
    """The configured embedding models, including the default options of each provider."""

    sections: Mapping[str, Any] = field(default_factory=providers.default_settings)


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Settings for history: how long the texts of deleted documents are kept. All revisions of
    existing documents are kept.
    """

    deleted_days: int = 90


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """Limits of one space; 0 means no limit. The defaults are far above what people and agents
    write.
    """

    space_mib: int = 10_240  # of its database: texts with all their revisions, and the index. 10,251 pieces have 26 MB
    documents: int = 1_000_000  # that are not deleted


@dataclass(frozen=True, slots=True)
class SpacesConfig:
    """Limits on the resources that all spaces of a daemon use together."""

    close_after_s: int = 900  # a space unused for so long is closed, and reopened on demand
    max_open_spaces: int = (
        256  # at once; the longest unused is closed for the next. Each takes some 2 MB and 10 descriptors
    )
    cache_mib: int = 512  # of what was read from all databases


@dataclass(frozen=True, slots=True)
class NotesConfig:
    """Settings for the hints in the response to a stored note, such as similar notes."""

    # least similarity for a note to be reported as a duplicate: a cosine, or the share of equal
    # words
    duplicate_similarity: float = 0.9


@dataclass(frozen=True, slots=True)
class AtRestConfig:
    """Settings for who keeps the keys of the encrypted databases."""

    # of spaces that are made from now on: `server`, `caller`, or `auto`: `SHARED_CUSTODY`, and
    # `server` for a daemon that was started on demand, whose machine is its only caller
    custody: str = AUTO
    # a key that callers keep is forgotten so many seconds after the last connection of its space
    # has ended
    lock_after_s: int = 43_200

    def keeper(self, *, on_demand: bool) -> Keeper:
        """Return who keeps the database key of a new space: the server, or the devices of the
        space. `on_demand` is True for a daemon that a proxy on this computer started.
        """
        if self.custody == AUTO:
            return "server" if on_demand else SHARED_CUSTODY
        return "caller" if self.custody == "caller" else "server"


@dataclass(frozen=True, slots=True)
class VaultConfig:
    """Settings for a HashiCorp Vault or OpenBao server that stores the sealed records in its KV v2
    engine.
    """

    url: str = ""  # its address; "" keeps the records in the spaces' databases
    mount: str = "secret"  # where its KV v2 engine is
    prefix: str = "confide"  # of all paths in there; a record lies at `<prefix>/<space id>/<secret id>/<place>`
    auth: str = TOKEN  # `token` or `kubernetes`
    # of mode 0600, with the token alone; where it is "", `vault-token` in `$CREDENTIALS_DIRECTORY`
    token_file: str = ""
    role: str = ""  # of the Kubernetes auth method
    jwt_file: str = SERVICE_ACCOUNT  # the service account's token, read at each login
    kubernetes_mount: str = KUBERNETES  # where that auth method is
    namespace: str = ""  # of Vault Enterprise or OpenBao; "" is the root
    ca_file: str = ""  # PEM certificates that the server's is signed by; "" takes the system's
    timeout_s: float = 5.0  # for one record to be kept or fetched, a login and further tries included

    def problem(self) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid. The result never contains the value, which may be a pasted token.
        """
        if self.url and (problem := _vault_url_problem(self.url)):
            return "url", problem
        for name in ("mount", "prefix", "kubernetes_mount"):
            if not _VAULT_PATH.fullmatch(getattr(self, name)):
                return name, "it is a path of letters, digits, hyphens, underscores and dots, as in team/confide"
        if self.namespace and not _VAULT_PATH.fullmatch(self.namespace.strip("/")):
            return "namespace", "it is a path such as team/confide"
        if self.auth not in (TOKEN, KUBERNETES):
            return "auth", f"it is one of {TOKEN}, {KUBERNETES}"
        if KEY_LIKE.fullmatch(self.token_file) or _TOKEN_LIKE.fullmatch(self.token_file):
            return "token_file", "it is the path of a file that holds the token, not the token itself"
        if self.role and not _ROLE.fullmatch(self.role):
            return "role", "it is the name of a role"
        if self.url and self.auth == KUBERNETES and not self.role:
            return "role", 'auth = "kubernetes" needs the name of the vault\'s role'
        if not 0.5 <= self.timeout_s <= 60:
            return "timeout_s", "it is at least 0.5 and at most 60"
        return None


def _vault_url_problem(url: str) -> str | None:
    if url_problem(url, allow_plain_http=True):
        return "it is an address such as https://vault.example.org:8200"
    if url_problem(url, allow_plain_http=False):
        return "it begins with https://, since the token is sent with it; http:// is for this machine and private addresses only"
    return None


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Settings of the Prometheus endpoint. `confided status --watch` does not need it."""

    listen: str = ""  # host and port of a socket for metrics alone; "" for no socket
    # of mode 0600, with the token alone that a scraper sends; where it is "",
    # `confide-metrics-token` in `$CREDENTIALS_DIRECTORY`
    token_file: str = ""
    per_space: bool = False  # whether the largest spaces have series of their own, under their ids

    def problem(self) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid.
        """
        if self.listen:
            try:
                if not parse_listen(self.listen)[1] or self.listen.count(":") == 0:
                    raise ValueError("it takes a port of its own, as in 127.0.0.1:9733")
            except ValueError as error:
                return "listen", str(error)
        if KEY_LIKE.fullmatch(self.token_file) or _SPOKEN_TOKEN.fullmatch(self.token_file):
            return "token_file", "it is the path of a file that holds the token, not the token itself"
        return None


class AddonTable(Protocol):
    """Base class of an add-on's table in daemon.toml: a frozen dataclass of options. Its defaults
    apply if the file lacks the table.
    """

    def problem(self, config: DaemonConfig) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid. `config` is the whole configuration.
        """


_Table = TypeVar("_Table", bound=AddonTable)


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """The daemon's whole configuration.

    Attributes:
        tables: the add-ons' tables that daemon.toml contains, by name.
    """

    server: ServerConfig = field(default_factory=ServerConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    notes: NotesConfig = field(default_factory=NotesConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    quota: QuotaConfig = field(default_factory=QuotaConfig)
    spaces: SpacesConfig = field(default_factory=SpacesConfig)
    at_rest: AtRestConfig = field(default_factory=AtRestConfig)
    vault: VaultConfig = field(default_factory=VaultConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    tables: Mapping[str, AddonTable] = field(default_factory=dict)

    def table(self, kind: type[_Table]) -> _Table:
        """Return the options of an add-on's table, or their defaults if daemon.toml lacks the
        table.
        """
        return next((one for one in self.tables.values() if isinstance(one, kind)), None) or kind()


def load(path: Path, *, must_exist: bool = False) -> DaemonConfig:
    """Return the configuration in `path`, or the defaults if the file does not exist.

    Raises ConfigError if the file cannot be read, is writable by others, is not TOML, or contains
    an unknown option or invalid value.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        check_strict_modes(path)
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(path, "does not exist", hint="leave --config out to use the defaults") from None
        return DaemonConfig()
    except KeyFileError as error:
        raise ConfigError(path, f"is not used, since {error}", hint=error.hint) from None
    except UnicodeDecodeError:
        raise ConfigError(path, "is not UTF-8 text", hint="save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = "configs/daemon.toml in the clone shows how it is written"
        raise ConfigError(path, f"is not TOML: {error}", hint=hint) from error
    config: DaemonConfig = _build(path, DaemonConfig(), table, "")
    _check_values(path, config)
    return config


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port from `host:port`, `[v6]:port`, `host` or `:port`. Raises ValueError if
    the port is invalid or the host is empty.
    """
    host, port = text.strip(), str(DEFAULT_PORT)
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        ipaddress.IPv6Address(host)
        port = rest[1:] if rest.startswith(":") else port
    elif host.count(":") == 1:
        host, port = host.split(":")
    elif ":" in host:
        raise ValueError("an IPv6 address is written in brackets, as in [::1]:7733")
    if not host:
        raise ValueError("the host is missing; 127.0.0.1 is this machine only, 0.0.0.0 every interface")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"'{port}' is not a port number")
    return host, int(port)


def _build(path: Path, default: Any, table: dict[str, Any], prefix: str) -> Any:
    """Return a copy of the dataclass `default` with the values of `table`, including sections."""
    sections = dict(getattr(default, "sections", {}))
    names = [item.name for item in fields(default) if item.name not in ("sections", "tables")]
    hints = get_type_hints(type(default))
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key in sections:
            sections[key] = changes.setdefault("sections", sections)[key] = _section(
                path, sections[key], value, f"{prefix}{key}"
            )
            continue
        if not prefix and key not in names and key in addon_tables():
            changes.setdefault("tables", {})[key] = _section(path, addon_tables()[key](), value, key)
            continue
        if key not in names:
            kind, hint = _secret_in(default, prefix, key)
            if kind:
                problem = f"holds a {kind} under '{prefix}{key}', where anybody who sees it could use it"
                raise ConfigError(path, problem, hint=hint)
            known = names if prefix else [*names, *addon_tables()]
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{prefix}{near[0]}'?" if near else f"the options here are {', '.join(known)}"
            if isinstance(value, dict) and not prefix:
                hint = f"no add-on that is installed reads such a table; {hint}"
            raise ConfigError(path, f"has an unknown option '{prefix}{key}'", hint=hint)
        current = getattr(default, key)
        if is_dataclass(current):
            changes[key] = _section(path, current, value, f"{prefix}{key}")
        else:
            changes[key] = _check_type(path, f"{prefix}{key}", value, hints[key])
    return replace(default, **changes)


@cache
def addon_tables() -> Mapping[str, type[AddonTable]]:
    """Return the dataclass of each table that an installed add-on defines, by the table's name in
    daemon.toml. They come from `TABLES` in each package's `settings.py`.
    """
    found: dict[str, type[AddonTable]] = {}
    for entry in entries(ADDONS):
        settings = f"{entry.module.partition('.')[0]}.settings"
        if find_spec(settings) is not None:
            found |= import_module(settings).TABLES
    return found


def _secret_in(default: Any, prefix: str, key: str) -> tuple[str, str]:
    """Return the kind of secret that an unknown option probably holds, and its proper place; empty
    for none.
    """
    if prefix.startswith("embedding.") and any(word in key for word in ("key", "token", "secret")):
        return "key", KEY_HINT
    for word, hint in getattr(default, "SECRETS", {}).items():
        if word in key:
            return word, hint
    if prefix in ("vault.", "metrics.") and (
        any(word in key for word in ("token", "secret", "password")) or key == "jwt"
    ):
        return "token", TOKEN_HINT
    return "", ""


def _wrong(path: Path, option: str, hint: str) -> ConfigError:
    return ConfigError(path, f"has a wrong value for '{option}'", hint=hint)


def _section(path: Path, default: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(path, name, f"it is a section: [{name}]")
    return _build(path, default, value, f"{name}.")


_KINDS: dict[Any, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _check_type(path: Path, key: str, value: Any, wanted: Any) -> Any:
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise _wrong(path, key, 'it takes a list of names, such as ["local"]')
    if type(value) is not wanted:
        raise _wrong(path, key, f"it takes {_KINDS[wanted]}")
    return value


def _check_values(path: Path, config: DaemonConfig) -> None:
    server, search, index, embedding = config.server, config.search, config.index, config.embedding
    try:
        parse_listen(server.listen)
    except ValueError as error:
        raise _wrong(path, "server.listen", str(error)) from None
    if server.public_url and not server.public_url.startswith(("confide://", "confides://")):
        raise _wrong(path, "server.public_url", "it begins with confide:// or confides://")
    try:
        ChunkSettings.parse(index.chunks)
    except ValueError as error:
        raise _wrong(path, "index.chunks", str(error)) from None
    if search.ranking not in RANKINGS:
        raise _wrong(path, "search.ranking", f"it is one of {', '.join(RANKINGS)}")
    if not search.vector_weight + search.keyword_weight:
        hint = "at least one of the two is above 0"
        raise _wrong(path, "search.vector_weight' and 'search.keyword_weight", hint)
    if config.at_rest.custody not in (AUTO, *KEEPERS):
        hint = f"it is one of {', '.join((AUTO, *KEEPERS))}"
        raise _wrong(path, "at_rest.custody", hint)
    _check_embedding(path, embedding)
    if (problem := config.vault.problem()) is not None:
        raise _wrong(path, f"vault.{problem[0]}", problem[1])
    if (problem := config.metrics.problem()) is not None:
        raise _wrong(path, f"metrics.{problem[0]}", problem[1])
    for name, table in config.tables.items():
        if (problem := table.problem(config)) is not None:
            raise _wrong(path, f"{name}.{problem[0]}", problem[1])
    bounds = {
        "server.idle_exit_s": (server.idle_exit_s, 1, 10**9),
        "server.max_sessions": (server.max_sessions, 1, 100_000),
        "server.max_sessions_per_caller": (server.max_sessions_per_caller, 1, 1000),
        "server.max_session_s": (server.max_session_s, 1, 7200),
        "server.keepalive_s": (server.keepalive_s, LEAST_KEEPALIVE_S, MOST_KEEPALIVE_S),
        "search.min_score": (search.min_score, 0, 1),
        "search.vector_weight": (search.vector_weight, 0, 1),
        "search.keyword_weight": (search.keyword_weight, 0, 1),
        "search.exact_weight": (search.exact_weight, 0, 10),
        "search.dated_weight": (search.dated_weight, 0, 10),
        "search.sessions_weight": (search.sessions_weight, 0, 10),
        "search.half_life_days": (search.half_life_days, 0.01, 36_500),
        "search.usage_full": (search.usage_full, 1, 10**9),
        **{f"search.{name}": (getattr(search, name), 0, 10) for name in BALANCED},
        "embedding.threads": (embedding.threads, 1, 256),
        "embedding.unload_after_s": (embedding.unload_after_s, 0, 10**9),
        "notes.duplicate_similarity": (config.notes.duplicate_similarity, 0.5, 1),
        "at_rest.lock_after_s": (config.at_rest.lock_after_s, 1, 10**9),
        "history.deleted_days": (config.history.deleted_days, 1, 36_500),
        "quota.space_mib": (config.quota.space_mib, 0, 10**9),
        "quota.documents": (config.quota.documents, 0, 10**9),
        "spaces.close_after_s": (config.spaces.close_after_s, 1, 10**9),
        "spaces.max_open_spaces": (config.spaces.max_open_spaces, FEWEST_OPEN, 100_000),
        "spaces.cache_mib": (config.spaces.cache_mib, 16, 10**6),
    }
    for key, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise _wrong(path, key, within(least, most))


def within(least: float, most: float) -> str:
    """Return a phrase that names the least and the most allowed value, for error messages."""
    return f"it is at least {least} and at most {most:,}"


def _check_embedding(path: Path, embedding: EmbeddingConfig) -> None:
    known = providers.names()
    choices = ", ".join([*known, providers.NONE])
    if embedding.provider not in (*known, providers.NONE):
        raise _wrong(path, "embedding.provider", f"it is one of {choices}")
    fallback = embedding.fallback
    if fallback != (AUTO,) and (not set(fallback) <= set(known) or len(set(fallback)) != len(fallback)):
        raise _wrong(path, "embedding.fallback", f"it is a list of names out of {', '.join(known)}")
    for name, settings in embedding.sections.items():
        problem = settings.problem()
        if problem is not None:
            option, hint = problem
            raise _wrong(path, f"embedding.{name}.{option}", hint)
