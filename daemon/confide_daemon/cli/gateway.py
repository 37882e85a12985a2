"""`confided gateway`: who may reach a space by HTTP. Each has a token, which is shown once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from confide_daemon.cli.console import Here, Output, clock, command, say

if TYPE_CHECKING:
    from confide_daemon.access.callers import Caller

gateway_app = typer.Typer(help="Let programs reach a space by HTTP, and shut them out.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="What to call the client; it stands beside what it writes.")]


@gateway_app.command("allow")
@command
def gateway_allow(
    here: Here,
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
    from confide_daemon.access import gateway_clients

    config = here.config().gateway
    with here.opened() as state:
        text, caller = gateway_clients.allow(
            state.registry,
            name,
            space=space,
            scope=scope,
            projects=project or (),
            days=days,
            gateway="trusted" if trusted else "untrusted",
        )

    def tell() -> None:
        say(f"{caller.alias} may {caller.scope} the space {caller.space} until {clock(caller.expires_at or 0)}.")
        say("Its token, which is shown this once. Whoever has it reads in clear what is not sealed:")
        typer.echo(text)
        if not config.listen:
            say("note: there is no gateway yet: set listen of [gateway] in daemon.toml, and start confided again")

    return Output({**facts(caller), "token": text}, tell)


@gateway_app.command("ls")
@command
def gateway_ls(here: Here) -> Output:
    """List who may come by HTTP."""
    with here.opened() as state:
        found = state.registry.gateway_clients()
        now = state.registry.clock()
    width = max((len(one.alias) for one in found), default=0)

    def tell() -> None:
        if not found:
            say("nobody comes by HTTP; let a program in with: confided gateway allow NAME --space SPACE")
        for one in found:
            typer.echo(_line(one, width, now))

    return Output([facts(one) for one in found], tell)


@gateway_app.command("rm")
@command
def gateway_rm(here: Here, name: Name) -> Output:
    """Take a token away: it is refused within a second, and its streams end."""
    from confide_daemon.access import gateway_clients
    from confide_daemon.access.revocations import Revocations

    with here.opened() as state:
        gone = gateway_clients.remove(state.registry, name)
        revocations = Revocations.configured(here.config(), state)
        if revocations is not None:
            revocations.keep(state.registry)
    return Output({"removed": gone.alias}, [f"removed: {gone.alias}"])


def facts(caller: Caller) -> dict[str, Any]:
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
