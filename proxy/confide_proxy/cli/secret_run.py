"""The command `confide run`: run a command that uses sealed secrets, and mask the secrets in its
output (docs/secrets.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto import portable
from confide_crypto.errors import ConfideError
from confide_proxy import addons
from confide_proxy.cli.console import CommandContext, ask_confirmation, doing, project_of, remark
from confide_proxy.errors import RunRefusedError
from confide_proxy.hooks import hook_paths
from confide_proxy.hooks.server.question_form import Choice, Question
from confide_proxy.hooks.server.session_asks import MOST_TEXT, NO_ANSWER, PersonAnswer, ask_session, asking_session
from confide_proxy.link.session_values import MOST_REFERENCES, SessionValues
from confide_proxy.mcp.client import CommandClient
from confide_proxy.run import run_request
from confide_proxy.run.approvals import MOST_ASKED, ONCE, SESSION, Approvals, PlannedUse, standing
from confide_proxy.run.opened_run import OpenedRun
from confide_proxy.run.run_masks import RunMasks
from confide_proxy.run.run_request import RunRequest
from confide_proxy.run.secret_names import SecretNames
from confide_proxy.sealing.open_secrets import all_values, open_secret, resolve_references
from confide_proxy.sealing.use_log import UseLog
from confide_proxy.sync.project import Project

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
    http: Annotated[
        list[str] | None,
        typer.Option(
            "--http",
            metavar="HOST:HEADER=secret:REF",
            help="A header of HTTPS requests to a host, where secret:REF becomes the value outside the command.",
        ),
    ] = None,
) -> None:
    """Run a command that uses sealed secrets, and mask them in what it prints.

    REF is a name (`confide secrets name`), a placeholder, or the beginning of one that no other
    has. Only the command gets the values, with --http not even that. A command and a secret that
    were not used together before in this session are asked about.
    """
    if not portable.HAS_MODES:
        raise RunRefusedError("confide run needs Linux or macOS", hint="on Windows, run it in WSL")
    from confide_proxy.run import child_process  # not on Windows, which has no such terminals and signals

    child_process.protect()
    here: CommandContext = context.obj
    request = _request(env, file, stdin, http, command)
    program = child_process.program_of(command[0])
    if hook_paths.is_off(str(here.paths.config), str(Path.cwd()), "run"):
        raise RunRefusedError(
            "this project's .confide.toml forbids commands that use secrets", hint="run = false says so"
        )
    opened = asyncio.run(_open_references(here, request, program))
    with opened.child_terms() as terms:
        doing.end()  # from here on the terminal is the command's
        code = child_process.run(terms)
    child_process.end_by_signal(code)
    raise typer.Exit(code)


async def _open_references(here: CommandContext, request: RunRequest, program: str) -> OpenedRun:
    """Return the run with the value of each reference, if the user lets the command use it."""
    names = await asyncio.to_thread(SecretNames(here.paths.secret_names).read)
    project = await project_of(here, Path())
    async with here.client(project) as client:
        secrets = await resolve_references(client.connection, request.references, names)
        places = request.header_places(secrets)
        use = PlannedUse(program, request.command, list(dict.fromkeys(secrets.values())), names, places)
        if twice := places.keys() & {secrets[each] for each in request.given}:
            raise RunRefusedError(
                f"{use.called(min(twice, key=str))} is for a header, and for the command itself too",
                hint="use --http alone, and write the placeholder where the command takes the value",
            )
        approved = await _approver_of(here, use)
        opened = {
            secret: (await open_secret(client.connection, client.sealing, str(secret))).value for secret in use.secrets
        }
        use.note(UseLog(here.paths.secret_uses), approved)
        keys = client.sealing.keyring.keys
        assert keys is not None  # they opened the secrets
        identity = await client.sealing.keyring.identity()
        pages = partial(_all_values, here, project, identity.seed)
        masks = RunMasks(opened, here.paths.known, keys.space, keys.epochs[0], pages)
    for warning in use.warnings(opened):
        remark(f"confide: {warning}")
    values = {reference: opened[secret] for reference, secret in secrets.items()}
    return OpenedRun(request, program, secrets, values, lambda: masks, here.config.run.ca_file)


def _all_values(here: CommandContext, project: Project, seed: bytes) -> Iterator[SessionValues]:
    """Yield the values of all secrets from a running session, or by a link of its own."""
    from confide_proxy.run import quick_run  # not on Windows

    is_given = False
    for page in quick_run.all_values(here.paths.state, seed):
        is_given = True
        yield page
    if not is_given:
        with contextlib.suppress(ConfideError, OSError, RuntimeError):  # the last: this process ends
            yield from asyncio.run(_linked_values(here, project))


async def _linked_values(here: CommandContext, project: Project) -> list[SessionValues]:
    async with CommandClient(here.paths, here.config, project) as client:
        return [page async for page in all_values(client.connection, client.sealing)]


async def _approver_of(here: CommandContext, use: PlannedUse) -> str:
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
        agent = await asyncio.to_thread(asking_session, here.paths)
        if agent and approvals.has(use, agent):
            return "before"
        answer = await asyncio.to_thread(_asked_of_session, here, use)
        if answer.choice == _YES:
            approvals.add(use, agent)
            return "agent's client"
        if answer.is_later:
            raise RunRefusedError(
                "the question whether the command may use this secret comes with the next search of your memory",
                hint="search, answer it, then run the command again",
            )
        by = ""
        if not answer.is_asked:
            answer, by = await asyncio.to_thread(_asked_by_addon, here, use)
        if answer.choice == SESSION:
            approvals.add(use, agent)
        if answer.choice in (ONCE, SESSION):
            return by
        raise RunRefusedError(
            f"{use.arguments[0]} needs a person's approval to use this secret, and there was none", hint=_WAYS
        )
    if not await ask_confirmation(use.question):
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


def _asked_by_addon(here: CommandContext, use: PlannedUse) -> tuple[PersonAnswer, str]:
    """Ask by an add-on that can reach the user now; return its name too."""
    for addon in addons.installed():
        if addon.approves:
            answer: PersonAnswer = addons.load_object(addon.approves)(here.paths, use, remark)
            if answer.is_asked:
                return answer, addon.name
    return NO_ANSWER, ""


def _request(
    env: Sequence[str] | None,
    file: Sequence[str] | None,
    stdin: str | None,
    http: Sequence[str] | None,
    command: Sequence[str],
) -> RunRequest:
    found = []
    for given, option in ((env, "--env"), (file, "--file")):
        pairs = run_request.pairs(given or ())
        if pairs is None:
            raise typer.BadParameter(
                "it is NAME=secret:REF, such as TOKEN=secret:npm-token, and each NAME once", param_hint=option
            )
        found.append(pairs)
    headers = [run_request.header_use(each) for each in http or ()]
    uses = [each for each in headers if each is not None]
    if len(uses) != len(headers):
        form = "it is HOST:HEADER=secret:REF, such as api.example.com:Authorization=secret:api-token"
        raise typer.BadParameter(f"{form}; a host is a name, with a port or without", param_hint="--http")
    request = RunRequest(command, found[0], found[1], stdin, uses)
    if both := request.variables.keys() & request.files.keys():
        raise typer.BadParameter(f"{min(both)} is given twice", param_hint="--file")
    if not request.is_fit:
        ways = "--env, --file, --stdin or --http"
        raise typer.BadParameter(f"name 1 to {MOST_REFERENCES} secrets: {ways}", param_hint="--env")
    return request
