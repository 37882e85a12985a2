"""What a device had forgotten is in no byte of the database, comes back by nobody's accident, and is forgotten again by an older copy."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon import residue
from tests.support.daemon.backups import Backed
from tests.support.daemon.forgetful import Forgetful, place, vectors
from tests.support.daemon.loopback import Machine, Serving, machine, serving, text_hash
from tests.support.deadline import DEADLINE_S
from tests.support.documents.transcripts import batch, said
from tests.support.draws import draws
from tests.support.kills.forget_schedule import Schedule
from tests.support.sealing.founder import Device

from confide_backup.daemon import snapshot_restore, target
from confide_backup.daemon.snapshot_restore import ByCode
from confide_crypto.errors import ConfideError, RequestError
from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.recovery_code import RecoveryCode
from confide_daemon.errors import StorageError
from confide_daemon.sealing.unsealed_texts import SpaceTexts

LINE = "The zanzibar plan of quillfeather begins with marmoset at dawn on tuesday."
DIARY = f"# Diary\n\n{LINE}\n\nBuy milk and bread for the whole week.\n"
OWN = ("zanzibar", "quillfeather", "marmoset")
PATH = "memory/private/diary.md"


@asynccontextmanager
async def forgetful(
    daemon: Serving, identity: Identity | None = None, device: Device | None = None
) -> AsyncIterator[Forgetful]:
    """The founder of the space, or the same again at a later daemon."""
    identity = identity or daemon.enroll("laptop", space="home")
    async with Machine(await daemon.connect(identity)) as laptop:
        await laptop.attach()
        if device is None:
            device = Device(identity)
            await device.found(laptop)
        yield Forgetful(laptop, device)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


async def plant(laptop: Machine) -> None:
    """In revisions, another file's past, a deleted file, a transcript; and a line that another file has too."""
    await laptop.put(PATH, f"# Diary\n\n{LINE} And more.\n")
    await laptop.put(PATH, DIARY, base=1)
    await laptop.put("memory/plan.md", f"# Plan\n\n- {LINE}\n\nThe herons stay.\n")
    await laptop.put("memory/plan.md", "# Plan\n\nThe herons stay.\n", base=1)
    await laptop.put("memory/gone.md", f"{LINE}\n")
    await laptop.request("remove", {"project": "proj", "path": "memory/gone.md", "base": 1})
    await laptop.put("memory/list.md", "# List\n\nBuy milk and bread for the whole week.\n")
    await laptop.request("transcript", batch(0, 10, said("user", f"Note this: {LINE}"), version=0))


async def denied(work: Any) -> None:
    with pytest.raises(RequestError) as caught:
        await work
    assert caught.value.code == "denied"


def assert_gone(path: Path, key: bytes, before: list[bytes]) -> None:
    """From every byte that a holder of the key can see."""
    image = residue.image(path, key)
    everything = "\n".join(residue.texts(path, key))
    for word in OWN:
        assert word.encode() not in image
        assert word not in everything
        assert not [term for term in residue.words(path, key) if term.startswith(word[:6])]
    assert before
    assert not [vector for vector in before if vector in image]
    assert text_hash(DIARY).encode() not in image
    assert b"herons stay" in everything.encode()
    assert "Buy milk and bread" in everything


async def test_nothing_is_left_in_any_byte_of_the_database(daemon: Serving) -> None:
    """Text, words, vectors, hashes: in tables, free pages and the log; in transcripts and other files' past. What others have stays."""
    async with forgetful(daemon) as own:
        await plant(own.machine)
        space = await daemon.daemon.spaces.get(daemon.state.registry.spaces()["home"])
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        path, key = place(daemon)
        before = vectors(path, key, PATH)
        plan = await own.plan([PATH])
        assert [each["path"] for each in plan["documents"]] == [PATH]
        assert [each["path"] for each in plan["shared"]] == ["memory/list.md"]
        await own.forget([PATH])
        kept = {*vectors(path, key, "memory/list.md"), *vectors(path, key, "memory/plan.md")}
        assert_gone(path, key, [one for one in before if one not in kept])
        hits = await own.machine.request("documents", {"project": "proj", "path": "", "limit": 100})
        assert {each["path"] for each in hits["documents"]} == {"memory/plan.md", "memory/list.md"}


