"""The request that a `confide run` makes: a command, and the secrets that it gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.errors import RunRefusedError
from confide_proxy.link.session_values import MOST_REFERENCES
from confide_proxy.run.egress.header_secrets import Destination, HeaderSecret, HeaderSecrets, is_fit_header
from confide_proxy.sealing.secret_references import REF, bare

if TYPE_CHECKING:
    from confide_proxy.sealing.masking import Mask

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIT_HEADER: Final = re.compile(rb"[!-~]([ -~]{0,16382}[!-~])?")
_MOST_VARIABLE: Final = 128 * 1024 - 256
"""Bytes of a variable with its name that Linux takes."""
_OPTIONS: Final = {"--env": "env", "-e": "env", "--file": "file", "-f": "file", "--stdin": "stdin", "--http": "http"}


class ChildTerms(NamedTuple):
    """A command with the values that it gets. Its repr does not show them.

    Attributes:
        program: path of the program.
        arguments: the command line as it was typed, beginning with the program's name.
        variables: environment variables whose values are secrets.
        files: secrets that the command gets as files, by the variables that get the files' paths.
        stdin: a secret as the command's standard input; None leaves the standard input as it is.
        mask: returns a new mask for one output stream; called at its first output.
    """

    program: str
    arguments: Sequence[str]
    variables: Mapping[str, bytes]
    files: Mapping[str, bytes]
    stdin: bytes | None
    mask: Callable[[], Mask]

    def __repr__(self) -> str:
        return f"ChildTerms({self.program})"


class HeaderUse(NamedTuple):
    """A secret that goes into a header of a host.

    Attributes:
        host: the host, as `egress.header_secrets.Destination` writes it.
        header: the header's name in lower case.
        reference: the reference to the secret.
    """

    host: str
    header: str
    reference: str

    @property
    def place(self) -> str:
        """A description of the header and its host, for users."""
        return f"{self.header} of {self.host}"


class RunRequest(NamedTuple):
    """A command, with references to the secrets that it gets.

    Attributes:
        command: the command with its arguments.
        variables: references to secrets, by the environment variables that get the values.
        files: references to secrets, by the environment variables that get the paths of files with
            the values.
        stdin: reference to the secret that is the standard input; None if that is no secret.
        headers: secrets that go into headers of hosts; the command itself does not get them.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    files: Mapping[str, str]
    stdin: str | None
    headers: Sequence[HeaderUse] = ()

    @property
    def given(self) -> list[str]:
        """The references to the secrets whose values the command itself gets, without duplicates."""
        given = (*self.variables.values(), *self.files.values(), *([self.stdin] if self.stdin is not None else ()))
        return list(dict.fromkeys(given))

    @property
    def references(self) -> list[str]:
        """All references to secrets in the request, without duplicates."""
        return list(dict.fromkeys([*self.given, *(each.reference for each in self.headers)]))

    @property
    def is_fit(self) -> bool:
        """True if no variable is set twice, and the number of secrets is at least one and within
        the limit.
        """
        count = len(self.variables) + len(self.files) + len(self.headers) + (self.stdin is not None)
        return 0 < count <= MOST_REFERENCES and self.variables.keys().isdisjoint(self.files)

    def header_places(self, secrets: Mapping[str, Placeholder]) -> dict[Placeholder, tuple[str, ...]]:
        """Return descriptions of the headers that each secret goes into, by secret. `secrets` has
        the secret of each reference.
        """
        places: dict[Placeholder, tuple[str, ...]] = {}
        for each in self.headers:
            secret = secrets[each.reference]
            places[secret] = tuple(sorted({*places.get(secret, ()), each.place}))
        return places

    def header_secrets(self, secrets: Mapping[str, Placeholder], values: Mapping[str, bytes]) -> HeaderSecrets:
        """Return the headers with the values that they get. `secrets` and `values` have the secret
        and the value of each reference.

        Raises RunRefusedError if a value cannot be in a header.
        """
        found = []
        for each in self.headers:
            value, secret = values[each.reference], secrets[each.reference]
            if not _FIT_HEADER.fullmatch(value):
                raise RunRefusedError(
                    f"the value of {secret} cannot stand in a header", hint="it has one line of at most 16 KiB"
                )
            destination = Destination.parse(each.host)
            assert destination is not None  # `header_use` has it
            texts = (str(secret), f"{REF}{bare(each.reference)}")
            found.append(HeaderSecret(destination, each.header, texts, value))
        return HeaderSecrets(found)

    def terms(self, program: str, values: Mapping[str, bytes], mask: Callable[[], Mask]) -> ChildTerms:
        """Return the command with the values that it gets. `values` has the value of each
        reference, and `mask` returns a new mask for an output stream.

        Raises RunRefusedError if a value cannot be an environment variable, since it is too long or
        contains a zero byte.
        """
        return ChildTerms(
            program,
            self.command,
            {name: _fit(name, values[reference]) for name, reference in self.variables.items()},
            {name: values[reference] for name, reference in self.files.items()},
            values[self.stdin] if self.stdin is not None else None,
            mask,
        )


def plain(arguments: Sequence[str]) -> RunRequest | None:
    """Parse the arguments of `confide run` quickly: options, `--`, and the command.

    None if they have any other form; the command line's full parser then reads them, or reports
    what is wrong.
    """
    found: dict[str, list[str]] = {"env": [], "file": [], "stdin": [], "http": []}
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in _OPTIONS:
            return None
        found[_OPTIONS[name]].append(value if equals else next(words, ""))
    command = list(words)
    variables, files = pairs(found["env"]), pairs(found["file"])
    headers = [header_use(each) for each in found["http"]]
    if not command or len(found["stdin"]) > 1 or variables is None or files is None or None in headers:
        return None
    uses = tuple(each for each in headers if each is not None)
    request = RunRequest(command, variables, files, next(iter(found["stdin"]), None), uses)
    return request if request.is_fit else None


def pairs(given: Sequence[str]) -> dict[str, str] | None:
    """Parse arguments of the form `NAME=secret:REF` to references by variable name. None if one has
    another form, or a name occurs twice.
    """
    found = dict(pair.split("=", 1) for pair in given if "=" in pair)
    is_fit = len(found) == len(given) and all(VARIABLE.fullmatch(name) for name in found)
    return found if is_fit else None


def header_use(given: str) -> HeaderUse | None:
    """Parse an argument of the form `HOST[:PORT]:HEADER=secret:REF`. None if it has another form."""
    place, equals, reference = given.partition("=")
    host, _, header = place.rpartition(":")
    destination = Destination.parse(host)
    if not equals or destination is None or not is_fit_header(header):
        return None
    return HeaderUse(str(destination), header.lower(), reference)


def _fit(name: str, value: bytes) -> bytes:
    if b"\0" in value or len(name) + len(value) > _MOST_VARIABLE:
        what = "has a zero byte" if b"\0" in value else f"is longer than {_MOST_VARIABLE // 1024} KiB"
        raise RunRefusedError(f"the value of {name} {what}, which no variable can have", hint=f"--file {name}=…")
    return value
