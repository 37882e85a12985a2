"""The keys of the link's space, as far as this device may use them (PROTOCOL.md 10.5-10.7).

A roster is trusted if it continues what this device has seen of the space, whatever id the daemon
gives the space. The first roster is trusted if this device has just founded the space, if a device
has confirmed it with the pair secret of its invite, or if the user has compared words. Otherwise
there are no keys, nor if the daemon names another space than before or this device isn't on the
roster; `problem` then gives the reason and a hint.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from confide_crypto.errors import ConfideError, ForkedRosterError, KeyFileError, LinkError, RequestError
from confide_crypto.keys.identity import MAX_NAME, Identity, fingerprint_words
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_memory.documents import RequestChannel
from confide_memory.wire.sealing import EndedCaller
from confide_memory.wire.session import Attached, Devices
from confide_proxy.devices import roster_client
from confide_proxy.devices.device_pairing import Joining
from confide_proxy.devices.duties import Duties, are_due
from confide_proxy.devices.fork import Fork
from confide_proxy.devices.roster_cache import RosterCache
from confide_proxy.devices.roster_client import ShownRoster
from confide_proxy.errors import (
    AnotherSpaceError,
    KeyLockedError,
    NotADeviceError,
    SpaceKeysError,
    SpaceLockedError,
    UnconfirmedError,
)
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths

log = logging.getLogger(__name__)

TRIES: Final = 4
"""Attempts to extend a roster that other devices extend too; each starts from the newest state."""
_UNTIL: Final = (
    "nothing is sealed here until the daemon shows a list of devices that goes on from what this device has seen"
)
_FORKED: Final = f"{_UNTIL}; confide device confirm shows how the two lists differ, and can fix it"
_HERE: Final = "nothing is sealed here until that file can be used: is the disk full, or read-only?"
Make = Callable[["Roster", "SpaceKeys | None"], "Roster | None"]
"""Returns the roster with one more entry, given the roster and this device's keys; None if there is
nothing (left) to do.
"""


class Keyring:
    """The keys of the space that the link leads to.

    Attributes:
        space: the id that the daemon gives the space; "" before the first connection.
        keys: the keys of the space; None while this device cannot seal.
        last_keys: the last keys that this process had, kept while it cannot seal. Nothing is sealed
            with them; they only serve to recognize secret values that this device has seen.
        problem: why there are no keys, with a hint; None if there are.
        roster: the trusted roster; None before there is one.
        unconfirmed: the daemon's roster, as long as nothing confirms that it is the right space's.
        daemon_roster: the daemon's last answer about the roster.
        custody: where the database key is kept, "server" or "caller" (the devices); "" before the
            daemon says so.
        was_taken: True if the server keeps that key now and the devices kept it before.
        ended_callers: the devices and apps whose access was ended by the last change that this
            device made to the roster; None if the daemon does not say so.
    """

    def __init__(self, paths: ProxyPaths, machine: MachineKeys) -> None:
        self._paths = paths
        self._machine = machine
        self.space = ""
        self._opened_by = b""
        self._turn = asyncio.Lock()
        self.keys: SpaceKeys | None = None
        self.last_keys: SpaceKeys | None = None
        self.problem: ConfideError | None = _unknown()
        self.roster: Roster | None = None
        self.unconfirmed: Roster | None = None
        self.daemon_roster: ShownRoster | None = None
        self.custody = ""
        self.was_taken = False
        self.ended_callers: list[EndedCaller] | None = None

    @functools.cached_property
    def _cache(self) -> RosterCache:
        return RosterCache(self._paths.rosters)

    def load(self) -> None:
        """Load the keys of the space that was used last, for use while the daemon is unreachable.
        Blocks. An error is stored in `problem`.
        """
        if self.keys is not None or self.space:
            return
        try:
            seen = self._cache.last()
            if seen is not None and seen.roster is not None:
                self._take(seen.roster, self._machine.identity())
        except ConfideError as error:
            self._fail(error)

    async def recall(self) -> None:
        """Call `load` in a thread, but never while another call changes the keys."""
        async with self._turn:
            await asyncio.to_thread(self.load)

    async def open(self, link: RequestChannel, attached: Attached) -> None:
        """Load the keys for a new connection. No request is sent if the daemon's roster has not
        changed. An error is stored in `problem`.

        Raises ConnectionLost or TimeoutError if the link breaks or the daemon does not answer.
        """
        space, status = attached["space"], attached["sealing"]
        if status is None:
            self._fail(
                SpaceKeysError("this daemon does not support sealed secrets", hint="update confided on its server")
            )
            return
        self.custody = status["custody"]
        async with self._turn:
            try:
                await asyncio.to_thread(self._enter, space)
                await asyncio.to_thread(self._note_custody)
                await asyncio.to_thread(self._catch_up)
                if not await asyncio.to_thread(self._is_current, status):
                    await self._refresh(link)
            except LinkError:
                raise
            except RequestError as error:
                # The daemon has shown nothing that contradicts what this device knows.
                log.info("the daemon shows no roster now: %s", error.code)
                if self.keys is None:
                    self._fail(error)
            except ConfideError as error:
                log.warning("no keys of this space: %s", type(error).__name__)
                self._refuse(error)

    async def refresh(self, link: RequestChannel) -> None:
        """Fetch the changes of the roster, and do the work that they cause for this device
        (`duties`).

        Raises:
            RosterError, PairingError: the daemon's roster or answer fails verification. There are
                no keys then.
            KeyFileError, KeyLockedError, KeyringError: a file or this device's own key is unusable.
            RequestError, ConnectionLost, TimeoutError: a request fails.
        """
        async with self._turn:
            try:
                await self._refresh(link)
            except (LinkError, RequestError):
                raise
            except ConfideError as error:
                self._refuse(error)
                raise

    async def catch_up(self) -> None:
        """Load the roster that another process of this device has stored, if that is newer."""
        async with self._turn:
            try:
                await asyncio.to_thread(self._catch_up)
            except (KeyFileError, KeyLockedError) as error:  # the next connection tries again and reports it
                log.info("what another session has seen could not be read: %s", type(error).__name__)
            except ConfideError as error:
                self._refuse(error)

    async def unlock(self, link: RequestChannel) -> None:
        """Unlock a space by sending the database keys that the daemon asks for.

        Raises:
            SpaceLockedError: this device does not have the key.
            Errors of `refresh`.
        """
        await self.refresh(link)
        if self.daemon_roster is None or self.daemon_roster.is_locked:
            raise SpaceLockedError(self.problem)

    async def confirm(self, link: RequestChannel, compared: Pin) -> None:
        """Trust the daemon's space if its roster contains the entry whose words the user has
        compared with another device.

        Raises RosterError if it does not, and the errors of `refresh`.
        """
        async with self._turn:
            await self._refresh(link)
            if self.unconfirmed is not None:
                self.unconfirmed.check(compared)
                await asyncio.to_thread(self._cache.come_back, self.unconfirmed.space)
                await self._believe(self.unconfirmed)
                await self._refresh(link)

    async def move(self, link: RequestChannel) -> None:
        """Switch to the other space that the daemon names now, after the user has confirmed it.

        Raises the errors of `refresh`.
        """
        async with self._turn:
            await asyncio.to_thread(self._cache.use, self.space)
            self.space = ""  # so that `_enter` loads what is known of it
            await self._refresh(link)

    async def find_fork(self, link: RequestChannel) -> Fork | None:
        """Return the fork between the daemon's roster and this device's; None if there is no fork,
        or no roster to compare.

        Raises RosterError if the daemon's roster is invalid or of another space; RequestError,
        ConnectionLost or TimeoutError if a request fails.
        """
        async with self._turn:
            return await self._find_fork(link)

    async def resolve_fork(self, link: RequestChannel, compared: Pin, again: frozenset[bytes]) -> tuple[Fork, Roster]:
        """Accept the daemon's branch of a forked roster, after removing the devices from it that
        this device's branch had removed.

        Nothing is trusted and no key is opened before the daemon has accepted those removals. After
        a crash everything can be repeated.

        Args:
            compared: the newest entry of the daemon's roster, as the user has compared it on
                another device.
            again: keys of devices that were never on the daemon's roster and that the user wants on
                it.

        Returns the fork and the roster that is trusted now.

        Raises:
            ForkedRosterError: the daemon's roster has changed since the user compared it.
            RosterError, WrapError: the changes cannot be made.
            Errors of `refresh`.
        """
        async with self._turn:
            identity = await self.identity()
            for _ in range(TRIES):
                fork = await self._find_fork(link)
                if fork is None:
                    raise _too_fast()
                fork.shown.check(compared)
                made = await asyncio.to_thread(fork.repair, identity, again, now=int(time.time()))
                try:
                    for entry in made.entries[len(fork.shown.entries) :]:
                        await roster_client.extend(link, entry)
                except RequestError as error:
                    if error.code != "conflict":
                        raise
                    continue
                await asyncio.to_thread(self._cache.replace, self.space, fork.known.pin, made)
                await asyncio.to_thread(self._take, made, identity)
                await self._refresh(link)
                return fork, made
            raise _too_fast()

    async def show_card(self, link: RequestChannel) -> None:
        """Send this device's card (its public keys) to the daemon although this device trusts no
        roster, so that a user can approve it on another device.

        Raises RequestError, ConnectionLost or TimeoutError if the request fails.
        """
        joining = await asyncio.to_thread(Joining.begin, self._paths.link, await self.identity())
        await joining.show_card(link)

    async def extend(self, link: RequestChannel, make: Make) -> Roster:
        """Append a change to the roster at the daemon, and return the new roster.

        Args:
            make: makes the change from the current roster and keys; None for no change. It may run
                more than once, in a thread.

        Raises:
            RosterError: the change cannot be made.
            Errors of `refresh`.
        """
        async with self._turn:
            await self._refresh(link)
            before = self.keys.epoch if self.keys else 0
            roster = await self._extend(link, make)
            if self.keys is not None and self.keys.epoch > before:
                # The daemon needs the new epoch's database key too.
                await self._look(link)
                await self._hand_over(link)
            return roster

    @property
    def own_name(self) -> str:
        """Return this device's name at the daemon, which is unique there; its host name if the
        daemon has not named it.
        """
        name = self._machine.device_name or socket.gethostname()
        return "".join(letter for letter in name if letter.isprintable())[: MAX_NAME // 2] or "unnamed"

    async def identity(self) -> Identity:
        """Return this device's key pair. Raises KeyFileError, KeyLockedError or KeyringError if it
        cannot be used.
        """
        return await asyncio.to_thread(self._machine.identity)

    # Local state

    def _enter(self, space: str) -> None:
        """Load what this device has seen of the space."""
        if space == self.space:
            return
        self._fail(_unknown())
        self.roster, self.unconfirmed, self.daemon_roster = None, None, None
        self.space = space
        if self._cache.is_another(space):
            return  # its roster is fetched but not trusted
        seen = self._cache.read(space)
        # Also for a new space: while the daemon is unreachable, another space's keys must not be
        # used for it.
        self._cache.use(space)
        if seen is not None and seen.roster is not None and not self._cache.is_left(seen.pin.space):
            self._take(seen.roster, self._machine.identity())

    def _catch_up(self) -> None:
        known = self.roster
        pin = self._cache.pin(self.space) if known is not None else None
        if known is None or pin is None or known.contains(pin):
            return
        # The stored roster continues this one, or the user has chosen its branch: `keep` never
        # writes another branch.
        seen = self._cache.read(self.space)
        if seen is not None and seen.roster is not None:
            self._take(seen.roster, self._machine.identity())

    def _note_custody(self) -> None:
        if self.roster is None and self._cache.is_another(self.space):
            return
        try:
            self.was_taken, is_new = self._cache.note_custody(self.space, self.custody)
        except KeyFileError as error:  # such as a full disk: recorded another time
            log.info("who keeps the key of the database is not noted: %s", error)
            return
        if is_new:
            log.warning("the daemon keeps the key of this space's database now; its devices did until then")

    def _is_current(self, status: Devices) -> bool:
        """Return True if the daemon has no changes and needs nothing from this device."""
        if self.roster is None or self.keys is None:
            return False
        is_same = (status["number"], status["head"]) == (len(self.roster.entries) - 1, self.roster.head.hex())
        return (
            is_same
            and not status["needs"]
            and self._opened_by == self._machine.identity().public_key
            and not self._has_duties()
        )

    def _has_duties(self) -> bool:
        """Return True if the files of this device show that it may have duties in the space.
        Blocks.
        """
        with suppress(OSError):
            if not any(path.suffix in (".invite", ".json") for path in self._paths.rosters.iterdir()):
                return False
        return are_due(self._paths.rosters, self.space)

    def _take(self, roster: Roster, identity: Identity) -> None:
        """Trust a roster, and open its keys if this device is on it."""

        known = self.roster
        if known is not None and known.head == roster.head and self.keys and self._opened_by == identity.public_key:
            return
        self.roster, self.unconfirmed = roster, None
        if identity.public_key in roster.devices:
            self.keys, self.problem = roster.open(WrapKey(identity)), None
            self.last_keys = self.keys
            self._opened_by = identity.public_key
        else:
            was_removed = identity.public_key in roster.removed
            words, called = fingerprint_words(identity.public_key), self._machine.device_name
            self._fail(NotADeviceError(words, called=called, was_removed=was_removed))

    def _fail(self, problem: ConfideError) -> None:
        self.keys, self.problem, self._opened_by = None, problem, b""

    def _refuse(self, problem: ConfideError) -> None:
        if isinstance(problem, ForkedRosterError) and self.roster is not None:
            problem.hint = _FORKED
        problem.hint = problem.hint or (_HERE if isinstance(problem, KeyFileError) else _UNTIL)
        self._fail(problem)

    async def _believe(self, roster: Roster) -> None:
        """Store and open a roster that the daemon has."""

        def work(identity: Identity) -> None:
            newest = self._cache.keep(self.space, roster)
            self._cache.use(self.space)
            self._take(newest, identity)

        identity = await self.identity()
        await asyncio.to_thread(work, identity)

    # The daemon's state

    async def _refresh(self, link: RequestChannel) -> None:
        await self._look(link)
        assert self.daemon_roster is not None
        identity = await self.identity()
        if self.keys is None:
            return
        await self._hand_over(link)
        epoch = self.keys.epoch
        duties = Duties(self._paths.rosters, self.space, identity, link, self._extend)
        try:
            if self.roster is not None:
                await duties.remove_lost(self.roster.space)
            await duties.answer(self.daemon_roster.waiting)
            await duties.finish_key_change(self._machine)
        except KeyFileError as error:  # a full disk must not prevent sealing: retried later
            log.warning("what this device has to do for its space waits: %s", error)
        if self.keys is not None and self.keys.epoch > epoch:
            await self._look(link)
            await self._hand_over(link)

    async def _look(self, link: RequestChannel) -> None:
        """Fetch the roster's changes and trust or refuse them."""
        identity = await self.identity()
        joining = await asyncio.to_thread(Joining.begin, self._paths.link, identity)
        await asyncio.to_thread(self._catch_up)
        # Fetched before the roster, so that the roster is at least as new as the answer.
        answer = await joining.ask(link)
        for _ in range(TRIES):
            since = len(self.roster.entries) if self.roster else 0
            shown = await roster_client.roster(link, since)
            if shown.space != self.space:
                await asyncio.to_thread(self._enter, shown.space)
                if since != (len(self.roster.entries) if self.roster else 0):
                    continue
            is_another = self.roster is None and await asyncio.to_thread(self._cache.is_another, self.space)
            is_known = True
            if self.roster is not None:
                roster, shown = await roster_client.fetch_entries(link, self.roster, shown)
            elif shown.entries:
                roster, is_known = await asyncio.to_thread(self._judge, shown.entries, identity)
            elif is_another:
                self.daemon_roster = shown
                self._fail(AnotherSpaceError())
                return
            elif joining.pair is not None or await asyncio.to_thread(self._cache.pin, self.space) is not None:
                raise roster_client.withheld()
            else:
                begun = await roster_client.create_roster(link, identity, self.own_name)
                if begun is None:
                    continue
                roster = begun
                shown = await roster_client.roster(link, 1)
            self.daemon_roster, self.custody = shown, shown.custody
            # While the database is locked the daemon may only guess, if it has lost its custody
            # file.
            if not shown.is_locked:
                await asyncio.to_thread(self._note_custody)
            if answer is not None:
                joining.accept(answer, roster)
                await asyncio.to_thread(self._cache.come_back, roster.space)
            elif is_another:
                self._fail(AnotherSpaceError())
                self.unconfirmed = roster
                return
            elif not is_known:
                self._doubt(roster, identity, was_invited=joining.pair is not None)
                await self._show_card(link, joining, roster)
                return
            await self._believe(roster)
            if self.keys is None:
                await self._show_card(link, joining, roster)
            elif joining.pair is not None:
                await asyncio.to_thread(joining.finish)
            return
        raise _too_fast()

    async def _find_fork(self, link: RequestChannel) -> Fork | None:
        shown = await roster_client.roster(link, 0)
        await asyncio.to_thread(self._enter, shown.space)
        await asyncio.to_thread(self._catch_up)
        known = self.roster
        if known is None or not shown.entries:
            return None
        self.daemon_roster = shown
        return await asyncio.to_thread(lambda: Fork.between(known, Roster.read(shown.entries)))

    def _judge(self, entries: tuple[bytes, ...], identity: Identity) -> tuple[Roster, bool]:
        """Verify a whole roster; return it, and True if there is a reason to trust it. Raises
        RosterError.
        """
        roster = Roster.read(entries, pin=self._cache.pin(self.space))
        # Looked up by its own id too: under another name, a daemon could show an older state from
        # before a device was removed.
        seen = self._cache.of(roster.space)
        is_known = roster_client.is_known(roster, seen.pin if seen else None, identity)
        return roster, is_known and not self._cache.is_left(roster.space)

    def _doubt(self, roster: Roster, identity: Identity, *, was_invited: bool) -> None:
        words = fingerprint_words(identity.public_key)
        if identity.public_key in roster.devices:
            self._fail(UnconfirmedError())
        else:
            was_removed = identity.public_key in roster.removed
            called = self._machine.device_name
            self._fail(NotADeviceError(words, called=called, was_removed=was_removed, was_invited=was_invited))
        self.unconfirmed = roster

    async def _show_card(self, link: RequestChannel, joining: Joining, roster: Roster) -> None:
        key = joining.identity.public_key
        if key not in roster.devices and key not in roster.removed:
            await joining.show_card(link)

    # Duties of a device

    async def _extend(self, link: RequestChannel, make: Make) -> Roster:
        for _ in range(TRIES):
            roster = self.roster
            if roster is None:
                raise self.problem or _unknown()
            made = await asyncio.to_thread(make, roster, self.keys)
            if made is None:
                return roster
            try:
                self.ended_callers = await roster_client.extend(link, made.entries[-1])
            except RequestError as error:
                if error.code != "conflict":
                    raise
                await self._look(link)
            else:
                await self._believe(made)
                return made
        raise _too_fast()

    async def _hand_over(self, link: RequestChannel) -> None:
        """Send the daemon the database keys that it needs, if the devices keep them or start to."""
        shown, keys = self.daemon_roster, self.keys
        if shown is None or keys is None:
            return
        wanted = {epoch: keys.database_key(epoch) for epoch in shown.needs if epoch <= keys.epoch}
        if wanted:
            self.daemon_roster = replace(shown, is_locked=await roster_client.unlock(link, wanted), needs=())


def _too_fast() -> SpaceKeysError:
    return SpaceKeysError("the list of devices changes faster than it can be read", hint="try again")


def _unknown() -> SpaceKeysError:
    return SpaceKeysError("the devices of this space are not known here yet", hint="confide device ls asks the daemon")
