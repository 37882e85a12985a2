"""The daemon's configuration: one frozen dataclass, read from `daemon.toml`.

`configs/daemon.toml` shows every option at its default, and a test keeps it so. Secrets are files with mode 0600, never values in here.
"""

from __future__ import annotations

import difflib
import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from confide_crypto.limits import LEAST_KEEPALIVE_S, MOST_KEEPALIVE_S
from confide_daemon.chunks import ChunkSettings
from confide_daemon.custody.custody import KEEPERS, Keeper
from confide_daemon.embed import providers
from confide_daemon.errors import ConfigError
from confide_daemon.sealing.vault_settings import VaultConfig

DEFAULT_PORT = 7733
RANKINGS = ("confide", "original")
# For `fallback`: what is configured besides the first, in the order of the original plan.
AUTO = "auto"
# What "auto" is in [at_rest] for a daemon that others than its own machine reach.
SHARED_CUSTODY: Keeper = "caller"


KEY_HINT = "write the key into a file of mode 0600 and name that file as key_file; if others have seen daemon.toml, make a new key"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How the daemon is reached.

    Attributes:
        listen: host and port of the one socket.
        public_url: what invites contain, where it differs from `listen` (a tunnel, a reverse proxy): `confides://memory.example.org:443/confide`.
        idle_exit_s: a daemon started on demand ends after this many seconds without a connection.
        max_sessions: connections of all callers together.
        max_sessions_per_caller: connections that one key may hold at once.
        max_session_s: a connection that is older is closed; machines move to a fresh one every hour.
        keepalive_s: seconds of silence after which a session says that somebody is there; after 3.6 times as many it is given up.
    """

    listen: str = f"127.0.0.1:{DEFAULT_PORT}"
    public_url: str = ""
    idle_exit_s: int = 900
    max_sessions: int = 4096
    max_sessions_per_caller: int = 8
    max_session_s: int = 7200
    keepalive_s: int = 25


BALANCED = ("balanced_score", "balanced_recency", "balanced_importance", "balanced_usage", "balanced_project")


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """How a search ranks, and what it uses where the agent says nothing.

    Attributes:
        ranking: `confide`, or `original`: the original plan's 0.7 of the cosine and 0.3 by the rank of the keyword leg.
        vector_weight, keyword_weight: of the two legs in the ranking `confide`.
        exact_weight, dated_weight, sessions_weight: what names as they were asked for, days that the question names, and transcripts beside
            notes make of a piece's relevance.
        half_life_days: when recency is half.
        usage_full: so many reads and showings make a usage of 1.
        balanced_score and those after it: of each factor in the rank `balanced`.
        reranker: the folder of a cross-encoder (`model.onnx` and `tokenizer.json`) that looks at the best hits again; "" for none.
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
    """How documents are cut.

    Attributes:
        chunks: tokens in a piece and tokens repeated from the piece before, as `48/0`, or by name: `small` (48/0), `original` (400/80).
    """

    chunks: str = "small"


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """The model that turns text into vectors, and those that stand in for it.

    Attributes:
        provider: a name of `providers.names()`, or `none` to leave searches to keywords. `local` and `hashed` send nothing anywhere.
        fallback: the providers that serve while the ones before them cannot, in order. `["auto"]` is, behind a provider on the network,
            those others that have a key file, and `local`; behind one on this machine it is nothing.
        folder: a model of your own (`model.onnx` and `tokenizer.json`) for `local`, in place of the packaged one.
        threads: how many cores a model on this machine may use.
        sections: by the provider's name, its own options (`[embedding.voyage]`).
    """

    provider: str = "local"
    fallback: tuple[str, ...] = (AUTO,)
    folder: str = ""
    threads: int = 2
    sections: Mapping[str, Any] = field(default_factory=providers.default_settings)

    def section(self, name: str) -> Any:
        """The `Settings` of a provider."""
        return self.sections[name]


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """What is kept of the past: every revision of what is there, and deleted files for so many days."""

    deleted_days: int = 90


@dataclass(frozen=True, slots=True)
class NotesConfig:
    """What is told of a note that is stored.

    Attributes:
        duplicate_similarity: what it has in common with another one, at least, to be told of as its duplicate: a cosine, or the share of
            equal words.
    """

    duplicate_similarity: float = 0.9


