"""The statement by which a node names the caller for which it forwards a session (PROTOCOL.md 12).

It is part of the hello in the node's own handshake: a certificate of the node's key by the daemon's
identity, and the caller and session that it forwards. So every channel between nodes belongs to one
caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, from_hex, verify

FRESH_S: Final = 600
"""Tolerance of a certificate's time: for the clocks of two nodes, and the network."""
_LABEL: Final = b"confide-node/1"
_SESSION_LENGTH: Final = 16
_HTTP: Final = "http"


@dataclass(frozen=True, slots=True)
class Speaker:
    """The statement of a node about the caller whose session it forwards.

    Attributes:
        node: its number in PostgreSQL.
        caller: the caller's Ed25519 key, 32 bytes, which the caller has proven to that node.
        session_id: the id of the caller's channel with that node, 32 hex digits.
        replaces: the session that the caller's hello replaces (PROTOCOL.md 7.9), or None.
        is_by_http: True if the caller connected by HTTP (PROTOCOL.md 12.5); `caller` is then its
            key in the registry, and it has proven a token.
    """

    node: int
    caller: bytes
    session_id: str
    replaces: str | None = None
    is_by_http: bool = False

    def hello(self, daemon: Identity, node_key: bytes, *, now: int) -> dict[str, object]:
        """Return the fields for the hello of a handshake by the node with this key; `now` is in
        seconds since 1970.
        """
        said: dict[str, object] = {
            "node": self.node,
            "at": now,
            "proof": daemon.sign(_LABEL, _signed_bytes(node_key, self.node, now)).hex(),
            "key": self.caller.hex(),
            "session": self.session_id,
        }
        if self.replaces is not None:
            said["replaces"] = self.replaces
        if self.is_by_http:
            said["by"] = _HTTP
        return said

    @classmethod
    def read(cls, hello: dict[str, object], node_key: bytes, daemons: Iterable[bytes], *, now: float) -> Self:
        """Parse and verify the statement in the hello of a node that has proven the key `node_key`.

        `daemons` are the daemon's own Ed25519 keys, one of which must have certified the node's key
        just now. Raises ValueError if there is no valid certificate or the hello is malformed, with
        the same message for both.
        """
        match hello:
            case {"node": int(node), "at": int(at), "proof": str(proof), "key": str(key), "session": str(session)}:
                pass
            case _:
                raise ValueError("no node of this daemon")
        signature = from_hex(proof, SIGNATURE_LENGTH)
        is_fresh = abs(now - at) <= FRESH_S and 0 < node < 2**63 and not isinstance(node, bool)
        if not (is_fresh and any(verify(one, _LABEL, _signed_bytes(node_key, node, at), signature) for one in daemons)):
            raise ValueError("no node of this daemon")
        replaces = hello.get("replaces")
        from_hex(session, _SESSION_LENGTH)
        replaced = replaces if isinstance(replaces, str) else None
        return cls(node, from_hex(key, KEY_LENGTH), session, replaced, hello.get("by") == _HTTP)


def _signed_bytes(node_key: bytes, node: int, at: int) -> bytes:
    return node_key + node.to_bytes(8) + at.to_bytes(8)
