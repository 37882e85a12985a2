"""An export has the sealed records beside its files, and brings them back where a device of their space imports it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.daemon.loopback import Serving, serving
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.sealed_files import OTHER, PROJECT, TOKEN, Keeper, SealedMachine

from confide_crypto.sealing import placeholder
from confide_crypto.sealing.record import SealedRecord
from confide_proxy.errors import UnsealableError
from confide_transfer.errors import ExportError
from confide_transfer.local.export import tree as export_tree
from confide_transfer.local.export.tree import ExportReport

FILE = "memory/deploy.md"
NOTE = "memory/key.md"
SENSITIVE = f"---\ntitle: Spare key\nsensitive: true\n---\n\nUnder the third stone, and the token is {OTHER}\n"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Serving]:
    """An empty server."""
    async with serving(tmp_path / "other") as running:
        yield running


async def exported(machine: SealedMachine, into: Path) -> ExportReport:
    async with machine.running() as keeper:
        await keeper.sync()
        return await export_tree.write(keeper.connection, [PROJECT], into, is_whole=True, with_transcripts=False)


async def filled(keeper: Keeper, tree: Path, *, is_dry: bool = False) -> ExportReport:
    return await export_tree.fill(keeper.connection, keeper.sealing, tree, is_dry=is_dry)


async def values(keeper: Keeper, text: str) -> list[str]:
    """What the placeholders of a text stand for, as its machine opens them."""
    keys = keeper.sealing.keyring.keys
    assert keys is not None
    found = []
    for _, _, one in placeholder.find(text):
        answer = await keeper.connection.request("record", {"id": one.secret_id.hex()}, timeout_s=DEADLINE_S)
        found.append(SealedRecord.parse(b64decode(answer["record"])).open(keys).decode())
    return found


@pytest.fixture
def ann(daemon: Serving, tmp_path: Path) -> SealedMachine:
    """A machine with a token and a sensitive note."""
    made = SealedMachine(tmp_path, daemon, "ann")
    made.write(FILE, f"export GITHUB_TOKEN={TOKEN}\n")
    made.write(NOTE, SENSITIVE)
    return made


async def test_secrets_come_back_to_an_empty_server(ann: SealedMachine, other: Serving, tmp_path: Path) -> None:
    """There the space has other keys, and the texts other placeholders; the values are the same."""
    tree = tmp_path / "tree"
    assert (await exported(ann, tree)).secrets == 2
    held = b"".join(path.read_bytes() for path in tree.rglob("*") if path.is_file())
    assert not [value for value in (TOKEN, OTHER, "third stone") if value.encode() in held]
    old = (tree / PROJECT / FILE).read_text()
    async with ann.at(other).running() as keeper:
        looked = await filled(keeper, tree, is_dry=True)
        assert (looked.secrets, looked.closed_records, looked.counts) == (2, 0, {"new": 2})
        assert not await keeper.records()
        report = await filled(keeper, tree)
        assert (report.secrets, report.closed_records, report.counts) == (2, 0, {"new": 2})
        documents = await keeper.documents()
        assert documents[FILE] != old
        assert await values(keeper, documents[FILE]) == [TOKEN]
        assert await values(keeper, documents[NOTE]) == [f"Under the third stone, and the token is {OTHER}"]
        # Its own files are the same memory, in clear.
        report_of_files = await keeper.sync()
        assert (report_of_files.sent, report_of_files.pulled) == (0, 0)
        assert (await filled(keeper, tree)).counts == {"same": 2}


async def test_two_exports_of_the_same_memory_are_the_same_bytes(ann: SealedMachine, tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        await exported(ann, tmp_path / name)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")} for name in ("one", "two"))
    assert one == two
    (ann.root / FILE).unlink()
    (ann.root / NOTE).write_text("# nothing\n")
    assert (await exported(ann, tmp_path / "one")).secrets == 2  # the daemon still has their revisions


async def test_what_cannot_be_opened_is_counted_and_the_texts_come_back(
    ann: SealedMachine, other: Serving, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    await exported(ann, tree)
    async with SealedMachine(tmp_path, other, "stranger").running() as keeper:
        report = await filled(keeper, tree)
        assert (report.secrets, report.closed_records, report.counts) == (0, 2, {"new": 2})
        assert (await keeper.documents())[FILE] == (tree / PROJECT / FILE).read_text()


async def test_what_was_put_into_a_tree_by_hand_is_sealed(ann: SealedMachine, daemon: Serving, tmp_path: Path) -> None:
    """And without keys it is left out, while all else comes back; a name cannot be sealed."""
    tree = tmp_path / "tree"
    await exported(ann, tree)
    (tree / "sealed.jsonl").unlink()
    (tree / PROJECT / "memory/new.md").write_text(f"export GITHUB_TOKEN={OTHER}\n")
    (tree / PROJECT / f"memory/{OTHER}.md").write_text("# Nothing else\n")
    async with SealedMachine(tmp_path, daemon, "bob").running() as keeper:
        assert keeper.sealing.keyring.keys is None
        report = await filled(keeper, tree)
        assert [item["path"] for item in report.skipped_files] == [f"memory/{OTHER}.md", "memory/new.md"]
    async with ann.running() as keeper:
        report = await filled(keeper, tree)
        assert report.counts == {"same": 2, "new": 1}
        assert [(item["path"], "name" in item["reason"]) for item in report.skipped_files] == [
            (f"memory/{OTHER}.md", True)
        ]
        assert await values(keeper, (await keeper.documents())["memory/new.md"]) == [OTHER]


async def test_a_machine_without_keys_brings_no_records_and_damage_is_told(
    ann: SealedMachine, other: Serving, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    await exported(ann, tree)
    await SealedMachine(tmp_path, other, "cleo").visit()
    place = tree / "sealed.jsonl"
    lines = place.read_text().splitlines()
    assert set(json.loads(lines[0])) == {"roster"}
    async with ann.at(other).running() as keeper:  # not a device there, but of the tree's space
        assert keeper.sealing.keyring.keys is None
        with pytest.raises(UnsealableError):
            await filled(keeper, tree)
        assert not await keeper.documents()
        place.write_text("\n".join([lines[0], lines[1][:-40] + '"}']) + "\n")
        with pytest.raises(ExportError, match=r"sealed\.jsonl"):
            await filled(keeper, tree)
