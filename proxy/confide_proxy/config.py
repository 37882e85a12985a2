"""The proxy's configuration: one frozen dataclass, read from `proxy.toml`.

`configs/proxy.toml` shows every option at its default, and a test keeps it so. Only the user's own file is read, and only where nobody
else could have written it (docs/decisions/0020): nothing in a project folder may widen what is watched or sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from confide_crypto.errors import KeyFileError
from confide_proxy.clients import plugin_answers
from confide_proxy.errors import ConfigError

SOURCES: Final = ("tools", "files", "transcripts", "imports")
"""Where a text comes from: arguments of tools, files of memory, transcripts of sessions, imports of other systems."""
ACTIONS: Final = ("seal", "redact", "block", "allow")
KEPT: Final = ("keep", "replace")
"""What becomes of a credential in the file that it stands in."""
_FINGERPRINT_CHARS: Final = 24


class Policy(NamedTuple):
    """What becomes of a credential, by where it stands. No dataclass, whose making would cost every start of `confide mcp` a millisecond.

    Attributes:
        tools, files, transcripts, imports: one of `ACTIONS`.
        min_confidence: from which confidence on (above 0, at most 1); what is less sure is let through.
        allow: fingerprints of what may go as it is (`Fingerprints`).
        local: one of `KEPT`: whether a file of memory keeps what is sealed in clear, or gets a placeholder in its place too.
    """

    tools: str = "seal"
    files: str = "seal"
    transcripts: str = "seal"
    imports: str = "seal"
    min_confidence: float = 0.75
    allow: tuple[str, ...] = ()
    local: str = "keep"

    def action(self, source: str, confidence: float, fingerprint: str | None = None) -> str:
        """What becomes of one: an action of `ACTIONS`. No fingerprint is needed where `allow` is empty."""
        if confidence < self.min_confidence or fingerprint in self.allow:
            return "allow"
        return str(getattr(self, source))


MODES: Final = ("off", "suggest", "auto")
JUDGES: Final = ("rules", "local", "client")


class Learning(NamedTuple):
    """What is learned from sessions, and who judges (docs/learning.md).

    Attributes:
        mode: one of `MODES`.
        judges: of `JUDGES`, in the order in which they are asked: the next one if one cannot.
        local_url: where a server with OpenAI's interface listens on this machine; no other machine is asked.
        local_model: which of its models.
        client_model: which model the client's own command is asked for; "" for its cheapest.
        calls_a_day, tokens_a_day: how much the client's command may be asked in a day.
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


MOST_FRAMERS: Final = 16


class PanelConfig(NamedTuple):
    """Of the panel (docs/panel.md).

    Attributes:
        frame_ancestors: the origins whose pages may show it in a frame, as browsers write them; none unless they are named.
    """

    frame_ancestors: tuple[str, ...] = ()


MOST_FOLDERS: Final = 256
MOST_GLOBS: Final = 64


class FolderChoice(NamedTuple):
    """What a person has chosen for one folder: a section such as [folders."~/vault"].

    Attributes:
        folder: as it is written, absolute or below `~`.
        extra: further markdown that is indexed, as globs below the folder; read, never written.
    """

    folder: str
    extra: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The folder itself, behind all links."""
        return os.path.realpath(_at_home(self.folder))


TRANSCRIPT_SOURCES = ("claude-code", "codex")
"""Whose transcripts can be read; a test keeps it equal to the registry of their parsers."""


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """What a user can choose.

    Attributes:
        toolsets: the groups of tools that the agent is shown.
        extra: of earlier versions, for all folders: it holds where files of it went up before (`sync/workspace.py`), and nowhere else.
        gitignore: have git leave `memory/` out, by its `.git/info/exclude`, at the first store.
        on_demand: start a daemon on this machine when no other was joined.
        idle_exit_s: seconds without any session after which that daemon ends.
        debounce_ms: how long a file must be quiet before it is sent.
        max_file_kib: larger files are skipped, and said to be.
        renew_s: seconds after which an agent's session moves to a connection with fresh keys; at most an hour.
        keepalive_s: seconds of silence after which the link says that somebody is there (5 to 300); after 3.6 times as many it is given up.
        transcripts: the clients whose session transcripts are sent to the daemon, of `TRANSCRIPT_SOURCES`.
        claude_code_folder, codex_folder: where those are; "" for where the client keeps them.
        transcript_quiet_s: how long a transcript must be quiet before what is too little for a batch is sent.
        hooks: answer the hooks of clients: what they put before a model (docs/agents.md).
        secrets: the section [secrets], what becomes of credentials.
        learn: the section [learn], what is learned from sessions.
        panel: the section [panel], who may show it.
        folders: the sections [folders."..."], what holds for one folder alone.
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
    hooks: bool = True
    secrets: Policy = Policy()  # noqa: RUF009 - it is frozen
    learn: Learning = Learning()  # noqa: RUF009 - it is frozen
    panel: PanelConfig = PanelConfig()  # noqa: RUF009 - it is frozen
    folders: tuple[FolderChoice, ...] = ()

    def chosen(self, root: Path) -> FolderChoice | None:
        """What a person has chosen for the folder `root`; None where it has no section. A folder below it is another one."""
        if not self.folders:
            return None
        here = os.path.realpath(root)
        return next((each for each in self.folders if each.root == here), None)


