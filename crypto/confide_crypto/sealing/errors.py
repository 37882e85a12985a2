"""What can be wrong with sealed secrets, as a person is told it.

    ConfideError
    └── SealingError
        ├── RecordError            a sealed record is not one, or was changed
        │   └── WrongKeyError      it was sealed under another key than the space's
        ├── UnknownEpochError      the key of that epoch is not here
        ├── WrapError              a wrapped key does not open, or a wrap key cannot be used
        ├── RosterError            the list of a space's devices cannot be believed
        │   ├── MalformedEntry     bytes that are no entry
        │   ├── ForeignEntry       an entry of another space
        │   ├── ReplayedEntry      an entry that is known already
        │   ├── MissingEntry       there is a gap before it
        │   ├── ForkedRoster       another history than the one that is known
        │   ├── WithheldRoster     less than what is known
        │   ├── UnknownSigner      signed by a key that never was a device
        │   ├── RemovedSigner      signed by a device that was removed
        │   ├── BadSignature       not signed by whom it names
        │   ├── WrongDevice        adds or removes a device that cannot be added or removed
        │   ├── WrongEpoch         keys of other epochs than it must carry
        │   ├── WrongWraps         keys for other devices than it must carry, or in another order
        │   └── OversizedRoster    more devices, entries, epochs or bytes than there may be
        ├── PairingError           a machine that would join does not hold the pair secret
        └── RecoveryCodeError      a recovery code, typed by a person, is not one

None of them carries a key, a secret or a code.
"""

from __future__ import annotations

from confide_crypto.errors import EXIT_INPUT, EXIT_KEYS, ConfideError


class SealingError(ConfideError):
    """Something about sealed secrets is not as it must be."""

    exit_code = EXIT_KEYS


class RecordError(SealingError):
    """A sealed record is not one, or was changed."""


class WrongKeyError(RecordError):
    """A record's key commitment is not of the key that it was to be opened with."""


class UnknownEpochError(SealingError):
    """A key of an epoch that this machine does not hold.

    Attributes:
        epoch: its number.
    """

    def __init__(self, epoch: int) -> None:
        hint = "this machine has not seen the newest list of devices, or is not on it"
        super().__init__(f"the key of epoch {epoch} is not here", hint=hint)
        self.epoch = epoch


class WrapError(SealingError):
    """A wrapped key does not open, or a wrap key cannot be used."""


class RosterError(SealingError):
    """The list of a space's devices cannot be believed. Nothing of what was known changes."""


class MalformedEntry(RosterError):  # noqa: N818 - reads as what it is
    """Bytes that are no roster entry."""


class ForeignEntry(RosterError):  # noqa: N818
    """An entry of another space."""


class ReplayedEntry(RosterError):  # noqa: N818
    """An entry that is known already."""


class MissingEntry(RosterError):  # noqa: N818
    """An entry whose predecessor is not there."""


class ForkedRoster(RosterError):  # noqa: N818
    """Another history than the one that this machine has seen."""


class WithheldRoster(RosterError):  # noqa: N818
    """A history that ends before what this machine has seen."""


class UnknownSigner(RosterError):  # noqa: N818
    """An entry signed by a key that never was a device of the space."""


class RemovedSigner(RosterError):  # noqa: N818
    """An entry signed by a device that had been removed."""


class BadSignature(RosterError):  # noqa: N818
    """A signature that is not of the key that it names."""


class WrongDevice(RosterError):  # noqa: N818
    """A device that cannot be added or removed."""


class WrongEpoch(RosterError):  # noqa: N818
    """An entry that carries keys of other epochs than it must."""


class WrongWraps(RosterError):  # noqa: N818
    """An entry that carries keys for other devices than it must, or in another order."""


class OversizedRoster(RosterError):  # noqa: N818
    """More devices, entries, epochs or bytes than a roster may have."""


class PairingError(SealingError):
    """What came does not show that its sender holds the pair secret."""


class RecoveryCodeError(SealingError):
    """A recovery code, typed by a person, is not one. Never carries the text: it is a secret."""

    exit_code = EXIT_INPUT
