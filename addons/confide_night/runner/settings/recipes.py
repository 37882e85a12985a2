"""Reads `runner.toml`: the recipes that this device executes for others, and their limits.

The file is only on the runner, with mode 0600. It states everything an order may do; an order names
a recipe, fills in text, and can only lower limits.
"""

from __future__ import annotations

import difflib
import re
import socket
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.identity import typed_words, word_list
from confide_crypto.keys.private_files import read_private_file
from confide_crypto.sealing.placeholder import Placeholder
from confide_night.runner.settings.prices import Price, price_of
from confide_proxy.errors import ConfigError
from confide_proxy.run.egress.header_secrets import Destination, is_fit_header

NAME: Final = "runner.toml"
KINDS: Final = ("review", "fix", "ask", "command")
AGENTS: Final = ("claude", "codex")
APIS: Final = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
_NAMED: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_WORDS: Final = 6
_SCHEMES: Final = frozenset({"https", "http", "ssh", "git", "file"})
_SCP: Final = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^:].*")
"""The short form of ssh addresses, as in `git@host:path`."""
_WHERE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""A file's name below /run/secrets in the sandbox."""
_NAME_FORM: Final = "small letters, digits and hyphens, a letter first, 32 at most"

Reader = Callable[[Any], Any]
"""Function that parses a value of the file. Raises ValueError if it is invalid; the message
describes a valid one.
"""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Resource limits of a run.

    Attributes:
        memory_mib, processes: limits of all its processes together, applied if the device has
            control groups.
        disk_mib: limit of its work folder, checked every 5 s.
        clone_mib, clone_s: limits of a repository's size and of the time to fetch it.
        free_mib: free disk space below which the runner claims nothing.
    """

    memory_mib: int = 4096
    processes: int = 512
    disk_mib: int = 5120
    clone_mib: int = 2048
    clone_s: int = 600
    free_mib: int = 2048


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model's API.

    Attributes:
        api: its format, one of `APIS`.
        url: its address; the provider's own by default.
        key_file: a file of mode 0600 with the key.
        key: the placeholder of a sealed secret, `(sealed:…)`. A recipe with a model needs either
            `key_file` or `key`.
    """

    api: str = "anthropic"
    url: str = ""
    key_file: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """Return the API's URL."""
        return self.url or APIS[self.api]


class Header(NamedTuple):
    """A secret that the gateway sets in a header of requests to a host; `{}` in `form` marks its
    place.
    """

    host: str
    header: str
    secret: str
    form: str = "{}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kind of work that this runner executes.

    Attributes:
        name: the name in orders.
        kind: one of `KINDS`.
        agent: the agent of a review or a fix, one of `AGENTS`.
        program: the agent's path; "" to search the PATH.
        model: the model, which must have a price.
        command: argv, only for the kind `command`.
        check: argv of the check of the work, run in the same sandbox without a gateway; () for
            none.
        repositories: names in [repositories] that it may use; `*` for all.
        max_usd, timeout_s: limits of a run's cost and duration; an order can only lower them.
        hosts: hosts besides the model's that its gateway forwards to.
        headers, files: secrets for headers at the gateway, or for files in memory (names below
            /run/secrets).
        readable: files and folders of this device that its sandbox can read.
        push: whether the branch `confide/SLOT` is pushed to the repository after the daemon
            accepted the outcome.
        push_ci: whether it is pushed even if it changes CI configuration (`.github`,
            `.gitlab-ci.yml` and the like).
        approval: `device` if another device, or this one, must approve the order; `none` if the
            order's signature suffices.
        repeatable: whether a lost run may be executed again.
        instructions: text that the agent gets before the order's text.
        max_turns: limit of the agent's turns; 0 for no limit.
    """

    name: str
    kind: str
    agent: str = "claude"
    program: str = ""
    model: str = "claude-sonnet-5"
    command: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ("*",)
    max_usd: float = 2.0
    timeout_s: int = 1800
    hosts: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[str, ...] = ()
    push: bool = False
    push_ci: bool = False
    approval: str = "none"
    repeatable: bool = False
    instructions: str = ""
    max_turns: int = 0

    @property
    def asks_a_model(self) -> bool:
        """Return True if the recipe needs the model's key. That includes a recipe of the kind
        `command` that names a model.
        """
        return self.kind != "command" or bool(self.model)

    @property
    def lasts(self) -> bool:
        """Return True if a run may have effects beyond a result to read, such as a pushed branch or
        requests to other hosts.
        """
        return self.push or bool(self.hosts or self.headers or self.files)

    @property
    def secrets(self) -> frozenset[str]:
        """Return the names of the secrets that the recipe uses."""
        return frozenset({*(each.secret for each in self.headers), *self.files.values()})

    def takes(self, repository: str) -> bool:
        """Return True if the recipe may be used on the repository with that name."""
        return "*" in self.repositories or repository in self.repositories


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The content of `runner.toml`.

    Attributes:
        path: the file's path.
        name: the runner's name in reports.
        monthly_usd: limit of the cost of all its runs in a month.
        repositories: URLs or paths by name. An order selects one by name, by URL, or by its
            project's name.
        secrets: placeholders of sealed secrets, by the names that recipes use.
        prices: prices of models that override the package's.
        approvers: the six words of the devices whose approval counts here, besides this one's own;
            () for every device that neither added the ordering device nor was added by it.
    """

    path: Path
    name: str
    monthly_usd: float = 20.0
    limits: RunLimits = RunLimits()
    model: ModelSettings = ModelSettings()
    repositories: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    approvers: tuple[str, ...] = ()

    def repository(self, named: str, project: str) -> str:
        """Return the name of an order's repository: the one that the order names by name or URL
        (`named`), or else the one of its project. Return "" if this runner has no such repository.
        """
        for name, url in self.repositories.items():
            if named in (name, url) or (not named and name == project):
                return name
        return ""

    def price(self, model: str) -> Price | None:
        """Return the price of a model; None if unknown."""
        return price_of(model, self.prices)


