"""The command `confided invite`: create an invite and wait for the device that joins with it; list
open invites; withdraw one.
"""

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
from confide_daemon.cli.callers import confirm, rights_json
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

HEARD_S = 0.5
"""Seconds until every node of a cluster knows a new invite: each looks every 0.2 s."""


@command
def invite(
    here: CommandContext,
    name: Annotated[
        str | None, typer.Argument(help="The name of the new device; without one, list the invites.")
    ] = None,
    space: Space = None,
    scope: Scope = None,
    projects: Projects = None,
    sources: Sources = None,
    expires: Expires = None,
    ttl: Annotated[str, typer.Option("--ttl", help="How long the invite is valid.")] = "15m",
    approve: Annotated[
        bool | None,
        typer.Option(
            "--approve/--no-approve",
            help="Require your approval before the device that joins may connect.",
            show_default="for --scope admin",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="The address that the device connects to: confide://host:port.")
    ] = None,
    qr: Annotated[bool, typer.Option("--qr", help="Show the string as a QR code too.")] = False,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait", help="Wait until the device has joined, and show it.", show_default="wait in a terminal"
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", hidden=True)] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Withdraw the open invite of this name.")] = False,
) -> Output | None:
    """Invite a device: print the string that it joins with, or list the open invites.

    The string works once, and is shown only now. In a terminal the command then waits for the
    device, and shows it.
    """
    if cancel:
        if name is None:
            raise typer.BadParameter("name the invite to withdraw", param_hint="--cancel")
        return _withdraw(here, name)
    if name is None:
        return _open_invites(here)
    if list_:
        raise typer.BadParameter("takes no name", param_hint="--list")
    settings = here.config()
    rights = rights_of(scope, projects, sources, expires)
    with here.open_state() as state:
        address = enrollment.public_url(state, settings, url)
        made = enrollment.make_invite(
            state, name, space=space, rights=rights, ttl_s=parse_ttl(ttl), url=address, needs_approval=approve
        )
        if state.registry.shared is not None:
            time.sleep(HEARD_S)
        _show(here, state, made, settings, address, has_own_space=space is None, as_code=qr)
        sys.stdout.flush()
        if sys.stdout.isatty() if wait is None else wait:
            _await_join(state, made, as_json=here.is_quiet)
    return None


def _show(
    here: CommandContext,
    state: RegistryState,
    made: MadeInvite,
    settings: DaemonConfig,
    address: str,
    *,
    has_own_space: bool,
    as_code: bool,
) -> None:
    """Print a new invite, with what its user has to do for it to work."""
    text, name = made.invite.to_string(), made.entry.alias
    if here.is_quiet:
        print_json({"invite": text, **facts(made.entry)})
    else:
        say(text)
        remark(f"On {name}: run confide join and paste it   (works once, until {clock(made.entry.expires_at)})")
        _advise(state, settings, address)
        if has_own_space and made.entry.grants.scope == "read":
            remark(
                f"note: {name} may only read, and its new space stays empty; "
                f"to share the space of another device, use --space"
            )
    if as_code:
        _show_code(text)


def _open_invites(here: CommandContext) -> Output:
    with here.open_state() as state:
        entries = Invites(state.registry).open_ones()

    empty = "no invite is open; make one with: confided invite laptop"
    return Output([facts(entry) for entry in entries], map(_line, entries), empty=empty)


def _line(entry: OpenInvite) -> str:
    told = facts(entry)
    parts = [entry.alias, entry.space, entry.grants.scope]
    parts += [f"{kind} {','.join(told[kind])}" for kind in ("projects", "sources") if told[kind] is not None]
    parts += ["needs approval"] if entry.needs_approval else []
    parts += [f"access until {clock(entry.caller_expires_at)}"] if entry.caller_expires_at else []
    return "  ".join([*parts, f"valid until {clock(entry.expires_at)}"])


def _withdraw(here: CommandContext, name: str) -> Output:
    with here.open_state() as state:
        gone = enrollment.take_back(state.registry, name)
    return Output({"removed": gone.alias}, [f"removed: the invite for {gone.alias}"])


def facts(entry: OpenInvite) -> dict[str, Any]:
    """Return an invite as `--json` shows it, without its secret. Times are in seconds since 1970;
    null stands for all or never.
    """
    return {
        "name": entry.alias,
        "space": entry.space,
        **rights_json(entry.grants),
        "createdAt": entry.created_at,
        "expiresAt": entry.expires_at,
        "callerExpiresAt": entry.caller_expires_at,
        "approve": entry.needs_approval,
    }


def _await_join(state: Any, made: MadeInvite, *, as_json: bool) -> None:
    """Wait for the device that joins, and show it. If it needs approval, ask for that here at a
    terminal.
    """
    if not as_json:
        remark("Waiting for the device to join. Ctrl-C stops waiting; the invite stays valid.")
    used = enrollment.wait_for_join(state.registry, made)
    if used is None:
        if time.time() < made.entry.expires_at:
            raise ConfideError(f"no device joined: the invite for {made.entry.alias} was withdrawn or replaced")
        hint = f"make a new one: confided invite {made.entry.alias}"
        raise ConfideError(f"no device joined: the invite for {made.entry.alias} has expired", hint=hint)
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
        remark(f"{used.alias} waits for approval. Run: confided device approve {used.alias}")


def _show_code(text: str) -> None:
    # To stderr, as all that is not data: a pipe gets only the string.
    segno.make(text, error="m", micro=False).terminal(out=sys.stderr, compact=True)
    remark("")


def _advise(state: RegistryState, settings: DaemonConfig, url: str) -> None:
    """Print why this invite would not work, and how to fix it."""
    is_running = answers(state.folder.address)
    found = instance.read(state.folder.address) if is_running else None
    bound = found.listens if found and found.listens else parse_listen(settings.server.listen)[0]
    asked, port = urlsplit(url).hostname or "", urlsplit(url).port or DEFAULT_PORT
    name = socket.gethostname() or "this-host"
    listen = f"confided serve --listen 0.0.0.0:{port}"
    if _is_loopback(asked):
        remark(f"note: only this machine can reach {url}. For another device:")
        if _is_loopback(bound):
            remark(f"      {listen}")
        remark(f"      confided invite NAME --url confide://{name}:{port}")
    elif _is_loopback(bound) and not url.startswith("confides:"):
        remark(
            f"warning: no device can reach {url}: confided {'listens' if is_running else 'will listen'} only on {bound}"
        )
        remark(
            f"hint: {listen}   (not needed if a reverse proxy or a tunnel on this machine forwards {asked}:{port} to it)"
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
