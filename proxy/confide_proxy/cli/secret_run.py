"""`confide run`: run a command that uses sealed secrets, and mask them in its output (docs/secrets.md)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto import portable
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.cli.console import CommandContext, confirmed, identified, remark
from confide_proxy.errors import RunRefusedError
from confide_proxy.hooks import hook_paths
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.hooks.server.session_asks import MOST_TEXT, NO_ANSWER, PersonAnswer, ask_session
from confide_proxy.run.approvals import MOST_ASKED, Approvals, PlannedUse
from confide_proxy.run.secret_names import SecretNames, resolved
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sealing.masking import Mask, SecretForms, is_maskable
from confide_proxy.sealing.open_secrets import open_secret
from confide_proxy.sealing.use_log import UseLog

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_VARIABLE: Final = 128 * 1024 - 256
"""Bytes of a variable with its name that Linux takes."""
_MOST_SECRETS: Final = 32
_ANSWER_S: Final = 100.0
"""Time for an answer in the agent's client, whose shell does not wait for much longer."""
_YES: Final = "yes"
_CHOICES: Final = (Choice(_YES, "Yes, this command may use it in this session"),)
_WAYS: Final = (
    "run it in a terminal and answer the question there, or in your agent's client; or allow the command in your proxy.toml: "
    '[run] allow = { NAME = ["COMMAND"] }'
)


def run(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The command, with its arguments.")],
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=secret:REF", help="A variable with a secret.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="NAME=secret:REF", help="A variable with the path of a secret's file."),
    ] = None,
    stdin: Annotated[
        str | None, typer.Option("--stdin", metavar="secret:REF", help="A secret as the standard input.")
    ] = None,
) -> None:
    """Run a command that uses sealed secrets, and mask them in what it prints.

    REF is a name (`confide secrets name`), a placeholder, or the beginning of one that no other has.
    Only the command gets the values. A command and a secret that were not used together before in
    this session are asked about.
    """
    if not portable.HAS_MODES:
        raise RunRefusedError("confide run needs Linux or macOS", hint="on Windows, run it in WSL")
    from confide_proxy.run import child_process  # not on Windows, which has no such terminals and signals

    child_process.protect()
    here: CommandContext = context.obj
    variables, files = _pairs(env, "--env"), _pairs(file, "--file")
    if both := variables.keys() & files.keys():
        raise typer.BadParameter(f"{min(both)} is given twice", param_hint="--file")
    if not 0 < len(variables) + len(files) + (stdin is not None) <= _MOST_SECRETS:
        raise typer.BadParameter(f"name 1 to {_MOST_SECRETS} secrets: --env, --file or --stdin", param_hint="--env")
    program = child_process.program_of(command[0])
    if hook_paths.is_off(str(here.paths.config), str(Path.cwd()), "run"):
        raise RunRefusedError(
            "this project's .confide.toml forbids commands that use secrets", hint="run = false says so"
        )
    references = list(dict.fromkeys([*variables.values(), *files.values(), *([stdin] if stdin is not None else [])]))
    values, masks = asyncio.run(_opened(here, references, program, command))
    terms = child_process.ChildTerms(
        program,
        command,
        {name: _fit(name, values[reference]) for name, reference in variables.items()},
        {name: values[reference] for name, reference in files.items()},
        values[stdin] if stdin is not None else None,
        masks.make,
    )
    code = child_process.run(terms)
    if code < 0:
        # Ended as the command was, so that a shell says the same.
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    raise typer.Exit(code)


