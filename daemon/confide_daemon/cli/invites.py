"""The commands about invites: make one and see who joins with it, list the open ones, take one back."""

from __future__ import annotations

import socket
import sys
import time
from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

import segno
import typer

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity import fingerprint_words
from confide_daemon.access import enrollment
from confide_daemon.access.enrollment import MadeInvite, parse_ttl
from confide_daemon.access.registry import RegistryState
from confide_daemon.access.registry_invites import Invites, OpenInvite
from confide_daemon.cli.callers import confirm, granted
from confide_daemon.cli.console import (
    CommandContext,
    Expires,
    Output,
    Projects,
    Scope,
    Sources,
    Space,
    can_ask,
    clock,
    command,
    print_json,
    remark,
    rights_of,
    say,
)
from confide_daemon.cli.health import answers
from confide_daemon.config import DEFAULT_PORT, DaemonConfig, parse_listen
from confide_daemon.datadir import instance
from confide_memory.commands.group import CommandGroup

_MAKE = "make"
HEARD_S = 0.5
"""Until an invite is shown that any of several nodes may be asked about: each looks for what is new every 0.2 s."""


class _MakesByDefault(CommandGroup):
    """`confided invite NAME` is what people type; only `ls` and `rm` are commands of their own, and so no names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands or args[0] == _MAKE:
            args = [_MAKE, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == _MAKE else name, command, rest


invite_app = typer.Typer(cls=_MakesByDefault)


@invite_app.command(
    _MAKE, hidden=True, epilog="confided invite laptop --url confide://myserver:7733\nconfided invite ls"
)
@command
def invite(
    here: CommandContext,
    name: Annotated[str, typer.Argument(help="What the new machine will be called.")],
    space: Space = None,
    scope: Scope = None,
    projects: Projects = None,
    sources: Sources = None,
    expires: Expires = None,
    ttl: Annotated[str, typer.Option("--ttl", help="How long the invite is good for.")] = "15m",
    approve: Annotated[
        bool | None,
        typer.Option(
            "--approve/--no-approve",
            help="Whoever joins has to be approved before it gets in.",
            show_default="for --scope admin",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="The address that the machine will use: confide://host:port.")
    ] = None,
    qr: Annotated[bool, typer.Option("--qr", help="Show the string as a QR code too.")] = False,
    wait: Annotated[
        bool | None,
        typer.Option("--wait/--no-wait", help="Wait and show who joined.", show_default="wait in a terminal"),
    ] = None,
) -> None:
    """Print the one string with which a machine joins, once; then wait and show who did."""
    settings = here.config()
    rights = rights_of(scope, projects, sources, expires)
    with here.opened() as state:
        address = enrollment.public_url(state, settings, url)
        made = enrollment.make_invite(
            state, name, space=space, rights=rights, ttl_s=parse_ttl(ttl), url=address, needs_approval=approve
        )
        if state.registry.shared is not None:
            time.sleep(HEARD_S)
        text = made.invite.to_string()
        if here.is_quiet:
            print_json({"invite": text, **facts(made.entry)})
        else:
            say(text)
            remark(f"On {name}: run confide join, and paste it   (good once, until {clock(made.entry.expires_at)})")
            _advise(state, settings, address)
            if space is None and made.entry.grants.scope == "read":
                remark(
                    f"note: {name} may only read, and its space is new and stays empty; "
                    f"--space lets it see one that a machine writes to"
                )
        if qr:
            _show_code(text)
        sys.stdout.flush()
        if sys.stdout.isatty() if wait is None else wait:
            _await_join(state, made, as_json=here.is_quiet)


@invite_app.command("ls")
@command
def invite_ls(here: CommandContext) -> Output:
    """List the invites that can still be used; their strings are shown only once, when they are made."""
    with here.opened() as state:
        entries = Invites(state.registry).open_ones()

    empty = "no invite is open; make one with: confided invite laptop"
    return Output([facts(entry) for entry in entries], map(_line, entries), empty=empty)


def _line(entry: OpenInvite) -> str:
    told = facts(entry)
    parts = [entry.alias, entry.space, entry.grants.scope]
    parts += [f"{kind} {','.join(told[kind])}" for kind in ("projects", "sources") if told[kind] is not None]
    parts += ["to be approved"] if entry.needs_approval else []
    parts += [f"access until {clock(entry.caller_expires_at)}"] if entry.caller_expires_at else []
    return "  ".join([*parts, f"good until {clock(entry.expires_at)}"])


@invite_app.command("rm", epilog="confided invite rm laptop")
@command
def invite_rm(
    here: CommandContext, name: Annotated[str, typer.Argument(help="The machine that the invite was made for.")]
) -> Output:
    """Take an open invite back: nobody joins with it any more."""
    with here.opened() as state:
        gone = enrollment.take_back(state.registry, name)
    return Output({"removed": gone.alias}, [f"removed: the invite for {gone.alias}"])


def facts(entry: OpenInvite) -> dict[str, Any]:
    """An invite as --json shows it, without its secret. Times are seconds since 1970; null is all or never."""
    return {
        "name": entry.alias,
        "space": entry.space,
        **granted(entry.grants),
        "createdAt": entry.created_at,
        "expiresAt": entry.expires_at,
        "callerExpiresAt": entry.caller_expires_at,
        "approve": entry.needs_approval,
    }


def _await_join(state: Any, made: MadeInvite, *, as_json: bool) -> None:
    """Show who joins; where that is to be approved, ask right here if somebody can be asked."""
    if not as_json:
        remark("Waiting for it to be used. Ctrl-C stops waiting and keeps the invite.")
    used = enrollment.wait_for_join(state.registry, made)
    if used is None:
        if time.time() < made.entry.expires_at:
            raise ConfideError(f"nobody joined: the invite for {made.entry.alias} was taken back or replaced")
        hint = f"make a new one: confided invite {made.entry.alias}"
        raise ConfideError(f"nobody joined: the invite for {made.entry.alias} has expired", hint=hint)
    words = fingerprint_words(used.public_key)
    caller = state.registry.caller(used.public_key)
    is_waiting = caller is not None and caller.approved_at is None
    if is_waiting and not as_json and can_ask():
        confirm(caller)
        enrollment.approve(state.registry, caller)
        say(f"approved: {caller.alias}  {words}")
        return
    if as_json:
        print_json({"joined": used.alias, "fingerprint": words, "approved": not is_waiting})
    else:
        say(f"joined: {used.alias}  {words}")
    if is_waiting:
        remark(f"It waits. Compare the words with those on the machine, then: confided callers approve {used.alias}")


def _show_code(text: str) -> None:
    # To stderr like everything that is not data, so that a pipe gets the string alone.
    segno.make(text, error="m", micro=False).terminal(out=sys.stderr, compact=True)
    remark("")


def _advise(state: RegistryState, settings: DaemonConfig, url: str) -> None:
    """Say what would keep this invite from working."""
    is_running = answers(state.folder.address)
    found = instance.read(state.folder.address) if is_running else None
    bound = found.listens if found and found.listens else parse_listen(settings.server.listen)[0]
    asked, port = urlsplit(url).hostname or "", urlsplit(url).port or DEFAULT_PORT
    name = socket.gethostname() or "this-host"
    listen = f"confided serve --listen 0.0.0.0:{port}"
    if _is_loopback(asked):
        remark(f"note: {url} can be reached from this machine only. For another machine:")
        if _is_loopback(bound):
            remark(f"      {listen}")
        remark(f"      confided invite NAME --url confide://{name}:{port}")
    elif _is_loopback(bound) and not url.startswith("confides:"):
        remark(
            f"warning: {'confided listens' if is_running else 'confided will listen'} on {bound} alone, so nobody reaches {url}"
        )
        remark(
            f"hint: {listen}   (right as it is only if a reverse proxy or a tunnel on this machine passes {asked}:{port} on to it)"
        )
    if not is_running:
        remark("note: confided is not running here; start it with: confided serve")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
