"""What the add-ons that are installed have in each space, for tests that open spaces without the daemon's program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from confide_daemon.addons import installed
from confide_daemon.config import DaemonConfig
from confide_daemon.spaces.part import SpacePart
from confide_daemon.spaces.space import Space


def parts(config: DaemonConfig | None = None) -> list[Callable[[Space], Iterable[SpacePart]]]:
    """As the daemon's process gives them to its spaces."""
    return [partial(addon.space, config=config or DaemonConfig()) for addon in installed()]
