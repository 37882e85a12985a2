"""The command `confide join`: choose the daemon that this device uses."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from confide_crypto.errors import ConfideError, DeniedError, InviteError, RequestError, printable
from confide_crypto.handshake.invite import Invite
from confide_crypto.keys.identity import fingerprint_words, parse_daemon_key
from confide_crypto.keys.private_files import make_private_dir
from confide_crypto.sealing.pairing import parse_invite
from confide_crypto.transport.dial import shown_url
from confide_crypto.transport.open_channel import connect
from confide_proxy import addons
from confide_proxy.cli.console import (
    AsJson,
    CommandContext,
    count_noun,
    note,
    print_json,
    project_of,
    require_consent,
    say,
    styled,
    unseen,
)
from confide_proxy.devices import space_connection
from confide_proxy.devices.device_pairing import Invitations
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.errors import DeviceError, SpaceLockedError
from confide_proxy.link import device_identity as identities
from confide_proxy.link import founding
from confide_proxy.link.daemon import KnownDaemon, known_daemon, load_pin, save_pin
from confide_proxy.offline.operations import is_empty
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project_names import ProjectNames

_MOST_ALIAS = 64
_MOST_LINES = 4
_LOOK_S = 25.0
"""Seconds for a response of this device's own daemon, which may have to be started first."""
_INVITER_S = 2.0
"""Seconds to wait for the inviting device, which, if connected, adds this one within a few round
trips.
"""


