"""Checks of the daemon, its data folder and its spaces, for commands that run beside the daemon.

Importing this module loads the store, so commands import it only when they need it.
"""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confide_crypto.errors import ConfideError, KeyFileError
from confide_daemon import __version__, config
from confide_daemon.access.registry import RegistryState, open_state
from confide_daemon.addons import Check, installed
from confide_daemon.cli.console import spaces_of
from confide_daemon.datadir import instance
from confide_daemon.datadir.disk import least_free
from confide_daemon.datadir.key_state import Custody, Keeper, KeyName
from confide_daemon.datadir.paths import DaemonPaths, DataFolder
from confide_daemon.errors import DamagedError, LockedError, StorageError, WrongKeyError
from confide_daemon.sealing.rosters import Rosters
from confide_daemon.sealing.unsealed_texts import UnsealedCounts
from confide_daemon.sealing.vault import try_out
from confide_daemon.spaces import models
from confide_daemon.spaces.custodian import Custodian
from confide_daemon.spaces.space_slot import read_standings
from confide_daemon.store.migrations import migrations
from confide_daemon.store.space_store import Store
from confide_daemon.store.upkeep.integrity import LOSSES, UNCUT
from confide_memory.documents import iso
from confide_memory.versions import WINDOW, is_behind

HEALTH_DEADLINE_S = 2.0
MAX_ANSWER = 4096
# The most breaches that are searched for unhealed ones; no more are stored.
BREACHES = 1000
LOST_HINT = (
    "devices that have the files send them again when they next compare (confide sync); the rest is in a backup, or in the damaged file "
    "beside the database; then confided doctor --fix"
)
UNCUT_HINT = "their texts are whole, and it is tried again every ten minutes; where it stays, it is a fault of confide's: report it"
STRANDED_HINT = (
    "set url of [vault] again, restart the daemon, say confided vault move --back beside it, then take url out"
)
UNSEALED_HINT = "on one of the space's devices: confide secrets scan --stored"

Follow = Callable[[str, int, int], None]


def answers(address_file: Path) -> bool:
    """Return True if the daemon that wrote this address file responds, even if it reports a
    problem.
    """
    return answer(address_file) is not None


def answer(address_file: Path) -> str | None:
    """Return the health status that the daemon of this address file reports, or None if it does not
    respond.

    The file may belong to a daemon that was killed, which leaves it behind.
    """
    found = instance.read(address_file)
    if found is None:
        return None
    where = urlsplit(found.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=HEALTH_DEADLINE_S)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        if response.status not in (http.HTTPStatus.OK, http.HTTPStatus.SERVICE_UNAVAILABLE):
            return None
        said = json.loads(response.read(MAX_ANSWER))
        reason = f" ({said['reason']})" if "reason" in said else ""
        return f"{said['status']}{reason}"
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    finally:
        connection.close()


def facts(state: RegistryState) -> dict[str, Any]:
    said = answer(state.folder.address)
    found = instance.read(state.folder.address) if said else None
    files = [path for path in state.folder.root.rglob("*") if path.is_file()]
    return {
        "version": __version__,
        "running": said is not None,
        "health": said,
        "url": found.url if found else None,
        "listens": instance.listen_address(found.url, found.listens) if found and found.listens else None,
        "pid": found.pid if found else None,
        "data": str(state.folder.root),
        "sizeBytes": sum(path.stat().st_size for path in files),
        "callers": len(state.registry.callers()),
        "spaces": list(state.registry.spaces()),
        "atRest": {name: found.to_json() for name, found in facts_of(state, is_served=said is not None).items()},
        "oldKeyUntil": state.keys.rotation.until if state.keys.rotation else None,
    }


