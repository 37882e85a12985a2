"""Whether this machine is set up. Only what somebody did on purpose sets it up; a look at it makes no key, no daemon, no space, no folder.

It is set up once it has joined a daemon (`link.json`), or once a daemon of its own may run here (its data folder exists). `confide
quickstart`, `join` and `pin` do that, and `confide mcp`: whoever told an agent's client to start that wants it to remember. But where
somebody tried to join a daemon and could not, `confide mcp` begins no space of its own in that daemon's place: the attempt is noted until
a join works, or `confide quickstart` says that this machine is to be alone. Nor does it where this user has a memory that its environment
does not lead to: it would be a second one, which nobody asked for.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, KeyFileError, printable
from confide_crypto.keys.private_files import (
    make_private_dir,
    read_private_file,
    remove_private_file,
    write_private_file,
)
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import NotJoinedError, NotSetUpError
from confide_proxy.paths import ProxyPaths, is_chosen_place, other_memories, remember_place

_MOST_REASON: Final = 300


def is_set_up(paths: ProxyPaths) -> bool:
    """Whether there is a daemon that this machine belongs to, or one of its own that may be started."""
    return paths.link.exists() or paths.link.is_symlink() or paths.daemon_data.exists()


def require(paths: ProxyPaths, config: ProxyConfig) -> None:
    """Go on only on a machine that is set up. Raises NotSetUpError; NotJoinedError: and no daemon may be started here either."""
    if is_set_up(paths):
        _remember()
        return
    tried = why_failed(paths)
    if tried is None and not config.on_demand:
        raise NotJoinedError
    raise NotSetUpError(tried, elsewhere=() if is_chosen_place() else other_memories())


def found(paths: ProxyPaths) -> None:
    """Let this machine have a daemon of its own from now on. Raises KeyFileError: its folder cannot be made, or others can write there."""
    if not is_set_up(paths):
        make_private_dir(paths.daemon_data)
    settle(paths)


def found_for_agent(paths: ProxyPaths, config: ProxyConfig) -> None:
    """The same for an agent's session, unless a join failed, this machine may have no daemon of its own, or this user's memory is
    elsewhere.

    A disk that takes nothing ends no session: its calls say that nothing is set up, and `confide quickstart` says why.
    """
    if other_memories() and not is_chosen_place():
        return
    if config.on_demand and not is_set_up(paths) and not _is_noted(paths.failed_join):
        with suppress(KeyFileError):
            make_private_dir(paths.daemon_data)


def note_failure(paths: ProxyPaths, error: ConfideError | TimeoutError) -> None:
    """Keep why a join failed, on a machine that is not set up: it goes on as it was else."""
    if is_set_up(paths):
        return
    told = str(error) if isinstance(error, ConfideError) else "the daemon did not answer in time"
    with suppress(KeyFileError):  # a full disk, say: that nothing is set up is seen without it
        make_private_dir(paths.state)
        data = json.dumps({"why": printable(told)[:_MOST_REASON]}).encode()
        write_private_file(paths.failed_join, data, replace=True)


def settle(paths: ProxyPaths) -> None:
    """No attempt to join is open any more. Raises KeyFileError."""
    if _is_noted(paths.failed_join):
        remove_private_file(paths.failed_join)
    _remember()


def _remember() -> None:
    with suppress(OSError):  # a full or read-only disk: it is noted the next time
        remember_place()


def why_failed(paths: ProxyPaths) -> str | None:
    """Why the last join failed, where it was to be the first; None where there was none."""
    if not _is_noted(paths.failed_join):
        return None
    try:
        return printable(str(json.loads(read_private_file(paths.failed_join))["why"]))[:_MOST_REASON]
    except (ConfideError, OSError, ValueError, KeyError, TypeError):
        return "its note cannot be read"


def _is_noted(file: Path) -> bool:
    return file.exists() or file.is_symlink()
