"""The request of a `confide run`: a command, and the secrets that it gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_proxy.errors import RunRefusedError
from confide_proxy.link.session_values import MOST_REFERENCES

if TYPE_CHECKING:
    from confide_proxy.sealing.masking import Mask

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_VARIABLE: Final = 128 * 1024 - 256
"""Bytes of a variable with its name that Linux takes."""
_OPTIONS: Final = {"--env": "env", "-e": "env", "--file": "file", "-f": "file", "--stdin": "stdin"}


class ChildTerms(NamedTuple):
    """A command and what it gets. Its repr shows no value.

    Attributes:
        program: path of the program.
        arguments: the command as it was typed, its name first.
        variables: environment variables with secrets.
        files: secrets that the command gets as files; the variables have their paths.
        stdin: a secret as its standard input; None leaves that as it is.
        mask: makes a mask for one stream, at its first output.
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
    """A secret for a header of a host.

    Attributes:
        host: as `egress.header_secrets.Destination` writes it.
        header: in lower case.
        reference: to the secret.
    """

    host: str
    header: str
    reference: str

    @property
    def place(self) -> str:
        """The header and its host, in words."""
        return f"{self.header} of {self.host}"


class RunRequest(NamedTuple):
    """A command, and what of it gets which secret.

    Attributes:
        command: the command with its arguments.
        variables, files: the references to secrets by the names of the variables.
        stdin: the reference to the secret that is its standard input; None for none.
        headers: the secrets that headers of hosts get, and the command does not.
    """

    command: Sequence[str]
    variables: Mapping[str, str]
    files: Mapping[str, str]
    stdin: str | None
    headers: Sequence[HeaderUse] = ()

    @property
    def given(self) -> list[str]:
        """The references of which the command has the values, each once."""
        given = (*self.variables.values(), *self.files.values(), *([self.stdin] if self.stdin is not None else ()))
        return list(dict.fromkeys(given))

    @property
    def references(self) -> list[str]:
        """The references, each once."""
        return list(dict.fromkeys([*self.given, *(each.reference for each in self.headers)]))

    @property
    def is_fit(self) -> bool:
        """True if no variable is set twice, and there are as many secrets as a run may have."""
        count = len(self.variables) + len(self.files) + len(self.headers) + (self.stdin is not None)
        return 0 < count <= MOST_REFERENCES and self.variables.keys().isdisjoint(self.files)

    def terms(self, program: str, values: Mapping[str, bytes], mask: Callable[[], Mask]) -> ChildTerms:
        """Return the terms of the run, given the values of the references. Raises RunRefusedError
        for a value that no variable can have.
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
    """Return the request of a plainly written command line: options, `--`, and the command. None
    for any other, which the library of the command line reads, or explains.
    """
    found: dict[str, list[str]] = {"env": [], "file": [], "stdin": []}
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
    if not command or len(found["stdin"]) > 1 or variables is None or files is None:
        return None
    request = RunRequest(command, variables, files, next(iter(found["stdin"]), None))
    return request if request.is_fit else None


def pairs(given: Sequence[str]) -> dict[str, str] | None:
    """Return the references by variable from `NAME=secret:REF`; None if one is no such pair, or a
    name comes twice.
    """
    found = dict(pair.split("=", 1) for pair in given if "=" in pair)
    is_fit = len(found) == len(given) and all(VARIABLE.fullmatch(name) for name in found)
    return found if is_fit else None


def _fit(name: str, value: bytes) -> bytes:
    if b"\0" in value or len(name) + len(value) > _MOST_VARIABLE:
        what = "has a zero byte" if b"\0" in value else f"is longer than {_MOST_VARIABLE // 1024} KiB"
        raise RunRefusedError(f"the value of {name} {what}, which no variable can have", hint=f"--file {name}=…")
    return value
