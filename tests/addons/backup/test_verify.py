"""A snapshot counts only when it was opened, read and asked; whatever was changed in it is found."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.daemon.backups import Backed, fill
from tests.support.daemon.loopback import Machine, machine, serving
from tests.support.sealing.founder import Device

from confide_backup.daemon.manifest import MANIFEST, VERIFIED, custody_of, database_of
from confide_backup.daemon.worker import canaries
from confide_backup.errors import SnapshotError
from confide_crypto.keys.identity import Identity

PLACES = int(os.environ.get("CONFIDE_FLIPPED_BITS", "1"))
"""In each file; `make chaos` tries 200."""


async def test_a_snapshot_is_proven_by_opening_it(filled: Backed) -> None:
    made = await filled.take()
    assert made.spaces[filled.space()].questions == canaries.MOST
    found = await filled.verify()
    assert found["verdict"] == "proven"
    assert found["spaces"] == {filled.space(): "proven"}
    assert not filled.daemon.state.folder.proving.exists()
    newest = filled.backups.history(filled.target).newest
    assert newest is not None
    assert newest.proof is not None
    assert newest.proof.proven == {filled.space()}


async def test_what_is_in_the_open_names_nothing(filled: Backed) -> None:
    """No space, project, path, heading or machine stands in a manifest or a proof; nor does a key."""
    made = await filled.take()
    await filled.verify()
    folder = filled.folder(made)
    shown = (folder / MANIFEST).read_bytes() + (folder / VERIFIED).read_bytes()
    for word in (b"laptop", b"proj", b"memory", b"eron", b"pond", filled.key(filled.space()).hex().encode()):
        assert word not in shown, word
    for path in folder.rglob("*"):
        assert not path.is_file() or b"Herons fish" not in path.read_bytes()


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def test_a_flipped_bit_in_any_file_is_found(filled: Backed) -> None:
    """In databases, logs, keys, the configuration, the manifest itself."""
    filled.daemon.state.folder.authorized.joinpath("own.pub").write_text("confide-ed25519 line\n")
    made = await filled.take()
    folder = filled.folder(made)
    names = files(folder)
    assert {MANIFEST, "keys.sealed", "registry.db", "authorized/own.pub", database_of(filled.space())} <= set(names)
    drawn = random.Random(7)
    for name in names:
        path = folder / name
        whole = path.read_bytes()
        for _ in range(PLACES):
            bit = drawn.randrange(8 * len(whole))
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            assert (await filled.verify(made.id))["verdict"] == "differs", (name, bit)
        path.write_bytes(whole)
    (folder / VERIFIED).unlink()
    assert (await filled.verify(made.id))["verdict"] == "proven"


async def test_files_that_are_missing_added_or_swapped_are_found(filled: Backed) -> None:
    """Also where another night's file is whole by itself."""
    first = await filled.take()
    async with machine(filled.daemon, "desktop") as desktop:
        await desktop.attach("proj")
        await fill(desktop, 3)
        second = await filled.take()
    folder, name, other = filled.folder(second), database_of(filled.space()), database_of(filled.space("desktop"))

    def swap(one: Path, another: Path) -> None:
        """Their contents; the files of other snapshots that are the same stay."""
        there, here = one.read_bytes(), another.read_bytes()
        for path, data in ((one, here), (another, there)):
            path.unlink()
            path.write_bytes(data)

    (folder / "spaces" / "stranger.db").write_bytes(b"x")
    assert "does not belong" in (await filled.verify())["problems"][0]
    (folder / "spaces" / "stranger.db").unlink()
    (folder / "link").symlink_to("registry.db")
    assert (await filled.verify())["files"] == "differs"
    (folder / "link").unlink()

    swap(folder / name, folder / other)
    assert (await filled.verify())["verdict"] == "differs"
    swap(folder / name, folder / other)

    (folder / "registry.db").rename(folder.parent / "away")
    found = await filled.verify()
    assert found["files"] == found["registry"] == "differs"
    (folder.parent / "away").rename(folder / "registry.db")

    changed = next(each for each, file in first.files.items() if each != "keys.sealed" and second.files[each] != file)
    kept = (folder / changed).read_bytes()
    (folder / changed).unlink()
    shutil.copyfile(filled.folder(first) / changed, folder / changed)
    assert (await filled.verify())["verdict"] == "differs", changed
    (folder / changed).write_bytes(kept)

    manifest = (folder / MANIFEST).read_bytes()
    shutil.copyfile(filled.folder(first) / MANIFEST, folder / MANIFEST)
    found = await filled.verify(second.id)
    assert "manifest of another snapshot" in found["problems"][0]
    (folder / MANIFEST).write_bytes(manifest)
    assert (await filled.verify())["verdict"] == "proven"


