"""The files of a folder as they leave the machine, and as they keep their plaintext when a change comes back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from confide_crypto.errors import ConfideError, LinkError, RequestError
from confide_proxy import VERSION
from confide_proxy.errors import BlockedError, FolderError

if TYPE_CHECKING:
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_memory.documents import Asks
    from confide_proxy.config import Policy
    from confide_proxy.sealing.context import Deposit, Sealing
    from confide_proxy.sealing.sealer import Sealed, Secret

NAME_TELLS: Final = "has a name with what looks like a credential in it: give it another one"
ID_TELLS: Final = "has a note's id with what looks like a credential in it: give it another one"
_ID_LINE: Final = re.compile(r"\ufeff?---[^\S\n]*\n(?:(?!---|\.\.\.).*\n){0,200}?(id:[ \t]*[\"']?mem_.*)")
"""The line that names a note, behind the front matter before it."""
_SOURCE: Final = "files"
_SEALED: Final = "(sealed:"
_REDACTED: Final = "(redacted:"
_NOTE: Final = "(sealed:note:"


class SealedFile(NamedTuple):
    """A file's text as it goes out.

    Attributes:
        sealed: the text, and what was in it.
        mark: with what it was sealed, as `FileSealer.mark`.
        is_waiting: something in it is redacted only because this machine has no keys.
    """

    sealed: Sealed
    mark: str
    is_waiting: bool


class FileSealer:
    """Seals the files of one session's folders. Safe to use from several threads."""

    def __init__(self, sealing: Sealing, policy: Policy) -> None:
        self._sealing = sealing
        self._policy = policy
        self._known_mark: tuple[SpaceKeys | None, str] | None = None

    @property
    def mark(self) -> str:
        """With what a file is sealed now: rules, the user's wishes, keys of the space. What was sealed with others is read anew."""
        return self._mark(self._sealing.keyring.keys)

    def _mark(self, keys: SpaceKeys | None) -> str:
        known = self._known_mark
        if known is not None and known[0] is keys:
            return known[1]
        # Rules change with the version alone. The name of a fixed value tells one space's keys from another's, in all epochs the same.
        parts = [VERSION, self._policy.files, self._policy.local, str(self._policy.min_confidence), *self._policy.allow]
        parts.append(keys.secret_id("mark", b"").hex() if keys else "")
        mark = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
        self._known_mark = (keys, mark)
        return mark

    def seal(self, path: str, text: str) -> SealedFile:
        """The text of a file as it goes out.

        Raises:
            FolderError: it is not let out, or cannot be sealed; or its name, or its note's id, holds a credential: a name cannot be sealed.
        """
        keys = self._sealing.keyring.keys
        if self.shown(path) != path:
            raise FolderError(path, NAME_TELLS)
        try:
            sealed = self._sealing.sealer.seal(text, _SOURCE)
        except BlockedError as error:
            raise FolderError(
                path, f"holds what looks like a credential ({error.kind}, line {error.line}), which your policy blocks"
            ) from None
        except ConfideError as error:
            raise FolderError(path, f"cannot be sealed: {error}", hint=error.hint) from None
        if sealed.values and (own := _ID_LINE.match(text)) and own[1] not in sealed.text:
            raise FolderError(path, ID_TELLS)
        # They may be gone, or there, since this began.
        has_keys = None not in (keys, self._sealing.keyring.keys)
        is_waiting = not has_keys and any(placeholder.startswith(_REDACTED) for placeholder in sealed.values)
        if is_waiting and self._policy.files == "redact":
            is_waiting = any(placeholder.startswith("(redacted:note:") for placeholder in sealed.values)
        return SealedFile(sealed, self._mark(keys), is_waiting)

    def shown(self, path: str) -> str:
        """A path as the daemon may see it."""
        try:
            return self._sealing.sealer.seal(path, _SOURCE, is_sensitive=False).text
        except ConfideError:
            return "(a file)"

    def restore(self, path: str, text: str, values: Mapping[str, str]) -> str:
        """The text with the values of the file that it replaces back in their places; those that are sealed only with `local = "keep"`.

        A sealed value that another machine has moved to where no rule would find it stays sealed.

        Raises FolderError: a value that is nowhere but in this file would be lost, or as `seal`.
        """
        if self._policy.local == "replace":
            values = {
                placeholder: value for placeholder, value in values.items() if not placeholder.startswith(_SEALED)
            }
        try:
            restored = self._sealing.sealer.restore(text, values, _SOURCE)
        except ConfideError as error:
            raise FolderError(path, f"cannot be sealed: {error}", hint=error.hint) from None
        here_alone = {placeholder: value for placeholder, value in values.items() if placeholder.startswith(_REDACTED)}
        if any(placeholder in restored for placeholder in here_alone):
            problem = (
                "stays as it is: another machine has put a credential that is here alone where no rule would know it"
            )
            raise FolderError(path, problem)
        if any(placeholder not in text and value not in text for placeholder, value in here_alone.items()):
            problem = "stays as it is: another machine has removed a credential that is here alone; remove it here too"
            raise FolderError(path, problem)
        return restored

    def check_removable(self, path: str, values: Mapping[str, str]) -> None:
        """Raise FolderError where a file has a value that is nowhere else, so that no other machine's wish deletes it."""
        if any(placeholder.startswith(_REDACTED) for placeholder in values):
            problem = "stays: another machine has deleted it, and it holds a credential that is here alone; delete it here too"
            raise FolderError(path, problem)

    def is_to_be_sent(self, path: str, text: str, restored: str) -> bool:
        """Whether a file that was written in a text's place is to be sent as it seals now, though the daemon has that text.

        It is where the text says what should be sealed. Where several machines hold a part of a sensitive note in clear each, nobody does:
        they would answer each other for ever.
        """
        return self.seal(path, text).sealed.text != text and _NOTE not in restored

    def is_replaced(self, values: Mapping[str, str]) -> bool:
        """Whether a file with these values is to hold placeholders in their places as well."""
        return self._policy.local == "replace" and any(placeholder.startswith(_SEALED) for placeholder in values)

    def why_withheld(self) -> str:
        """Why a file that would go out redacted waits."""
        problem = self._sealing.keyring.problem
        return f"holds a credential that this machine cannot seal now{f': {problem}' if problem else ''}"


async def deposit_file(records: Deposit, link: Asks, path: str, secrets: Iterable[Secret]) -> None:
    """Have the records of what a file's text names with the daemon, before the text is.

    Raises FolderError: they cannot be made now; RequestError, ConnectionLost, TimeoutError: as `Deposit.keep`.
    """
    try:
        await records.keep(link, secrets)
    except (RequestError, LinkError):
        raise
    except ConfideError as error:
        raise FolderError(path, f"cannot be sealed now: {error}", hint=error.hint) from error
