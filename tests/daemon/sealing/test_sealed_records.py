"""Sealed records in a space: stored once, replaced by newer epochs alone, and as safe as the texts that name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.daemon import damage
from tests.support.daemon.damage import open_space, run
from tests.support.sealing.rosters import KEYS

from confide_crypto.sealing.record import MAX_VALUE, SealedRecord
from confide_daemon.errors import NotFoundError
from confide_daemon.store.upkeep import integrity, salvage

NEXT = KEYS.next_epoch()


def sealed(number: int) -> SealedRecord:
    """A secret of its own."""
    return SealedRecord.seal(KEYS, "password", b"secret %d" % number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def test_records_are_kept_by_their_names_and_outlive_the_process(path: Path) -> None:
    space = await open_space(path)
    kept = [sealed(number) for number in range(5)]
    large = SealedRecord.seal(KEYS, "note", bytes(1) * MAX_VALUE)
    assert await space.records.put([*kept, large]) == 6
    await space.close()
    space = await open_space(path)
    assert await space.records.count() == 6
    for one in (*kept, large):
        assert (await space.records.get(one.secret_id)).open(KEYS) == one.open(KEYS)
    with pytest.raises(NotFoundError):
        await space.records.get(bytes(16))
    await space.close()


async def test_one_that_is_there_is_replaced_by_a_newer_epoch_alone(path: Path) -> None:
    space = await open_space(path)
    first = sealed(1)
    assert await space.records.put([first, first]) == 1
    again = sealed(1)  # the same secret under another nonce: whoever comes second changes nothing
    assert again.secret_id == first.secret_id
    assert await space.records.put([again]) == 0
    assert await space.records.get(first.secret_id) == first
    newer = first.reseal(NEXT)
    assert await space.records.put([newer]) == 1
    assert await space.records.put([first]) == 0
    assert await space.records.get(first.secret_id) == newer
    assert await space.records.count() == 1
    await space.close()


async def test_lists_go_by_name_and_epoch(path: Path) -> None:
    space = await open_space(path)
    old = [sealed(number) for number in range(10)]
    await space.records.put(old)
    await space.records.put([one.reseal(NEXT) for one in old[:4]])
    names = sorted(one.secret_id for one in old)
    first = await space.records.list_rows(b"", limit=6)
    rest = await space.records.list_rows(first[-1].id, limit=6)
    assert [row.id for row in (*first, *rest)] == names
    assert {row.kind for row in first} == {"password"}
    below = await space.records.list_rows(b"", limit=100, below=2)
    assert [row.id for row in below] == sorted(one.secret_id for one in old[4:])
    assert not await space.records.list_rows(b"", limit=100, below=1)
    await space.close()


async def test_records_are_no_derived_rows(path: Path) -> None:
    """Rebuilding everything that is derived, and rebuilding the file itself, keeps each of them."""
    space = await open_space(path)
    kept = [sealed(number) for number in range(300)]
    await space.records.put(kept)
    await space.documents.put(
        "p", "a.md", f"it is (sealed:password:{kept[0].secret_id.hex()}) here", base=0, author="a"
    )
    await space.documents.delete("p", "a.md", author="a")
    await space.rebuild(reembed=True)
    assert await space.records.get(kept[0].secret_id) == kept[0]
    await space.close()
    assert salvage.salvage(path, damage.KEY) == 0
    space = await open_space(path)
    assert await space.records.count() == 300
    assert [await space.records.get(one.secret_id) for one in kept[::50]] == kept[::50]
    await space.close()
    damage.sound(path)


async def test_a_damaged_page_takes_its_own_records_alone(path: Path) -> None:
    """There are more records than texts, and the salvage looks for all of them."""
    space = await open_space(path)
    kept = [sealed(number) for number in range(200)]
    await space.records.put(kept)
    await space.close()
    pages = damage.pages_of(path, "sealed_record")
    damage.flip(path, pages[len(pages) // 2])
    lost = salvage.salvage(path, damage.KEY)
    space = await open_space(path)
    left = await space.records.count()
    assert 0 < lost < 60
    assert left == 200 - lost
    # A machine that still has the files brings back what is gone, and nothing else is new.
    assert await space.records.put(kept) == lost
    await space.close()
    damage.sound(path)


async def test_a_whole_check_reads_every_record(path: Path) -> None:
    """What is listed of a record is read from it again; one that is none makes room for a good one, and is told of as lost."""
    space = await open_space(path)
    kept = [sealed(number) for number in range(40)]
    await space.records.put(kept)
    await space.close()
    run(
        path,
        "UPDATE sealed_record SET kind = 'cookie', epoch = 9 WHERE number = 7",
        "UPDATE sealed_record SET id = randomblob(16) WHERE number = 9",
        "UPDATE sealed_record SET record = x'0102' WHERE number = 20",
    )
    space = await open_space(path)
    assert (await space.upkeep.check())[integrity.RECORDS_DAMAGED] == 3
    assert integrity.RECORDS_DAMAGED not in await space.upkeep.check()
    assert {one.what for one in await space.threads.read(lambda store: store.breaches.list_breaches(limit=10))} >= {
        integrity.RECORDS_DAMAGED,
        integrity.LOST_ROWS,
    }
    assert space.upkeep.health().state == "damaged"
    assert await space.records.get(kept[6].secret_id) == kept[6]
    assert await space.records.get(kept[8].secret_id) == kept[8]
    with pytest.raises(NotFoundError):
        await space.records.get(kept[19].secret_id)
    assert await space.records.put(kept) == 1
    await space.close()
    damage.sound(path)