async def test_a_copy_that_answers_otherwise_is_not_proven(filled: Backed) -> None:
    """Every byte may be as it was copied, and the space still not be what was asked: the canaries say so."""
    made = await filled.take()
    space = made.spaces[filled.space()]
    assert space.canaries is not None
    wrong = replace(made, spaces={filled.space(): replace(space, canaries=bytes(32))})
    (filled.folder(made) / MANIFEST).write_bytes(wrong.to_bytes(filled.daemon.state.identity))
    found = await filled.verify()
    assert found["verdict"] == "differs"
    assert "answers its canaries otherwise" in found["problems"][0]


async def test_a_manifest_that_somebody_else_has_written_is_not_believed(filled: Backed) -> None:
    """In good form, with hashes that fit, and another's signature, or that of another time."""
    made = await filled.take()
    path = filled.folder(made) / MANIFEST
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"number":1', b'"number":2'))
    assert "its signature is not good" in (await filled.verify(made.id))["problems"][0]
    path.write_bytes(made.to_bytes(Identity.generate()))
    assert "its signature is not good" in (await filled.verify(made.id))["problems"][0]
    stranger = Identity.generate()
    path.write_bytes(replace(made, daemon=stranger.public_key).to_bytes(stranger))
    assert "is of another daemon" in (await filled.verify(made.id))["problems"][0]
    path.write_bytes(whole)
    # A proof counts as little: it is signed too.
    await filled.verify(made.id)
    proof = filled.folder(made) / VERIFIED
    good = proof.read_bytes()
    letter = next(
        place for place in range(good.index(b'"manifest":"') + 12, len(good)) if good[place : place + 1].isalpha()
    )
    for changed in (
        good.replace(b'"at":1', b'"at":2'),
        good[:letter] + good[letter : letter + 1].upper() + good[letter + 1 :],  # which says the same
    ):
        proof.write_bytes(changed)
        newest = filled.backups.history(filled.target).newest
        assert newest is not None
        assert newest.status_text == "not verified"


async def test_a_newer_format_is_refused_with_a_way_out_and_keeps_its_proof(filled: Backed) -> None:
    made = await filled.take()
    path = filled.folder(made) / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    with pytest.raises(SnapshotError, match="newer version") as caught:
        await filled.verify(made.id)
    assert caught.value.hint == "upgrade confide here"
    assert path.exists()


async def test_what_is_the_same_as_what_was_proven_is_not_opened_again(filled: Backed) -> None:
    """At night: it is read and hashed all the same."""
    filled.configure(keep_daily=0, keep_weekly=0, keep_monthly=0)  # of one day, one would stay
    await filled.take()
    await filled.verify()
    await filled.backups.nightly()
    history = filled.backups.history(filled.target)
    first, second = history.whole
    assert second.proof is not None
    assert second.proof.proven == {filled.space()}
    assert (filled.folder(first.manifest) / database_of(filled.space())).samefile(
        filled.folder(second.manifest) / database_of(filled.space())
    )
    # Its canaries are those of then, also if the daemon wrote to its log in the background, so that they were asked anew.
    now, then = (replace(one.manifest.spaces[filled.space()], asked_at=None) for one in (second, first))
    assert now == then


async def test_a_locked_space_is_copied_and_proven_once_a_machine_has_brought_its_key(tmp_path: Path) -> None:
    """Its bytes are copied without a key; who unlocks it has it proven. With another key meanwhile it is the old one that opens it."""
    async with serving(tmp_path / "data", keeper="caller") as daemon:
        identity = daemon.enroll("laptop")
        device = Device(identity)
        async with Machine(await daemon.connect_in_time(identity)) as laptop:
            await device.found(laptop)
            await device.unlock(laptop)
            await laptop.attach("proj")
            await fill(laptop, 3)
    async with serving(tmp_path / "data", keeper="caller") as daemon:
        backed = Backed(daemon, tmp_path / "target")
        made = await backed.take()
        assert custody_of(backed.space()) in made.files
        assert made.spaces[backed.space()].canaries is None
        found = await backed.verify()
        assert found["verdict"] == "unproven"
        assert (await backed.prune()) == []
        await backed.backups.prove_unlocked(backed.backups.standing())
        assert (newest := backed.backups.history(backed.target).newest) is not None
        assert newest.status_text == "proven but for 1 locked"
        async with Machine(await daemon.connect_in_time(identity)) as laptop:
            await device.unlock(laptop)
            await backed.backups.prove_unlocked(backed.backups.standing())
            assert (newest := backed.backups.history(backed.target).newest) is not None
            assert newest.status_text == "proven"
            # It is open now: what is copied from here on is asked as well.
            again = await backed.take()
            assert again.spaces[backed.space()].questions == 3