async def test_it_comes_back_by_no_accident_but_by_a_persons_store(daemon: Serving) -> None:
    """An old copy under any name, an edit of it, an import, a transcript, a call that waited from before."""
    async with forgetful(daemon) as own, machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await plant(own.machine)
        await own.forget([PATH])
        answer = await desk.request(
            "compare",
            {
                "project": "proj",
                "entries": [[PATH, text_hash(DIARY), 2], ["memory/x.md", text_hash(DIARY), 0]],
                "gone": [],
            },
        )
        assert sorted(answer["forgotten"]) == [PATH, "memory/x.md"]
        await denied(desk.put("memory/x.md", DIARY))
        await denied(desk.put("memory/y.md", f"# New\n\n> {LINE.upper()}\n\nIndeed.\n"))
        await denied(desk.put("memory/list.md", f"# List\n\n{LINE}\n", base=1))
        record = {"id": "mem_x_1763733600_1a2b3c4d", "content": f"Remember: {LINE}"}
        imported = await desk.request("import", {"project": "proj", "records": [record]})
        assert [each["state"] for each in imported["results"]] == ["refused"]
        await desk.request(
            "transcript", {**batch(0, 10, said("user", f"Again: {LINE} So."), version=0), "session": "another"}
        )
        call = {"project": "proj", "tool": "memory_store", "arguments": {"content": LINE, "path": "memory/again.md"}}
        operation = secrets.token_hex(16)
        early = {**call, "operation": operation, "said": "2020-01-01T00:00:00+00:00", "class": "owner"}
        await denied(own.machine.request("call", early))
        await denied(own.machine.request("call", {**call, "operation": secrets.token_hex(16)}))
        path, key = place(daemon)
        assert not [text for text in residue.texts(path, key) if OWN[0] in text]
        async with own.machine.mcp() as agent:
            again = {"content": LINE, "path": "memory/again.md"}
            assert (await agent.call_tool("memory_store", again)).is_error
            assert not (await agent.call_tool("memory_store", again, meta={"confide/class": "owner"})).is_error
        await desk.put("memory/y.md", f"# New\n\n{LINE}\n")


async def test_what_notes_have_alike_keeps_no_other_note_out(daemon: Serving) -> None:
    """`scope: project` is long enough to be a part, and the only note of a space has it alone; its title and its text are its own."""
    alike = "scope: project\ntags:\n  - harbour-and-sea\ntype: decision\ncreated: 2026-11-29T20:34:58Z\n"
    async with forgetful(daemon) as ann:
        await ann.machine.put(PATH, f"---\ntitle: The marmoset of monday\n{alike}---\n\n{LINE}\n")
        await ann.forget([PATH])
        await ann.machine.put("memory/other.md", f"---\ntitle: Herons\n{alike}---\n\nThe herons stay.\n")
        for title, text in (("The marmoset of monday", "Other."), ("Other", LINE)):
            await denied(ann.machine.put("memory/copy.md", f"---\ntitle: {title}\n{alike}---\n\n{text}\n"))


async def test_a_passage_is_cut_and_files_follow_where_a_person_wants_it(daemon: Serving) -> None:
    """From the newest text and all older ones; a device that was away gets the rest of its file."""
    async with forgetful(daemon) as own, machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        old = f"# Plan\n\nBefore. {LINE} Behind.\n\n<<<<<<< confide: a, revision 1\nx\n"
        await own.machine.put("memory/plan.md", old)
        await own.forget(text=f"{LINE}", file=True)
        found = await desk.request("pull", {"project": "proj", "path": "memory/plan.md"})
        assert found["text"].splitlines()[2] == "Before. . Behind."
        assert (
            "zanzibar"
            not in (await desk.request("pull", {"project": "proj", "path": "memory/plan.md", "revision": 1}))["text"]
        )
        asked = {"project": "proj", "entries": [["memory/plan.md", text_hash(old), 1]], "gone": []}
        answer = await desk.request("compare", asked)
        assert answer["pull"] == [["memory/plan.md", found["revision"], found["hash"]]]
        edited = old + "\nA new line of the desk.\n"
        put = await desk.put("memory/plan.md", edited, base=1)
        assert "zanzibar" not in put["text"]
        assert "A new line of the desk." in put["text"]


async def test_what_a_full_disk_prevents_is_finished_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipt says so; the next opening removes the last trace."""
    real = SpaceTexts.erase

    async def full(_texts: SpaceTexts) -> Any:
        raise StorageError("the disk is full")

    async with serving(tmp_path / "data") as daemon:
        async with forgetful(daemon) as own:
            await plant(own.machine)
            monkeypatch.setattr(SpaceTexts, "erase", full)
            with pytest.raises(RequestError):
                await own.forget([PATH])
            identity, device, given = own.device.identity, own.device, own.given
            signed = own.signed(await own.plan(text=LINE))  # of no meaning: only its form is needed
            record = base64.b64decode(given["record"])
            body = json.loads(record)
            pending = await own.machine.request("forget-receipt", {"id": body["id"]})
            levels = {one["place"]: one["level"] for one in json.loads(base64.b64decode(pending["receipt"]))["places"]}
            assert levels["database"] == "pending"
            assert signed.is_signed
        monkeypatch.setattr(SpaceTexts, "erase", real)
    async with serving(tmp_path / "data") as daemon, forgetful(daemon, identity, device) as own:
        answer = await own.machine.request("forget-take", given)
        assert answer["done"]
        path, key = place(daemon)
        assert OWN[0].encode() not in residue.image(path, key)


async def test_an_older_database_forgets_again_before_it_serves(tmp_path: Path) -> None:
    """One that was put back alone: by the file beside it. One that lacks that, too: by a device's record."""
    async with serving(tmp_path / "data") as daemon, forgetful(daemon) as own:
        await plant(own.machine)
        identity, device = own.device.identity, own.device
        path, key = place(daemon)
    for name in ("", "-wal"):
        if (file := path.with_name(path.name + name)).exists():
            shutil.copyfile(file, tmp_path / f"old{name}")
    async with serving(tmp_path / "data") as daemon, forgetful(daemon, identity, device) as own:
        await own.forget([PATH])
        given = own.given
    for has_file in (True, False):
        path.with_name(path.name + "-wal").unlink(missing_ok=True)
        for name in ("", "-wal"):
            if (tmp_path / f"old{name}").exists():
                shutil.copyfile(tmp_path / f"old{name}", path.with_name(path.name + name))
        if not has_file:
            path.with_suffix(".forgotten").unlink()
        async with serving(tmp_path / "data") as daemon, forgetful(daemon, identity, device) as own:
            answer = await own.machine.request(
                "forget-sync", {"have": [json.loads(base64.b64decode(given["record"]))["id"]]}
            )
            assert bool(answer["wanted"]) != has_file
            if not has_file:
                await own.machine.request("forget-take", given)
            listed = await own.machine.request("documents", {"project": "proj", "path": "", "limit": 100})
            assert PATH not in [each["path"] for each in listed["documents"]]
            await own.machine.request("forget-take", given)
            assert OWN[0].encode() not in residue.image(path, key)


