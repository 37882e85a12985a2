"""Orders of tasks, signed by a device of the space, so that no daemon can make one, change one or take one from another space
(PROTOCOL.md 11).

What an order says is not read here: it is bytes. That it is done once only is for the ledger of whoever does it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from confide_crypto.errors import OrderError, OrderSignatureError, OrderSignerError
from confide_crypto.keys.identity import Identity, verify
from confide_crypto.sealing.encoding import joined
from confide_crypto.sealing.roster import Roster

_ORDER_LABEL: Final = b"confide/task-order/1"
_APPROVAL_LABEL: Final = b"confide/task-approval/1"
MAX_ORDER_BYTES: Final = 64 * 1024
MAX_APPROVALS: Final = 8


@dataclass(frozen=True, slots=True)
class Approval:
    """That another device has seen a whole order and stands for it as well."""

    key: bytes  # its Ed25519 key, 32 bytes
    signature: bytes  # 64 bytes


def sign_order(identity: Identity, space: bytes, order: bytes) -> bytes:
    """The signature of an order's bytes, 64 bytes. `space` is the space's id, 16 bytes."""
    return identity.sign(_ORDER_LABEL, joined(space, order))


def approve_order(identity: Identity, space: bytes, order: bytes) -> Approval:
    """That this device stands for an order that another one has signed."""
    return Approval(identity.public_key, identity.sign(_APPROVAL_LABEL, joined(space, order)))


def check_order(roster: Roster, order: bytes, signer: bytes, signature: bytes) -> None:
    """Check that `signer`, 32 bytes, is a device of the space now, and has signed these bytes for it.

    Raises:
        OrderError: it is too large.
        OrderSignerError: the signer is not on the roster; the message has the name of one that was.
        OrderSignatureError: another text, space or key was signed.
    """
    if len(order) > MAX_ORDER_BYTES:
        raise OrderError("a task's order is larger than any can be", hint=f"the limit is {MAX_ORDER_BYTES:,} bytes")
    _check_signer(roster, signer)
    if not verify(signer, _ORDER_LABEL, joined(roster.space, order), signature):
        raise OrderSignatureError("a task's order is not what its device has signed for this space")


def check_approvals(roster: Roster, order: bytes, signer: bytes, approvals: Iterable[Approval]) -> None:
    """Check that each approval is of a device of the space other than the signer, and about these bytes.

    That `check_order` takes the order is not asked again. Raises as `check_order`.
    """
    for approval in approvals:
        _check_signer(roster, approval.key)
        if approval.key == signer:
            raise OrderSignerError("a device cannot approve its own order", hint="approve it on another machine")
        if not verify(approval.key, _APPROVAL_LABEL, joined(roster.space, order), approval.signature):
            raise OrderSignatureError("an approval is not of this order, or not of this space")


def check_approver(roster: Roster, signer: bytes, approver: bytes, approvers: Collection[bytes] = ()) -> None:
    """Check that two devices stand for an order, and not one that has brought the other in: whoever holds a device can add one
    (PROTOCOL.md 11.4). That both are on the roster, and have signed, is not asked again.

    Args:
        signer, approver: Ed25519 keys of who gave the order and of who approved it.
        approvers: keys that whoever follows the order was told of by a person: of those it is not asked who brought them in.

    Raises OrderSignerError.
    """
    own, other = roster.above(approver), roster.above(signer)
    if own[0] == other[0]:
        raise OrderSignerError("a device cannot approve its own order", hint="approve it on another machine")
    device = roster.devices.get(approver)
    if device is None or device.is_paper:
        raise OrderSignerError("a recovery code approves nothing", hint="approve it on one of the machines")
    if approver in approvers:
        return
    # Both are below the one that began the space, if they are not it: another one in common may hold both.
    if own[0] in other or other[0] in own or set(own[:-1]) & set(other[:-1]):
        problem = f"the approval by {device.name} does not count: it and the device that gave the order may be one person's who holds one"
        raise OrderSignerError(problem, hint="approve it on the runner, or name the device in approvers of runner.toml")


def _check_signer(roster: Roster, key: bytes) -> None:
    if key in roster.devices:
        return
    if key in roster.removed:
        named = [entry.device.name for entry in roster.entries if entry.device is not None and entry.device.key == key]
        problem = f"its device, {named[0]}, was removed from the space"
        raise OrderSignerError(problem, hint="give the order again on one of the devices that are left")
    raise OrderSignerError("it is signed by no device of the space")