class _Masks:
    """Makes the masks of a run's streams: for its own values, and for those known on this device."""

    def __init__(self, forms: SecretForms, sealing: SessionSealing) -> None:
        self._forms = forms
        self._sealing = sealing

    def make(self) -> Mask:
        return Mask(self._forms, self._known)

    def _known(self, text: str) -> Mapping[bytes, bytes]:
        keys = self._sealing.keyring.keys
        found = {}
        for each in self._sealing.known.find(text):
            value = text[each.start : each.end]
            if Mask(self._forms).whole(value.encode("utf-8", "replace")) != value.encode("utf-8", "replace"):
                continue  # a form of this run's own values
            kind = self._sealing.known.kind_of(value)
            shown = f"(sealed:{each.kind})"
            if kind is not None and keys is not None:
                shown = str(Placeholder(kind, keys.secret_id(kind, value.encode())))
            found[value.encode("utf-8", "replace")] = shown.encode()
        return found


async def _opened(
    here: CommandContext, references: Sequence[str], program: str, command: Sequence[str]
) -> tuple[dict[str, bytes], _Masks]:
    """Return the value of each reference if the user lets the command use it, and what masks them."""
    names = await asyncio.to_thread(SecretNames(here.paths.secret_names).read)
    async with here.client(await identified(here, Path())) as client:
        secrets = await resolved(client.connection, references, names)
        use = PlannedUse(program, command, list(dict.fromkeys(secrets.values())), names)
        approved = await _approved(here, use)
        opened = {
            secret: (await open_secret(client.connection, client.sealing, str(secret))).value for secret in use.secrets
        }
        UseLog(here.paths.secret_uses).note(use.secrets, program, approved)
        await client.sealing.keyring.recall()
        masks = _Masks(SecretForms({value: str(one).encode() for one, value in opened.items()}), client.sealing)
    for secret, value in opened.items():
        if not is_maskable(value):
            remark(f"confide: the value of {use.called(secret)} is too short or too common a word to be masked")
    return {reference: opened[secret] for reference, secret in secrets.items()}, masks


async def _approved(here: CommandContext, use: PlannedUse) -> str:
    """Return who approves a use. Raises RunRefusedError if there is no approval."""
    if use.is_ruled(here.config.run.allow):
        return "proxy.toml"
    approvals = Approvals(here.paths.approvals)
    if approvals.has(use):
        return "before"
    if not use.is_askable:
        raise RunRefusedError(
            f"the command line is over {MOST_ASKED:,} characters, too long to ask you about",
            hint="put it into a script of yours, and run that",
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        answer = await asyncio.to_thread(_asked_of_session, here, use)
        if answer.choice == _YES:
            approvals.add(use)
            return "agent's client"
        if answer.is_later:
            raise RunRefusedError(
                "the question whether the command may use this secret comes with the next search of your memory",
                hint="search, answer it, then run the command again",
            )
        raise RunRefusedError(
            f"{use.arguments[0]} needs a person's approval to use this secret, and there was none", hint=_WAYS
        )
    if not await confirmed(use.question):
        raise RunRefusedError("the command may not use this secret", hint="it was not run")
    approvals.add(use)
    return "terminal"


def _asked_of_session(here: CommandContext, use: PlannedUse) -> PersonAnswer:
    """Ask in the client of the agent that started this process. A question that its session would
    cut is not asked.
    """
    if len(use.question) > MOST_TEXT:
        return NO_ANSWER
    question = Question(use.question, _CHOICES)
    return ask_session(here.paths, question, program="confide run", timeout_s=_ANSWER_S)


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given or ():
        name, equals, reference = pair.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise typer.BadParameter("it is NAME=secret:REF, such as TOKEN=secret:npm-token", param_hint=option)
        if name in found:
            raise typer.BadParameter(f"{name} is given twice", param_hint=option)
        found[name] = reference
    return found


def _fit(name: str, value: bytes) -> bytes:
    """Return a value that a variable can have. Raises RunRefusedError for another."""
    if b"\0" in value or len(name) + len(value) > _MOST_VARIABLE:
        what = "has a zero byte" if b"\0" in value else f"is longer than {_MOST_VARIABLE // 1024} KiB"
        raise RunRefusedError(f"the value of {name} {what}, which no variable can have", hint=f"--file {name}=…")
    return value
