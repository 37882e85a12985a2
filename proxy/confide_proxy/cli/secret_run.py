"""`confide run`: run a command that uses sealed secrets, and mask them in its output (docs/secrets.md)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto import portable
from confide_proxy.cli.console import CommandContext, confirmed, identified, remark
from confide_proxy.errors import RunRefusedError
from confide_proxy.hooks import hook_paths
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.hooks.server.session_asks import MOST_TEXT, NO_ANSWER, PersonAnswer, ask_session
from confide_proxy.link.session_values import MOST_REFERENCES
from confide_proxy.run import run_request
from confide_proxy.run.approvals import MOST_ASKED, Approvals, PlannedUse, standing
from confide_proxy.run.run_masks import RunMasks
from confide_proxy.run.run_request import RunRequest
from confide_proxy.run.secret_names import SecretNames
from confide_proxy.sealing.open_secrets import open_secret, resolved
from confide_proxy.sealing.use_log import UseLog

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
    request = _request(env, file, stdin, command)
    program = child_process.program_of(command[0])
    if hook_paths.is_off(str(here.paths.config), str(Path.cwd()), "run"):
        raise RunRefusedError(
            "this project's .confide.toml forbids commands that use secrets", hint="run = false says so"
        )
    values, masks = asyncio.run(_opened(here, request, program))
    code = child_process.run(request.terms(program, values, masks.make))
    child_process.end_by_signal(code)
    raise typer.Exit(code)


async def _opened(here: CommandContext, request: RunRequest, program: str) -> tuple[dict[str, bytes], RunMasks]:
    """Return the value of each reference if the user lets the command use it, and what masks them."""
    names = await asyncio.to_thread(SecretNames(here.paths.secret_names).read)
    async with here.client(await identified(here, Path())) as client:
        secrets = await resolved(client.connection, request.references, names)
        use = PlannedUse(program, request.command, list(dict.fromkeys(secrets.values())), names)
        approved = await _approved(here, use)
        opened = {
            secret: (await open_secret(client.connection, client.sealing, str(secret))).value for secret in use.secrets
        }
        UseLog(here.paths.secret_uses).note(use.secrets, program, approved)
        keys = client.sealing.keyring.keys
        assert keys is not None  # they opened the secrets
        masks = RunMasks(opened, here.paths.known, keys.space, keys.epochs[0])
    for warning in use.warnings(opened):
        remark(f"confide: {warning}")
    return {reference: opened[secret] for reference, secret in secrets.items()}, masks


async def _approved(here: CommandContext, use: PlannedUse) -> str:
    """Return who approves a use. Raises RunRefusedError if there is no approval."""
    approvals = Approvals(here.paths.approvals)
    if approved := standing(use, here.config.run.allow, approvals):
        return approved
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


def _request(
    env: Sequence[str] | None, file: Sequence[str] | None, stdin: str | None, command: Sequence[str]
) -> RunRequest:
    found = []
    for given, option in ((env, "--env"), (file, "--file")):
        pairs = run_request.pairs(given or ())
        if pairs is None:
            raise typer.BadParameter(
                "it is NAME=secret:REF, such as TOKEN=secret:npm-token, and each NAME once", param_hint=option
            )
        found.append(pairs)
    request = RunRequest(command, found[0], found[1], stdin)
    if both := request.variables.keys() & request.files.keys():
        raise typer.BadParameter(f"{min(both)} is given twice", param_hint="--file")
    if not request.is_fit:
        raise typer.BadParameter(f"name 1 to {MOST_REFERENCES} secrets: --env, --file or --stdin", param_hint="--env")
    return request
