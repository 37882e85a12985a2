"""`confide http …`: lists, approves and removes the programs that use the space through its
server's gateway (docs/http-server.md).
"""

from __future__ import annotations

from typing import Annotated

import typer

from confide_http.local import server_clients as by_http
from confide_memory.documents import local_time
from confide_proxy.cli.console import CommandContext, Output, command, remark, require_consent
from confide_proxy.cli.devices import connect_to_space

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@command
async def http_approve(
    here: CommandContext,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="The six words that the page in your browser shows.")
    ],
    scope: Annotated[str, typer.Option("--scope", help="read or write; never more than it asks for.")] = "write",
    project: Annotated[
        list[str] | None, typer.Option("--project", help="This project alone; again for each.", show_default="all")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=90, help="How long it is let in.")] = 90,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Treat what it stores as an agent's, not as untrusted.")
    ] = False,
    name: Annotated[str, typer.Option("--name", help="Its name here; shown beside what it writes.")] = "",
    is_sure: Yes = False,
) -> Output:
    """Approve a program that asks for access in your browser; its request is shown to you first."""
    said = " ".join(words)
    async with connect_to_space(here, needs_keys=False) as space:
        asked = await by_http.find_sign_in(space.connection, said)
        remark(
            f"{asked['application']} asks to {by_http.does(asked['scope'])} this space, until {local_time(asked['expires'])}."
        )
        if asked["scope"] == "read":
            remark("It has not asked to write, so it cannot: for that it has to ask for the scope memory:write.")
        remark(f"It would send you back to {asked['redirect']}")
        if asked["registered"]:
            remark("It has registered itself: its name was not verified.")
        remark("Approve it only if you have asked for this yourself. Its vendor can read what it asks for and finds.")
        await require_consent("let it in?", is_sure=is_sure)
        given, days = await by_http.approve(
            space.connection,
            said,
            scope=scope,
            trusted=trusted,
            days=days,
            name=name,
            projects=project or None,
        )
    fields = {"application": asked["application"], "redirect": asked["redirect"], "scope": given, "days": days}
    return Output(fields, f"approved: {asked['application']} may {by_http.does(given)}; the page goes on by itself")


@command
async def http_ls(here: CommandContext) -> Output:
    """List the programs and apps that can use the space over HTTP."""
    async with connect_to_space(here, needs_keys=False) as space:
        found = await by_http.clients_of(space.connection)
    lines = "\n".join(by_http.line(one) for one in found)
    return Output(found, lines or "no app is connected through the server")


@command
async def http_rm(
    here: CommandContext, name: Annotated[str, typer.Argument(help="Its name, as confide http ls shows it.")]
) -> Output:
    """Remove the access of one program: the server refuses it within a second, and ends its
    streams.
    """
    async with connect_to_space(here, needs_keys=False) as space:
        await by_http.end(space.connection, name)
    return Output({"removed": name}, f"removed: {name}")
