"""Where the proxy keeps its files.

With `CONFIDE_HOME` set everything lives below it, so that several identities (and tests) fit on one machine; otherwise the
platform's standard folders are used. A program that was started without these variables goes by the note of those that this machine was
set up with (`homes`). Only this module knows the names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from confide_proxy import homes
from confide_proxy.homes import HOME_VARIABLE


class _InState:
    """A file or a folder below `Paths.state`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: Paths, _owner: type[Paths]) -> Path:
        return paths.state / self._name


@dataclass(frozen=True, slots=True)
class Paths:
    """The proxy's places on disk.

    Attributes:
        config: the TOML file that people edit.
        state: identity, pins, caches; mode 0700.
        global_folder: the memory that all projects share.
        daemon_data: the data folder of the daemon that is started on demand.
    """

    config: Path
    state: Path
    global_folder: Path
    daemon_data: Path

    identity = _InState("identity.key")
    """The Ed25519 seed of this machine."""
    next_identity = _InState("identity.next.key")
    """The seed that is about to become this machine's; there for a moment of a rotation only."""
    identity_lock = _InState("identity.lock")
    """Held by whoever changes those two."""
    link = _InState("link.json")
    """Which daemon this machine has joined, and its pinned key."""
    failed_join = _InState("failed-join.json")
    """Why the last `confide join` failed, until this machine is set up."""
    client_files = _InState("client-files.json")
    """What `confide setup` has written into clients' files, so that it can be taken away again."""
    move = _InState("move.json")
    """Where this machine's memory is being moved to, until it is there."""
    left = _InState("left.json")
    """When its daemon said that the memory was moved away from there, for the runner."""
    receipt = _InState("receipt.json")
    """How far this machine has followed its daemon's space."""
    restores = _InState("restores.jsonl")
    """When the daemon was put back to an older copy of its data, and what became of this machine's files."""
    catalogue = _InState("catalogue.json")
    """The names of the tools that the daemon has."""
    journal = _InState("journal")
    """What waits on this machine for the daemon, sealed."""
    ledgers = _InState("confirmed")
    """What the daemon has confirmed of each file, by folder."""
    projects = _InState("projects.jsonl")
    """Which folder has which project's name, and by whose word."""
    transcripts = _InState("transcripts")
    """How far the transcripts of this machine's sessions have been sent."""
    learn = _InState("learn")
    """Where to learn from, how far that is done, and what was found; there only where learning is on."""
    fingerprint_key = _InState("fingerprint.key")
    """The key of this machine's names for credentials."""
    known = _InState("known")
    """The keyed names of the values that this machine has sealed or opened, by space."""
    rosters = _InState("rosters")
    """What this machine has seen of the devices of its spaces, and the secrets of the invites that it made."""
    gateway = _InState("gateway")
    """The tokens of the gateway, and where it listens."""
    seats = _InState("seats")
    """Locks that say which process of this machine does what only one should do."""


def find(config: Path | None = None) -> Paths:
    """The paths for this user, or below `CONFIDE_HOME`; `config` overrides the configuration file alone."""
    homes.follow()
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(config or root / "proxy.toml", root / "proxy", root / "global", root / "daemon")
    # Imported late: platformdirs costs more than everything else that `confide mcp` needs before it answers.
    import platformdirs

    data = platformdirs.user_data_path("confide")
    settings = platformdirs.user_config_path("confide")
    return Paths(config or settings / "proxy.toml", data / "proxy", data / "global", data / "daemon")


def runtime_folders() -> list[Path]:
    """Where this user's runtime files may be: where the environment says, and where Linux has them. Clients start servers without it."""
    said = os.environ.get("XDG_RUNTIME_DIR")
    usual = Path(f"/run/user/{os.geteuid()}")
    return list(dict.fromkeys([*([Path(said)] if said else []), usual]))
