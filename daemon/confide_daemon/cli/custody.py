"""`confided custody` and `confided rekey`: who keeps the key of a space's database, and a new one where the server does."""

from __future__ import annotations

from typing import Annotated

import typer

from confide_daemon.cli.console import Here, Output, command, say
from confide_daemon.cli.jobs import spaces_of, work
from confide_daemon.errors import BadNameError

Name = Annotated[str, typer.Argument(metavar="SPACE", help="The space, as confided status shows it.")]


@command
def custody(
    here: Here,
    space: Name,
    keeper: Annotated[str | None, typer.Argument(metavar="[caller|server]", help="Who is to keep it.")] = None,
) -> Output:
    """Show or change who keeps the key of a space's database: its machines (caller) or this server, while it is in use."""
    from confide_daemon.cli.health import answers
    from confide_daemon.cli.space_facts import facts_of
    from confide_daemon.datadir.key_state import KEEPERS

    if keeper is not None:
        if keeper not in KEEPERS:
            raise BadNameError(f"'{keeper[:40]}' keeps no keys", hint=f"it is one of {', '.join(KEEPERS)}")
        _require(here, space)
        work(here, "to-caller" if keeper == "caller" else "to-server", space)
    with here.opened() as state:
        spaces = state.registry.spaces()
        if space not in spaces:
            raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are: {', '.join(spaces) or 'none'}")
        facts = facts_of(state, is_served=answers(here.paths.data.address))[space]

    def tell() -> None:
        typer.echo(f"{space}: {facts}")
        if facts.wanted is not None:
            say(_WAITS[facts.wanted])

    return Output({"space": space, **facts.to_json()}, tell)


_WAITS: dict[str, str] = {
    "caller": "Its key is changed when one of its machines next connects; until then it stays as it is.",
    "server": "Its key is changed when one of its machines has unlocked it; until then it stays as it is.",
}


@command
def rekey(here: Here, space: Name) -> Output:
    """Encrypt the database of a space under a new key of this server's, while it is in use."""
    _require(here, space)
    outcome = work(here, "rekey", space)[space]
    data = {"space": space, "custody": outcome["custody"], "generation": outcome["number"]}
    return Output(data, [f"{space}: encrypted under a new key, its generation {outcome['number']}"])


def _require(here: Here, space: str) -> None:
    if space not in spaces_of(here.paths, space):
        raise BadNameError(f"the space {space} holds nothing yet", hint="connect one of its machines first")