def examine(
    found: DaemonPaths,
    *,
    must_have_config: bool,
    space: str | None = None,
    follow: Follow = lambda _step, _done, _total: None,
) -> list[Check]:
    """Run all checks of `confided doctor` and return their results. Skip a check if another one
    that it depends on has failed.

    Args:
        space: the only space whose database is checked; None checks all.
        follow: called with the name of the current step, and with how much of it is done.

    Raises BadNameError if the space does not exist.
    """
    checks = [_check("configuration", lambda: config.load(found.config, must_exist=must_have_config))]
    checks.append(_check("data folder and keys", lambda: open_state(found.data).close()))
    if checks[-1].is_ok:
        checks.append(_room(found))
        checks.append(_check_versions(found))
        checks += _gateway_clients(found, space)
        for name, space_id in spaces_of(found, space).items():
            follow(f"{name}: checking", 0, 0)
            checks += _database(found, name, space_id)
            checks += _credentials(found, name, space_id)
            if checks[0].is_ok and not config.load(found.config).vault.url:
                checks += _check_stranded(found, name, space_id)
    if checks[0].is_ok:
        follow("trying the embedding model", 0, 0)
        checks += _models(found)
        if config.load(found.config).vault.url:
            follow("trying the vault", 0, 0)
            checks.append(_check("vault for sealed records", lambda: try_out(config.load(found.config).vault)))
        if checks[1].is_ok:
            for addon in installed():
                checks += addon.checks(found, lambda step: follow(step, 0, 0))
    said = answer(found.data.address)
    if said is None:
        checks.append(Check("daemon", detail="not running; that is no fault: confided serve starts it"))
    elif said == "ok":
        checks.append(Check("daemon", detail="answers"))
    else:
        checks.append(Check("daemon", f"it says: {said}", "what is wrong stands above, or in its log"))
    return checks


def _room(found: DaemonPaths) -> Check:
    """Check the free space on the data folder's disk."""
    disk = shutil.disk_usage(found.data.root)
    least = least_free(disk.total)
    said = f"{disk.free / 1e6:,.0f} MB are free"
    if disk.free >= least:
        return Check("disk", detail=said)
    problem = f"{said}, and {least / 1e6:,.0f} MB should be: vectors, rewriting and nightly snapshots wait"
    return Check("disk", problem, "free some space; what waits goes on by itself")


def _check_versions(found: DaemonPaths) -> Check:
    """Check that no device runs a version too old for this daemon.

    A device that is too new is no problem here: it reports that itself.
    """
    with closing(open_state(found.data)) as state:
        versions = {one.alias: one.proxy_version for one in state.registry.callers() if one.proxy_version}
    behind = ", ".join(f"{name} has {one}" for name, one in versions.items() if is_behind(one, __version__))
    ahead = ", ".join(f"{name} has {one}" for name, one in versions.items() if is_behind(__version__, one))
    far = f"more than {WINDOW} minor versions from {__version__}"
    if behind:
        return Check("versions of devices", f"{far}: {behind}", "upgrade confide on these devices")
    return Check("versions of devices", detail=f"{far}, so this daemon is to be upgraded: {ahead}" if ahead else None)


def _gateway_clients(found: DaemonPaths, space: str | None) -> Iterator[Check]:
    """List the clients that connect over HTTP; this check never fails.

    End-to-end encryption ends at each of them, so the operator should know of them.
    """
    with closing(open_state(found.data)) as state:
        now = state.registry.clock()
        clients = [one for one in state.registry.gateway_clients() if not one.refusal_reason(now)]
    for one in clients:
        if space in (None, one.space):
            what = "reads and writes" if one.grants.may_write else "reads"
            said = f"{what} {one.space} by HTTP, {one.gateway}; its vendor reads what it asks and finds"
            yield Check(f"gateway client {one.alias}", detail=said)


