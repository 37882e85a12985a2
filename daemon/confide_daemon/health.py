"""How the daemon and its data folder are, seen from a command beside it."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confide_crypto.errors import ConfideError
from confide_daemon import __version__, address, config
from confide_daemon.paths import Paths
from confide_daemon.state import State, open_state

HEALTH_DEADLINE_S = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    problem: str | None = None
    hint: str | None = None

    @property
    def is_ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.problem is None


def answers(address_file: Path) -> bool:
    """Whether the daemon that wrote this file answers `GET /health`; a killed one leaves its file behind."""
    found = address.read(address_file)
    if found is None:
        return False
    where = urlsplit(found.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=HEALTH_DEADLINE_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def facts(state: State) -> dict[str, Any]:
    """What `confided status` shows."""
    is_running = answers(state.folder.address)
    found = address.read(state.folder.address) if is_running else None
    files = [path for path in state.folder.root.rglob("*") if path.is_file()]
    return {
        "version": __version__,
        "running": is_running,
        "url": found.url if found else None,
        "pid": found.pid if found else None,
        "data": str(state.folder.root),
        "sizeBytes": sum(path.stat().st_size for path in files),
        "callers": len(state.registry.callers()),
        "spaces": list(state.registry.spaces()),
        "oldKeyUntil": state.keys.rotation.until if state.keys.rotation else None,
    }


def examine(found: Paths, *, must_have_config: bool) -> list[Check]:
    """Every check of `confided doctor`; a later one is left out where an earlier one it stands on has failed."""
    checks = [_check("configuration", lambda: config.load(found.config, must_exist=must_have_config))]
    checks.append(_check("data folder and keys", lambda: open_state(found.data).close()))
    if checks[-1].is_ok:
        checks += _databases(found)
    if checks[0].is_ok:
        checks += _models(found)
    running = answers(found.data.address)
    checks.append(Check("daemon answers" if running else "daemon is not running"))
    return checks


def _databases(found: Paths) -> Iterator[Check]:
    from confide_daemon.store.connection import connect

    state = open_state(found.data)
    try:
        for name, space_id in state.registry.spaces().items():
            path, key = found.data.space(space_id), state.master.space_key(space_id)
            if path.exists():
                yield _check(f"database of {name}", lambda path=path, key=key: connect(path, key, writer=False).close())  # type: ignore[misc]
    finally:
        state.close()


def _models(found: Paths) -> Iterator[Check]:
    """Every configured model is loaded and embeds a word, so that a refused key or a server that is down shows here."""
    from confide_daemon import models

    settings = config.load(found.config).embedding
    for place, name in enumerate(models.order(settings)):
        what = "embedding model" if place == 0 else f"embedding model in its place: {name}"
        yield _check(what, lambda name=name: models.try_out(settings, name))  # type: ignore[misc]


def _check(name: str, look: Callable[[], object]) -> Check:
    try:
        look()
    except ConfideError as error:
        return Check(name, str(error), error.hint)
    return Check(name)
