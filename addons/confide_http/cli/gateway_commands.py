"""`confided gateway`: who may reach a space by HTTP. Each has a token, which is shown once."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Final, TypedDict

import typer

from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.registry import RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import beside_the_data
from confide_daemon.cli.console import CommandContext, Output, clock, command, remark, say
from confide_http.server.access import server_tokens
from confide_http.server.access.applications import Application, Applications
from confide_http.settings import GatewayConfig

gateway_app = typer.Typer()
client_app = typer.Typer(help="Say which programs may ask a person to let them in, by OAuth.")
gateway_app.add_typer(client_app, name="client")
POLL_S: Final = 1.0
KEPT_OPEN_S: Final = 5.0
"""After which registration is closed where this command was killed."""
Name = Annotated[str, typer.Argument(help="What to call the client; it stands beside what it writes.")]


@gateway_app.command("allow", epilog="confided gateway allow chat --space home --scope write --project shop")
@command
def gateway_allow(
    here: CommandContext,
    name: Name,
    space: Annotated[str, typer.Option("--space", help="The space that it reaches.")],
    scope: Annotated[str, typer.Option("--scope", help="read or write.")] = "read",
    project: Annotated[
        list[str] | None, typer.Option("--project", help="This project alone; again for each.", show_default="all")
    ] = None,
    days: Annotated[int, typer.Option("--days", help="How long its token is good.")] = 90,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="What it stores is an agent's word; else it is untrusted.")
    ] = False,
) -> Output:
    """Let a program in by a token, which is printed this once."""
    config = here.config().table(GatewayConfig)
    with here.opened() as state:
        text, caller = server_tokens.allow(
            state.registry,
            name,
            space=space,
            scope=scope,
            projects=project or (),
            days=days,
            gateway="trusted" if trusted else "untrusted",
        )

    def print_text() -> None:
        remark(f"{caller.alias} may {caller.scope} the space {caller.space} until {clock(caller.expires_at or 0)}.")
        remark("Its token, which is shown this once. Whoever has it reads in clear what is not sealed:")
        say(text)
        if not config.listen:
            remark("note: there is no gateway yet: set listen of [gateway] in daemon.toml, and start confided again")

    return Output({**facts(caller), "token": text}, print_text)


@gateway_app.command("ls")
@command
def gateway_ls(here: CommandContext) -> Output:
    """List who may come by HTTP."""
    with here.opened() as state:
        found = state.registry.gateway_clients()
        now = state.registry.clock()
    width = max((len(one.alias) for one in found), default=0)

    def print_text() -> None:
        if not found:
            remark("nobody comes by HTTP; let a program in with: confided gateway allow NAME --space SPACE")
        for one in found:
            say(_line(one, width, now))

    return Output([facts(one) for one in found], print_text)


@gateway_app.command("rm", epilog="confided gateway rm chat")
@command
def gateway_rm(here: CommandContext, name: Name) -> Output:
    """Take a token away: it is refused within a second, and its streams end."""
    with here.opened() as state:
        gone = server_tokens.remove(state.registry, name)
        _keep(here, state)
    return Output({"removed": gone.alias}, [f"removed: {gone.alias}"])


@gateway_app.command("open", epilog="confided gateway open --space home")
@command
def gateway_open(
    here: CommandContext,
    space: Annotated[str, typer.Option("--space", help="The space that they may ask for.")],
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=10, help="How long, at most.")] = 10,
) -> Output:
    """Let programs register themselves, as long as this runs: ten minutes at most. Each still has to be approved by a device."""
    with here.opened() as state:
        applications = Applications(state.registry)
        known = {one.id for one in applications.all()}
        found: list[Application] = []

        def look() -> None:
            for one in applications.all():
                if one.id not in known:
                    known.add(one.id)
                    found.append(one)
                    remark(f"registered: {one.name}, which sends people back to {', '.join(one.redirects)}")

        ends = time.monotonic() + 60 * minutes
        applications.keep_open(space, for_s=KEPT_OPEN_S)
        remark(f"programs may register themselves for the space {space}, for {minutes} minutes; Ctrl-C ends it")
        try:
            while time.monotonic() < ends:
                time.sleep(POLL_S)
                applications.keep_open(space, for_s=KEPT_OPEN_S)
                look()
        except KeyboardInterrupt:
            pass
        finally:
            applications.close(space)
        look()  # who came just before the end is told as well
    return Output([application_facts(one) for one in found], [f"registered: {len(found)}"])


@client_app.command(
    "add",
    epilog="confided gateway client add Claude --space home --redirect https://claude.ai/api/mcp/auth_callback",
)
@command
def client_add(
    here: CommandContext,
    name: Annotated[str, typer.Argument(help="What people are shown when it asks.")],
    space: Annotated[str, typer.Option("--space", help="The space that it may ask for.")],
    redirect: Annotated[
        list[str],
        typer.Option(
            "--redirect",
            help="Where it may send a person back to, to the letter but for the port of loopback; again for each.",
        ),
    ],
    secret: Annotated[
        bool,
        typer.Option("--secret", help="Make a secret, for one that keeps it on a server; it is printed this once."),
    ] = False,
) -> Output:
    """Let a program ask a person to be let in, by OAuth; prints its id."""
    text = secrets.token_urlsafe(32) if secret else None
    with here.opened() as state:
        made = Applications(state.registry).add(
            name, space=space, redirects=redirect, method="client_secret_post" if secret else "none", secret=text
        )

    def print_text() -> None:
        remark(
            f"{made.name} may ask for the space {made.space}. Its client id{' and its secret, shown this once' if text else ''}:"
        )
        say(made.id)
        if text:
            say(text)

    return Output({**application_facts(made), "secret": text}, print_text)


@client_app.command("ls")
@command
def client_ls(here: CommandContext) -> Output:
    """List the programs that may ask."""
    with here.opened() as state:
        found = Applications(state.registry).all()
    lines = [
        f"{one.id}  {one.name}  {one.space}  {'registered itself' if one.is_registered else 'added'}  {', '.join(one.redirects)}"
        for one in found
    ]
    return Output([application_facts(one) for one in found], lines or ["no program may ask"])


@client_app.command("rm", epilog="confided gateway client rm Claude")
@command
def client_rm(here: CommandContext, name: Annotated[str, typer.Argument(help="Its id, or its name.")]) -> Output:
    """Take one away, and with it all that it was granted."""
    with here.opened() as state:
        gone = Applications(state.registry).remove(name)
        _keep(here, state)
    return Output({"removed": gone.id}, [f"removed: {gone.name}"])


class ApplicationFacts(TypedDict):
    """A program that may ask, as --json shows it."""

    id: str
    name: str
    space: str
    redirects: list[str]
    registered: bool
    addedAt: float


class Facts(TypedDict):
    """A gateway client, as --json shows it."""

    name: str
    space: str
    scope: str
    projects: list[str] | None
    trusted: bool
    addedAt: float
    expiresAt: float | None
    lastSeenAt: float | None


def _keep(here: CommandContext, state: RegistryState) -> None:
    """Keep what was revoked beside the data folder too, where that is configured."""
    revocations = Revocations.configured(beside_the_data(here.config()), state)
    if revocations is not None:
        revocations.keep(state.registry)


def application_facts(one: Application) -> ApplicationFacts:
    """A program that may ask, as --json shows it; `addedAt` is seconds since 1970."""
    return {
        "id": one.id,
        "name": one.name,
        "space": one.space,
        "redirects": list(one.redirects),
        "registered": one.is_registered,
        "addedAt": one.added_at,
    }


def facts(caller: Caller) -> Facts:
    """A gateway client as --json shows it. Times are seconds since 1970; null is all, or not yet."""
    projects = caller.grants.projects
    return {
        "name": caller.alias,
        "space": caller.space,
        "scope": caller.scope,
        "projects": None if projects is None else sorted(projects),
        "trusted": caller.gateway == "trusted",
        "addedAt": caller.added_at,
        "expiresAt": caller.expires_at,
        "lastSeenAt": caller.last_seen_at,
    }


def _line(caller: Caller, width: int, now: float) -> str:
    projects = caller.grants.projects
    ended = caller.closed(now) == "expired"
    return "  ".join(
        [
            f"{caller.alias:<{width}}",
            caller.space,
            caller.scope,
            str(caller.gateway),
            *([f"projects {','.join(sorted(projects))}"] if projects is not None else []),
            f"{'expired' if ended else 'until'} {clock(caller.expires_at or 0)}",
            f"used {clock(caller.last_seen_at)}" if caller.last_seen_at else "never used",
        ]
    )
