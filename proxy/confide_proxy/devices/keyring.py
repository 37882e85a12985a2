"""The keys of the space that the link leads to, as this machine may use them (PROTOCOL.md 10.5-10.7).

A roster is believed if it goes on from what this machine has seen of the space, whatever the daemon calls that. The first one is
believed if this machine has just founded the space, if a device has answered for it with the pair secret of its invite, or if a person
has compared words. While none of that is so, while the daemon names another space than before, or while this machine is not on the
roster, there are no keys, and `problem` says why and what to do.
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
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import ConfideError, ForkedRosterError, KeyFileError, LinkError, RequestError
from confide_crypto.keys.identity import MAX_NAME, Identity, fingerprint_words
from confide_crypto.sealing.roster import Pin, Roster
from confide_crypto.sealing.space_keys import SpaceKeys, WrapKey
from confide_memory.documents import RequestChannel
from confide_memory.wire.session import Attached, Devices
from confide_proxy.devices.roster_cache import RosterCache
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

if TYPE_CHECKING:
    from confide_proxy.devices.device_pairing import Joining
    from confide_proxy.devices.fork import Fork
    from confide_proxy.devices.roster_client import ShownRoster

log = logging.getLogger(__name__)

TRIES: Final = 4
"""To extend a roster that others extend too: each try begins with what they have made of it."""
_UNTIL: Final = (
    "nothing is sealed here until the daemon shows a list of devices that goes on from what this device has seen"
)
_FORKED: Final = f"{_UNTIL}; confide device confirm shows how the two lists differ, and can fix it"
_HERE: Final = "nothing is sealed here until that file can be used: is the disk full, or read-only?"
Make = Callable[["Roster", "SpaceKeys | None"], "Roster | None"]
"""Of the roster and this machine's keys, the roster with one entry more; None if there is nothing to do (any more)."""