_DEFAULTS = {field.name: field.default for field in fields(ProxyConfig)}
_BOUNDS = {"renew_s": (1, 3600), "keepalive_s": (5, 300)}
"""A test keeps the keepalive's equal to `confide_crypto.limits`, which would cost a start 4 ms here."""


def load(path: Path) -> ProxyConfig:
    """The configuration in `path`, or the defaults where there is no such file. Where it does not say whether anything is learned, what a
    person has answered about the plugin does.

    Raises ConfigError: the file cannot be read, others could have written it, it is not TOML, or holds a key or a value that is not ours.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return ProxyConfig(learn=Learning(mode=_answered()))
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    # Imported late: without a file there is nothing to parse, and most users have none.
    import tomllib

    from confide_crypto.keys.strict_modes import check_strict_modes

    try:
        check_strict_modes(path)
    except KeyFileError as error:
        raise ConfigError(path, f"is not used, since {error}", hint=error.hint) from None
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        hint = "configs/proxy.toml in the clone shows how it is written"
        raise ConfigError(path, f"is not TOML: {error}", hint=hint) from error
    found = ProxyConfig(**{key: _checked(path, key, value) for key, value in table.items()})
    is_said = "mode" in table.get("learn", {})
    return found if is_said else replace(found, learn=found.learn._replace(mode=_answered()))


def _answered() -> str:
    """What a person has answered about the plugin, if nobody else could have; one of `MODES`."""
    if (mode := plugin_answers.learning()) not in ("suggest", "auto"):
        return "off"
    from confide_crypto.keys.strict_modes import check_strict_modes

    try:
        check_strict_modes(Path(plugin_answers.settings()))
    except (KeyFileError, OSError):
        return "off"
    return mode


def policy_of(path: Path, table: Any) -> Policy:
    """The policy that a section of the configuration in `path` describes.

    Raises ConfigError: it is no table, or holds a key or a value that is not ours.
    """
    if not isinstance(table, dict):
        raise _wrong(path, "'secrets'", "it is a section: [secrets]")
    return Policy(**{key: _checked_action(path, key, value) for key, value in table.items()})


def learning_of(path: Path, table: Any) -> Learning:
    """What the section [learn] of the configuration in `path` says.

    Raises ConfigError: it is no table, or holds a key or a value that is not ours.
    """
    if not isinstance(table, dict):
        raise _wrong(path, "'learn'", 'it is a section: [learn] with mode = "suggest"')
    return Learning(**{key: _checked_learning(path, key, value) for key, value in table.items()})


def panel_of(path: Path, table: Any) -> PanelConfig:
    """What the section [panel] of the configuration in `path` says. Raises as `learning_of`."""
    if not isinstance(table, dict):
        raise _wrong(path, "'panel'", "it is a section: [panel]")
    return PanelConfig(**{key: _checked_panel(path, key, value) for key, value in table.items()})


def folders_of(path: Path, table: Any) -> tuple[FolderChoice, ...]:
    """What the sections [folders."..."] of the configuration in `path` say. Raises as `learning_of`."""
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
    except RuntimeError:  # the home folder of somebody who is not there
        return Path(folder)


def _is_below(glob: Any) -> bool:
    return isinstance(glob, str) and bool(glob.strip()) and glob[0] not in "/~!" and ".." not in glob.split("/")


def is_fingerprint(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _FINGERPRINT_CHARS and set(value) <= set("0123456789abcdef")


def _checked(path: Path, key: str, value: Any) -> Any:
    shown = f"'{key}'"
    if key not in _DEFAULTS:
        raise _unknown(path, key, shown, _DEFAULTS)
    if key == "secrets":
        return policy_of(path, value)
    if key == "learn":
        return learning_of(path, value)
    if key == "panel":
        return panel_of(path, value)
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
    if key == "local" and value not in KEPT:
        raise _wrong(path, shown, f"it is {' or '.join(KEPT)}")
    if key == "min_confidence":
        if type(value) not in (int, float) or not 0 < value <= 1:
            raise _wrong(path, shown, "it is a number above 0 and at most 1")
        return float(value)
    if key == "allow":
        # What is wrong is not repeated: somebody may have put the credential itself there.
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
    """Whether a text is one origin, as browsers write it, of a page that nobody on the way could have changed: by https, or this machine's.

    It becomes part of a policy, so of its signs there are none but letters, digits, dots, hyphens and those of a port: no `*`, no `;`.
    """

    if not isinstance(origin, str) or len(origin) > 255:
        return False
    found = re.fullmatch(r"(https?)://(\[::1\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(?::([1-9][0-9]{0,4}))?", origin)
    if found is None or int(found[4] or 1) > 65535 or ".." in found[2]:
        return False
    if int(found[4] or 0) == {"http": 80, "https": 443}[found[1]]:  # which a browser leaves out
        return False
    return found[1] == "https" or is_loopback(origin)


def is_loopback(url: Any) -> bool:
    """Whether a URL leads to this machine, by an address or by the name that every machine has for itself."""

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
