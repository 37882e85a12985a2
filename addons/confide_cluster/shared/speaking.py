"""How a node of a daemon says for which caller it speaks, to the node that holds the caller's space (PROTOCOL.md 12).

All of it is in the hello of the node's own handshake: a certificate of the node's key by the daemon's identity, and whose session it passes
on. So there is no channel between nodes that stands for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from confide_crypto.keys.identity import KEY_LENGTH, SIGNATURE_LENGTH, Identity, from_hex, verify

FRESH_S: Final = 600
"""By how much a certificate's time may be off: the clocks of two machines, and the way."""
_LABEL: Final = b"confide-node/1"
_SESSION_LENGTH: Final = 16
_HTTP: Final = "http"


@dataclass(frozen=True, slots=True)
class Speaker:
    """A node that passes a caller's session on.

    Attributes:
        node: its number in the store.
        caller: the caller's Ed25519 key, 32 bytes, which it has proven to that node.
        session_id: of the caller's channel with that node, 32 hex digits.
        replaces: what the caller's hello says of it (PROTOCOL.md 7.9), if it does.
        is_by_http: the caller has come by HTTP (PROTOCOL.md 12.5): `caller` is what the registry knows it by, and it has proven a token.
    """

    node: int
    caller: bytes
    session_id: str
    replaces: str | None = None
    is_by_http: bool = False

    def hello(self, daemon: Identity, node_key: bytes, *, now: int) -> dict[str, object]:
        """What goes into the hello of a handshake with `node_key`; `now` in seconds since 1970."""
        said: dict[str, object] = {
            "node": self.node,
            "at": now,
            "proof": daemon.sign(_LABEL, _signed(node_key, self.node, now)).hex(),
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
        """Whom a node that has proven `node_key` speaks for.

        `daemons`: the Ed25519 keys of the daemon's own, one of which has to have certified the node's, just now.
        Raises ValueError: none has; or it is no such hello. It does not say which.
        """
        match hello:
            case {"node": int(node), "at": int(at), "proof": str(proof), "key": str(key), "session": str(session)}:
                pass
            case _:
                raise ValueError("no node of this daemon")
        signature = from_hex(proof, SIGNATURE_LENGTH)
        is_fresh = abs(now - at) <= FRESH_S and 0 < node < 2**63 and not isinstance(node, bool)
        if not (is_fresh and any(verify(one, _LABEL, _signed(node_key, node, at), signature) for one in daemons)):
            raise ValueError("no node of this daemon")
        replaces = hello.get("replaces")
        from_hex(session, _SESSION_LENGTH)
        replaced = replaces if isinstance(replaces, str) else None
        return cls(node, from_hex(key, KEY_LENGTH), session, replaced, hello.get("by") == _HTTP)


def _signed(node_key: bytes, node: int, at: int) -> bytes:
    return node_key + node.to_bytes(8) + at.to_bytes(8)