def _database(found: DaemonPaths, name: str, space_id: str) -> Iterator[Check]:
    """Check a space's whole database, through a connection of its own; the daemon may keep it open."""
    what = f"database of {name}"
    with closing(open_state(found.data)) as state:
        try:
            facts_now = facts_of(state, is_served=answers(found.data.address))[name]
            _, key = Custodian(space_id, found.data, state.master).opening_key()
            wrong = inspect(found.data.space(space_id), key)
        except LockedError:
            # The daemon checks it by itself while it is unlocked; no one else has the key.
            yield Check(what, detail=str(facts_now))
            return
        except WrongKeyError as error:
            # Without a file that says otherwise, the space's devices have the key.
            is_theirs = facts_now.custody == "caller"
            yield Check(what, detail=str(facts_now)) if is_theirs else Check(what, str(error), error.hint)
            return
        except DamagedError as error:
            yield Check(
                what, str(error), "confided doctor --fix rebuilds it from what can be read; or restore a backup"
            )
            return
        except ConfideError as error:
            yield Check(what, str(error), error.hint)
            return
    if wrong:
        hint = "the daemon puts it right by itself; confided doctor --fix does it now"
        if any(breach in LOSSES for breach in wrong):
            hint = LOST_HINT
        elif all(breach.startswith(UNCUT) for breach in wrong):
            hint = UNCUT_HINT
        yield Check(what, ", ".join(f"{count} {breach}" for breach, count in sorted(wrong.items())), hint)
    else:
        yield Check(what, detail=str(facts_now))


def _credentials(found: DaemonPaths, name: str, space_id: str) -> Iterator[Check]:
    """Report the last known number of credentials stored in clear, if a device has searched for
    them.

    Only devices know the detection rules.
    """
    with closing(open_state(found.data)) as state:
        counted = UnsealedCounts(state.registry).of(space_id)
    if counted is not None:
        problem = f"{counted.findings} stored in clear, seen {iso(counted.seen_at)}" if counted.findings else None
        yield Check(f"credentials of {name}", problem, UNSEALED_HINT if problem else None)


def _check_stranded(found: DaemonPaths, name: str, space_id: str) -> Iterator[Check]:
    """Report sealed records that cannot be opened, since daemon.toml does not name their vault."""
    if count := count_stranded(found.data, space_id):
        said = f"{count} {'is' if count == 1 else 'are'} in a vault that daemon.toml does not name"
        yield Check(f"sealed records of {name}", said, STRANDED_HINT)


def inspect(path: Path, key: bytes) -> Counter[str]:
    """Count the faults in a space's database, by kind. Changes nothing.

    Raises StorageError if the database cannot be opened; DamagedError if it cannot be read.
    """
    with closing(Store.open(path, key, writer=False, now=0.0)) as store:
        wrong: Counter[str] = Counter()
        if store.schema_version() < migrations()[-1][0]:
            return wrong  # an older version: the daemon upgrades and checks it when it opens it
        for found in store.integrity.examine():
            for breach in found:
                wrong[breach.what] = max(wrong[breach.what], breach.rows)
        for breach in store.breaches.list_breaches(limit=BREACHES):
            if breach.healed_at is None and breach.what in LOSSES:
                wrong[breach.what] = max(wrong[breach.what], breach.rows)
        if wrong.pop(UNCUT, 0):
            wrong.update({f"{UNCUT} ({why})": count for why, count in store.documents.count_uncuttable().items()})
        return wrong


def _models(found: DaemonPaths) -> Iterator[Check]:
    """Load every configured model and embed a word with it, to find refused keys and servers that
    are down.
    """

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


