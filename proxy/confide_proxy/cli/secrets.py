"""The commands of `confide secrets`: list and show sealed credentials, and seal those that were
stored before a rule for them existed (docs/secrets.md).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from confide_crypto.errors import EXIT_INPUT, ConfideError, printable
from confide_memory.commands.progress import Progress
from confide_memory.documents import MAX_TEXT_BYTES, local_time
from confide_proxy.cli.console import (
    CommandContext,
    Output,
    ProjectDir,
    ask_confirmation,
    command,
    count_noun,
    project_of,
    remark,
    say,
)
from confide_proxy.cli.device_removal import documents_of
from confide_proxy.devices import roster_client
from confide_proxy.run.secret_names import SecretNames
from confide_proxy.run.shown_values import approve_showing, is_of_agent
from confide_proxy.sealing.open_secrets import open_secret, resolve_references
from confide_proxy.sealing.rescan import Rescan, RescanOutcome, UnsealedDocument, policy_of
from confide_proxy.sealing.sealer import Sealer, load_fingerprints
from confide_proxy.sealing.secret_references import bare, refuse_redacted
from confide_proxy.sealing.use_log import UseLog
from confide_proxy.sync.project import Project

LEFT: Final = 9
"""The exit code if credentials remain in clear (docs/commands.md)."""
_SHOWN: Final = 50
_SHOWN_REVISIONS: Final = 8
_LISTED: Final = 1000


async def scan_stored(here: CommandContext, project: Path, *, dry_run: bool, yes: bool, as_json: bool) -> Output:
    """Find credentials in the texts that the daemon stores (documents, revisions, transcripts and
    derived data), and seal them.

    Asks the user after the search. With `dry_run` it ends there; with `yes` it seals without
    asking.
    """
    is_sure = False if dry_run else yes or None
    if is_sure is None and (as_json or not sys.stdin.isatty()):
        is_sure = False
    outcome, is_dry = await _rescan(here, await project_of(here, project), is_sure, as_json)

    def print_text() -> None:
        if not is_dry:
            _print_run(outcome)
        elif outcome.found and not dry_run:
            remark("nothing was sealed; --yes seals without asking")

    is_left = _remaining(outcome, is_dry=is_dry) or not outcome.is_clean
    code = LEFT if is_left else EXIT_INPUT if outcome.unreadable else 0
    return Output(_as_json(outcome, is_dry=is_dry), print_text, exit_code=code)


async def _rescan(
    here: CommandContext, project: Project, is_sure: bool | None, is_quiet: bool
) -> tuple[RescanOutcome, bool]:
    """Search the stored texts, and seal the findings if `is_sure`; None asks the user first.

    Returns the outcome, and True if nothing was sealed.
    """
    async with here.client(project) as client:
        keyring, deposit = client.sealing.keyring, client.sealing.deposit
        if is_sure is not False and keyring.keys is None:
            assert keyring.problem is not None
            raise keyring.problem
        prints = await asyncio.to_thread(load_fingerprints, here.paths.fingerprint_key)
        # Hold the current keys: if they were lost meanwhile, credentials would be redacted instead
        # of sealed.
        keys = keyring.keys
        sealer = Sealer(policy_of(here.config.secrets), lambda: keys, lambda: prints, client.sealing.known_values)

        def rescan(bar: Progress) -> Rescan:
            return Rescan(
                client.connection, sealer, deposit, lambda done, total: bar.follow(done, total, "stored texts")
            )

        if not is_sure:
            with Progress() as bar:
                looking = rescan(bar)
                outcome = await looking.look()
            await looking.report(_remaining(outcome, is_dry=True))
            if not is_quiet:
                _print_preview(outcome)
            if is_sure is False:
                return outcome, True
            if outcome.found and not await ask_confirmation(_question(outcome)):
                return outcome, True
        with Progress() as bar:
            sealing = rescan(bar)
            outcome = await sealing.run()
        await sealing.report(_remaining(outcome, is_dry=False))
        return outcome, False


@command
async def list_secrets(here: CommandContext, project: ProjectDir = Path()) -> Output:
    """List the space's sealed credentials by placeholder, with their names and with the projects
    and files that have them; never their values.
    """
    names = SecretNames(here.paths.secret_names).read()
    called: dict[str, list[str]] = {}
    for name, secret in names.items():
        called.setdefault(secret.secret_id.hex(), []).append(name)
    async with here.client(await project_of(here, project)) as client:
        found = [one async for page in roster_client.records(client.connection) for one in page]
        places: dict[str, list[str]] = {}
        with suppress(ConfideError, TimeoutError):
            places = await documents_of(client, [one["id"] for one in found])
    listed = [{**one, "documents": places.get(one["id"], []), "names": called.get(one["id"], [])} for one in found]
    lines = (
        f"(sealed:{one['kind']}:{one['id']})  {local_time(one['at'])}  "
        f"{''.join(f'{name}  ' for name in called.get(one['id'], ()))}"
        f"{', '.join(places.get(one['id'], ())) or 'no document that was found'}"
        for one in found
    )
    return Output(listed, lines, empty="nothing is sealed in this space")


@command
async def name_secret(
    here: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as npm-token.")],
    secret: Annotated[str, typer.Argument(metavar="PLACEHOLDER", help="As for `confide secrets show`.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Take the name back.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Give a sealed secret a name on this device, or take it back.

    Commands take the name instead of the placeholder: `confide run --env X=secret:NAME`.
    """
    names = SecretNames(here.paths.secret_names)
    if remove == bool(secret):
        raise typer.BadParameter("give a placeholder, or --remove", param_hint="PLACEHOLDER")
    if remove:
        await asyncio.to_thread(names.give, name, None)
        return Output({"name": name, "secret": None}, f"no secret is called {name} now")
    async with here.client(await project_of(here, project)) as client:
        found = (await resolve_references(client.connection, [secret], {}))[secret]
    await asyncio.to_thread(names.give, name, found)
    return Output({"name": name, "secret": str(found)}, f"{found} is called {name}")


