"""The proxy's configuration: one frozen dataclass, read from `proxy.toml`.

`configs/proxy.toml` shows every option with its default; a test keeps it so. Only the user's own
file is read, and only if no other user could have written it (docs/decisions/0020): nothing in a
project folder can widen what is watched or sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from confide_crypto.errors import KeyFileError
from confide_proxy.clients import plugin_answers
from confide_proxy.errors import ConfigError

SOURCES: Final = ("tools", "files", "transcripts", "imports")
"""Origins of a text: arguments of tools, memory files, transcripts, imports from other systems."""
ACTIONS: Final = ("seal", "redact", "block", "allow")
OPENED: Final = ("ask", "never", "allow")
"""Options for an agent's `secret_get`: ask the user each time, refuse, or answer."""
KEPT: Final = ("keep", "replace")
"""Options for a sealed credential in its memory file: keep it in clear, or replace it."""
_FINGERPRINT_CHARS: Final = 24


class Policy(NamedTuple):
    """The rules for credentials, by the origin of the text: the section [secrets].

    Not a dataclass: defining one would cost every start of `confide mcp` a millisecond.

    Attributes:
        tools, files, transcripts, imports: what to do with a credential in a text from this origin,
            one of `ACTIONS`.
        min_confidence: findings that are less certain than this (above 0, at most 1) are let
            through.
        allow: fingerprints of values that may be sent in clear (`Fingerprints`).
        local: one of `KEPT`, which says whether the memory file on this device keeps a sealed value
            in clear, or contains a placeholder instead.
        secret_get: one of `OPENED`, which says whether an agent may read a secret.
    """

    tools: str = "seal"
    files: str = "seal"
    transcripts: str = "seal"
    imports: str = "seal"
    min_confidence: float = 0.75
    allow: tuple[str, ...] = ()
    local: str = "keep"
    secret_get: str = "ask"  # noqa: S105 - a policy

    def action(self, source: str, confidence: float, fingerprint: str | None = None) -> str:
        """Return what to do with a credential that was found in a text: one of `ACTIONS`.

        Args:
            source: the origin of the text, such as `files`.
            confidence: how certain the finding is, from 0 to 1.
            fingerprint: the fingerprint of the value. It may be left out if `allow` is empty.
        """
        if confidence < self.min_confidence or fingerprint in self.allow:
            return "allow"
        return str(getattr(self, source))


MODES: Final = ("off", "suggest", "auto")
JUDGES: Final = ("rules", "local", "client")


class Learning(NamedTuple):
    """The section [learn]: whether Confide learns from sessions, and the judges of suggestions
    (docs/learning.md).

    Attributes:
        mode: whether and how Confide learns from sessions, one of `MODES`.
        judges: the methods that judge suggestions, some of `JUDGES`, in the order of preference. If
            one fails, the next one is used.
        local_url: the base URL of a server with OpenAI's API on this device; no other host is
            allowed.
        local_model: the model to use on that server.
        client_model: the model to use through the client's own command; "" for its cheapest.
        calls_a_day, tokens_a_day: the daily limits for that command.
    """

    mode: str = "off"
    judges: tuple[str, ...] = ("rules",)
    local_url: str = "http://127.0.0.1:11434/v1"
    local_model: str = "qwen2.5:3b"
    client_model: str = ""
    calls_a_day: int = 100
    tokens_a_day: int = 200_000

    @property
    def is_on(self) -> bool:
        return self.mode != "off"


MOST_RULES: Final = 1000


class RunConfig(NamedTuple):
    """The section [run]: `confide run` (docs/secrets.md).

    Attributes:
        allow: the commands that may use a secret without a question, by the secret's name,
            placeholder or id. A command is a name or the path of a program.
        ca_file: a file of PEM certificates that are trusted for hosts of `--http`, beside the
            system's; "" for none.
    """

    allow: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ca_file: str = ""


MOST_FRAMERS: Final = 16


class PanelConfig(NamedTuple):
    """The section [panel] (docs/panel.md).

    Attributes:
        frame_ancestors: the origins whose pages may show the panel in a frame, as browsers
            write them; empty for none.
    """

    frame_ancestors: tuple[str, ...] = ()


MOST_FOLDERS: Final = 256
MOST_GLOBS: Final = 64


class FolderChoice(NamedTuple):
    """The options for one folder: a section such as [folders."~/vault"].

    Attributes:
        folder: the path as written in the file, absolute or below `~`.
        extra: globs below the folder for further markdown files; Confide indexes these files,
            and never writes them.
    """

    folder: str
    extra: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """Return the folder's absolute path, with all symbolic links resolved."""
        return os.path.realpath(_at_home(self.folder))


