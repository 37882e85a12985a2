"""`confide http serve` and `confide http token`: serve memory over HTTP on this machine, and manage
the tokens for it (docs/http.md).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypedDict

import typer

from confide_http.errors import TokenError
from confide_http.local.local_tokens import DAYS, MOST_DAYS, MOST_PROJECTS, LocalToken, TokenFile
from confide_http.local.running_gateway import PORT
from confide_proxy.cli.console import CommandContext, Output, ProjectDir, command, project_of, remark, row, say
from confide_proxy.errors import LibrariesMissingError
from confide_proxy.run.shown_values import refuse_in_agent_shell

SCOPES: Final = ("read", "write", "secrets")


def serve(
    context: typer.Context,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0 takes any.")] = PORT,
    host: Annotated[str, typer.Option("--host", help="127.0.0.1 or ::1; other addresses are refused.")] = "127.0.0.1",
    project: ProjectDir = Path(),
    any_port: Annotated[bool, typer.Option("--any-port", hidden=True)] = False,
    idle_exit: Annotated[float | None, typer.Option("--idle-exit", hidden=True, min=0, metavar="SECONDS")] = None,
) -> None:
    """Serve the memory over HTTP to programs on this machine: MCP, REST and the panel; until it is
    stopped.
    """
    here: CommandContext = context.obj
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="confide: %(levelname)s: %(message)s")
    asyncio.run(_serve(here, host, port, project, idle_exit, any_port=any_port))


async def _serve(
    here: CommandContext, host: str, port: int, folder: Path, idle_exit_s: float | None, *, any_port: bool
) -> None:
    try:
        from confide_http.local import gateway_app, gateway_server  # libraries of the extra, 0.4 s and 17 MB
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("confide"):
            raise  # a fault of ours, and no library
        raise LibrariesMissingError("confide http serve", "gateway") from None
    # Taken before anything is asked of the daemon: a port that is in use is reported at once.
    listening = gateway_server.listen(gateway_server.loopback(host), port, any_port=any_port)
    this = await project_of(here, folder)

    def ready(gateway: gateway_app.GatewayShared) -> None:
        say(f"serving the memory of {this.name} on {gateway.origin}: MCP at /mcp, REST at /api")
        if not TokenFile(here.paths.gateway).all():
            remark("no app can use it yet; to make a token: confide http token new NAME")

    await gateway_server.serve(here.paths, here.config, this, listening, on_ready=ready, idle_exit_s=idle_exit_s)


@command
def new(
    here: CommandContext,
    name: Annotated[str, typer.Argument(help="What it is called here; the program's name, say.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, write or secrets; again for each. Default: read.")
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option("--project", "-p", metavar="NAME", help="This project alone; again for each.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=MOST_DAYS, help="How long it is good.")] = DAYS,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Treat what it stores as an agent's, not as untrusted.")
    ] = False,
) -> Output:
    """Make a token, and print it: this is the only time that it is shown."""
    scopes = tuple(dict.fromkeys(scope or ["read"]))
    if unknown := [each for each in scopes if each not in SCOPES]:
        raise typer.BadParameter(
            f"'{unknown[0][:40]}' is not a scope; there are {', '.join(SCOPES)}", param_hint="--scope"
        )
    projects = tuple(dict.fromkeys(project)) if project else None
    if projects is not None and "secrets" in scopes:
        raise TokenError(
            "a token for some projects cannot decrypt secrets, which belong to the whole space",
            hint="leave --project or secrets out",
        )
    if projects is not None and len(projects) > MOST_PROJECTS:
        raise TokenError(f"a token names {MOST_PROJECTS} projects at most", hint="leave --project out for all")
    if "secrets" in scopes:
        refuse_in_agent_shell(os.environ, "make a token that opens secrets")
    text, token = TokenFile(here.paths.gateway).add(name, scopes, projects=projects, days=days, is_trusted=trusted)
    message = f"it {_token_line(token)}; it is shown this once"
    return Output({**_data(token, {}), "token": text}, text, notes=[message])


@command
def list_tokens(here: CommandContext) -> Output:
    """List the tokens: what each may do, until when, and when it was last used."""
    file = TokenFile(here.paths.gateway)
    tokens, used = file.all(), file.last_uses()

    def print_text() -> None:
        for token in tokens:
            at = used.get(token.digest)
            row(f"{token.name}  {_token_line(token)}, {f'last used {_day(at)}' if at else 'not used yet'}")
        if not tokens:
            remark("there are no tokens: confide http token new NAME makes one")

    return Output([_data(token, used) for token in tokens], print_text)


@command
def remove(
    here: CommandContext, name: Annotated[str, typer.Argument(help="As confide http token ls shows it.")]
) -> Output:
    """Remove a token. The gateway refuses it from now on, and ends its open streams within a
    second.
    """
    token = TokenFile(here.paths.gateway).remove(name)
    return Output({"removed": token.name}, f"token {token.name} was removed")


def _token_line(token: LocalToken) -> str:
    may = {"read": "may read", "write": "may read and write"}["write" if "write" in token.scopes else "read"]
    if "secrets" in token.scopes:
        may += " and open sealed secrets"
    where = f" in {', '.join(token.projects)}" if token.projects is not None else ""
    is_over = not token.is_good(time.time())
    end = f"expired on {_day(token.expires)}" if is_over else f"until {_day(token.expires)}"
    return f"{may}{where}, {end}{', trusted' if token.is_trusted else ''}"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d")


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


class TokenFacts(TypedDict):
    """A token, as --json shows it."""

    name: str
    scopes: list[str]
    projects: list[str] | None
    trusted: bool
    made: str | None
    expires: str | None
    lastUsed: str | None


def _data(token: LocalToken, used: dict[str, float]) -> TokenFacts:
    return {
        "name": token.name,
        "scopes": sorted({"read", *token.scopes}),
        "projects": list(token.projects) if token.projects is not None else None,
        "trusted": token.is_trusted,
        "made": _iso(token.made_at),
        "expires": _iso(token.expires),
        "lastUsed": _iso(used.get(token.digest)),
    }
