"""`confided custody` and `confided rekey`: who keeps the key of a space's database, and a new one where the server does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from confide_daemon import paths
from confide_daemon.errors import BadNameError
from confide_daemon.health_commands import spaces_of, work
from confide_daemon.options import Config, Data, Json, opened, say, show

Name = Annotated[str, typer.Argument(metavar="SPACE", help="The space, as confided status shows it.")]


def custody(
    space: Name,
    keeper: Annotated[str | None, typer.Argument(metavar="[caller|server]", help="Who is to keep it.")] = None,
    config_file: Config = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Show or change who keeps the key of a space's database: its machines (caller) or this server, while it is in use."""
    from confide_daemon.custody.custody import KEEPERS
    from confide_daemon.custody.facts import facts_of
    from confide_daemon.health import answers

    found = paths.find(config=config_file, data=data)
    if keeper is not None:
        if keeper not in KEEPERS:
            raise BadNameError(f"'{keeper[:40]}' keeps no keys", hint=f"it is one of {', '.join(KEEPERS)}")
        _require(found, space)
        work(
            found,
            "to-caller" if keeper == "caller" else "to-server",
            space,
            must_have_config=config_file is not None,
            quiet=as_json,
        )
    with opened(config_file, data) as state:
        spaces = state.registry.spaces()
        if space not in spaces:
            raise BadNameError(f"there is no space '{space[:80]}'", hint=f"there are: {', '.join(spaces) or 'none'}")
        facts = facts_of(state, is_served=answers(found.data.address))[space]
    if as_json:
        show({"space": space, **facts.to_json()})
        return
    typer.echo(f"{space}: {facts}")
    if facts.wanted is not None:
        say(_WAITS[facts.wanted])


_WAITS: dict[str, str] = {
    "caller": "Its key is changed when one of its machines next connects; until then it stays as it is.",
    "server": "Its key is changed when one of its machines has unlocked it; until then it stays as it is.",
}


def rekey(space: Name, config_file: Config = None, data: Data = None, as_json: Json = False) -> None:
    """Encrypt the database of a space under a new key of this server's, while it is in use."""
    found = paths.find(config=config_file, data=data)
    _require(found, space)
    outcome: dict[str, Any] = work(found, "rekey", space, must_have_config=config_file is not None, quiet=as_json)[
        space
    ]
    if as_json:
        show({"space": space, "custody": outcome["custody"], "generation": outcome["number"]})
        return
    typer.echo(f"{space}: encrypted under a new key, its generation {outcome['number']}")


def _require(found: paths.Paths, space: str) -> None:
    if space not in spaces_of(found, space):
        raise BadNameError(f"the space {space} holds nothing yet", hint="connect one of its machines first")