TRANSCRIPT_SOURCES = ("claude-code", "codex")
"""Clients with a transcript parser; a test keeps this equal to the registry of parsers."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """The options of `proxy.toml`.

    Attributes:
        toolsets: the groups of tools that the agent sees.
        extra: globs for further markdown files in all folders, an option of earlier versions. It
            applies only to folders from which such files were sent before (`sync/workspace.py`).
        gitignore: True to exclude `memory/` from git, through `.git/info/exclude`, when the first
            memory is stored.
        on_demand: True to start a daemon on this device if the device has joined no other.
        idle_exit_s: seconds without any session after which that daemon ends.
        debounce_ms: milliseconds for which a file must be unchanged before it is sent.
        max_file_kib: the largest file that is sent; larger ones are skipped and reported.
        renew_s: seconds after which an agent's session moves to a connection with fresh keys; at
            most an hour.
        keepalive_s: seconds of silence (5 to 300) after which a keepalive is sent; after 3.6 times
            as long the link is given up.
        transcripts: the clients, of `TRANSCRIPT_SOURCES`, whose session transcripts are sent.
        claude_code_folder, codex_folder: the folders of the transcripts; "" for the client's
            default.
        transcript_quiet_s: seconds for which a transcript must be unchanged before its end is sent,
            if that is smaller than a batch.
        own_addresses: e-mail addresses that the user commits with, beside git's `user.email`.
        hooks: True to answer hooks of clients, which add text to a model's input (docs/agents.md).
        action_hooks: True to answer also the hooks before and after tool calls.
        questions: True to ask the user in the agent's client, where the client can
            (docs/agents.md).
        secrets: the section [secrets], the rules for credentials.
        learn: the section [learn], learning from sessions.
        panel: the section [panel], the pages that may embed the panel.
        run: the section [run], the commands that may use secrets.
        folders: the sections [folders."..."], options for single folders.
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
    own_addresses: tuple[str, ...] = ()
    hooks: bool = True
    action_hooks: bool = True
    questions: bool = True
    secrets: Policy = Policy()  # noqa: RUF009 - it is frozen
    run: RunConfig = RunConfig()  # noqa: RUF009 - it is frozen
    learn: Learning = Learning()  # noqa: RUF009 - it is frozen
    panel: PanelConfig = PanelConfig()  # noqa: RUF009 - it is frozen
    folders: tuple[FolderChoice, ...] = ()

    def options_for(self, root: Path) -> FolderChoice | None:
        """Return the options for the folder `root`, or None if it has no section of its own.

        A section does not apply to the subfolders of its folder.
        """
        if not self.folders:
            return None
        here = os.path.realpath(root)
        return next((each for each in self.folders if each.root == here), None)


_DEFAULTS = {field.name: field.default for field in fields(ProxyConfig)}
_BOUNDS = {"renew_s": (1, 3600), "keepalive_s": (5, 300)}
"""Bounds of numeric options. A test keeps those of `keepalive_s` equal to `confide_crypto.limits`,
whose import would add 4 ms to a start.
"""


