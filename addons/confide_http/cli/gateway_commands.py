"""`confided http`: manages the apps that may use a space over HTTP, with a token or by OAuth."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Final, TypedDict

import typer

from confide_daemon.access.enrolled_callers import Caller
from confide_daemon.access.registry import RegistryState
from confide_daemon.access.revocations import Revocations
from confide_daemon.addons import revocation_folders
from confide_daemon.cli.console import CommandContext, Output, clock, command, remark, say
from confide_http.server.access import server_tokens
from confide_http.server.access.applications import Application, Applications
from confide_http.settings import GatewayConfig

POLL_S: Final = 1.0
KEPT_OPEN_S: Final = 5.0
"""Seconds until registration is closed after this command was killed."""
_DAYS: Final = 90


@command
def allow(
    here: CommandContext,
    name: Annotated[
        str | None, typer.Argument(help="The name of the app, which people see and its notes carry.")
    ] = None,
    space: Annotated[str, typer.Option("--space", help="The space that it may use.")] = "",
    scope: Annotated[
        str | None, typer.Option("--scope", help="read or write, for a token.", show_default="read")
    ] = None,
    project: Annotated[
        list[str] | None,
        typer.Option("--project", help="Only this project, for a token; repeat for more.", show_default="all"),
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", help="Days until its token expires.", show_default=str(_DAYS))
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="With a token: treat its notes as an agent's, not as untrusted.")
    ] = False,
    redirect: Annotated[
        list[str] | None,
        typer.Option(
            "--redirect",
            help="Use OAuth: an address that the app redirects to after sign-in, exactly, but for the port of loopback; "
            "repeat for more.",
        ),
    ] = None,
    secret: Annotated[
        bool,
        typer.Option("--secret", help="With --redirect: make a client secret, for an app that runs on a server."),
    ] = False,
    self_registered: Annotated[
        bool, typer.Option("--open", help="Use OAuth: let apps register themselves while this command runs.")
    ] = False,
    minutes: Annotated[int, typer.Option("--minutes", min=1, max=10, help="With --open: how long, at most 10.")] = 10,
) -> Output:
    """Let an app in with a token, or let it ask people for access by OAuth.

    A token or a client secret is shown once. An app with --redirect, or one that registered itself
    during --open, asks people for access; you approve it on one of your devices.
    """
    if not space:
        raise typer.BadParameter("name the space that it may use", param_hint="--space")
    for_token = scope is not None or bool(project) or days is not None or trusted
    if self_registered:
        if name is not None or redirect or secret or for_token:
            raise typer.BadParameter("takes only --space and --minutes: apps name themselves", param_hint="--open")
        return _open_registration(here, space, minutes)
    if name is None:
        raise typer.BadParameter("name the app", param_hint="NAME")
    if redirect:
        if for_token:
            raise typer.BadParameter(
                "cannot be used with --scope, --project, --days or --trusted", param_hint="--redirect"
            )
        return _register_app(here, name, space, redirect, has_secret=secret)
    if secret:
        raise typer.BadParameter("needs --redirect", param_hint="--secret")
    return _allow_with_token(here, name, space, scope, project, days, is_trusted=trusted)


def _allow_with_token(
    here: CommandContext,
    name: str,
    space: str,
    scope: str | None,
    projects: list[str] | None,
    days: int | None,
    *,
    is_trusted: bool,
) -> Output:
    """Make a token for an app, and show it once."""
    config = here.config().table(GatewayConfig)
    with here.open_state() as state:
        text, caller = server_tokens.allow(
            state.registry,
            name,
            space=space,
            scope=scope or "read",
            projects=projects or (),
            days=_DAYS if days is None else days,
            gateway="trusted" if is_trusted else "untrusted",
        )

    def print_text() -> None:
        remark(f"{caller.alias} may {caller.scope} the space {caller.space} until {clock(caller.expires_at or 0)}.")
        remark("Its token, shown only once. Anyone with the token can read everything there that is not sealed:")
        say(text)
        if not config.listen:
            remark(
                "note: the daemon has no HTTP gateway yet: set listen of [gateway] in daemon.toml, and restart confided"
            )

    return Output({**facts(caller), "token": text}, print_text)


def _open_registration(here: CommandContext, space: str, minutes: int) -> Output:
    """Let apps register themselves for `minutes`, or until Ctrl-C."""
    with here.open_state() as state:
        applications = Applications(state.registry)
        known = {one.id for one in applications.all()}
        found: list[Application] = []

        def look() -> None:
            for one in applications.all():
                if one.id not in known:
                    known.add(one.id)
                    found.append(one)
                    remark(f"registered: {one.name}, which redirects to {', '.join(one.redirects)}")

        ends = time.monotonic() + 60 * minutes
        applications.keep_open(space, for_s=KEPT_OPEN_S)
        remark(f"apps may register themselves for the space {space} for {minutes} minutes; Ctrl-C ends it")
        try:
            while time.monotonic() < ends:
                time.sleep(POLL_S)
                applications.keep_open(space, for_s=KEPT_OPEN_S)
                look()
        except KeyboardInterrupt:
            pass
        finally:
            applications.close(space)
        look()  # also those that registered just before the end
    return Output([application_facts(one) for one in found], [f"registered: {len(found)}"])


def _register_app(here: CommandContext, name: str, space: str, redirects: list[str], *, has_secret: bool) -> Output:
    text = secrets.token_urlsafe(32) if has_secret else None
    with here.open_state() as state:
        made = Applications(state.registry).add(
            name, space=space, redirects=redirects, method="client_secret_post" if has_secret else "none", secret=text
        )

    def print_text() -> None:
        remark(
            f"{made.name} may ask for the space {made.space}. Its client id{' and its secret, shown only once' if text else ''}:"
        )
        say(made.id)
        if text:
            say(text)

    return Output({**application_facts(made), "secret": text}, print_text)


@command
def list_(
    here: CommandContext,
    apps: Annotated[bool, typer.Option("--apps", help="List the apps that are registered for OAuth.")] = False,
) -> Output:
    """List the apps with access, or those that are registered for OAuth."""
    with here.open_state() as state:
        if apps:
            return _applications_output(Applications(state.registry).all())
        found = state.registry.gateway_clients()
        now = state.registry.clock()
    width = max((len(one.alias) for one in found), default=0)

    def print_text() -> None:
        if not found:
            remark("no app has access by HTTP; let one in with: confided http allow NAME --space SPACE")
        for one in found:
            say(_line(one, width, now))

    return Output([facts(one) for one in found], print_text)


@command
def remove(
    here: CommandContext,
    name: Annotated[str, typer.Argument(help="The name of the app, or the id of a registered one.")],
    app: Annotated[
        bool, typer.Option("--app", help="Remove an app that is registered for OAuth, and all its access.")
    ] = False,
) -> Output:
    """Remove the access of an app, or its registration.

    The server refuses its token within a second, and ends its streams.
    """
    with here.open_state() as state:
        if app:
            registered = Applications(state.registry).remove(name)
            found, removed = {"removed": registered.id}, registered.name
        else:
            removed = server_tokens.remove(state.registry, name).alias
            found = {"removed": removed}
        _keep(here, state)
    return Output(found, [f"removed: {removed}"])


def _applications_output(found: list[Application]) -> Output:
    lines = [
        f"{one.id}  {one.name}  {one.space}  {'registered itself' if one.is_registered else 'added'}  {', '.join(one.redirects)}"
        for one in found
    ]
    return Output([application_facts(one) for one in found], lines or ["no app is registered"])


class ApplicationFacts(TypedDict):
    """The JSON form of an app that is registered for OAuth."""

    id: str
    name: str
    space: str
    redirects: list[str]
    registered: bool
    addedAt: float


class Facts(TypedDict):
    """The JSON form of an app that has access."""

    name: str
    space: str
    scope: str
    projects: list[str] | None
    trusted: bool
    addedAt: float
    expiresAt: float | None
    lastSeenAt: float | None


def _keep(here: CommandContext, state: RegistryState) -> None:
    """Write the revocation beside the data folder too, if that is configured."""
    revocations = Revocations.from_folders(revocation_folders(here.config()), state)
    if revocations is not None:
        revocations.keep(state.registry)


def application_facts(one: Application) -> ApplicationFacts:
    """Return the JSON form of an app that is registered for OAuth; `addedAt` is in seconds since
    1970.
    """
    return {
        "id": one.id,
        "name": one.name,
        "space": one.space,
        "redirects": list(one.redirects),
        "registered": one.is_registered,
        "addedAt": one.added_at,
    }


def facts(caller: Caller) -> Facts:
    """Return the JSON form of an app that has access. Times are in seconds since 1970. A null
    project means all projects; a null time means that it has not happened, or never will.
    """
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
    ended = caller.refusal_reason(now) == "expired"
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