def read(path: Path) -> RunnerSettings:
    """Read the settings from a file.

    Raises ConfigError if the file is missing, accessible to other users, not TOML, or has an
    unknown or invalid option.
    """
    if not path.exists() and not path.is_symlink():
        raise ConfigError(path, "is not there", hint="confide task runner --init writes one")
    try:
        raw = read_private_file(path)
    except KeyFileError as error:
        raise ConfigError(path, f"is not used, since {error}", hint=error.hint) from None
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(path, f"is not UTF-8 text (byte {error.start})", hint="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            path, f"is not TOML: {error}", hint="confide task runner --init --print shows how it is written"
        ) from None
    return _SettingsReader(path).settings(table)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 16_384 or "\0" in value:
        raise ValueError("it is a string")
    return value


def _list(value: Any) -> tuple[str, ...]:
    is_one = isinstance(value, list) and all(isinstance(each, str) and each and "\0" not in each for each in value)
    if not is_one or len(value) > 256:
        raise ValueError('it is a list of strings: ["make", "test"]')
    return tuple(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is true or false")
    return value


def _number(least: int, most: int) -> Reader:
    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"it is a whole number from {least:,} to {most:,}")
        return value

    return read


def _money(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= 100_000:
        raise ValueError("it is an amount of US dollars above 0: 2.0")
    return float(value)


def _kind(value: Any) -> str:
    if value not in KINDS:
        raise ValueError(f"it is one of {', '.join(KINDS)}")
    return str(value)


def _approver(words: str) -> bool:
    return len(words.split("-")) == _WORDS and set(words.split("-")) <= set(word_list())


_OF_LIMITS: Final = {each.name: _number(1, 1_048_576) for each in fields(RunLimits)}
_OF_MODEL: Final = {each.name: _text for each in fields(ModelSettings)}
_OF_HEADER: Final = {name: _text for name in Header._fields if name != "host"}
_OF_RECIPE: Final[Mapping[str, Reader]] = {
    "kind": _kind,
    **dict.fromkeys(("agent", "program", "model", "approval", "instructions"), _text),
    **dict.fromkeys(("command", "check", "repositories", "hosts", "readable"), _list),
    **dict.fromkeys(("push", "push_ci", "repeatable"), _flag),
    "max_usd": _money,
    "timeout_s": _number(1, 24 * 3600),
    "max_turns": _number(0, 10_000),
    **dict.fromkeys(("headers", "files"), lambda value: value),  # sections, which are parsed separately
}


class _SettingsReader:
    """Reads and checks the sections of one file; errors are ConfigError with the place in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def settings(self, table: dict[str, object]) -> RunnerSettings:
        own = {each.name for each in fields(RunnerSettings)} - {"path"}
        for key in table:
            if key not in own:
                raise self._unknown_option_error(key, key, own)
        form = '"(sealed:KIND:…)", as confide secrets ls prints it'
        prices = self._table("prices", table.get("prices", {}))
        found = RunnerSettings(
            self._path,
            self._value("name", table.get("name", ""), _text) or socket.gethostname(),
            self._value("monthly_usd", table.get("monthly_usd", 20.0), _money),
            RunLimits(**self._section("limits", table.get("limits", {}), _OF_LIMITS)),
            self._model(table.get("model", {})),
            self._names("repositories", table.get("repositories", {}), _repository, "a URL, or an absolute path"),
            self._names("secrets", table.get("secrets", {}), _placeholder, form),
            {model: self._price(model, each) for model, each in prices.items()},
            approvers=tuple(map(typed_words, self._value("approvers", table.get("approvers", []), _list))),
        )
        if not all(map(_approver, found.approvers)):
            raise self._wrong("approvers", "it is a list of devices' six words, as confide device ls prints them")
        recipes = self._table("recipes", table.get("recipes", {}))
        return replace(found, recipes={name: self._recipe(name, each, found) for name, each in recipes.items()})

    def _model(self, table: Any) -> ModelSettings:
        found = ModelSettings(**self._section("model", table, _OF_MODEL))
        if found.api not in APIS:
            raise self._wrong("api in [model]", f"it is {' or '.join(APIS)}")
        if not _is_web(found.place):
            raise self._wrong("url in [model]", "it is https://…, or http:// to this device's loopback")
        if found.key_file and found.key:
            raise self._wrong("key in [model]", "there is one of key and key_file")
        if found.key and not _placeholder(found.key):
            # The message must not repeat the value: it may be the key itself.
            hint = 'it is "(sealed:KIND:…)"; the key itself belongs into a file of mode 0600: key_file'
            raise self._wrong("key in [model]", hint)
        return found

    def _price(self, model: str, table: Any) -> Price:
        try:
            return Price.of(self._table(f"prices.{model}", table))
        except ValueError as error:
            raise self._wrong(f'[prices."{model}"]', str(error)) from None

    def _recipe(self, name: str, table: Any, among: RunnerSettings) -> Recipe:
        where = f"recipes.{name}"
        if not _NAMED.fullmatch(name):
            raise self._wrong(f"[{where}]", f"a recipe's name is {_NAME_FORM}")
        given = {"kind": name if name in KINDS else "", **self._table(where, table)}
        if given["kind"] == "command":
            given.setdefault("model", "")
        read = self._section(where, given, _OF_RECIPE)
        headers = tuple(self._headers(where, read.get("headers", {})))
        files = self._names(f"{where}.files", read.get("files", {}), bool, "the name of a secret", named=_WHERE)
        hosts = tuple(dict.fromkeys([*read.get("hosts", ()), *(each.host for each in headers)]))
        found = Recipe(**{"name": name, **read, "headers": headers, "files": files, "hosts": hosts})
        if "approval" not in given and found.lasts:
            found = replace(found, approval="device")
        self._check(where, found, among)
        return found

    def _check(self, where: str, recipe: Recipe, among: RunnerSettings) -> None:
        """Check that a recipe's options fit each other and the rest of the file."""

        def require(is_so: bool, what: str, hint: str) -> None:
            if not is_so:
                raise self._wrong(f"{what} in [{where}]", hint)

        is_command = recipe.kind == "command"
        form = 'a recipe of kind command has one, and no other: ["make", "nightly"]'
        require(is_command == bool(recipe.command), "command", form)
        agents = f"it is {' or '.join(AGENTS)}; another one is a recipe of kind command"
        require(recipe.agent in AGENTS, "agent", agents)
        require(recipe.approval in ("none", "device"), "approval", "it must be none or device")
        needs = "a recipe that pushes, or has secrets or more hosts, takes device"
        require(not recipe.lasts or recipe.approval == "device", "approval", needs)
        can_push = is_command or recipe.kind == "fix"
        require(not recipe.push or can_push, "push", "only a fix or a command has something to push")
        for host in recipe.hosts:
            form = "a host is a name, with a port or without: registry.example.org"
            require(Destination.parse(host) is not None, "hosts", form)
        for each in map(Path, recipe.readable):
            form = "it must have absolute paths, and not the root"
            require(each.is_absolute() and each != Path("/"), "readable", form)
        if recipe.asks_a_model and among.price(recipe.model) is None:
            hint = f'no budget can be kept with it: say what it costs in [prices."{recipe.model}"], or take another'
            raise ConfigError(self._path, f"names a model without a price in [{where}]: '{recipe.model}'", hint=hint)
        for name in recipe.repositories:
            if name != "*" and name not in among.repositories:
                raise self._unknown_option_error(name, f"{name}' in repositories of [{where}", among.repositories)
        for name in sorted(recipe.secrets):
            if name not in among.secrets:
                raise self._unknown_option_error(name, f"{name}' among the secrets of [{where}", among.secrets)

    def _headers(self, where: str, table: Any) -> Iterator[Header]:
        for host, each in self._table(f"{where}.headers", table).items():
            given = self._section(f"{where}.headers.{host}", each, _OF_HEADER)
            if not {"header", "secret"} <= set(given) or not is_fit_header(given["header"]):
                example = '{ header = "authorization", secret = "NAME", form = "Bearer {}" }'
                raise self._wrong(f"headers of {host} in [{where}]", f"it is {example}")
            header = Header(host, given["header"].lower(), given["secret"], given.get("form", "{}"))
            if header.form.count("{}") != 1 or not header.form.isprintable():
                raise self._wrong(f"headers of {host} in [{where}]", "its form has {} once, where the secret goes")
            yield header

    def _section(self, where: str, table: Any, options: Mapping[str, Reader]) -> dict[str, Any]:
        """Return the parsed values of a section."""
        for key in self._table(where, table):
            if key not in options:
                raise self._unknown_option_error(key, f"{key}' in [{where}", options)
        return {key: self._value(f"{key} in [{where}]", each, options[key]) for key, each in table.items()}

    def _value(self, where: str, value: Any, read: Reader) -> Any:
        try:
            return read(value)
        except ValueError as error:
            raise self._wrong(where, str(error)) from None

    def _table(self, where: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(f"'{where}'", f"it is a section: [{where}]")
        return value

    def _names(
        self, where: str, value: Any, is_one: Callable[[str], bool], form: str, *, named: re.Pattern[str] = _NAMED
    ) -> dict[str, str]:
        for name, each in self._table(where, value).items():
            if not named.fullmatch(name) or set(name) == {"."}:
                raise self._wrong(f"a name in [{where}]", f"it is {_NAME_FORM}")
            if not isinstance(each, str) or not is_one(each):
                raise self._wrong(f"'{name}' in [{where}]", f"it is {form}")
        return dict(value)

    def _unknown_option_error(self, key: str, shown: str, options: Collection[str]) -> ConfigError:
        near = difflib.get_close_matches(key, options, n=1)
        there = f"there are {', '.join(sorted(options))}" if options else "there is none"
        hint = f"did you mean '{near[0]}'?" if near else there
        return ConfigError(self._path, f"has an unknown option '{shown}{']' if '[' in shown else chr(39)}", hint=hint)

    def _wrong(self, where: str, hint: str) -> ConfigError:
        return ConfigError(self._path, f"has a wrong value for {where}", hint=hint)


def _placeholder(text: str) -> bool:
    return Placeholder.parse(text) is not None


def _repository(url: str) -> bool:
    """Return True if the URL is safe for git: neither an option nor a transport that starts
    programs.
    """
    if not url or url.startswith("-") or not url.isprintable() or "::" in url:
        return False
    if urlsplit(url).scheme in ("ssh", "git") and urlsplit(url).password is not None:
        return False  # neither needs one, and ssh's would appear in the list of processes
    return Path(url).is_absolute() or urlsplit(url).scheme in _SCHEMES or _SCP.fullmatch(url) is not None


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if parts.username is not None or parts.query or parts.fragment or not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "localhost", "::1"))
