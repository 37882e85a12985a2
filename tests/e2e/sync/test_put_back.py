"""A daemon's data folder is put back from an older copy, and a machine says so: the real programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.programs.pair import joined
from tests.support.programs.processes import NO_MODEL, Daemon, running_daemon, wait_until
from tests.support.programs.wire import Wire

KEY_FILES = ("identity.key", "identity.previous.key", "rotation.json")
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"


def put_back(daemon: Daemon, copy: Path) -> None:
    daemon.stop()
    shutil.rmtree(daemon.data)
    shutil.copytree(copy, daemon.data)
    daemon.start()


def copied(daemon: Daemon, copy: Path) -> Path:
    daemon.stop()
    shutil.copytree(daemon.data, copy)
    daemon.start()
    return copy


@pytest.mark.parametrize("by_session", [False, True])
def test_a_machine_tells_what_became_of_its_files(tmp_path: Path, by_session: bool) -> None:
    """To which time, how many files it sent again, and which deleted ones came back; said once, whoever compares the files."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        ann.write("memory/kept.md", "kept\n")
        ann.write("memory/old.md", "old\n")
        ann.run("sync")
        assert "wentBack" not in ann.json("status")
        copy = copied(daemon, tmp_path / "copy")
        (ann.project / "memory/old.md").unlink()
        ann.write("memory/kept.md", f"kept\n\nand added, with {TOKEN}\n")
        ann.write("memory/new.md", "new\n")
        ann.run("sync")
        put_back(daemon, copy)
        if by_session:
            with Wire(ann) as wire:
                wire.open()
                wait_until(
                    "the files to be compared", lambda: (ann.json("status").get("wentBack") or {}).get("sentAgain")
                )
        else:
            ann.run("sync")
        told = ann.json("status")["wentBack"]
        assert (told["sentAgain"], told["cameBack"]) == (2, ["memory/old.md"])
        assert told["backTo"] is not None
        assert "2 files sent again; came back though deleted: memory/old.md" in ann.run("status")
        assert (ann.project / "memory/old.md").read_text() == "old\n"
        assert "and added" in ann.json("read", "memory/kept.md")["content"]
        assert [one["kind"] for one in ann.json("secrets", "ls")] == ["github-token"]
        ann.run("sync")
        assert ann.json("status")["wentBack"] == told


def test_a_copy_from_before_the_daemons_key_change(tmp_path: Path) -> None:
    """Machines that follow the new key refuse it, and nothing goes up. With the files of the key they come in by themselves; without them a
    person pins the old key and confirms the space's words."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        ann.write("memory/a.md", f"kept, with {TOKEN}\n")
        ann.run("sync")
        copy = copied(daemon, tmp_path / "copy")
        old_key = daemon.run("key").strip()
        daemon.run("key", "--new")
        ann.write("memory/b.md", "of the lost time\n")
        ann.run("sync")
        words = ann.json("device", "ls")["space"]["headWords"]
        backup = tmp_path / "keys"
        backup.mkdir()
        for name in KEY_FILES:
            shutil.copy2(daemon.data / name, backup)

        put_back(daemon, copy)
        told = ann.run("sync", code=6)
        assert "this endpoint does not hold the pinned key" in told
        assert "put back" in told
        assert "put back" in ann.run("store", "said meanwhile", "--path", "memory/c.md", code=6)
        daemon.stop()
        for name in KEY_FILES:
            shutil.copy2(backup / name, daemon.data)
        daemon.start()
        ann.run("sync")
        assert ann.json("status")["wentBack"]["sentAgain"] == 1
        assert ann.json("history", "memory/b.md")

        put_back(daemon, copy)
        ann.run("sync", code=6)
        ann.run("pin", f"ws://127.0.0.1:{daemon.port}/", old_key)
        assert "confide device confirm" in ann.run("sync", code=5) + ann.run("device", "ls")
        ann.run("device", "confirm", "--words", words)
        ann.run("sync")
        assert "of the lost time" in ann.json("read", "memory/b.md")["content"]
        assert [one["kind"] for one in ann.json("secrets", "ls")] == ["github-token"]


@pytest.mark.parametrize("starts_between", [False, True])
def test_revocations_outlive_a_new_key_of_the_daemons(tmp_path: Path, starts_between: bool) -> None:
    """A daemon that ran through the rotation has signed with both keys, one that was started since with the new one alone: an older copy
    does not start before it has that."""
    backups = tmp_path / "backups"
    (tmp_path / "server-home").mkdir()
    backups.mkdir()
    (tmp_path / "server-home/daemon.toml").write_text(f'{NO_MODEL}[backup]\nrevoked = "{backups}"\n')
    with running_daemon(tmp_path) as daemon:
        ann, bob = joined(tmp_path, daemon, "ann", "bob")
        copy = copied(daemon, tmp_path / "copy")
        daemon.run("key", "--new")
        for machine in (ann, bob):
            machine.run("status")
        if starts_between:
            daemon.stop()
            daemon.start()
        daemon.run("device", "rm", "bob")
        daemon.stop()
        daemon.run("key", "--end-old")
        shutil.copy2(daemon.data / "identity.key", tmp_path)
        if starts_between:
            with pytest.raises(AssertionError, match="older than the daemon's last new key"):
                put_back(daemon, copy)
        else:
            put_back(daemon, copy)
            daemon.stop()
        shutil.copy2(tmp_path / "identity.key", daemon.data)
        daemon.start()
        ann.run("sync")
        assert "was revoked" in bob.run("sync", code=6)


def test_a_daemon_that_only_starts_again_is_not_told_of(tmp_path: Path) -> None:
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        for number in range(3):
            ann.write("memory/a.md", f"{number}\n")
            ann.run("sync")
            daemon.kill()
            daemon.start()
        ann.run("sync")
        assert "wentBack" not in ann.json("status")


def test_a_session_keeps_a_receipt_of_what_it_did(tmp_path: Path) -> None:
    """Without a command: what an agent stored just before the folder is put back tells that it was."""
    with running_daemon(tmp_path) as daemon:
        (ann,) = joined(tmp_path, daemon, "ann")
        ann.run("sync")
        receipt = ann.home / "proxy" / "receipt.json"
        with Wire(ann) as wire:
            wire.open()
            wire.tool("memory_status", {})
            copy = copied(daemon, tmp_path / "copy")
            wait_until("the link", lambda: not wire.tool("memory_store", {"content": "said"})["isError"])
            before = receipt.read_text()
            wait_until("a fresh receipt", lambda: receipt.read_text() != before)
            put_back(daemon, copy)
            wait_until("it to be found", lambda: (ann.json("status").get("wentBack") or {}).get("sentAgain"))


def test_an_agent_s_number_of_the_lost_time_is_no_other_text_s(tmp_path: Path) -> None:
    """It knows revision 2, which is lost; bob's text gets another number, so that the agent does not overwrite it by that."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = joined(tmp_path, daemon, "ann", "bob")
        path = ann.json("store", "the harbour is at Whitby")["path"]
        bob.run("sync")
        copy = copied(daemon, tmp_path / "copy")
        lost = ann.json("store", "and has a crane")["revision"]
        ann.run("sync")
        put_back(daemon, copy)
        ann.run("status")
        (ann.project / path).unlink()
        bob.run("sync")
        with (bob.project / path).open("a") as file:
            file.write("and a lighthouse\n")
        bob.run("sync")
        given = [one["revision"] for one in bob.json("history", path)["revisions"]]
        assert given[0] > lost
        assert lost not in given