async def test_a_restored_snapshot_forgets_and_older_ones_lose_the_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the records beside the snapshots; the rest of a snapshot stays whole."""
    monkeypatch.setattr(target, "LEAST_FREE", 0)
    monkeypatch.setattr(target, "LEAST_FREE_SHARE", 0)
    async with serving(tmp_path / "data") as daemon:
        backed = Backed(daemon, tmp_path / "target")
        async with forgetful(daemon) as own, machine(daemon, "other", space="others") as other:
            await other.attach()
            await other.put("memory/a.md", "# Of another space\n")
            await plant(own.machine)
            identity, device = own.device.identity, own.device
            old = await backed.take()
            await backed.verify(old.id)
            shutil.copytree(backed.folder(old), tmp_path / "kept" / old.id)
            signed = await own.forget([PATH])
            space_id = backed.space("home")
            row = await (await daemon.daemon.spaces.get(space_id)).forgetting.find(signed.record.id)
            assert row is not None
            before = row.done_at or 0.0
            held = await asyncio.to_thread(backed.backups.held_copies, space_id, before)
            assert [(one.name, one.level) for one in held] == [(old.id, "kept")]
            await backed.backups.keep_records(space_id)
            shutil.copytree(tmp_path / "target" / "forgotten", tmp_path / "kept" / "forgotten")
            assert await backed.backups.drop_copies(space_id, before + 1) == [old.id]
            assert not list(backed.folder(old).rglob(f"{space_id}.*"))
            assert (await backed.verify(old.id))["verdict"] == "proven"
            assert old.id not in [one.name for one in backed.backups.held_copies(space_id, before)]
        code = RecoveryCode.parse(backed.code.to_string())
    snapshot_restore.restore(
        tmp_path / "kept" / old.id,
        type(daemon.state.folder)(tmp_path / "again"),
        ByCode(code),
        config_file=tmp_path / "daemon.toml",
    )
    async with serving(tmp_path / "again") as daemon, forgetful(daemon, identity, device) as own:
        listed = await own.machine.request("documents", {"project": "proj", "path": "", "limit": 100})
        assert {each["path"] for each in listed["documents"]} == {"memory/plan.md", "memory/list.md"}
        with pytest.raises(ConfideError):
            await own.machine.put(PATH, DIARY)


async def test_a_record_counts_only_from_a_device_of_the_space(daemon: Serving) -> None:
    """Signed by it, of this space, and brought by one that reaches everything."""
    async with forgetful(daemon) as own, machine(daemon, "desk", space="home") as desk:
        await desk.attach()
        await plant(own.machine)
        plan = await own.plan([PATH])
        signed = own.signed(plan)
        given = {
            "record": base64.b64encode(signed.data).decode(),
            "signature": signed.signature.hex(),
            "key": plan["key"],
        }
        await denied(desk.request("forget-take", given))
        await denied(desk.request("forget-plan", {"project": "proj", "paths": [PATH]}))
        for wrong in (
            {"signature": "00" * 64},
            {"record": base64.b64encode(signed.data.replace(b'"file":false', b'"file":true')).decode()},
            {"record": base64.b64encode(signed.data[:-1]).decode()},
        ):
            with pytest.raises(RequestError) as caught:
                await own.machine.request("forget-take", {**given, **wrong})
            assert caught.value.code == "invalid"
        assert (await desk.request("forget-sync", {}))["records"] == []


@pytest.mark.parametrize("seed", range(draws(500, 4)))
async def test_nothing_is_left_whatever_is_drawn(tmp_path: Path, seed: int) -> None:
    """A kill at any moment, an older copy, an old device, a transcript, a device's own files (`python -m bench.forget`)."""
    assert (await Schedule(tmp_path, seed).run()).residues == []
