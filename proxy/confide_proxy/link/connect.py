"""One connection of this machine: with which key, to which daemon, started first if need be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confide_crypto.errors import HandshakeError, UnreachableError
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import NotJoinedError
from confide_proxy.link import local_daemon, pin
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import Paths

if TYPE_CHECKING:
    from confide_crypto.keys.identity import Identity
    from confide_crypto.transport.open import Connection

CONNECT_DEADLINE_S = 10.0


async def open_connection(
    paths: Paths, config: ProxyConfig, hello: dict[str, Any] | None = None, *, keys: MachineKeys | None = None
) -> Connection:
    """One connection to the daemon this machine has joined, or else to its own, started if need be.

    Args:
        paths: where this machine's key and pin are.
        config: whether and how to start a daemon here.
        hello: what to say to the daemon (PROTOCOL.md 4.3).
        keys: this machine's, where the caller has opened or locked them.

    Raises:
        NotJoinedError, DaemonStartError: there is no daemon to connect to.
        KeyFileError, KeyLockedError, KeyringError: the identity or the pin may not be used as it is.
        UnreachableError, HandshakeError, DeniedError: from the connection attempt.
    """

    async def dial(identity: Identity, is_settled: bool) -> Connection:
        return await _dial(paths, config, hello, identity, is_settled)

    return await (keys or MachineKeys(paths)).connect(dial)


async def _dial(
    paths: Paths, config: ProxyConfig, hello: dict[str, Any] | None, identity: Identity, is_settled: bool
) -> Connection:
    # Imported here: websockets and the handshake cost more than a start-up may, and the first answers do not need them.
    from confide_crypto.limits import Timers
    from confide_crypto.transport.open import connect

    timers = Timers.every(config.keepalive_s)
    pinned = await asyncio.to_thread(pin.load, paths.link)
    if pinned is not None:
        connection = await connect(
            pinned.url,
            identity,
            pinned.daemon_static,
            daemon_key=pinned.daemon_key,
            timeout_s=CONNECT_DEADLINE_S,
            hello=hello,
            timers=timers,
        )
        try:
            # Before anything else is done: whoever misses the time of the old key is shut out (PROTOCOL.md 7.11).
            await asyncio.to_thread(pin.follow, paths.link, pinned, connection)
        except BaseException:
            await connection.close()
            raise
        return connection
    if not config.on_demand:
        raise NotJoinedError
    data = paths.daemon_data
    if is_settled:  # a key that the daemon may not have heard of yet must not come in as another machine's
        await asyncio.to_thread(local_daemon.authorize, data, identity)

    async def local(address: local_daemon.Address) -> Connection:
        return await connect(
            address.url,
            identity,
            address.daemon_static,
            timeout_s=CONNECT_DEADLINE_S,
            hello=hello,
            timers=timers,
        )

    address = await local_daemon.ensure(data, idle_exit_s=config.idle_exit_s)
    try:
        return await local(address)
    except (UnreachableError, HandshakeError):
        # After a kill -9 the address file is still there, and another program may listen on its port by now. The daemon's own lock
        # decides whether there is one: a second daemon ends at once. A daemon whose key was rotated has written another address.
        if local_daemon.read_address(data) == address:
            (data / local_daemon.ADDRESS_FILE).unlink(missing_ok=True)
        return await local(await local_daemon.ensure(data, idle_exit_s=config.idle_exit_s))
