"""Two machines of one space and one project, and the daemon between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon


def joined(
    root: Path,
    daemon: Daemon,
    *names: str,
    project: str = "shared",
    port: int | None = None,
    kind: type[Machine] = Inside,
) -> list[Machine]:
    """Machines of one space whose folders are the same project; `port` is a relay's, if they go through one.

    `kind` is `Machine` where their commands are to be programs.
    """
    machines = []
    for name in names:
        machine = kind(root, name)
        machine.call_project(project)
        options = ("--space", names[0]) if machines else ()
        machine.run("join", daemon.invite(name, *options, port=port))
        machines.append(machine)
    return machines


@contextmanager
def pair(root: Path) -> Iterator[tuple[Daemon, Machine, Machine]]:
    """A daemon, and `ann` and `bob`."""
    with running_daemon(root) as daemon:
        ann, bob = joined(root, daemon, "ann", "bob")
        yield daemon, ann, bob