def join(
    context: typer.Context,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INVITE]",
            help="The string that an invite printed; without it, Confide asks, or reads stdin.",
            show_default=False,
        ),
    ] = None,
    is_pin: Annotated[
        bool, typer.Option("--pin", help="Without an invite: confide join --pin confide://host:7733 DAEMON-KEY")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a key for this device, pin the daemon's key, and test the connection."""
    here: CommandContext = context.obj
    if is_pin:
        _pin(here, given or [], as_json=as_json)
        return
    if given and len(given) > 1:
        raise typer.BadParameter(f"unexpected argument: {given[1][:40]}; an invite is one string", param_hint="INVITE")
    invite = given[0] if given else None
    if invite is not None and sys.stderr.isatty():
        note("other users of this device can see arguments, and your shell keeps them; next time paste it when asked")
    text = invite or pasted_invite()
    try:
        plain, pair = parse_invite(text)
        # An invite that this device made is for another one: here it would only change the device's
        # name.
        if pair is not None and Invitations(here.paths.rosters).has(pair.invite_id):
            raise DeviceError("this invite was made on this device", hint="paste it into confide join on the new one")
        asyncio.run(_join(here, plain, (pair.invite_id, pair.secret) if pair else None, as_json))
    except (ConfideError, TimeoutError) as error:
        founding.note_failure(here.paths, error)
        raise


async def _join(here: CommandContext, invite: Invite, pair: tuple[bytes, bytes] | None, as_json: bool) -> None:
    for before in await asyncio.to_thread(addons.each, "joining"):
        before(here)
    await _require_leave(here)
    identity = await asyncio.to_thread(identities.identity, here.paths.identity)
    try:
        connection = await connect(invite.websocket_url, identity, invite.daemon_static, invite=invite)
    except DeniedError as error:
        if error.reason == "disabled":
            # The device has joined and the invite is used up: with the pin stored, the device works
            # as soon as it is approved.
            _join_instead(here, KnownDaemon(invite.websocket_url, invite.daemon_static, pair=pair))
            hint = "read the six words to the server's operator, who compares and approves them; then test the connection: confide status"
            raise DeniedError(error.reason, error.fingerprint, hint=hint) from None
        raise
    alias = printable(str(connection.welcome.get("caller", "this device"))[:_MOST_ALIAS])
    new = connection.successor
    static, key = (new.new_static, new.new_key) if new else (invite.daemon_static, connection.peer_key)
    _join_instead(here, KnownDaemon(invite.websocket_url, static, key, pair))
    await connection.close()
    words = fingerprint_words(identity.public_key)
    result: dict[str, object] = {"name": alias, "words": words, "daemon": invite.websocket_url}
    if not as_json:
        say(styled("joined as ", (alias, "bold"), f"  {words}"))
    if pair is not None:
        await space_connection.await_keys(here.paths, here.config, _INVITER_S)
    try:
        async with here.client(await project_of(here, Path())) as client:
            status = await client.call("memory_status", {})
            problem = client.sealing.keyring.problem
        result |= {"canSeal": problem is None, "files": status["totalFiles"], "pieces": status["totalChunks"]}
        files, pieces = count_noun(status["totalFiles"], "file"), count_noun(status["totalChunks"], "chunk")
        message = f"the link works: {files}, {pieces} in this space"
        if problem is not None:
            message += f"\n{problem}\n{problem.hint}"
    except SpaceLockedError as error:
        result["locked"] = str(error)
        message = f"joined, but {error}\n{error.hint}"
    except RequestError as error:
        if error.code != "denied":
            raise
        # A device with access to some projects only may join from a folder of none of them.
        result["denied"] = str(error)
        message = f"the link works, but for this folder {error}"
        if (problem := await space_connection.introduce(here.paths, here.config)) is not None:
            message += f"\n{problem}\n{problem.hint}"
    if as_json:
        print_json(result)
        return
    say(
        f"{message}\ncompare these words with the server's: {words}\n\nnow let your agent start it:  confide setup claude-code --write"
    )


async def _require_leave(here: CommandContext) -> None:
    """Ask the user to confirm leaving a space whose secrets this device opens; without a terminal,
    only warn.
    """
    told = await asyncio.to_thread(left_behind, here.paths)
    if told is None or await _is_empty(here):
        return
    if not sys.stdin.isatty():
        note(told)
    else:
        await require_consent(f"{told}. Join?", is_sure=False)


async def _is_empty(here: CommandContext) -> bool:
    """Return True if nothing is lost by leaving this device's own daemon: its space contains no
    file and no sealed secret, and the queue is empty.
    """
    if await asyncio.to_thread(load_pin, here.paths.link) is not None or not is_empty(here.paths.journal):
        return False
    try:
        async with asyncio.timeout(_LOOK_S), here.client(await project_of(here, Path())) as client:
            status = await client.call("memory_status", {})
    except (ConfideError, TimeoutError):
        return False  # it may hold anything
    return bool(status["totalFiles"] == 0 and status["sealing"]["secrets"] == 0)


def _join_instead(here: CommandContext, daemon: KnownDaemon) -> None:
    """Replace the joined daemon by this one."""
    before = known_daemon(here.paths)
    RosterCache(here.paths.rosters).record_daemon_change(before.daemon_static if before else b"", daemon.daemon_static)
    save_pin(here.paths.link, daemon)
    here.paths.left.unlink(missing_ok=True)
    founding.settle(here.paths)
    ProjectNames(here.paths.projects).on_joined()


def left_behind(paths: ProxyPaths) -> str | None:
    """Return a warning if this device, by joining another space, loses access to the secrets of its
    present space.

    Returns None if it is in no space. Blocks briefly.
    """
    try:
        if known_daemon(paths) is None:
            return None
        seen = RosterCache(paths.rosters).last()
        key = identities.load_stored(paths.identity).public_key
    except ConfideError:
        return None  # no key yet, or broken files, which joining itself reports
    if seen is None or seen.roster is None or key not in seen.roster.devices:
        return None
    is_alone = len(seen.roster.devices) == 1
    others = "no other device can, so they would be lost" if is_alone else "its other devices still can"
    said = f"this device belongs to the space {seen.roster.words}: in another space it cannot decrypt the secrets of that one ({others})"
    return said if is_empty(paths.journal) else f"{said}; calls that wait for its daemon go to the new one"


def _pin(here: CommandContext, given: list[str], *, as_json: bool) -> None:
    """Join the daemon at an address by the key that `confided key` printed.

    Its operator has added this device's key line there.
    """
    if len(given) != 2:
        hint = "name the daemon's address, and the key that `confided key` prints there"
        raise typer.BadParameter(hint, param_hint="--pin")
    url, daemon_key = given
    address = _websocket_url(url)
    make_private_dir(here.paths.state)  # as a parent of another path it would be readable by other users
    RosterCache(here.paths.rosters).use("")
    _join_instead(here, KnownDaemon(address, parse_daemon_key(daemon_key)))
    words = fingerprint_words(identities.load_stored(here.paths.identity).public_key)
    if as_json:
        print_json({"daemon": address, "words": words})
    else:
        say(f"pinned {shown_url(address)}\nthis device is {words}; test the connection: confide status")


def pasted_invite(prompt: str = "paste the invite (not shown)") -> str:
    """Read an invite from the terminal without echo, or from stdin.

    Invites are not read from arguments, which other users can see and shells store. An invite that
    was copied as several lines is read to its end. Otherwise the shell would run the rest as a
    command, and keep it in its history.
    """
    text = unseen(prompt).strip()
    for _ in range(_MOST_LINES - 1):
        if "://" not in text or _is_whole(text) or not (rest := unseen("the rest of it (not shown), or Enter").strip()):
            break
        text += rest
    return text


def _is_whole(text: str) -> bool:
    try:
        parse_invite(text)
    except InviteError:
        return False
    return True


def _websocket_url(url: str) -> str:
    schemes = {"confide": "ws", "confides": "wss", "ws": "ws", "wss": "wss"}
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "ws", url
    if scheme not in schemes or not rest.strip("/"):
        raise typer.BadParameter("the address looks like confide://host:7733 or confides://host/path", param_hint="URL")
    return f"{schemes[scheme]}://{rest}"
