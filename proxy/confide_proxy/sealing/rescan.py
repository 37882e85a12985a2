"""Seal credentials that the daemon has stored in clear, from before a detection rule existed or
while the policy allowed them (PROTOCOL.md 9.7).

The rules and keys are on this device and the texts at the daemon, so all texts are fetched page by
page. For each text with credentials, this device sends their encrypted records and then the sealed
text, which replaces the stored one. Texts that are added meanwhile come after the others. The next
run finds nothing in sealed texts, so an interrupted run can simply be repeated.

Documents are sealed by the policy for `files` and transcripts by their own, exactly as a device
seals its file when it sends it, so both stay equal. Only `block` becomes `seal` here, since the
text is stored already.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confide_crypto.errors import RequestError, printable
from confide_memory.documents import MAX_TEXT_BYTES, RequestChannel
from confide_memory.errors import UnknownRequestError
from confide_memory.markdown_blocks import is_sensitive
from confide_memory.wire.sealing import (
    ERASE,
    REWRITE,
    STORED_TEXTS,
    UNSEALED,
    RewrittenText,
    StoredTextRow,
    StoredTextsAnswer,
)
from confide_proxy.config import Policy
from confide_proxy.errors import UnfitAnswerError
from confide_proxy.sealing.context import Deposit, batches
from confide_proxy.sealing.sealer import Sealed, Sealer

PAGE_DEADLINE_S: Final = 60.0
REWRITE_DEADLINE_S: Final = 300.0
ERASE_DEADLINE_S: Final = 1800.0
"""Long, since the daemon rewrites its whole file."""
MAX_CHANGES: Final = 256
MAX_CHANGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of packed texts in one request; a single larger text goes alone."""
MOST_DOCUMENTS: Final = 10_000
"""Documents that a report lists; more are only counted."""
_ROUNDS: Final = 4
_TELLING_CHARS: Final = 16
"""Leading letters and digits of a credential that are searched in names."""

Progress = Callable[[int, int], None]


def policy_of(policy: Policy) -> Policy:
    """Return the user's policy as it applies to texts that are stored already: `block` becomes
    `seal`.
    """
    return policy._replace(files=_stored_action(policy.files), transcripts=_stored_action(policy.transcripts))


def _stored_action(action: str) -> str:
    return "seal" if action == "block" else action


class StoredRevision(NamedTuple):
    """A revision of a document that the daemon has stored. A damaged one has None as its `content`."""

    id: int
    project: str
    path: str
    revision: int
    hash: str
    content: str | None

    @property
    def source(self) -> str:
        """The kind of text by which the policy applies, one of `policy.SOURCES`."""
        return "transcripts" if self.path.startswith("sessions/") else "files"


@dataclass(slots=True)
class UnsealedDocument:
    """A document with credentials in clear. Its `path` omits any part that belongs to a credential."""

    project: str
    path: str
    revisions: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    is_named: bool = False
    """True if its name or its note's id contains part of a credential; only its owner can change
    these.
    """


@dataclass(slots=True)
class RescanOutcome:
    """The result of a run, or of a dry run that changes nothing.

    Attributes:
        texts: number of texts checked.
        found: number of credentials by kind, each counted once per text.
        documents: documents with credentials, in the order of their texts.
        sealed: number of texts replaced.
        redacted: number of found credentials that the policy redacted.
        outgrown: number of found credentials that stay in clear, since their text with placeholders
            would exceed the size limit.
        unreadable: number of damaged texts.
        is_clean: True if the daemon's database file contains no remains of replaced texts.
        damaged_copies: number of damaged former database files, which the daemon keeps for a while,
            that still contain them.
    """

    texts: int = 0
    found: Counter[str] = field(default_factory=Counter)
    documents: dict[tuple[str, str], UnsealedDocument] = field(default_factory=dict)
    more_documents: int = 0
    sealed: int = 0
    redacted: int = 0
    outgrown: int = 0
    unreadable: int = 0
    is_clean: bool = True
    damaged_copies: int = 0
    _counted: set[tuple[int, str]] = field(default_factory=set)

    @property
    def documents_to_rename(self) -> list[UnsealedDocument]:
        """The documents whose names contain part of a credential, so that their owner must rename
        them.
        """
        return [document for document in self.documents.values() if document.is_named]

    def note(self, text: StoredRevision, sealed: Sealed) -> None:
        """Add the credentials found in a text to the counts."""
        # A text can come twice: if its document is sensitive as a whole, or if it changed
        # meanwhile.
        placeholders = [placeholder for placeholder in sealed.values if (text.id, placeholder) not in self._counted]
        self._counted.update((text.id, placeholder) for placeholder in placeholders)
        kinds = Counter(placeholder.split(":", 2)[1] for placeholder in placeholders)
        self.found += kinds
        self.redacted += sum(placeholder.startswith("(redacted:") for placeholder in placeholders)
        key = (text.project, text.path)
        if key not in self.documents and len(self.documents) == MOST_DOCUMENTS:
            self.more_documents += 1
            return
        hidden = _without(text.path, sealed.values.values())
        document = self.documents.setdefault(key, UnsealedDocument(printable(text.project), printable(hidden)))
        document.path = printable(hidden) if hidden != text.path else document.path
        document.is_named |= hidden != text.path or _is_in_id(text.content or "", sealed.values.values())
        if text.revision not in document.revisions:
            document.revisions.append(text.revision)
        document.kinds += kinds