def load(path: Path) -> ProxyConfig:
    """Read the configuration from `path`; without a file, return the defaults.

    If the file sets no learning mode, the user's answer to the plugin's question applies. Raises
    ConfigError if the file cannot be read, could have been written by another user, is not TOML, or
    contains an unknown key or an invalid value.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ProxyConfig(learn=Learning(mode=_plugin_learning()))
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    # Imported late: most users have no file, so there is nothing to parse.
    import tomllib

    from confide_crypto.keys.strict_modes import check_strict_modes

    try:
        check_strict_modes(path)
    except KeyFileError as error:
        raise ConfigError(path, f"is not used, since {error}", hint=error.hint) from None
    try:
        table = tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        hint = "configs/proxy.toml in the clone shows how it is written"
        raise ConfigError(path, f"is not TOML: {error}", hint=hint) from error
    found = ProxyConfig(**{key: _check_option(path, key, value) for key, value in table.items()})
    is_said = "mode" in table.get("learn", {})
    return found if is_said else replace(found, learn=found.learn._replace(mode=_plugin_learning()))


def _plugin_learning() -> str:
    """Return the learning mode (of `MODES`) that the user chose in the plugin's settings.

    Returns "off" if another user could have written those settings.
    """
    if (mode := plugin_answers.learning()) not in ("suggest", "auto"):
        return "off"
    from confide_crypto.keys.strict_modes import check_strict_modes

    try:
        check_strict_modes(Path(plugin_answers.settings()))
    except (KeyFileError, OSError):
        return "off"
    return mode


def policy_of(path: Path, table: Any) -> Policy:
    """Parse the section [secrets] of the configuration at `path`.

    Raises ConfigError if it is no table, or contains an unknown key or an invalid value.
    """
    if not isinstance(table, dict):
        raise _wrong(path, "'secrets'", "it is a section: [secrets]")
    return Policy(**{key: _checked_action(path, key, value) for key, value in table.items()})


def learning_of(path: Path, table: Any) -> Learning:
    """Parse the section [learn] of the configuration at `path`.

    Raises ConfigError if it is no table, or contains an unknown key or an invalid value.
    """
    if not isinstance(table, dict):
        raise _wrong(path, "'learn'", 'it is a section: [learn] with mode = "suggest"')
    return Learning(**{key: _checked_learning(path, key, value) for key, value in table.items()})


def panel_of(path: Path, table: Any) -> PanelConfig:
    """Parse the section [panel] of the configuration at `path`.

    Raises ConfigError if it contains an unknown key or an invalid value.
    """
    if not isinstance(table, dict):
        raise _wrong(path, "'panel'", "it is a section: [panel]")
    return PanelConfig(**{key: _checked_panel(path, key, value) for key, value in table.items()})


def run_of(path: Path, table: Any) -> RunConfig:
    """Parse the section [run] of the configuration at `path`.

    Raises ConfigError if it contains an unknown key or an invalid value.
    """
    if not isinstance(table, dict):
        raise _wrong(path, "'run'", "it is a section: [run]")
    if unknown := [key for key in table if key not in RunConfig._fields]:
        raise _unknown(path, unknown[0], f"'{unknown[0]}' in [run]", RunConfig._fields)
    allow = table.get("allow", {})
    if not isinstance(allow, dict) or len(allow) > MOST_RULES or not all(map(_is_commands, allow.values())):
        hint = 'it has the commands that may use a secret, by its name: { npm-token = ["npm"] }'
        raise _wrong(path, "'allow' in [run]", hint)
    ca_file = table.get("ca_file", "")
    if not isinstance(ca_file, str) or (ca_file and not Path(ca_file).expanduser().is_absolute()):
        raise _wrong(path, "'ca_file' in [run]", "it is the path of a file of PEM certificates, or empty")
    return RunConfig({secret: tuple(commands) for secret, commands in allow.items()}, ca_file)


def _is_commands(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_RULES and all(isinstance(one, str) and one for one in value)


def folders_of(path: Path, table: Any) -> tuple[FolderChoice, ...]:
    """Parse the sections [folders."..."] of the configuration at `path`.

    Raises ConfigError if one contains an unknown key or an invalid value.
    """
    if not isinstance(table, dict) or len(table) > MOST_FOLDERS:
        raise _wrong(path, "'folders'", f'it has up to {MOST_FOLDERS} sections, such as [folders."~/vault"]')
    return tuple(_checked_folder(path, folder, choice) for folder, choice in table.items())


def _checked_folder(path: Path, folder: str, choice: Any) -> FolderChoice:
    shown = f"[folders.{folder!r}]"
    if not isinstance(choice, dict) or not _at_home(folder).is_absolute():
        raise _wrong(path, shown, 'a section names a folder from the root or from your home: [folders."~/vault"]')
    if unknown := [key for key in choice if key != "extra"]:
        raise _unknown(path, unknown[0], f"'{unknown[0]}' in {shown}", ("extra",))
    extra = choice.get("extra", [])
    if not isinstance(extra, list) or len(extra) > MOST_GLOBS or not all(map(_is_below, extra)):
        hint = f'it takes up to {MOST_GLOBS} files, folders or globs below the folder: ["**/*.md"]'
        raise _wrong(path, f"'extra' in {shown}", hint)
    return FolderChoice(folder, tuple(extra))


def _at_home(folder: str) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError:  # the home folder of an unknown user
        return Path(folder)


def _is_below(glob: Any) -> bool:
    return isinstance(glob, str) and bool(glob.strip()) and glob[0] not in "/~!" and ".." not in glob.split("/")


def is_fingerprint(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _FINGERPRINT_CHARS and set(value) <= set("0123456789abcdef")


def _check_option(path: Path, key: str, value: Any) -> Any:
    shown = f"'{key}'"
    if key not in _DEFAULTS:
        raise _unknown(path, key, shown, _DEFAULTS)
    if key == "secrets":
        return policy_of(path, value)
    if key == "learn":
        return learning_of(path, value)
    if key == "panel":
        return panel_of(path, value)
    if key == "run":
        return run_of(path, value)
    if key == "folders":
        return folders_of(path, value)
    default = _DEFAULTS[key]
    if key == "toolsets" and isinstance(value, str):
        value = [value]  # "all" is what people write
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            if key == "transcripts" and (unknown := set(value) - set(TRANSCRIPT_SOURCES)):
                hint = f"there are {', '.join(TRANSCRIPT_SOURCES)}"
                raise ConfigError(path, f"names transcripts that are not known: '{min(unknown)}'", hint=hint)
            return tuple(value)
        raise _wrong(path, shown, 'it takes a list of strings, as in ["core"]')
    if type(value) is not type(default):
        kinds = {bool: "true or false", str: "a string", int: "a whole number"}
        raise _wrong(path, shown, f"it takes {kinds[type(default)]}")
    if type(value) is int and value <= 0:
        raise _wrong(path, shown, "it takes a whole number above zero")
    least, most = _BOUNDS.get(key, (1, 10**9))
    if type(value) is int and not least <= value <= most:
        raise _wrong(path, shown, f"it is at least {least} and at most {most:,}")
    return value


def _checked_action(path: Path, key: str, value: Any) -> Any:
    shown = f"'{key}' in [secrets]"
    if key not in Policy._fields:
        raise _unknown(path, key, shown, Policy._fields)
    if key in SOURCES and value not in ACTIONS:
        raise _wrong(path, shown, f"it is one of {', '.join(ACTIONS)}")
    if key == "secret_get" and value not in OPENED:
        raise _wrong(path, shown, f"it is one of {', '.join(OPENED)}")
    if key == "local" and value not in KEPT:
        raise _wrong(path, shown, f"it is {' or '.join(KEPT)}")
    if key == "min_confidence":
        if type(value) not in (int, float) or not 0 < value <= 1:
            raise _wrong(path, shown, "it is a number above 0 and at most 1")
        return float(value)
    if key == "allow":
        # The error does not repeat the value: it may be the credential itself.
        if not isinstance(value, list) or not all(is_fingerprint(each) for each in value):
            raise _wrong(path, shown, "it takes fingerprints as confide secrets scan prints them, 24 hex digits each")
        return tuple(value)
    return value


def _checked_learning(path: Path, key: str, value: Any) -> Any:
    shown = f"'{key}' in [learn]"
    if key not in Learning._fields:
        raise _unknown(path, key, shown, Learning._fields)
    if key == "mode":
        if value not in MODES:
            raise _wrong(path, shown, f"it is one of {', '.join(MODES)}")
        return value
    if key == "judges":
        if not isinstance(value, list) or not value or any(judge not in JUDGES for judge in value):
            raise _wrong(path, shown, f"it takes a list of {', '.join(JUDGES)}, in the order in which they are asked")
        return tuple(dict.fromkeys(value))
    default = Learning._field_defaults[key]
    if type(value) is not type(default):
        raise _wrong(path, shown, f"it takes {'a string' if isinstance(default, str) else 'a whole number'}")
    if type(value) is int and not 0 <= value <= 10**9:
        raise _wrong(path, shown, "it is at least 0 and at most 1,000,000,000")
    if key == "local_url" and not is_loopback(value):
        raise _wrong(path, shown, "it is of this device alone: http://127.0.0.1:PORT/v1")
    return value


def _checked_panel(path: Path, key: str, value: Any) -> Any:
    shown = f"'{key}' in [panel]"
    if key not in PanelConfig._fields:
        raise _unknown(path, key, shown, PanelConfig._fields)
    if not isinstance(value, list) or len(value) > MOST_FRAMERS or not all(is_framer(each) for each in value):
        hint = f"it takes up to {MOST_FRAMERS} origins, of https or of this device, without a path"
        raise _wrong(path, shown, f'{hint}: ["http://127.0.0.1:8000"]')
    return tuple(dict.fromkeys(value))


def is_framer(origin: Any) -> bool:
    """Return True if a text is the origin of web pages that may embed the panel, written as
    browsers do.

    It must be an https origin, or an origin on this device, since no one on the network can change
    such a page. The text becomes part of a Content-Security-Policy, so it consists of letters,
    digits, dots, hyphens and a port only, without `*` or `;`.
    """

    if not isinstance(origin, str) or len(origin) > 255:
        return False
    found = re.fullmatch(r"(https?)://(\[::1\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(?::([1-9][0-9]{0,4}))?", origin)
    if found is None or int(found[4] or 1) > 65535 or ".." in found[2]:
        return False
    if int(found[4] or 0) == {"http": 80, "https": 443}[found[1]]:  # browsers omit the default port
        return False
    return found[1] == "https" or is_loopback(origin)


def is_loopback(url: Any) -> bool:
    """Return True if an http URL leads to this device: 127.0.0.1, ::1 or localhost."""

    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme == "http" and parts.username is None and host in ("127.0.0.1", "::1", "localhost")


def _unknown(path: Path, key: str, shown: str, options: Collection[str]) -> ConfigError:
    import difflib

    near = difflib.get_close_matches(key, options, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the options are {', '.join(options)}"
    return ConfigError(path, f"has an unknown option {shown}", hint=hint)


def _wrong(path: Path, shown: str, hint: str) -> ConfigError:
    return ConfigError(path, f"has a wrong value for {shown}", hint=hint)
