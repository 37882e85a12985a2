"""The requests by which a device synchronizes its files: compare, put, remove, pull (PROTOCOL.md
9).

They compare states and are idempotent, so a lost answer or a repeated request does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from confide_crypto.errors import RequestError
from confide_daemon.documents import transcripts
from confide_daemon.documents.changes import DocumentChange
from confide_daemon.documents.document_results import SyncComparison
from confide_daemon.documents.restore_receipts import Receipts
from confide_daemon.errors import GrantError, NotFoundError
from confide_daemon.server.replicas import Copies, CopiesHost
from confide_daemon.server.requests.projects import queued_for
from confide_daemon.spaces.space import Space
from confide_memory.documents import GLOBAL_PROJECT, bucket_of, check_text, text_hash
from confide_memory.documents import digests as digests_of
from confide_memory.forms import Carried
from confide_memory.forms import project as project_of
from confide_memory.wire import files as wire
from confide_memory.wire.operation import Nothing
from confide_memory.wire.session import RECEIPT, Receipt


class SyncRequests:
    """Answers the sync requests of one connection."""

    def __init__(self, space: Space, copies: Copies, session: CopiesHost) -> None:
        self._space = space
        self._copies = copies
        self._session = session
        self.operations = dict(
            [
                wire.DIGEST.by(self._digest),
                wire.COMPARE.by(self._compare),
                wire.PUT.by(self._put),
                wire.REMOVE.by(self._remove, may=lambda _: self._session.grants.require_scope()),
                wire.PULL.by(self._pull),
                wire.TRANSCRIPT.by(self._transcript),
                RECEIPT.by(self._receipt),
            ]
        )

    async def _receipt(self, _asked: Nothing) -> Receipt:
        return {"receipt": (await Receipts(self._space.threads).standing()).receipt}

    async def _digest(self, asked: wire.DigestRequest) -> wire.Differing:
        """Return the buckets in which the device's files differ from the daemon's; the other
        buckets count as compared.
        """
        project, digests = asked["project"], asked["digests"]
        grants = self._session.grants
        if project == GLOBAL_PROJECT and not grants.has_project(project):
            return {"differ": frozenset()}
        grants.require_project(project)
        states = [state for state in await self._space.documents.states(project) if grants.reaches(project, state[0])]
        ours = await asyncio.to_thread(digests_of, states)
        differ = frozenset(number for number, digest in enumerate(ours) if digest != digests[number])
        for path, digest, revision in states:
            if bucket_of(path) not in differ:
                self._copies.confirm(project, path, revision, digest)
        self._copies.compared_at = datetime.now(UTC).isoformat(timespec="seconds")
        return {"differ": differ}

    async def _compare(self, asked: wire.CompareRequest) -> wire.CompareAnswer:
        project, gone, gone_hashes = asked["project"], asked["gone"], asked["goneHashes"]
        grants = self._session.grants
        if project == GLOBAL_PROJECT and not grants.has_project(project):
            # Every device attaches the global project by itself; without a grant it looks empty and
            # accepts nothing.
            return {"send": [], "adopt": [], "pull": [], "drop": []}
        grants.require_project(project)
        entries = [entry for entry in asked["entries"] if grants.reaches(project, entry[0])]
        hashes: Sequence[str | None] = [None] * len(gone) if gone_hashes is None else gone_hashes
        if len(hashes) != len(gone):
            raise RequestError("invalid", "'goneHashes' has not as many entries as 'gone'")
        # A caller with read access deletes nothing.
        lost = [
            (path, base, base_hash)
            for (path, base), base_hash in zip(gone, hashes, strict=True)
            if grants.may_write and grants.reaches(project, path)
        ]
        result = await self._space.documents.compare(
            project, entries, lost, buckets=asked["buckets"], author=grants.alias
        )
        self._copies.compared_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._note_entries(project, entries, result)
        dropped = dict(result.drop)
        for path, *_ in lost:
            self._copies.forget(project, path)
            if dropped.get(path):
                # The result does not say which deletions are new; a device without the file, or
                # with a recreated one, ignores this.
                self._session.publish(DocumentChange(project, path, dropped[path], "", None, None))
        answer: wire.CompareAnswer = {
            "send": list(result.send) if grants.may_write else [],
            "adopt": list(result.adopt),
            "pull": [item for item in result.pull if grants.reaches(project, item[0])],
            "drop": [item for item in result.drop if grants.reaches(project, item[0])],
            "forgotten": list(result.forgotten),
        }
        if denied := self._denied(asked, result.send):
            answer["denied"] = denied
        return answer

    def _note_entries(self, project: str, entries: Sequence[tuple[str, str, int]], result: SyncComparison) -> None:
        """Note which revision of each file the device holds, after a comparison."""
        adopted = dict(result.adopt)
        changed = {path for path, *_ in result.pull} | {path for path, *_ in result.drop}
        sent = set(result.send)
        for path, digest, base in entries:
            if path in adopted:
                self._copies.confirm(project, path, adopted[path], digest)
            elif path in result.unheld:
                self._copies.forget(
                    project, path
                )  # or it would be taken for one that has all that is made from here on
            elif path in sent:
                self._copies.confirm(project, path, base, None)
            elif base and path not in changed:
                self._copies.confirm(project, path, base, digest)

    def _denied(self, asked: wire.CompareRequest, missing: Iterable[str]) -> list[str]:
        """Return the files of a comparison that the caller has no right to write. Not named, they
        would count as known here with the text that they have there. `missing`: those whose text is
        not known here.
        """
        grants = self._session.grants
        unreached = [path for path, *_ in asked["entries"] if not grants.reaches(asked["project"], path)]
        return unreached if grants.may_write else [*unreached, *missing]

    def check_put(self, params: Carried) -> None:
        """Check the parameters of a `put` before its text arrives.

        Raises RequestError if the caller may not write the document or the parameters are
        malformed.
        """
        put = wire.PUT.read(params, without=("text",))
        try:
            self._session.grants.require_write(put["project"], put["path"])
        except GrantError as error:
            raise RequestError.of(error) from error

    async def _put(self, asked: wire.PutRequest) -> wire.PutAnswer:
        project, path, text, hash = asked["project"], asked["path"], asked["text"], asked["hash"]
        grants = self._session.grants
        grants.require_write(project, path)
        if hash != text_hash(check_text(text)):
            raise RequestError("invalid", "the hash is not that of the text", "was the file changed while it was read?")
        result = await self._space.documents.put(
            project,
            path,
            text,
            base=asked["base"],
            base_hash=asked["baseHash"],
            sent=asked["sent"],
            author=grants.alias,
            by=asked["class"],
            others=asked["others"],
        )
        is_same = result.hash == hash
        # After a merge the device may not take the text (a new edit may prevent it): its base stays
        # the old one until it confirms.
        if is_same:
            self._copies.confirm(project, path, result.revision, hash)
        change = DocumentChange.of(project, path, result, result.previous_hash)
        if result.changed:
            self._session.publish(change)
        if not is_same:
            self._copies.bring_later(change)  # the answer may be lost, or come when the file is being edited
        answer: wire.PutAnswer = {
            "revision": result.revision,
            "hash": result.hash,
            "merged": result.merged,
            "clash": result.clash,
            "indexed": True,
            "queued": await queued_for(self._space, self._session.grants, result.queued_pieces),
        }
        return answer if is_same else {**answer, "text": result.text}

    async def _remove(self, asked: wire.RemoveRequest) -> wire.PutAnswer:
        project, path = asked["project"], asked["path"]
        self._session.grants.require_write(project, path)
        before = await self._hash_of(project, path)
        grants = self._session.grants
        grants.require_write(project, path)
        result = await self._space.documents.remove(
            project, path, base=asked["base"], base_hash=asked["baseHash"], sent=asked["sent"], author=grants.alias
        )
        if not result.removed:
            return {"revision": result.revision, "removed": False, "text": result.text}
        self._copies.forget(project, path)
        if before is not None:
            self._session.publish(DocumentChange(project, path, result.revision, "", before, None))
        return {"revision": result.revision, "removed": True}

    async def _pull(self, asked: wire.PullRequest) -> wire.Pulled:
        project, path, revision, hash = asked["project"], asked["path"], asked["revision"], asked["hash"]
        self._session.grants.require_read(project, path)
        if hash is not None and revision is None:
            revision = await self._space.documents.revision_with(project, path, hash)
        # A pull confirms nothing: the file may be edited when the answer arrives.
        document = await self._space.documents.read(project, path, revision=revision)
        return {"revision": document.revision, "hash": document.hash, "text": document.text}

    def check_transcript(self, params: Carried) -> None:
        """Check the parameters of a `transcript` before its messages arrive.

        Raises RequestError if the caller may not write transcripts or the parameters are malformed.
        """
        project = project_of(params)
        transcripts.batch_of({**params, "messages": []}, transcripts.name_of(params, project))
        try:
            self._session.grants.require_write(project, transcripts.FOLDER)
        except GrantError as error:
            raise RequestError.of(error) from error

    async def _transcript(self, asked: wire.TranscriptRequest) -> wire.TranscriptState:
        project = asked["project"]
        name = transcripts.name_of(asked, project)
        batch = transcripts.batch_of(asked, name)
        grants = self._session.grants
        grants.require_write(project, transcripts.FOLDER)
        if asked.get("forget") is True:
            return (await self._space.transcripts.forget(name, author=grants.alias)).to_json(taken=False)
        if batch is None:
            return (await self._space.transcripts.state(name)).to_json(taken=False)
        state, taken = await self._space.transcripts.take(batch, author=grants.alias)
        return state.to_json(taken=taken)

    async def _hash_of(self, project: str, path: str) -> str | None:
        try:
            return (await self._space.documents.read(project, path)).hash
        except NotFoundError:
            return None