class Rescan:
    """A run that searches all texts that a space has stored for credentials, and seals them."""

    def __init__(self, link: RequestChannel, sealer: Sealer, deposit: Deposit, progress: Progress) -> None:
        """`sealer` uses the policy of `policy_of`. `progress` is called with the number of texts
        checked and their total.
        """
        self._link = link
        self._sealer = sealer
        self._deposit = deposit
        self._progress = progress
        self._sensitive: set[tuple[str, str]] = set()
        self._seen_texts: set[tuple[str, str]] = set()
        self._several: set[tuple[str, str]] = set()
        self._unreadable: set[int] = set()
        self._outgrown: dict[int, int] = {}

    async def look(self) -> RescanOutcome:
        """Return what a run would seal, without changing anything. Raises UnsealableError,
        RequestError, ConnectionLost or TimeoutError if texts cannot be checked.
        """
        return await self._over_all(is_dry=True)

    async def run(self) -> RescanOutcome:
        """Seal all credentials found, and let the daemon erase the replaced texts from its database
        file. Requires the space's keys.

        Raises:
            UnsealableError: this device has lost the keys.
            RequestError: the daemon refuses; code `denied` if this device may not write to all of
                the space.
            ConnectionLost, TimeoutError: the link fails. Texts sealed so far stay sealed, and the
                next run continues.
        """
        outcome = await self._over_all(is_dry=False)
        if outcome.sealed or not outcome.is_clean:
            answer = await ERASE.ask(self._link, {}, timeout_s=ERASE_DEADLINE_S)
            outcome.damaged_copies = answer["damagedCopies"]
            outcome.is_clean = True
        return outcome

    async def report(self, findings: int) -> None:
        """Report to the daemon how many credentials are still stored in clear, to show it to the
        devices and the operator.
        """
        await UNSEALED.ask(self._link, {"findings": findings}, timeout_s=PAGE_DEADLINE_S)

    async def _over_all(self, *, is_dry: bool) -> RescanOutcome:
        outcome = RescanOutcome()
        count = self._sealer.known_count
        is_again = await self._pass(outcome, None, is_dry=is_dry)
        # A later text may reveal that a value in an earlier one is a credential.
        is_again |= self._sealer.known_count > count
        late = self._sensitive & self._several
        if late:
            is_again |= await self._pass(outcome, late, is_dry=is_dry)
        for _ in range(_ROUNDS):
            if not is_again:
                break
            is_again = await self._pass(outcome, None, is_dry=is_dry)
        outcome.unreadable = len(self._unreadable)
        outcome.outgrown = sum(self._outgrown.values())
        return outcome

    async def _pass(self, outcome: RescanOutcome, only: set[tuple[str, str]] | None, *, is_dry: bool) -> bool:
        """Seal all texts, or those of `only`, which are sensitive as a whole; return True if one
        has changed meanwhile.
        """
        after: int | None = 0
        done, is_again = 0, False
        while after is not None:
            answer = await self._following(after)
            page, following, total, outcome.is_clean = await asyncio.to_thread(_page, answer, after)
            wanted = [text for text in page if only is None or (text.project, text.path) in only]
            changes = await asyncio.to_thread(self._seal_texts, wanted, outcome, only is not None)
            if not is_dry:
                for batch in batches(
                    changes, lambda change: len(change[1].text), most=MAX_CHANGES, most_size=MAX_CHANGE_BYTES
                ):
                    is_again |= await self._rewrite(batch, outcome)
            done += len(page)
            outcome.texts = max(outcome.texts, done)
            self._progress(done, max(done, total))
            after = following
        return is_again

    async def _following(self, after: int) -> StoredTextsAnswer:
        try:
            return await STORED_TEXTS.ask(self._link, {"after": after}, timeout_s=PAGE_DEADLINE_S, bulk=True)
        except RequestError as error:
            if error.code != "invalid" and not isinstance(error, UnknownRequestError):
                raise
            raise RequestError(
                "invalid", "this daemon does not hand out what it has stored", "update confided on its server"
            ) from None

    def _seal_texts(
        self, texts: list[StoredRevision], outcome: RescanOutcome, is_whole: bool
    ) -> list[tuple[StoredRevision, Sealed]]:
        changes = []
        for text in texts:
            if text.content is None:
                self._unreadable.add(text.id)
                continue
            if not is_whole:
                key = (text.project, text.path)
                # The last text of a document decides for its earlier ones, which come first.
                (self._several if key in self._seen_texts else self._seen_texts).add(key)
                (self._sensitive.add if is_sensitive(text.content) else self._sensitive.discard)(key)
            sealed = self._sealer.seal(text.content, text.source, is_sensitive=True if is_whole else None)
            if sealed.text != text.content:
                outcome.note(text, sealed)
                if len(sealed.text.encode()) > MAX_TEXT_BYTES:
                    self._outgrown[text.id] = len(sealed.values)
                else:
                    changes.append((text, sealed))
        return changes

    async def _rewrite(self, changes: list[tuple[StoredRevision, Sealed]], outcome: RescanOutcome) -> bool:
        await self._deposit.keep(self._link, [secret for _, sealed in changes for secret in sealed.secrets])
        body: list[RewrittenText] = [
            {"id": text.id, "hash": text.hash, "packed": b64encode(zlib.compress(sealed.text.encode())).decode()}
            for text, sealed in changes
        ]
        answer = await REWRITE.ask(self._link, {"changes": body}, timeout_s=REWRITE_DEADLINE_S, bulk=True)
        results = answer["results"]
        if len(results) != len(changes):
            raise UnfitAnswerError
        outcome.sealed += results.count("rewritten")
        # A text that is `gone` continues as one of the later texts.
        return "changed" in results


