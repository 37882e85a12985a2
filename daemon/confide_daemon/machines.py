"""The commands about machines: invite one, list and add them, shut one out."""

from __future__ import annotations

import socket
import sys
import time
from typing import Annotated, Any

import typer

from confide_crypto.errors import ConfideError
from confide_daemon import config, paths
from confide_daemon.options import Config, Data, Json, Scope, Space, opened, say, show

callers_app = typer.Typer(
    help="List the machines that may connect; add one by its key line.", invoke_without_command=True
)


def invite(
    name: Annotated[str, typer.Argument(help="What the new machine will be called.")],
    config_file: Config = None,
    data: Data = None,
    space: Space = None,
    scope: Scope = "write",
    ttl: Annotated[str, typer.Option("--ttl", help="How long the invite is good for.")] = "15m",
    url: Annotated[
        str | None, typer.Option("--url", help="The address that the machine will use: confide://host:port.")
    ] = None,
    wait: Annotated[
        bool | None,
        typer.Option("--wait/--no-wait", help="Wait and show who joined.", show_default="wait in a terminal"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the one string with which a machine joins, once; then wait and show who did."""
    from confide_crypto.keys import fingerprint_words
    from confide_daemon import enrollment
    from confide_daemon.names import parse_ttl

    found = paths.find(config=config_file, data=data)
    settings = config.load(found.config, must_exist=config_file is not None)
    with opened(config_file, data) as state:
        address = enrollment.public_url(state, settings, url)
        made = enrollment.make_invite(state, name, space=space, scope=scope, ttl_s=parse_ttl(ttl), url=address)
        text = made.invite.to_string()
        facts = {"name": made.alias, "space": made.space, "scope": made.scope, "expiresAt": made.expires_at}
        if as_json:
            show({"invite": text, **facts})
        else:
            typer.echo(text)
            say(
                f"On {name}: confide join '…'   (good once, until {time.strftime('%H:%M', time.localtime(made.expires_at))})"
            )
            _advise(state, address)
        sys.stdout.flush()
        if not (sys.stdout.isatty() if wait is None else wait):
            return
        used = enrollment.wait_for_join(state.registry, made)
        if used is None:
            raise ConfideError(
                f"nobody joined: the invite for {name} has expired", hint=f"make a new one: confided invite {name}"
            )
        words = fingerprint_words(used.public_key)
        if as_json:
            show({"joined": used.alias, "fingerprint": words})
        else:
            typer.echo(f"joined: {used.alias}  {words}")


def _advise(state: Any, url: str) -> None:
    """Say what would keep this invite from working."""
    from confide_daemon.health import answers

    if any(local in url for local in ("//127.0.0.1", "//[::1]", "//localhost")):
        name, port = socket.gethostname() or "this-host", url.rstrip("/").rpartition(":")[2]
        say(
            f"note: {url} can be reached from this machine only; others need --url, as in --url confide://{name}:{port}"
        )
    if not answers(state.folder.address):
        say("note: confided is not running here; start it with: confided serve")


@callers_app.callback()
def callers(context: typer.Context, config_file: Config = None, data: Data = None, as_json: Json = False) -> None:
    """List the machines that may connect."""
    if context.invoked_subcommand is not None:
        return
    from confide_crypto.keys import fingerprint_words

    with opened(config_file, data) as state:
        rows = [
            {
                "name": caller.alias,
                "space": caller.space,
                "scope": caller.scope,
                "fingerprint": fingerprint_words(caller.public_key),
                "addedBy": caller.added_by,
                "addedAt": caller.added_at,
            }
            for caller in state.registry.callers()
        ]
    if as_json:
        show(rows)
        return
    if not rows:
        say("no machine may connect yet; invite one with: confided invite laptop")
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["addedAt"]))
        typer.echo(
            f"{row['name']:<{width}}  {row['space']}  {row['scope']}  {row['fingerprint']}  {row['addedBy']} {day}"
        )


@callers_app.command("add")
def callers_add(
    line: Annotated[str, typer.Argument(help="The line that `confide key show` prints on the machine.")],
    config_file: Config = None,
    data: Data = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call the machine.", show_default="the line's own")
    ] = None,
    space: Space = None,
    scope: Scope = "write",
    as_json: Json = False,
) -> None:
    """Let a machine in by its public key line, without an invite."""
    from confide_crypto.keys import fingerprint_words, format_daemon_key
    from confide_daemon import enrollment

    with opened(config_file, data) as state:
        caller = enrollment.add_line(state.registry, line, name=name, space=space, scope=scope)
        key = format_daemon_key(state.identity.static_key)
    words = fingerprint_words(caller.public_key)
    if as_json:
        show(
            {"name": caller.alias, "space": caller.space, "scope": caller.scope, "fingerprint": words, "daemonKey": key}
        )
    else:
        typer.echo(f"added: {caller.alias}  {words}")
        say(f"On the machine: confide pin <url> {key}")


def revoke(
    name: Annotated[str, typer.Argument(help="The machine, as `confided callers` shows it.")],
    config_file: Config = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Shut a machine out for good; its live connections end within a second."""
    from confide_crypto.keys import fingerprint_words
    from confide_daemon.errors import TakenError
    from confide_daemon.names import nearest

    with opened(config_file, data) as state:
        gone = state.registry.revoke(name)
        if gone is None:
            known = [caller.alias for caller in state.registry.callers()]
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"the machines are: {', '.join(known) or 'none'}"
            raise TakenError(f"there is no machine named '{name[:48]}'", hint=hint)
    if as_json:
        show({"revoked": gone.alias, "fingerprint": fingerprint_words(gone.public_key)})
    else:
        typer.echo(f"revoked: {gone.alias}  {fingerprint_words(gone.public_key)}")
