"""A folder's markdown is sent by a person's word for that folder, and taken back off the daemon by another one (docs/history.md)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.processes import Daemon, Inside, Machine, running_daemon

from confide_proxy.hooks.server import usage

DIARY = "Private/Diary.md"
SECRET = "The zanzibar plan begins at dawn."


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running_daemon(tmp_path) as daemon:
        yield daemon


def joined(root: Path, daemon: Daemon, name: str, *options: str) -> Machine:
    machine = Inside(root, name)
    machine.call_project("vault")
    machine.run("join", daemon.invite(name, *options))
    return machine


def choose(machine: Machine, folder: Path, extra: str = '["**/*.md"]') -> None:
    (machine.home / "proxy.toml").write_text(f'[folders."{folder}"]\nextra = {extra}\n')


def paths(machine: Machine) -> set[str]:
    return {each["path"] for each in machine.json("ls", "--limit", "100")["documents"]}


def test_a_word_for_one_folder_sends_nothing_of_another(daemon: Daemon, tmp_path: Path) -> None:
    """And an `extra` for all folders, of an earlier version, goes on where files of it went up, and begins nowhere."""
    ann = joined(tmp_path, daemon, "ann")
    ann.write("Inbox.md", "# Inbox\n\nBuy milk.\n")
    ann.write(DIARY, f"# Diary\n\n{SECRET}\n")
    choose(ann, ann.project)
    assert "2 compared, 2 sent" in ann.run("sync")
    assert "Inbox.md" in ann.run("search", "milk")
    other = tmp_path / "client"
    (other / "docs").mkdir(parents=True)
    (other / "docs/design.md").write_text("# Design\n\nOf a client.\n")
    (other / ".confide.toml").write_text('name = "client"\n')
    assert "0 compared" in ann.run("sync", "--project", str(other))
    (ann.home / "proxy.toml").write_text('extra = ["**/*.md"]\n')
    assert "0 compared" in ann.run("sync", "--project", str(other))
    ann.write("New.md", "# New\n\nOf today.\n")
    assert "3 compared, 1 sent" in ann.run("sync")
    told = re.sub(r"\s+", " ", ann.run("doctor"))
    assert "of an earlier version, and holds here" in told
    assert '[folders."~/project"] extra = ["**/*.md"]' in told


def test_what_went_up_by_mistake_is_taken_back(daemon: Daemon, tmp_path: Path) -> None:
    """Off the daemon at once, from search, history and what can be restored; no machine sends it again, and all keep their files."""
    ann = joined(tmp_path, daemon, "ann")
    bob = joined(tmp_path, daemon, "bob", "--space", "ann")
    for machine in (ann, bob):
        choose(machine, machine.project)
        machine.write("Inbox.md", "# Inbox\n\nBuy milk.\n")
        machine.write(DIARY, f"# Diary\n\n{SECRET}\n")
        machine.run("sync")
    ann.write("memory/log.md", f"- {SECRET}\n")
    ann.run("sync")
    bob.run("sync")
    assert "1 file of vault would be forgotten" in ann.run("forget", DIARY, "--dry-run")
    assert "zanzibar" in ann.run("search", "zanzibar")
    assert "2 files of vault forgotten" in ann.run("forget", "Private", "memory/*.md", "--yes")
    for machine in (ann, bob):
        assert "zanzibar" not in machine.run("search", "zanzibar", "--min-score", "0")
        machine.run("history", DIARY, code=7)
        machine.run("restore", DIARY, code=7)
        assert DIARY not in machine.run("deleted")
        told = machine.run("sync")
        assert "2 files are not sent, because you had them forgotten: Private/Diary.md, memory/log.md" in told
        # Also one that is changed, and one that is new there.
        machine.write(DIARY, f"# Diary\n\n{SECRET} And ends at dusk.\n")
        machine.write(f"Private/{machine.name}.md", f"# More\n\n{SECRET}\n")
        machine.run("sync")
        assert machine.json("status")["pendingUploads"] == 0
        assert SECRET in (machine.project / DIARY).read_text()
        assert SECRET in (machine.project / "memory/log.md").read_text()
        assert paths(machine) == {"Inbox.md"}
    assert "forgotten" in ann.run("store", "- new", "--path", "memory/log.md", code=6)
    # And back, by a word of its own.
    assert "nothing of vault was forgotten under that name" in ann.run("forget", "--undo", DIARY)
    assert "Private of vault can be sent again" in ann.run("forget", "--undo", "Private")
    ann.run("sync")
    assert paths(ann) == {"Inbox.md", DIARY, "Private/ann.md"}


def counted(machine: Machine, *paths: str) -> None:
    """Count that an agent was shown these."""
    file, shown = usage.UsageFile(machine.home / "proxy"), [usage.ShownNote("vault", path) for path in paths]
    file.add(lambda state: state.show(usage.PROMPT, shown, tokens=1, now=time.time()))
    file.flush()


def test_a_whole_project_is_forgotten(daemon: Daemon, tmp_path: Path) -> None:
    """By its name, from any folder; it is in no list, and its folder sends nothing more."""
    ann = joined(tmp_path, daemon, "ann")
    for number in range(130):
        ann.write(f"memory/{number}.md", f"# {number}\n\n{SECRET}\n")
    ann.run("sync")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".confide.toml").write_text('name = "elsewhere"\n')
    where = ("--project", "vault", "--yes")
    ann.run("forget", "--yes", code=2)
    ann.run("forget", "", "--yes", code=2)
    ann.run("forget", "--project", "valt", "--yes", code=7)
    assert "run it in a terminal, or with --yes" in ann.run("forget", "--project", "vault", code=7)
    counted(ann, "memory/1.md", "memory/2.md")
    assert "130 files of vault forgotten" in ann.run("forget", *where)
    assert usage.UsageFile(ann.home / "proxy").refresh().notes == {}
    assert [each["name"] for each in ann.json("projects")["projects"]] == []
    ann.write("memory/new.md", "# New\n")
    assert "131 files are not sent, because you had them forgotten" in ann.run("sync")
    assert len(list((ann.project / "memory").iterdir())) == 131
    ann.run("forget", "--project", ".", "--undo")
    assert "131 sent" in ann.run("sync")


def test_what_is_no_memory_any_more_is_deleted_and_told_of_in_one_line(daemon: Daemon, tmp_path: Path) -> None:
    """`rm` deletes it on the daemon, to come back for a while; what is indexed where it is stays a file as any other."""
    ann = joined(tmp_path, daemon, "ann")
    choose(ann, ann.project)
    for number in range(40):
        ann.write(f"Daily/{number}.md", f"# Day {number}\n")
    ann.write(DIARY, f"# Diary\n\n{SECRET}\n")
    ann.run("sync")
    assert "confide forget" in ann.run("rm", DIARY, "--yes", code=7)
    (ann.home / "proxy.toml").write_text("")
    told = ann.run("sync")
    assert "41 files are on the daemon, but not memory on this device: Daily/0.md" in told
    assert told.count("Daily/") == 3
    assert "confide forget" in told
    counted(ann, DIARY, "memory/other.md")
    assert f"deleted {DIARY}" in ann.run("rm", DIARY, "--yes")
    assert list(usage.UsageFile(ann.home / "proxy").refresh().notes) == ["vault\0memory/other.md"]
    assert "zanzibar" not in ann.run("search", "zanzibar", "--min-score", "0")
    assert SECRET in (ann.project / DIARY).read_text()
    assert "restored" in ann.run("restore", DIARY)
    assert "zanzibar" in ann.run("search", "zanzibar")


def test_a_text_is_forgotten_on_every_device_and_its_receipt_is_checked(daemon: Daemon, tmp_path: Path) -> None:
    """From stdin; a call that waited on another device loses it at the next connection; a changed receipt is refused."""
    ann = joined(tmp_path, daemon, "ann")
    bob = joined(tmp_path, daemon, "bob", "--space", "ann")
    ann.write("memory/a.md", f"# A\n\nBefore.\n\n{SECRET}\n")
    ann.run("sync")
    bob.run("sync")
    assert SECRET in (bob.project / "memory/a.md").read_text()
    assert "1 file would be forgotten" in ann.run("forget", "--text", "-", "--dry-run", stdin=SECRET)
    ann.run("forget", "--text", "-", stdin=SECRET, code=7)
    ann.run("forget", "--text", "too short", "--yes", code=2)
    told = ann.run("forget", "--text", "-", "--file", "--yes", stdin=SECRET)
    assert "1 file forgotten" in told
    receipt = Path(re.sub(r"\s+", "", told.partition("receipt:")[2]))
    assert "both signatures are good" in ann.run("forget", "--verify", str(receipt))
    assert b"zanzibar" not in receipt.read_bytes()
    for machine in (ann, bob):
        machine.run("sync")
        assert "zanzibar" not in (machine.project / "memory/a.md").read_text()
        assert "Before." in (machine.project / "memory/a.md").read_text()
        machine.write("memory/b.md", f"# B\n\n> {SECRET}\n")
        machine.run("sync")
        assert "zanzibar" not in (machine.project / "memory/b.md").read_text()
    assert "zanzibar" not in ann.run("search", "zanzibar", "--min-score", "0")
    assert "device, bob: gone when" not in (now := ann.run("forget", "--verify", str(receipt)))
    assert now.count(": gone") >= 2
    receipt.write_bytes(receipt.read_bytes().replace(b'"gone"', b'"kept"', 1))
    assert "it was changed" in ann.run("forget", "--verify", str(receipt), code=7)
