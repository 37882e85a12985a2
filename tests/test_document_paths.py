"""Proxy and daemon agree on what a memory file may be called."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.daemon.loopback import machine, serving
from tests.support.documents.document_names import ELSEWHERE, PROBES

from confide_crypto.errors import RequestError
from confide_daemon.errors import InvalidPathError
from confide_memory import documents
from confide_memory.documents import check_path, check_stored_path, text_hash
from confide_proxy.errors import FolderError, ToolError
from confide_proxy.offline.journal import QueuedCall
from confide_proxy.offline.queued_writes import place_call
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger
from confide_proxy.sync.replication.replica import Replica
from confide_transfer.local.export import tree as export_tree


def is_let(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except (InvalidPathError, FolderError, ToolError):
        return False
    return True


@pytest.mark.parametrize(("path", "is_taken", "is_kept"), PROBES)
def test_both_ends_agree(tmp_path: Path, path: str, is_taken: bool, is_kept: bool) -> None:
    """The daemon takes what a machine sends and writes, also one that stores without the daemon, and nothing else."""
    folder = Folder("p", tmp_path)
    assert is_let(check_path, path) == is_taken
    assert folder.is_memory(path) == folder.is_watched(path) == is_taken
    stored = {"path": path, "content": "x", "project": "p"}
    wish = QueuedCall("o", 0.0, "2026-11-21T00:00:00+00:00", "p", "memory_store", "", "", stored)
    assert is_let(place_call, wish, stored) == (is_taken or not path)
    assert is_let(check_stored_path, path) == is_kept
    # Copies of what is there can be written, transcripts too.
    copies = Folder("p", tmp_path, ("**/*.md",), is_tree=True)
    assert copies.is_memory(path) == (is_kept or path == "sessions/x.md")


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_lies_elsewhere_is_sent_by_globs_and_never_written(tmp_path: Path, path: str) -> None:
    """The daemon takes it from a machine whose user wishes so."""
    folder = Folder("p", tmp_path, ("**/*.md",))
    assert folder.is_watched(path) == is_let(check_path, path)
    assert not folder.is_memory(path)
    assert not Folder("p", tmp_path).is_watched(path)


def test_globs_do_not_widen_the_rule(tmp_path: Path) -> None:
    """Transcripts, hidden files and the like are not sent, whatever a glob says."""
    folder = Folder("p", tmp_path, ("**/*.md", "sessions/*.md", ".cursor/*"))
    for path in ("sessions/x.md", ".cursor/x.md", "docs/.x.md", "docs/node_modules/x.md", "docs/ x.md"):
        assert not folder.is_watched(path)
        assert not is_let(check_path, path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("memory/.hidden.md", "hidden"),
        ("memory/api/CLAUDE.md", "as instructions"),
        ("memory/a_LOCAL_12.md", "copies of a conflict"),
    ],
)
async def test_what_an_earlier_version_took_stays_of_use(
    path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of such a name is read, listed, exported, deleted and restored; what is new is not stored under it."""
    async with serving(tmp_path / "data") as daemon, machine(daemon) as laptop:
        await laptop.attach("p")
        put = {"project": "p", "path": path, "text": "heron\n", "hash": text_hash("heron\n"), "base": 0}
        with monkeypatch.context() as earlier:
            earlier.setattr(documents, "unkept", lambda _path: None)
            await laptop.connection.request("put", put, timeout_s=9.0)
        more = {**put, "text": "ibis\n", "hash": text_hash("ibis\n"), "base": 1}
        with pytest.raises(RequestError, match=why):
            await laptop.connection.request("put", more, timeout_s=9.0)
        pulled = await laptop.request("pull", {"project": "p", "path": path})
        assert pulled["text"] == "heron\n"
        tree = tmp_path / "tree"
        report = await export_tree.write(laptop.connection, ["p"], tree, is_whole=True, with_transcripts=False)
        assert report.skipped_files == []
        assert (tree / "p" / path).read_text() == "heron\n"
        # On a machine of its own it was never a file, and is none now.
        (tmp_path / "project/memory").mkdir(parents=True)
        here = Replica(
            Folder("p", tmp_path / "project"), SyncLedger(tmp_path / "l", "s", tmp_path / "project"), laptop.connection
        )
        (skipped,) = (await here.compare()).skipped
        assert (skipped["path"], why in skipped["reason"]) == (path, True)
        with pytest.raises(FolderError, match=why):
            await here.apply({"path": path, "text": "x\n", "revision": 2, "hash": "", "baseHash": ""})
        assert not (tmp_path / "project" / path).exists()
        assert (await laptop.request("remove", {"project": "p", "path": path, "base": 1}))["removed"]
        assert (await laptop.request("deleted", {"project": "p"}))["documents"][0]["path"] == path
        assert (await laptop.request("restore", {"project": "p", "path": path}))["changed"]
        with pytest.raises(RequestError, match="normal form C"):
            await laptop.request("put", {**put, "path": "memory/u\u0308.md"})


COMPONENTS = st.one_of(
    st.text(max_size=8), st.text("a.\u00e4\u0308 \u200b\u212a-", max_size=6), st.sampled_from(["..", "x.md", ".x"])
)


@given(st.lists(COMPONENTS, min_size=1, max_size=3))
def test_what_the_daemon_takes_a_machine_writes_and_sends(components: list[str]) -> None:
    """And the other way round, on a real disk."""
    path = f"memory/{'/'.join(components)}.md"
    with tempfile.TemporaryDirectory() as place:
        folder = Folder("p", Path(place))
        is_taken = is_let(check_path, path)
        assert is_let(lambda: folder.write(path, "x", over=None)) == is_taken
        assert [found.path for found in folder.walk()] == ([path] if is_taken else [])