@dataclass(frozen=True, slots=True)
class SpaceFacts:
    custody: Keeper | None  # the keeper of its key; None without a database
    wanted_keeper: Keeper | None  # the next keeper, if another one was chosen
    number: int  # the server's generation, or the epoch whose key the database has
    epoch: int  # the roster's newest epoch, or 0 without a roster
    devices: int  # devices on the roster, recovery codes included
    is_locked: bool  # True if a device has to send the key first
    is_changing: bool  # True during a change of the key, or after an unfinished one
    unsealed_texts: int | None  # credentials in clear at a device's last search; None without one
    # Seconds since 1970 when the server discards the key if no device connects; None while one is
    # connected, or the server has no key.
    locks_at: float | None
    problem: str | None = None  # the reason why the facts are unknown

    def to_json(self) -> dict[str, object]:
        return {
            "custody": self.custody,
            "wanted": self.wanted_keeper,
            "keyEpoch" if self.custody == "caller" else "generation": self.number,
            "epoch": self.epoch,
            "devices": self.devices,
            "locked": self.is_locked,
            "changing": self.is_changing,
            "locksAt": self.locks_at,
            "unsealed": self.unsealed_texts,
            "problem": self.problem,
        }

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if self.custody is None:
            said = "nothing is stored yet"
        elif self.custody == "server":
            said = f"this server keeps its key (generation {self.number})"
        elif not self.number:
            said = "its devices will keep its key; none has connected yet"
            if self.epoch:
                said = "it waits for one of its devices: they keep its key"
        else:
            said = f"its devices keep its key (key {self.number}); {'locked' if self.is_locked else 'unlocked'}"
        if self.locks_at is not None:
            said += f" until {time.strftime('%Y-%m-%d %H:%M %Z', time.localtime(self.locks_at))} if no device connects"
        if self.is_changing:
            said += "; being changed"
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        said += f"; {devices}" if self.epoch else "; no devices yet"
        if self.unsealed_texts:
            said += f"; {self.unsealed_texts} {'credential' if self.unsealed_texts == 1 else 'credentials'} in clear"
        return said


def facts_of(state: RegistryState, *, is_served: bool) -> dict[str, SpaceFacts]:
    """Return the facts about every space's encryption at rest, by the names of the spaces.

    `is_served`: True if a daemon responds. If it is False, the daemon's last report on the spaces
    is ignored, since a killed daemon leaves an old one behind. Raises StorageError if the registry
    cannot be read.
    """
    rosters, counts = Rosters(state.registry), UnsealedCounts(state.registry)
    folder = state.folder
    standings = read_standings(folder.standing) if is_served else {}
    found = {}
    for name, space_id in state.registry.spaces().items():
        try:
            written = Custody.read(folder.custody(space_id))
            roster = rosters.current(space_id)
            epoch = roster.epoch if roster is not None else 0
            is_theirs = written is None and Custodian(space_id, folder, state.master).is_of_machines(epoch)
        except (StorageError, KeyFileError) as error:
            # An unreadable space must not hide the others.
            found[name] = SpaceFacts(None, None, 0, 0, 0, False, False, None, None, str(error))
            continue
        custody = written or Custody(KeyName("caller" if is_theirs else "server", 0))
        stands = standings.get(space_id)
        counted = counts.of(space_id)
        found[name] = SpaceFacts(
            custody=custody.key.keeper if written or folder.space(space_id).exists() else None,
            wanted_keeper=custody.wanted_keeper,
            number=custody.key.number,
            epoch=epoch,
            devices=len(roster.devices) if roster is not None else 0,
            is_locked=custody.key.keeper == "caller" and (stands is None or stands.is_locked),
            is_changing=custody.following is not None,
            unsealed_texts=counted.findings if counted is not None else None,
            locks_at=stands.locks_at if stands is not None and not stands.is_locked else None,
        )
    return found


def count_stranded(folder: DataFolder, space_id: str) -> int:
    """Return how many of a space's sealed records are in a vault that daemon.toml does not name.

    If the space's devices keep its key, this is the number that the running daemon counted when the
    space was opened. Raises ConfideError if the data folder cannot be read.
    """
    state = open_state(folder)
    try:
        _, key = Custodian(space_id, folder, state.master).opening_key()
        store = Store.open(folder.space(space_id), key, writer=False, now=0.0)
    except ConfideError:
        # The space is locked here, or its database cannot be opened, which the database check
        # reports.
        told = read_standings(folder.standing).get(space_id)
        return told.stranded_records if told is not None else 0
    finally:
        state.close()
    try:
        return store.sealed_records.count_at(is_placed=True)
    except ConfideError:
        return 0  # a database of a version without them, or a damaged one
    finally:
        store.close()
