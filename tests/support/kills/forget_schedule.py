"""Drawn schedules of forgetting: a space with a text in many places, a kill at any moment, an older copy, an old device, a transcript.

Each ends with a scan of every byte of the database (as a holder of its key sees it), of its log, and of a device's folder: for the
text's own words, and for each of its vectors as they were stored, and as 32-bit floats.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.support.daemon import residue
from tests.support.daemon.forgetful import vectors
from tests.support.documents.transcripts import batch, said

from confide_crypto.keys.identity import Identity
from confide_daemon.documents import transcripts
from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import ForgottenError
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_memory.forgetting import ForgetRecord, Hashes, SignedRecord, key_id
from confide_proxy.hooks.server.forgetting.forgotten_texts import KnownRecord, guards_of, scrub
from confide_proxy.offline.journal import Journal, QueuedCall
from confide_proxy.paths import ProxyPaths

KEY: Final = bytes(range(32))
DIMENSIONS: Final = 64
KILLED_WITHIN_S: Final = 0.12
WAIT_S: Final = 30.0
_SYLLABLES: Final = ("ka", "zu", "mir", "tol", "ven", "qua", "shi", "dro", "pel", "wyn", "gor", "fex")
_COMMON: Final = ["we", "then", "put", "all", "of", "it", "into", "the", "shed", "by", "the", "old", "river"]


def own_words(drawn: random.Random, count: int) -> list[str]:
    """Words that nothing else holds."""
    return ["".join(drawn.choices(_SYLLABLES, k=5)) + f"{drawn.randrange(10**6):06d}x" for _ in range(count)]


@dataclass
class Outcome:
    """What a schedule did, and what was found."""

    was_killed: bool = False
    is_of_text: bool = False
    residues: list[str] = field(default_factory=list)


class Schedule:
    """One space, from its first text to the last scan."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.folder = folder
        self.database = folder / "space.db"
        self.words = own_words(self.drawn, self.drawn.randint(3, 9))
        mixed = [*self.words, *self.drawn.sample(_COMMON, 6)]
        self.drawn.shuffle(mixed)
        self.line = " ".join(mixed).capitalize() + "."
        self.text = f"# Notes of a day\n\n{self.line}\n\nThe herons stay for the winter.\n"
        self.identity = Identity(self.drawn.randbytes(32))
        self.outcome = Outcome()
        self.stored: list[bytes] = []

    async def open(self) -> Space:
        """With a model of its own, and the real indexer."""
        model = LoadedModel.ready(HashedEmbedder(DIMENSIONS))
        return await Space.open(self.database, KEY, SpaceShared(IndexSettings(), model), space_id="s")

    async def run(self) -> Outcome:
        """All of it."""
        space = await self.open()
        await self._plant(space)
        await space.wait_indexed(timeout_s=WAIT_S)
        self.stored = vectors(self.database, KEY, "memory/a.md")
        await space.close()
        self._scan("before")
        assert {"before: a word", "before: a vector"} <= {*self.outcome.residues}, "the scan finds what is there"
        self.outcome.residues.clear()
        self._copy("old")
        space = await self.open()
        signed, key = await self._record(space)
        self._device()
        await space.close()
        await asyncio.to_thread(self._killed, signed, key)
        space = await self.open()
        await space.forgetting.take(signed, key, author="a")
        await self._bring_back(space)
        if self.drawn.random() < 0.5:
            await space.documents.put("p", "memory/new.md", "# New\n\nNothing of that.\n", base=0, author="b")
        await space.close()
        self._scan("after forgetting")
        await asyncio.to_thread(self._scrubbed, signed, key)
        if self.drawn.random() < 0.6:
            self._copy("old", back=True)
            space = await self.open()
            await self._unserved(space)
            await space.forgetting.take(signed, key, author="a")
            await self._bring_back(space)
            await space.close()
            self._scan("after an older copy")
        return self.outcome

    async def _plant(self, space: Space) -> None:
        put = space.documents.put
        await put("p", "memory/a.md", self.text, base=0, author="a")
        for number in range(1, self.drawn.randint(1, 4)):
            await put("p", "memory/a.md", self.text + f"\nMore {number}.\n", base=number, author="a")
        await put("p", "memory/b.md", "# B\n\nThe herons stay for the winter.\n", base=0, author="a")
        if self.drawn.random() < 0.6:
            await put("p", "memory/b.md", f"# B\n\n- {self.line}\n", base=1, author="b")
            await put("p", "memory/b.md", "# B\n\nOnly herons.\n", base=2, author="b")
        if self.drawn.random() < 0.5:
            await put("q", "memory/c.md", f"# C\n\n> {self.line}\n", base=0, author="b")
            await space.documents.remove("q", "memory/c.md", base=1, author="b")
        if self.drawn.random() < 0.6:
            await self._said(space, "0a6afc57-2f31-4cb4-8ff0-01247f50c64c")

    async def _said(self, space: Space, session: str) -> None:
        params = batch(0, 10, said("user", f"Keep this: {self.line}"), version=0, session=session, project="p")
        name = transcripts.name_of(params, "p")
        found = transcripts.batch_of(params, name)
        assert found is not None
        await space.transcripts.take(found, author="a")

    async def _record(self, space: Space) -> tuple[SignedRecord, bytes]:
        self.outcome.is_of_text = self.drawn.random() < 0.4
        key = await space.forgetting.key()
        parts = Hashes(key).of_text(self.line) if self.outcome.is_of_text else []
        project = None if self.outcome.is_of_text else "p"
        _, plan = await space.forgetting.plan(project, ["memory/a.md"], parts, lambda _project, _path: True)
        record = ForgetRecord(
            self.drawn.randbytes(16),
            "00" * 16,
            int(time.time()),
            self.identity.public_key,
            key_id(key),
            plan.names,
            plan.texts,
            plan.parts,
            plan.of_parts,
            plan.sealed,
            self.drawn.random() < 0.3,
        )
        return record.sign(self.identity), key

    def _killed(self, signed: SignedRecord, key: bytes) -> None:
        """Forget in a process of its own, which is killed at any moment; after its end nothing is lost."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries that other tests have loaded, which this child never calls
            child = os.fork()
        if child == 0:
            try:
                asyncio.run(self._forgotten(signed, key))
            finally:
                os._exit(0)  # whatever happens, no second process goes on with the tests
        time.sleep(self.drawn.uniform(0, KILLED_WITHIN_S) + self.drawn.choice((0.0, 0.1, 0.3, 0.7)))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        self.outcome.was_killed = os.WIFSIGNALED(status)

    async def _forgotten(self, signed: SignedRecord, key: bytes) -> None:
        space = await self.open()
        await space.forgetting.take(signed, key, author="a")
        await space.close()

    async def _bring_back(self, space: Space) -> None:
        """An old device, and a transcript that is sent again."""
        for path in ("memory/a.md", "memory/elsewhere.md"):
            try:
                await space.documents.put("p", path, self.text, base=0, author="old")
            except ForgottenError:
                continue
            found = await space.documents.newest_text("p", path)
            if found is not None and any(word in found for word in self.words):
                self.outcome.residues.append(f"an old device brought it back as {path}")
        await self._said(space, f"{self.drawn.randrange(10**8):08d}-2f31-4cb4-8ff0-01247f50c64c")

    async def _unserved(self, space: Space) -> None:
        """Before anything else is asked of it, an older copy has nothing of it for a search."""
        for path in ("memory/a.md", "memory/b.md"):
            text = await space.documents.newest_text("p", path)
            if text is not None and any(word in text for word in self.words):
                self.outcome.residues.append(f"an older copy served {path}")

    def _device(self) -> None:
        paths = self.paths
        paths.state.mkdir(parents=True, exist_ok=True)
        call = QueuedCall("0" * 32, 0.0, "", "p", "memory_store", "memory/a.md", "p", {"content": self.line})
        Journal(paths.journal).append(call)
        paths.briefings.mkdir()
        (paths.briefings / "p.json").write_text(json.dumps({"written": 0, "lines": ["Notes", self.line]}))
        paths.learn.mkdir()
        row = dict.fromkeys(("quote", "kind", "project", "folder", "session", "client", "judge"), "")
        (paths.learn / "suggestions.json").write_text(
            json.dumps([{**row, "id": "1a2b3c4d", "text": self.line, "at": 0}])
        )

    @property
    def paths(self) -> ProxyPaths:
        """Of the device."""
        root = self.folder / "device"
        return ProxyPaths(root / "proxy.toml", root / "proxy", root / "global", root / "daemon")

    def _scrubbed(self, signed: SignedRecord, key: bytes) -> None:
        """What the device does at its next connection."""
        scrub(self.paths, guards_of([KnownRecord(signed, key)]))
        journal = Journal(self.paths.journal)
        if journal.heads() or (self.paths.journal / "queue").exists():
            self.outcome.residues.append("the queue of a device")
        files = [file for file in self.paths.state.rglob("*") if file.is_file()]
        if any(word.encode() in file.read_bytes().lower() for file in files for word in self.words):
            self.outcome.residues.append("a file of a device")

    def _copy(self, name: str, *, back: bool = False) -> None:
        for suffix in ("", "-wal"):
            here, there = self.database.with_name(f"space.db{suffix}"), self.folder / f"{name}{suffix}"
            source, goal = (there, here) if back else (here, there)
            goal.unlink(missing_ok=True)
            if source.exists():
                shutil.copyfile(source, goal)

    def _scan(self, moment: str) -> None:
        image = residue.image(self.database, KEY)
        everything = "\n".join(residue.texts(self.database, KEY)) + "\n" + " ".join(residue.words(self.database, KEY))
        log = self.database.with_name("space.db-wal")
        raw = self.database.read_bytes() + (log.read_bytes() if log.exists() else b"")
        for word in self.words:
            # FTS5 keeps what differs from the term before: the end is the word's own. Six digits alone are in a time or a hash of one
            # in some hundred schedules; with a letter on either side they are the word's.
            for found in (word, word[-7:], word[-8:-1]):
                if found.encode() in image or found.encode() in raw or found in everything.lower():
                    self.outcome.residues.append(f"{moment}: a word")
        for vector in (*self.stored, *floats([self.line, self.text])):
            if vector in image or vector in raw:
                self.outcome.residues.append(f"{moment}: a vector")


def floats(texts: list[str]) -> list[bytes]:
    """The vectors of texts as 32-bit floats."""
    found: Any = HashedEmbedder(DIMENSIONS).embed_documents(texts)
    return [np.asarray(vector, dtype=np.float32).tobytes() for vector in found]
