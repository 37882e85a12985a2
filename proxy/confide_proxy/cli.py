"""The commands of `confide`, for people.

Every command talks to the daemon through the same tunnel and the same tools as an agent does. Exit codes: docs/commands.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperCommand

from confide_crypto.enroll import Invite
from confide_crypto.errors import ConfideError, DeniedError, RequestError
from confide_crypto.keys import fingerprint_words, parse_daemon_key
from confide_proxy import (
    explained,
    export_commands,
    history_commands,
    import_commands,
    joined,
    project_commands,
    projects,
    scan_commands,
    secrets_commands,
    setup,
)
from confide_proxy import identity as identities
from confide_proxy import paths as places
from confide_proxy.config import ProxyConfig
from confide_proxy.config import load as load_config
from confide_proxy.device_commands import device_app
from confide_proxy.errors import FolderError, SpaceLockedError
from confide_proxy.joined import Joined
from confide_proxy.key_commands import key_app
from confide_proxy.options import AsJson, ProjectDir, TakesRevision, err, folder_of, out, print_json
from confide_proxy.paths import Paths
from confide_proxy.progress import SyncProgress
from confide_proxy.projects import Project
from confide_proxy.queue_commands import queue_app
from confide_proxy.recovery_commands import recovery_app
from confide_proxy.transcript_commands import transcript_app
from confide_proxy.version import VERSION
from confide_proxy.watch_commands import watch

app = typer.Typer(
    name="confide",
    help="Private, lasting memory for coding agents.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(device_app, name="device")
app.add_typer(key_app, name="key")
app.add_typer(queue_app, name="queue")
app.add_typer(recovery_app, name="recovery")
app.add_typer(secrets_commands.secrets_app, name="secrets")
app.add_typer(transcript_app, name="transcripts")
app.command()(watch)
export_commands.add_to(app)
history_commands.add_to(app)
import_commands.add_to(app)
project_commands.add_to(app)
scan_commands.add_to(app)
setup_app = typer.Typer(help="Tell a client how to start Confide.", no_args_is_help=True)
app.add_typer(setup_app, name="setup")


_MOST_PASTED = 4096
_INVITER_S = 2.0
"""The machine that made the invite, if it is connected, adds this one within a few round trips."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Here:
    """Where this command's files are, and how they are configured."""

    paths: Paths
    config: ProxyConfig


_here: Here | None = None


def main() -> NoReturn:
    """Run the command line; every failure ends with a sentence and its exit code."""
    try:
        app()
    except ConfideError as error:
        _fail(error)
    except TimeoutError:
        err.print(
            "confide: the daemon did not answer in time\nhint: confide status shows whether it can be reached",
            markup=False,
        )
        sys.exit(5)
    except FileNotFoundError as error:
        # Most often the folder that the terminal stands in was deleted.
        _fail(
            FolderError(
                str(error.filename or "the working directory"), "is not there", hint="cd to a folder that exists"
            )
        )
    except OSError as error:
        _fail(FolderError(str(error.filename or "a file"), f"cannot be used: {error.strerror or type(error).__name__}"))
    sys.exit(0)


class _TakesListItems(TyperCommand):
    """A command whose text may be a markdown list item: "- " begins no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        items = [argument for argument in args if argument.startswith("- ")]
        others = [argument for argument in args if not argument.startswith("- ")]
        return super().parse_args(ctx, [*others, "--", *items] if items else others)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"confide {VERSION}")
        raise typer.Exit


@app.callback()
def _global(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("--config", help="The configuration file.", dir_okay=False)] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    global _here
    paths = places.find(config)
    context.obj = _here = Here(paths, load_config(paths.config))


@app.command()
def mcp(project: ProjectDir = Path()) -> None:
    """Serve MCP on stdin and stdout; an agent's client runs this."""
    from confide_proxy import stdio

    sys.exit(stdio.run(["--project", str(project), "--config", str(_require_here().paths.config)]))