def _page(answer: StoredTextsAnswer, after: int) -> tuple[list[StoredRevision], int | None, int, bool]:
    """Return the texts, the start of the next page (None after the last), the total, and True if
    the file is clean.
    """
    texts, following = answer["texts"], answer["next"]
    if bool(texts) != (following is not None) or (following is not None and following <= after):
        raise UnfitAnswerError
    return [_text(each) for each in texts], following, answer["total"], answer["isClean"]


def _text(row: StoredTextRow) -> StoredRevision:
    return StoredRevision(row["id"], row["project"], row["path"], row["revision"], row["hash"], _unpack(row["packed"]))


def _unpack(packed: str) -> str | None:
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(b64decode(packed, validate=True), MAX_TEXT_BYTES + 1)
        return data.decode() if unpacking.eof and len(data) <= MAX_TEXT_BYTES else None
    except (zlib.error, ValueError):
        return None  # damaged at the daemon, which reports it to its operator


_NOT_TELLING: Final = re.compile(r"[\W_]+")
_ID_LINE: Final = re.compile(r"^id:.*$", re.MULTILINE)
_HEAD_CHARS: Final = 4096


def _bare(text: str) -> str:
    return _NOT_TELLING.sub("", text).lower()


def _tellings(values: Any) -> list[str]:
    bare = (_bare(value)[:_TELLING_CHARS] for value in values)
    return [one for one in bare if len(one) == _TELLING_CHARS]


def _is_in_id(text: str, values: Any) -> bool:
    found = _ID_LINE.search(text, 0, _HEAD_CHARS)
    line = _bare(found[0]) if found else ""
    return any(one in line for one in _tellings(values))


def _without(path: str, values: Any) -> str:
    """Return the path without parts of the values: the names of notes derive from their titles."""
    for telling in _tellings(values):
        if telling in _bare(path):
            spelled = r"[\W_]*".join(map(re.escape, telling)) + r"[^/]*?(?=(?:-[0-9a-f]{8})?\.md$|/|$)"
            path = re.sub(spelled, "…", path, flags=re.IGNORECASE)
    return path
