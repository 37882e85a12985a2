"""What a verification has found, written beside the manifest and signed: a snapshot counts by this and not by being there."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from confide_backup.daemon.manifest import HASH_BYTES, canonical
from confide_crypto.keys.identity import SIGNATURE_LENGTH, Identity, verify

FORMAT: Final = 1
MOST_BYTES: Final = 16 << 20
_LABEL: Final = b"confide backup proof 1"

Verdict = Literal["proven", "unproven", "differs", "unreadable"]
"""Of a part: it was opened and gives what it gave; it is whole, and nobody had its key; it is not what it was; it cannot be read."""
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Proof:
    """The newest verification of a snapshot."""

    snapshot: str
    manifest: bytes  # the hash of that file, so that it is a proof of this one
    at: int  # seconds since 1970
    files: Verdict  # whether all of them are there as they were, and no others
    registry: Verdict
    spaces: Mapping[str, Verdict]
    problems: tuple[str, ...] = field(default=(), compare=False)  # sentences, for who looks on; not written down

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found wrong, and the registry opened; spaces may wait for their keys."""
        is_whole = self.files == "proven" and self.registry == "proven"
        return is_whole and all(one in ("proven", "unproven") for one in self.spaces.values())

    @property
    def verdict(self) -> Verdict:
        """Of all of it: the worst of its parts."""
        found = {self.files, self.registry, *self.spaces.values()}
        return next(one for one in ("differs", "unreadable", "unproven", "proven") if one in found)

    @property
    def proven(self) -> frozenset[str]:
        """The spaces that were opened and give what they gave, where the rest is sound."""
        if self.files != "proven" or self.registry != "proven":
            return frozenset()
        return frozenset(space_id for space_id, one in self.spaces.items() if one == "proven")

    def to_bytes(self, identity: Identity) -> bytes:
        """The file, signed."""
        body = self._body()
        return canonical({**body, "signature": identity.sign(_LABEL, canonical(body)).hex()})

    def _body(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "snapshot": self.snapshot,
            "manifest": self.manifest.hex(),
            "at": self.at,
            "files": self.files,
            "registry": self.registry,
            "spaces": dict(self.spaces),
        }


def parse(data: bytes, *, snapshot: str, manifest: bytes, signers: Collection[bytes]) -> Proof | None:
    """The proof in `data`, if it is one of this snapshot with this manifest, by one of these keys."""
    try:
        found = json.loads(data)
        signature = bytes.fromhex(found.pop("signature"))
        if found["format"] != FORMAT or len(signature) != SIGNATURE_LENGTH:
            return None
        verdicts = [found["files"], found["registry"], *found["spaces"].values()]
        made = Proof(
            snapshot=str(found["snapshot"]),
            manifest=bytes.fromhex(found["manifest"]),
            at=int(found["at"]),
            files=found["files"],
            registry=found["registry"],
            spaces={str(space_id): one for space_id, one in found["spaces"].items()},
        )
        if canonical({**made._body(), "signature": signature.hex()}) != data:
            return None
        is_ours = any(verify(signer, _LABEL, canonical(made._body()), signature) for signer in signers)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    is_of_this = made.snapshot == snapshot and made.manifest == manifest and len(manifest) == HASH_BYTES
    return made if is_ours and is_of_this and set(verdicts) <= set(VERDICTS) else None