@dataclass(frozen=True, slots=True)
class AtRestConfig:
    """Who keeps the keys of the databases.

    Attributes:
        custody: of spaces that are made from now on: `server`, `caller`, or `auto`: `SHARED_CUSTODY`, and `server` for a daemon that was
            started on demand, whose machine is its only caller.
        lock_after_s: a key that callers keep is forgotten so many seconds after the last connection of its space has ended.
    """

    custody: str = AUTO
    lock_after_s: int = 43_200

    def keeper(self, *, on_demand: bool) -> Keeper:
        """Who keeps the key of a new space."""
        if self.custody == AUTO:
            return "server" if on_demand else SHARED_CUSTODY
        return "caller" if self.custody == "caller" else "server"


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Everything a person can choose."""

    server: ServerConfig = field(default_factory=ServerConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    notes: NotesConfig = field(default_factory=NotesConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    at_rest: AtRestConfig = field(default_factory=AtRestConfig)
    vault: VaultConfig = field(default_factory=VaultConfig)


def load(path: Path, *, must_exist: bool = False) -> DaemonConfig:
    """The configuration in `path`, or the defaults where there is no such file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds a key or a value that is not ours.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(path, "does not exist", hint="leave --config out to use the defaults") from None
        return DaemonConfig()
    except UnicodeDecodeError:
        raise ConfigError(path, "is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, f"is not TOML: {error}") from error
    config: DaemonConfig = _build(path, DaemonConfig(), table, "")
    _check_values(path, config)
    return config


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port`, `host` or `:port`.

    Raises:
        ValueError: the port is none, or the host is empty.
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
    """A copy of the dataclass `default` with the values of `table`, sections included."""
    sections = dict(getattr(default, "sections", {}))
    names = [item.name for item in fields(default) if item.name != "sections"]
    hints = get_type_hints(type(default))
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key in sections:
            sections[key] = changes.setdefault("sections", sections)[key] = _section(
                path, sections[key], value, f"{prefix}{key}"
            )
            continue
        if key not in names:
            if prefix.startswith("embedding.") and ("key" in key or "token" in key or "secret" in key):
                raise ConfigError(
                    path, f"holds a key under '{prefix}{key}', where anybody who sees it could use it", hint=KEY_HINT
                )
            if prefix == "vault." and ("token" in key or "secret" in key or "password" in key or key == "jwt"):
                hint = "write the token into a file of mode 0600 and name that file as token_file; if others have seen it, revoke it"
                raise ConfigError(
                    path, f"holds a token under '{prefix}{key}', where anybody who sees it could use it", hint=hint
                )
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean '{prefix}{near[0]}'?" if near else f"the options here are {', '.join(names)}"
            raise ConfigError(path, f"has an unknown option '{prefix}{key}'", hint=hint)
        current = getattr(default, key)
        if is_dataclass(current):
            changes[key] = _section(path, current, value, f"{prefix}{key}")
        else:
            changes[key] = _typed(path, f"{prefix}{key}", value, hints[key])
    return replace(default, **changes)


def _section(path: Path, default: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(path, f"has a wrong value for '{name}'", hint=f"it is a section: [{name}]")
    return _build(path, default, value, f"{name}.")


_KINDS: dict[Any, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _typed(path: Path, key: str, value: Any, wanted: Any) -> Any:
    if wanted is float and type(value) is int:
        value = float(value)
    if wanted == tuple[str, ...]:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(path, f"has a wrong value for '{key}'", hint='it takes a list of names, such as ["local"]')
    if type(value) is not wanted:
        raise ConfigError(path, f"has a wrong value for '{key}'", hint=f"it takes {_KINDS[wanted]}")
    return value


def _check_values(path: Path, config: DaemonConfig) -> None:
    server, search, index, embedding = config.server, config.search, config.index, config.embedding
    try:
        parse_listen(server.listen)
    except ValueError as error:
        raise ConfigError(path, "has a wrong value for 'server.listen'", hint=str(error)) from None
    if server.public_url and not server.public_url.startswith(("confide://", "confides://")):
        raise ConfigError(
            path, "has a wrong value for 'server.public_url'", hint="it begins with confide:// or confides://"
        )
    try:
        ChunkSettings.named(index.chunks)
    except ValueError as error:
        raise ConfigError(path, "has a wrong value for 'index.chunks'", hint=str(error)) from None
    if search.ranking not in RANKINGS:
        raise ConfigError(path, "has a wrong value for 'search.ranking'", hint=f"it is one of {', '.join(RANKINGS)}")
    if not search.vector_weight + search.keyword_weight:
        hint = "at least one of the two is above 0"
        raise ConfigError(path, "has a wrong value for 'search.vector_weight' and 'search.keyword_weight'", hint=hint)
    if config.at_rest.custody not in (AUTO, *KEEPERS):
        hint = f"it is one of {', '.join((AUTO, *KEEPERS))}"
        raise ConfigError(path, "has a wrong value for 'at_rest.custody'", hint=hint)
    _check_embedding(path, embedding)
    if (problem := config.vault.problem()) is not None:
        raise ConfigError(path, f"has a wrong value for 'vault.{problem[0]}'", hint=problem[1])
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
        "notes.duplicate_similarity": (config.notes.duplicate_similarity, 0.5, 1),
        "at_rest.lock_after_s": (config.at_rest.lock_after_s, 1, 10**9),
        "history.deleted_days": (config.history.deleted_days, 1, 36_500),
    }
    for key, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise ConfigError(
                path, f"has a wrong value for '{key}'", hint=f"it is at least {least} and at most {most:,}"
            )


def _check_embedding(path: Path, embedding: EmbeddingConfig) -> None:
    known = providers.names()
    choices = ", ".join([*known, providers.NONE])
    if embedding.provider not in (*known, providers.NONE):
        raise ConfigError(path, "has a wrong value for 'embedding.provider'", hint=f"it is one of {choices}")
    fallback = embedding.fallback
    if fallback != (AUTO,) and (not set(fallback) <= set(known) or len(set(fallback)) != len(fallback)):
        raise ConfigError(
            path, "has a wrong value for 'embedding.fallback'", hint=f"it is a list of names out of {', '.join(known)}"
        )
    for name, settings in embedding.sections.items():
        problem = settings.problem()
        if problem is not None:
            option, hint = problem
            raise ConfigError(path, f"has a wrong value for 'embedding.{name}.{option}'", hint=hint)