@command
async def show(
    here: CommandContext,
    secret: Annotated[
        str,
        typer.Argument(metavar="PLACEHOLDER", help="As it stands in a text, the first of its digits, or its name."),
    ],
    raw: Annotated[bool, typer.Option("--raw", help="Just the value, also where stdout is no terminal.")] = False,
    project: ProjectDir = Path(),
) -> Output:
    """Open a sealed credential on this device, and print it to the terminal.

    In the shell of an agent, this asks you in the agent's client.
    """
    names = SecretNames(here.paths.secret_names).read()
    refuse_redacted(secret)
    bare(secret)  # an invalid name fails before any question
    if not raw and not sys.stdout.isatty():
        raise typer.BadParameter("stdout is not a terminal; --raw prints the value anyway", param_hint="PLACEHOLDER")
    async with here.client(await project_of(here, project)) as client:
        found = (await resolve_references(client.connection, [secret], names))[secret]
        approved = "user"
        if is_of_agent(os.environ):
            called = str(found) if secret == str(found) else f"{secret} {found}"
            approved = await asyncio.to_thread(approve_showing, here.paths, here.config.secrets.secret_get, called)
        opened = await open_secret(client.connection, client.sealing, str(found))
    UseLog(here.paths.secret_uses).note([found], "confide secrets show", approved)
    text = opened.value.decode("utf-8", "replace")

    def print_text() -> None:
        if raw:
            sys.stdout.buffer.write(opened.value)
            sys.stdout.buffer.flush()
        else:
            say("\n".join(printable(line) for line in text.splitlines()))

    return Output({"kind": opened.kind, "value": text}, print_text)


def _remaining(outcome: RescanOutcome, *, is_dry: bool) -> int:
    """Return the known number of credentials that are in clear now."""
    return (outcome.found.total() if is_dry else outcome.outgrown) + len(outcome.documents_to_rename)


def _print_preview(outcome: RescanOutcome) -> None:
    for document in list(outcome.documents.values())[:_SHOWN]:
        say(_line(document))
    more = len(outcome.documents) + outcome.more_documents - _SHOWN
    if more > 0:
        remark(f"and {more:,} more documents")
    found = (
        f"{count_noun(outcome.found.total(), 'credential')} in clear ({_kinds(outcome.found)})"
        if outcome.found
        else "no credentials in clear"
    )
    remark(f"{found} in {outcome.texts:,} stored texts")
    _print_remaining(outcome)


def _print_run(outcome: RescanOutcome) -> None:
    if not outcome.found:
        say(f"nothing to seal in {outcome.texts:,} stored texts")
    else:
        redacted = f", {outcome.redacted:,} of them redacted as your policy says" if outcome.redacted else ""
        done = count_noun(outcome.found.total() - outcome.outgrown, "credential")
        say(f"sealed {done} in {outcome.sealed:,} stored texts{redacted}; the database no longer holds them in clear")
    _print_remaining(outcome)


def _print_remaining(outcome: RescanOutcome) -> None:
    if not outcome.is_clean:
        remark("a run was interrupted before it cleaned the daemon's database: run it again")
    if outcome.damaged_copies:
        remark(
            "the daemon keeps a damaged file of the former database for up to 30 days, with the texts as they were: its operator "
            "can delete it, *.damaged* in its data folder"
        )
    if outcome.outgrown:
        remark(
            f"{count_noun(outcome.outgrown, 'credential')} cannot be sealed: with placeholders their texts would be over "
            f"{MAX_TEXT_BYTES // 2**20} MiB; split these files"
        )
    if outcome.unreadable:
        remark(f"{outcome.unreadable:,} stored texts are damaged and were skipped")
    for document in outcome.documents_to_rename[:_SHOWN]:
        remark(
            f"the name of {document.project} {document.path}, or the id of that note, contains part of a credential: store it again under "
            "another title, and delete this one"
        )


def _question(outcome: RescanOutcome) -> str:
    redacted = f" ({outcome.redacted:,} are redacted: no device can decrypt them)" if outcome.redacted else ""
    documents = len(outcome.documents) + outcome.more_documents
    return f"seal {count_noun(outcome.found.total(), 'credential')} in {documents:,} documents{redacted}?"


def _line(document: UnsealedDocument) -> str:
    numbers = document.revisions
    shown = ", ".join(map(str, sorted(numbers)[:_SHOWN_REVISIONS])) + (", …" if len(numbers) > _SHOWN_REVISIONS else "")
    revisions = f"revision{'s' if len(numbers) > 1 else ''} {shown}"
    return f"{document.project}  {document.path}  {revisions}  {_kinds(document.kinds)}"


def _kinds(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counter.most_common())


def _as_json(outcome: RescanOutcome, *, is_dry: bool) -> dict[str, object]:
    return {
        "dryRun": is_dry,
        "texts": outcome.texts,
        "findings": dict(outcome.found),
        "redacted": outcome.redacted,
        "sealedTexts": outcome.sealed,
        "outgrown": outcome.outgrown,
        "unreadable": outcome.unreadable,
        "isClean": outcome.is_clean and not _remaining(outcome, is_dry=is_dry),
        "damagedCopies": outcome.damaged_copies,
        "documents": [
            {
                "project": document.project,
                "path": document.path,
                "revisions": sorted(document.revisions),
                "kinds": dict(document.kinds),
                "named": document.is_named,
            }
            for document in outcome.documents.values()
        ],
        "unsealed": _remaining(outcome, is_dry=is_dry),
    }
