"""The proxy's configuration: one frozen dataclass, read from `proxy.toml`.

`configs/proxy.toml` shows every option at its default, and a test keeps it so. Only the user's own file is read: nothing in a
project folder may widen what is watched or sent.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from confide_proxy.errors import ConfigError
from confide_proxy.secrets.policy import Policy, policy_of

TRANSCRIPT_SOURCES = ("claude-code", "codex")
"""Whose transcripts can be read; a test keeps it equal to the registry of their parsers."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What a user can choose.

    Attributes:
        toolsets: the groups of tools that the agent is shown.
        extra: further markdown that is indexed, as globs below the project folder; read, never written.
        gitignore: add `memory/` to a git project's `.gitignore` at the first store.
        on_demand: start a daemon on this machine when no other was joined.
        idle_exit_s: seconds without any session after which that daemon ends.
        debounce_ms: how long a file must be quiet before it is sent.
        max_file_kib: larger files are skipped, and said to be.
        renew_s: seconds after which an agent's session moves to a connection with fresh keys; at most an hour.
        keepalive_s: seconds of silence after which the link says that somebody is there (5 to 300); after 3.6 times as many it is given up.
        transcripts: the clients whose session transcripts are sent to the daemon, of `TRANSCRIPT_SOURCES`.
        claude_code_folder, codex_folder: where those are; "" for where the client keeps them.
        transcript_quiet_s: how long a transcript must be quiet before what is too little for a batch is sent.
        secrets: the section [secrets], what becomes of credentials.
    """

    toolsets: tuple[str, ...] = ("core",)
    extra: tuple[str, ...] = ()
    gitignore: bool = True
    on_demand: bool = True
    idle_exit_s: int = 900
    debounce_ms: int = 150
    max_file_kib: int = 4096
    renew_s: int = 3600
    keepalive_s: int = 25
    transcripts: tuple[str, ...] = ()
    claude_code_folder: str = ""
    codex_folder: str = ""
    transcript_quiet_s: int = 60
    secrets: Policy = Policy()  # noqa: RUF009 - it is frozen


def load(path: Path) -> ProxyConfig:
    """The configuration in `path`, or the defaults where there is no such file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds a key or a value that is not ours.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ProxyConfig()
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    # Imported late: without a file there is nothing to parse, and most users have none.
    import tomllib

    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(path, f"is not TOML: {error}") from error
    return ProxyConfig(**{key: _checked(path, key, value) for key, value in table.items()})


_DEFAULTS = {field.name: field.default for field in fields(ProxyConfig)}


_BOUNDS = {"renew_s": (1, 3600), "keepalive_s": (5, 300)}
"""A test keeps the keepalive's equal to `confide_crypto.limits`, which would cost a start 4 ms here."""


def _checked(path: Path, key: str, value: Any) -> Any:
    if key not in _DEFAULTS:
        import difflib

        near = difflib.get_close_matches(key, _DEFAULTS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"the options are {', '.join(_DEFAULTS)}"
        raise ConfigError(path, f"has an unknown option '{key}'", hint=hint)
    if key == "secrets":
        return policy_of(path, value)
    default = _DEFAULTS[key]
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            if key == "transcripts" and (unknown := set(value) - set(TRANSCRIPT_SOURCES)):
                hint = f"there are {', '.join(TRANSCRIPT_SOURCES)}"
                raise ConfigError(path, f"names transcripts that are not known: '{min(unknown)}'", hint=hint)
            return tuple(value)
        raise ConfigError(path, f"has a wrong value for '{key}'", hint='it takes a list of strings, as in ["core"]')
    if type(value) is not type(default):
        raise ConfigError(path, f"has a wrong value for '{key}'", hint=f"it takes {_kind(default)}")
    if type(value) is int and value <= 0:
        raise ConfigError(path, f"has a wrong value for '{key}'", hint="it takes a whole number above zero")
    least, most = _BOUNDS.get(key, (1, 10**9))
    if type(value) is int and not least <= value <= most:
        raise ConfigError(path, f"has a wrong value for '{key}'", hint=f"it is at least {least} and at most {most:,}")
    return value


def _kind(default: object) -> str:
    return (
        "true or false" if isinstance(default, bool) else "a string" if isinstance(default, str) else "a whole number"
    )
