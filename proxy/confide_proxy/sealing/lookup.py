"""Credentials in a question that nothing there gives away: "where do we use hunter22-x". What looks like one is asked for by its keyed name
(PROTOCOL.md 10.2), which tells the daemon nothing, and goes out as its placeholder if that is sealed already.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from confide_crypto.errors import RequestError
from confide_proxy.errors import LATER

if TYPE_CHECKING:
    from confide_crypto.sealing.placeholder import Placeholder
    from confide_crypto.sealing.space_keys import SpaceKeys
    from confide_memory.wire.document_body import Asks

KINDS: Final = (
    *("password", "url-password", "connection-string", "api-key", "token"),
    *("secret-key", "aws-secret-key", "basic-auth", "bearer-token", "secret", "key"),
)
"""Those that are known by what stands before them alone; tokens of a known form are found without it."""
MOST_WORDS: Final = 4
"""Each is a few small requests, all at once."""
DEADLINE_S: Final = 5.0
_LEAST_CHARS: Final = 8
_MOST_CHARS: Final = 256
_LEAST_RANDOM_CHARS: Final = 16
_AROUND: Final = "\"'`,;:?()[]<>"
_ENDS: Final = ".!"
_NUMBER: Final = re.compile(r"[\d.,:/+_TZv-]+")
"""Dates, versions, addresses."""


def is_plain(query: str) -> bool:
    """Whether no word of a question may be a credential, by a look that costs next to nothing."""
    return not any(_may_be(word.strip(_AROUND)) for word in query.split())


async def recognized(link: Asks, keys: SpaceKeys, query: str) -> str:
    """The question with placeholders for each word of it that is sealed in the space: one for each kind that it is sealed as.

    Raises:
        RequestError: the daemon cannot say now.
        ConnectionLost, TimeoutError: from the link.
    """
    words = _words(query)
    wanted = [(word, str(placeholder), placeholder.secret_id) for word in words for placeholder in _names(keys, word)]

    async def is_sealed(secret_id: bytes) -> bool:
        try:
            await link.request("record", {"id": secret_id.hex()}, timeout_s=DEADLINE_S)
        except RequestError as error:
            if error.code in LATER:
                raise
            return False
        return True

    found = await asyncio.gather(*(is_sealed(secret_id) for _, _, secret_id in wanted))
    sealed: dict[str, list[str]] = {}
    for (word, placeholder, _), is_there in zip(wanted, found, strict=True):
        if is_there:
            sealed.setdefault(word, []).append(placeholder)
    for word, names in sealed.items():
        query = query.replace(word, " ".join(names))
    return query


def _may_be(word: str) -> bool:
    if not _LEAST_CHARS <= len(word) <= _MOST_CHARS or _NUMBER.fullmatch(word):
        return False
    return len(word) >= _LEAST_RANDOM_CHARS or any(letter.isdigit() for letter in word)


def _words(query: str) -> list[str]:
    """What may be one, the longer form before the shorter: a password may end with the sentence's mark."""
    from confide_crypto.sealing.placeholder import STANDIN
    from confide_proxy.sealing.detection.plausibility import is_unmistakable

    found: dict[str, None] = {}
    # What stands for a credential is none, though one in twenty-five looks like one.
    for part in STANDIN.sub(" ", query).split():
        if len(found) >= MOST_WORDS:
            break
        word = part.strip(_AROUND)
        if _may_be(word) and is_unmistakable(word):
            found |= dict.fromkeys((word, word.removesuffix("."), word.rstrip(_ENDS)))
    return [word for word in found if _may_be(word)][:MOST_WORDS]


def _names(keys: SpaceKeys, word: str) -> list[Placeholder]:
    from confide_crypto.sealing.placeholder import Placeholder

    data = word.encode("utf-8", "surrogatepass")
    return [Placeholder(kind, keys.secret_id(kind, data)) for kind in KINDS]