@app.command()
def join(
    invite: Annotated[
        str | None,
        typer.Argument(help="The string that an invite printed; left out, it is asked for, or read from stdin."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Join a daemon: make this machine's key, pin the daemon's, test the link."""
    text = invite or _pasted(as_json)
    from confide_crypto.sealing.pairing import parse_invite

    plain, pair = parse_invite(text)
    if pair is not None:
        _require_elsewhere(pair.invite_id)
    _run(_join(plain, (pair.invite_id, pair.secret) if pair else None, as_json))


def _pasted(as_json: bool) -> str:
    """The invite from the terminal, unseen, or the next line of stdin: other users can see arguments, and a shell keeps them."""
    if sys.stdin.isatty():
        return str(typer.prompt("invite", hide_input=True, err=as_json))
    return sys.stdin.readline(_MOST_PASTED)


def _require_elsewhere(invite_id: bytes) -> None:
    """An invite that was made here is for another machine: this one would only change its own name with it."""
    from confide_proxy.errors import DeviceError
    from confide_proxy.sealing.invitations import Invitations

    if Invitations(_require_here().paths.rosters).has(invite_id):
        raise DeviceError("this invite was made on this machine", hint="paste it into confide join on the new one")


async def _join(invite: Invite, pair: tuple[bytes, bytes] | None, as_json: bool) -> None:
    from confide_crypto.connection import connect
    from confide_proxy.client import Client
    from confide_proxy.sealing import space_connection

    here = _require_here()
    await _require_leave(here.paths)
    identity = await asyncio.to_thread(identities.identity, here.paths.identity)
    try:
        connection = await connect(invite.websocket_url, identity, invite.daemon_static, invite=invite)
    except DeniedError as error:
        if error.reason == "disabled":
            # Joined, and the invite is spent: with the pin in place, this machine is in as soon as it is approved.
            _join_instead(here, Joined(invite.websocket_url, invite.daemon_static, pair=pair))
            hint = "read the six words to the daemon's owner, who compares and approves them; then test the link with: confide status"
            raise DeniedError(error.reason, error.fingerprint, hint=hint) from None
        raise
    alias = str(connection.welcome.get("caller", "this machine"))
    new = connection.successor
    static, key = (new.new_static, new.new_key) if new else (invite.daemon_static, connection.peer_key)
    _join_instead(here, Joined(invite.websocket_url, static, key, pair))
    await connection.close()
    words = fingerprint_words(identity.public_key)
    result: dict[str, Any] = {"name": alias, "words": words, "daemon": invite.websocket_url}
    if not as_json:
        out.print(f"joined as [bold]{alias}[/]  {words}")
    if pair is not None:
        await space_connection.await_keys(here.paths, here.config, _INVITER_S)
    try:
        async with Client(here.paths, here.config, projects.identify(Path())) as client:
            status = await client.call("memory_status", {})
            problem = client.sealing.keyring.problem
        result |= {"canSeal": problem is None, "files": status["totalFiles"], "pieces": status["totalChunks"]}
        told = f"the link works: {status['totalFiles']} files, {status['totalChunks']} pieces in this space"
        if problem is not None:
            told += f"\n{problem}\n{problem.hint}"
    except SpaceLockedError as error:
        result["locked"] = str(error)
        told = f"joined, but {error}\n{error.hint}"
    except RequestError as error:
        if error.code != "denied":
            raise
        # A machine that reaches some projects only may well be joined from the folder of none of them.
        result["denied"] = str(error)
        told = f"the link works, but for this folder {error}"
        if (problem := await space_connection.introduce(here.paths, here.config)) is not None:
            told += f"\n{problem}\n{problem.hint}"
    if as_json:
        print_json(result)
        return
    out.print(told, markup=False)
    out.print("\nnow let your agent start it:  confide setup claude-code --write", markup=False)


async def _require_leave(paths: Paths) -> None:
    """Have a person agree to leave a space whose secrets this machine opens; where nobody can be asked, say so."""
    from confide_proxy.asking import confirmed
    from confide_proxy.errors import DeviceError
    from confide_proxy.leaving import left_behind

    told = await asyncio.to_thread(left_behind, paths)
    if told is None:
        return
    if not sys.stdin.isatty():
        err.print(f"note: {told}", markup=False)
    elif not await confirmed(f"{told}. Join?"):
        raise DeviceError("nothing was changed")


def _join_instead(here: Here, daemon: Joined) -> None:
    """Join this daemon in the place of any other."""
    from confide_proxy.ondemand import read_address
    from confide_proxy.sealing.cached_roster import RosterCache

    before = joined.load(here.paths.link) or read_address(here.paths.daemon_data)
    RosterCache(here.paths.rosters).moved(before.daemon_static if before else b"", daemon.daemon_static)
    joined.save(here.paths.link, daemon)


@app.command()
def pin(
    url: Annotated[str, typer.Argument(help="The daemon's address, as in ws://host:7733.")],
    daemon_key: Annotated[str, typer.Argument(help="What `confided key show` printed.")],
    as_json: AsJson = False,
) -> None:
    """Pin a daemon by hand, where its operator added this machine's key line."""
    from confide_crypto.private import make_private_dir
    from confide_proxy.sealing.cached_roster import RosterCache

    here = _require_here()
    address = _websocket_url(url)
    make_private_dir(here.paths.state)  # not by the way, as a parent: others could look into it
    RosterCache(here.paths.rosters).use("")
    _join_instead(here, Joined(address, parse_daemon_key(daemon_key)))
    words = fingerprint_words(identities.stored(here.paths.identity).public_key)
    if as_json:
        print_json({"daemon": address, "words": words})
        return
    out.print(f"pinned {address}", markup=False)
    out.print(f"this machine is {words}; test the link with: confide status", markup=False)


@setup_app.command("claude-code")
def setup_claude_code(
    write: Annotated[
        bool, typer.Option("--write", help="Merge the entry into the file instead of printing it.")
    ] = False,
    user: Annotated[
        bool, typer.Option("--user", help="For all projects (~/.claude.json) instead of this one.")
    ] = False,
    project: ProjectDir = Path(),
) -> None:
    """The MCP entry for Claude Code."""
    path = setup.claude_code_file(project.absolute(), for_user=user)
    if not write:
        out.print(setup.as_text(), markup=False)
        err.print(f"paste this into {path}, or run it again with --write", markup=False)
        return
    changed = setup.merge(path)
    out.print(f"{'added confide to' if changed else 'confide is already in'} {path}", markup=False)
    if changed:
        import_commands.offer(_require_here(), folder_of(project))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="At most so many results.")] = 8,
    min_score: Annotated[
        float | None, typer.Option("--min-score", min=0, max=1, help="Leave out what scores less.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all-projects", help="Search every project of the space.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what was looked for, and why each hit stands where it does.")
    ] = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Find the right lines."""
    arguments: dict[str, Any] = {"query": query, "maxResults": limit}
    if explain:
        arguments["explain"] = True
    if min_score is not None:
        arguments["minScore"] = min_score
    if everywhere:
        arguments["project"] = "*"
    result = _run(_tool(project, "memory_search", arguments, sync=True))
    if as_json:
        print_json(result)
        return
    _note(result["warnings"])
    for hit in result["results"]:
        place = f"{hit['path']}:{hit['startLine']}-{hit['endLine']}"
        out.print(
            f"[bold]{_plain(place)}[/]  {hit['score']:.2f}  [dim]{_plain(hit['heading'])} {_plain(hit['project'])}[/]"
        )
        for newer in hit.get("supersededBy", ()):
            out.print(f"    superseded by {newer['title']} ({newer['path']})", markup=False)
        for line in hit["snippet"].splitlines():
            out.print(f"    {line}", markup=False)
    if not result["results"]:
        err.print("nothing found", markup=False)
    if explain:
        explained.show(result)


@app.command(cls=TakesRevision)
def read(
    path: Annotated[str, typer.Argument(help="As a search shows it, e.g. memory/2026-11-20.md.")],
    start: Annotated[int, typer.Option("--from", min=1, help="The first line.")] = 1,
    lines: Annotated[int, typer.Option("--lines", min=1, max=2000, help="How many lines.")] = 2000,
    revision: Annotated[int | None, typer.Option("--revision", "-r", min=1, help="An older one.")] = None,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Print a memory file."""
    arguments = {"path": path, "fromLine": start, "lines": lines} | ({"revision": revision} if revision else {})
    result = _run(_tool(project, "memory_read", arguments, sync=True))
    if as_json:
        print_json(result)
        return
    _note(result.get("warnings", []))
    out.print(result["content"], markup=False)
    if result["toLine"] < result["totalLines"]:
        err.print(f"lines {result['fromLine']}-{result['toLine']} of {result['totalLines']}", markup=False)


@app.command(cls=_TakesListItems)
def store(
    content: Annotated[str, typer.Argument(help="The text; - reads it from stdin.")],
    path: Annotated[str | None, typer.Option("--path", help="The file; today's log if left out.")] = None,
    heading: Annotated[str | None, typer.Option("--heading", help="Append below this heading.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file, or the heading's section.")] = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Remember something."""
    text = sys.stdin.read() if content == "-" else content
    arguments: dict[str, Any] = {"content": text, "mode": "replace" if replace else "append"}
    arguments |= {"path": path} if path else {}
    arguments |= {"heading": heading} if heading else {}
    result = _run(_tool(project, "memory_store", arguments, sync=True))
    if as_json:
        print_json(result)
    else:
        told = "queued for" if result["queued"] else "stored in"
        revision = f" (revision {result['revision']})" if result["revision"] else ""  # none while it waits
        out.print(f"{told} {result['path']}{revision}", markup=False)
    _note(result["warnings"])


@app.command()
def status(project: ProjectDir = Path(), as_json: AsJson = False) -> None:
    """Whether the daemon can be reached, how the link stands, and what the daemon holds."""
    from confide_proxy import offline_commands, standing

    here = _require_here()
    try:
        result = _run(_status(here, projects.identify(folder_of(project))))
    except (ConfideError, TimeoutError) as error:
        link = standing.down(here.paths, error)
        waiting = offline_commands.counts(here)
        if as_json:
            print_json({"link": link, "queuedOffline": waiting.queued, "deadLetters": waiting.dead})
        else:
            _print_link({name: value for name, value in link.items() if name not in ("reason", "hint")})
            out.print(f"queuedOffline  {waiting.queued}\ndeadLetters    {waiting.dead}", markup=False)
        raise  # says the reason and the hint, and ends with their code
    if as_json:
        print_json(result)
        return
    _print_link(result.pop("link"))
    _print_sealing(result.pop("sealing"))
    if "unsealedFindings" in result:
        result["unsealedFindings"] = secrets_commands.unsealed_line(result["unsealedFindings"])
    width = max(len(name) for name in result)
    for name, value in result.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out.print(f"{name:<{width}}  {text}", markup=False)


async def _status(here: Here, project: Project) -> dict[str, Any]:
    from confide_proxy import standing
    from confide_proxy.client import Client

    async with Client(here.paths, here.config, project) as client:
        # Before the call: a daemon that goes away answers what was asked, and no more.
        unsealed = await secrets_commands.unsealed(client)
        result = await client.call("memory_status", {})
        pending = await client.pending_transcripts()
        result |= {} if pending is None else {"pendingTranscriptBytes": pending}
        result |= {} if unsealed is None else {"unsealedFindings": unsealed}
        sealing = {**result.get("sealing", {}), **standing.sealing(client.sealing.keyring)}
        return {**result, "sealing": sealing, "link": {**result["link"], **standing.up(here.paths, client)}}


def _print_link(link: dict[str, Any]) -> None:
    out.print(f"link {link.pop('state')}", markup=False)
    _print_facts(link)


def _print_sealing(sealing: dict[str, Any]) -> None:
    out.print(f"sealing {'ready' if sealing.pop('canSeal') else 'not ready'}", markup=False)
    _print_facts(sealing)


def _print_facts(facts: dict[str, Any]) -> None:
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            out.print(f"  {name:<{width}}  {text}", markup=False)


@app.command()
def sync(
    force: Annotated[bool, typer.Option("--force", help="Read every file, however unchanged it looks.")] = False,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Compare this project's files with the daemon and wait until they are indexed."""
    result = _run(_sync(project, force))
    code = RequestError(result["notCompared"], "").exit_code if "notCompared" in result else 0
    if as_json:
        print_json(result)
        raise typer.Exit(code)
    out.print(
        f"files: {result['filesScanned']} compared, {result['filesSent']} sent, {result['filesPulled']} received, "
        f"{result['filesRemoved']} removed; pieces embedded: {result['chunksUpdated']}; {result['duration']:.1f} s",
        markup=False,
    )
    if sent := result.get("transcripts"):
        out.print(
            "transcripts: {messages} messages of {sessions} sessions sent, {skipped} lines skipped".format(**sent)
        )
    for item in result["skipped"]:
        err.print(f"skipped {item['path']}: {item['reason']}", markup=False)
    _note(result["warnings"])
    raise typer.Exit(code)


@app.command()
def quickstart(
    project: ProjectDir = Path(),
    write: Annotated[
        bool, typer.Option("--write/--no-write", help="Add the entry to this project's .mcp.json.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One machine, no server: start a daemon here, join it, index this project, and say how to go on."""
    here = _require_here()
    if joined.load(here.paths.link) is not None:
        err.print("this machine has joined a daemon already; using that one", markup=False)
    result = _run(_sync(project, force=False))
    info = _run(_tool(project, "memory_status", {}))
    if as_json:
        changed = setup.merge(setup.claude_code_file(project.absolute(), for_user=False)) if write else False
        counts = {"filesScanned": result["filesScanned"], "totalChunks": info["totalChunks"], "entryAdded": changed}
        print_json({"daemonVersion": info["daemonVersion"], **counts})
        return
    out.print(f"a daemon answers, version {info['daemonVersion']}", markup=False)
    out.print(f"{result['filesScanned']} memory files compared, {info['totalChunks']} pieces indexed", markup=False)
    if write:
        setup_claude_code(write=True, user=False, project=project)
    else:
        out.print("\nnow let your agent start it:  confide setup claude-code --write", markup=False)
    out.print(
        'and try:  confide store "we chose postgres for its row locks"\n          confide search "why postgres"',
        markup=False,
    )


async def _tool(project: Path, tool: str, arguments: dict[str, Any], *, sync: bool = False) -> dict[str, Any]:
    from confide_proxy import offline_commands

    identity = projects.identify(folder_of(project))
    return await offline_commands.call(_require_here(), identity, tool, arguments, sync=sync, note=_note)


async def _sync(project: Path, force: bool) -> dict[str, Any]:
    from confide_proxy import offline_commands
    from confide_proxy.client import Client

    here = _require_here()
    with SyncProgress(err) as bar:
        async with Client(here.paths, here.config, projects.identify(folder_of(project))) as client:
            client.files.on_progress = lambda done, total: bar.follow(done, total, "files")
            await offline_commands.send_queue(client, here, _note)
            sent = await client.send_transcripts(
                force=force, progress=lambda done, total: bar.follow(done // 1024, total // 1024, "transcripts, KiB")
            )
            result = await client.call("memory_sync", {"force": force}, progress=bar.follow, is_long=True)
            return result if sent is None else {**result, "transcripts": sent}


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _require_here() -> Here:
    assert _here is not None
    return _here


def _websocket_url(url: str) -> str:
    schemes = {"confide": "ws", "confides": "wss", "ws": "ws", "wss": "wss"}
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "ws", url
    if scheme not in schemes or not rest.strip("/"):
        raise typer.BadParameter("the address looks like ws://host:7733 or wss://host/path", param_hint="URL")
    return f"{schemes[scheme]}://{rest}"


def _note(warnings: list[str]) -> None:
    for warning in warnings:
        err.print(warning if warning.startswith("hint: ") else f"note: {warning}", markup=False)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")


def _fail(error: ConfideError) -> NoReturn:
    err.print(f"confide: {error}", markup=False)
    if error.hint:
        err.print(f"hint: {error.hint}", markup=False)
    sys.exit(error.exit_code)
