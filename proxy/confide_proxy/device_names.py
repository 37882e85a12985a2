"""What a person gives as the name of a device."""

from __future__ import annotations

from typing import Final

from confide_proxy.errors import DeviceError

_CODE_LETTERS: Final = 40


def checked(name: str) -> str:
    """The name, unless a recovery code or an invite was pasted in its place: that must be neither shown nor sent.

    Raises:
        DeviceError: it is one.
    """
    typed = "".join(letter for letter in name if letter.isalnum()).upper()
    if typed.startswith("CR") and len(typed) == _CODE_LETTERS:
        hint = "others on this machine can read arguments: once it is used, make another with confide recovery new --replace"
        raise DeviceError("this is a recovery code, not the name of a machine", hint=hint)
    if "://" in name or "invite1" in name:
        hint = "paste it into confide join, on the new machine; others on this one can read arguments"
        raise DeviceError("this is an invite, not the name of a machine", hint=hint)
    return name