class Keyring:
    """The keys of one space at a time.

    Attributes:
        space: the id that the daemon gives the space; "" before a connection has told it.
        keys: None while this machine cannot seal.
        last_keys: those that it had last in this process, also while it cannot seal: nothing is sealed with them, but what this machine
            knows is found by them, whatever a daemon shows.
        problem: why not, with a way out.
        roster: as this machine believes it; None before there is one.
        unconfirmed: what the daemon shows, while nothing says that it is the right space's.
        shown: what the daemon said last.
        custody: who keeps the key of the space's database, "server" or "caller"; "" before the daemon has said so.
        was_taken: whether it is the server that does, and were the machines before.
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
        self.shown: ShownRoster | None = None
        self.custody = ""
        self.was_taken = False

    @functools.cached_property
    def _cache(self) -> RosterCache:
        # Imported late, with what reads rosters: a start without a space does without.

        return RosterCache(self._paths.rosters)

    def load(self) -> None:
        """Have the keys of the space that was used last, for when the daemon is away. Blocks; what is wrong is the `problem`."""
        if self.keys is not None or self.space:
            return
        try:
            seen = self._cache.last()
            if seen is not None and seen.roster is not None:
                self._take(seen.roster, self._machine.identity())
        except ConfideError as error:
            self._fail(error)

    async def recall(self) -> None:
        """As `load`, in a thread, and never while a connection brings the keys."""
        async with self._turn:
            await asyncio.to_thread(self.load)

    async def open(self, link: RequestChannel, attached: Attached) -> None:
        """Have the keys as of this connection. Costs no question where the daemon has no news; what is wrong is the `problem`.

        Raises ConnectionLost, TimeoutError: from the link.
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
                # It has shown nothing that contradicts what this machine knows.
                log.info("the daemon shows no roster now: %s", error.code)
                if self.keys is None:
                    self._fail(error)
            except ConfideError as error:
                log.warning("no keys of this space: %s", type(error).__name__)
                self._refuse(error)

    async def refresh(self, link: RequestChannel) -> None:
        """Have the roster's news, and do what a device has to do about them.

        Raises:
            RosterError, PairingError: the daemon shows what is not to be believed. There are no keys then.
            KeyFileError, KeyLockedError, KeyringError: a file, or this machine's own key, cannot be used.
            RequestError, ConnectionLost, TimeoutError: from the link.
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
        """Have what another process of this machine has seen since, whether or not the daemon shows it to this one."""
        async with self._turn:
            try:
                await asyncio.to_thread(self._catch_up)
            except (KeyFileError, KeyLockedError) as error:  # the next connection tries again, and says so
                log.info("what another session has seen could not be read: %s", type(error).__name__)
            except ConfideError as error:
                self._refuse(error)

    async def unlock(self, link: RequestChannel) -> None:
        """Hand over what a locked space needs.

        Raises:
            SpaceLockedError: this machine cannot.
            Whatever `refresh` raises.
        """
        await self.refresh(link)
        if self.shown is None or self.shown.is_locked:
            raise SpaceLockedError(self.problem)

    async def confirm(self, link: RequestChannel, compared: Pin) -> None:
        """Believe the space that the daemon shows, if it is the one of which a person has compared the words, or a later state.

        Raises RosterError: it is not; and as `refresh`.
        """
        async with self._turn:
            await self._refresh(link)
            if self.unconfirmed is not None:
                self.unconfirmed.check(compared)
                await asyncio.to_thread(self._cache.come_back, self.unconfirmed.space)
                await self._believe(self.unconfirmed)
                await self._refresh(link)

    async def move(self, link: RequestChannel) -> None:
        """Go on in the space that the daemon names: a person says that this machine was moved there. Raises as `refresh`."""
        async with self._turn:
            await asyncio.to_thread(self._cache.use, self.space)
            self.space = ""  # to begin with what is known of it
            await self._refresh(link)

    async def parted(self, link: RequestChannel) -> Fork | None:
        """How the daemon's list has parted from what this machine knows; None: it has not, or this machine has nothing to compare.

        Raises RosterError: it is no list of this space, or damaged; RequestError, ConnectionLost, TimeoutError: from the link.
        """
        async with self._turn:
            return await self._parted(link)

    async def resolve_fork(self, link: RequestChannel, compared: Pin, again: frozenset[bytes]) -> tuple[Fork, Roster]:
        """Go on from the daemon's list, of which a person has `compared` the newest change, once nobody comes back by it who was removed.

        Nothing is believed here, and no key is had, before the daemon has taken those removals; a crash leaves all to be done again.

        Args:
            compared: the newest change of the daemon's list, as a device in the person's hands shows it.
            again: the keys of devices that the daemon's list never had, and that the person wants on it.

        Returns: how they had parted, and the roster that is believed now.

        Raises:
            ForkedRosterError: the daemon's list is no longer that; RosterError, WrapError: the changes cannot be made.
            Whatever `refresh` raises.
        """
        from confide_proxy.devices import roster_client

        async with self._turn:
            identity = await self.identity()
            for _ in range(TRIES):
                fork = await self._parted(link)
                if fork is None:
                    raise _too_fast()
                fork.shown.check(compared)
                made = await asyncio.to_thread(fork.mended, identity, again, now=int(time.time()))
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
        """Let the devices see this machine, though it believes no list: a person may approve it there. Raises as the link."""
        from confide_proxy.devices.device_pairing import Joining

        joining = await asyncio.to_thread(Joining.begin, self._paths.link, await self.identity())
        await joining.show_card(link)

    async def extend(self, link: RequestChannel, make: Make) -> Roster:
        """The roster with a change that the daemon has taken. `make` may run more than once, in a thread.

        Raises:
            RosterError: the change cannot be made.
            Whatever `refresh` raises.
        """
        async with self._turn:
            await self._refresh(link)
            before = self.keys.epoch if self.keys else 0
            roster = await self._extend(link, make)
            if self.keys is not None and self.keys.epoch > before:
                # Its database key is wanted too.
                await self._look(link)
                await self._hand_over(link)
            return roster

    @property
    def own_name(self) -> str:
        """What this machine is called where it names itself: as the daemon calls it, which is unique there, or else its host name."""
        name = self._machine.called or socket.gethostname()
        return "".join(letter for letter in name if letter.isprintable())[: MAX_NAME // 2] or "unnamed"

    async def identity(self) -> Identity:
        """Who this machine is. Raises KeyFileError, KeyLockedError, KeyringError."""
        return await asyncio.to_thread(self._machine.identity)

    # What is known

    def _enter(self, space: str) -> None:
        """Begin with what this machine has seen of the space."""
        if space == self.space:
            return
        self._fail(_unknown())
        self.roster, self.unconfirmed, self.shown = None, None, None
        self.space = space
        if self._cache.is_another(space):
            return  # what the daemon shows of it is looked at, and not believed
        seen = self._cache.read(space)
        # Also of one that is new: while the daemon is away, the keys of another space must not be taken for its own.
        self._cache.use(space)
        if seen is not None and seen.roster is not None and not self._cache.is_left(seen.pin.space):
            self._take(seen.roster, self._machine.identity())

    def _catch_up(self) -> None:
        known = self.roster
        pin = self._cache.pin(self.space) if known is not None else None
        if known is None or pin is None or known.contains(pin):
            return
        # What goes on from here, or what a person has said that this machine goes on from: `keep` never writes another branch.
        seen = self._cache.read(self.space)
        if seen is not None and seen.roster is not None:
            self._take(seen.roster, self._machine.identity())

    def _note_custody(self) -> None:
        if self.roster is None and self._cache.is_another(self.space):
            return
        try:
            self.was_taken, is_new = self._cache.note_custody(self.space, self.custody)
        except KeyFileError as error:  # as on a full disk: it is noted another time
            log.info("who keeps the key of the database is not noted: %s", error)
            return
        if is_new:
            log.warning("the daemon keeps the key of this space's database now; its devices did until then")

    def _is_current(self, status: Devices) -> bool:
        """Whether the daemon has no news, and waits for nothing that this machine has to do."""
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
        """Whether this machine may have something to do for the space, by what it keeps. Blocks."""
        # What is kept of an invite or of a change of key: most machines have neither, and need not load what is done with them.
        with suppress(OSError):
            if not any(path.suffix in (".invite", ".json") for path in self._paths.rosters.iterdir()):
                return False
        from confide_proxy.devices.duties import are_due

        return are_due(self._paths.rosters, self.space)

    def _take(self, roster: Roster, identity: Identity) -> None:
        """Believe a roster, and open its keys if this machine is on it."""

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
            words, called = fingerprint_words(identity.public_key), self._machine.called
            self._fail(NotADeviceError(words, called=called, was_removed=was_removed))

    def _fail(self, problem: ConfideError) -> None:
        self.keys, self.problem, self._opened_by = None, problem, b""

    def _refuse(self, problem: ConfideError) -> None:
        if isinstance(problem, ForkedRosterError) and self.roster is not None:
            problem.hint = _FORKED
        problem.hint = problem.hint or (_HERE if isinstance(problem, KeyFileError) else _UNTIL)
        self._fail(problem)

    async def _believe(self, roster: Roster) -> None:
        """Keep and open a roster that the daemon has."""

        def work(identity: Identity) -> None:
            newest = self._cache.keep(self.space, roster)
            self._cache.use(self.space)
            self._take(newest, identity)

        identity = await self.identity()
        await asyncio.to_thread(work, identity)

    # What the daemon shows

    async def _refresh(self, link: RequestChannel) -> None:
        from confide_proxy.devices.duties import Duties

        await self._look(link)
        assert self.shown is not None
        identity = await self.identity()
        if self.keys is None:
            return
        await self._hand_over(link)
        epoch = self.keys.epoch
        duties = Duties(self._paths.rosters, self.space, identity, link, self._extend)
        try:
            await duties.answer(self.shown.waiting)
            await duties.finish_key_change(self._machine)
        except KeyFileError as error:  # a full disk keeps nobody from sealing: it is done another time
            log.warning("what this device has to do for its space waits: %s", error)
        if self.keys is not None and self.keys.epoch > epoch:
            await self._look(link)
            await self._hand_over(link)

    async def _look(self, link: RequestChannel) -> None:
        """Fetch the news, and believe them, or refuse."""
        from confide_proxy.devices import roster_client
        from confide_proxy.devices.device_pairing import Joining

        identity = await self.identity()
        joining = await asyncio.to_thread(Joining.begin, self._paths.link, identity)
        await asyncio.to_thread(self._catch_up)
        # Before the roster is read, which the answer must not be ahead of.
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
                roster, shown = await roster_client.continued(link, self.roster, shown)
            elif shown.entries:
                roster, is_known = await asyncio.to_thread(self._judge, shown.entries, identity)
            elif is_another:
                self.shown = shown
                self._fail(AnotherSpaceError())
                return
            elif joining.pair is not None or await asyncio.to_thread(self._cache.pin, self.space) is not None:
                raise roster_client.withheld()
            else:
                begun = await roster_client.founded(link, identity, self.own_name)
                if begun is None:
                    continue
                roster = begun
                shown = await roster_client.roster(link, 1)
            self.shown, self.custody = shown, shown.custody
            # While nothing opens the database, nobody can tell: a daemon that has lost its file about that can only suppose.
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

    async def _parted(self, link: RequestChannel) -> Fork | None:
        from confide_proxy.devices import roster_client
        from confide_proxy.devices.fork import Fork

        shown = await roster_client.roster(link, 0)
        await asyncio.to_thread(self._enter, shown.space)
        await asyncio.to_thread(self._catch_up)
        known = self.roster
        if known is None or not shown.entries:
            return None
        self.shown = shown
        return await asyncio.to_thread(lambda: Fork.between(known, Roster.read(shown.entries)))

    def _judge(self, entries: tuple[bytes, ...], identity: Identity) -> tuple[Roster, bool]:
        """A whole roster that is shown, and whether there is a reason to believe it. Raises RosterError."""
        from confide_proxy.devices import roster_client

        roster = Roster.read(entries, pin=self._cache.pin(self.space))
        # By its own id as well: a daemon that calls it by another name could show it as it was before a device was removed.
        seen = self._cache.of(roster.space)
        is_known = roster_client.is_known(roster, seen.pin if seen else None, identity)
        return roster, is_known and not self._cache.is_left(roster.space)

    def _doubt(self, roster: Roster, identity: Identity, *, was_invited: bool) -> None:
        words = fingerprint_words(identity.public_key)
        if identity.public_key in roster.devices:
            self._fail(UnconfirmedError())
        else:
            was_removed = identity.public_key in roster.removed
            called = self._machine.called
            self._fail(NotADeviceError(words, called=called, was_removed=was_removed, was_invited=was_invited))
        self.unconfirmed = roster

    async def _show_card(self, link: RequestChannel, joining: Joining, roster: Roster) -> None:
        key = joining.identity.public_key
        if key not in roster.devices and key not in roster.removed:
            await joining.show_card(link)

    # What a device does

    async def _extend(self, link: RequestChannel, make: Make) -> Roster:
        from confide_proxy.devices import roster_client

        for _ in range(TRIES):
            roster = self.roster
            if roster is None:
                raise self.problem or _unknown()
            made = await asyncio.to_thread(make, roster, self.keys)
            if made is None:
                return roster
            try:
                await roster_client.extend(link, made.entries[-1])
            except RequestError as error:
                if error.code != "conflict":
                    raise
                await self._look(link)
            else:
                await self._believe(made)
                return made
        raise _too_fast()

    async def _hand_over(self, link: RequestChannel) -> None:
        """Give the daemon the database keys that it wants: where the devices keep them, or are to keep them from now on."""
        from confide_proxy.devices import roster_client

        shown, keys = self.shown, self.keys
        if shown is None or keys is None:
            return
        wanted = {epoch: keys.database_key(epoch) for epoch in shown.needs if epoch <= keys.epoch}
        if wanted:
            self.shown = replace(shown, is_locked=await roster_client.unlock(link, wanted), needs=())


def _too_fast() -> SpaceKeysError:
    return SpaceKeysError("the list of devices changes faster than it can be read", hint="try again")


def _unknown() -> SpaceKeysError:
    return SpaceKeysError("the devices of this space are not known here yet", hint="confide device ls asks the daemon")
