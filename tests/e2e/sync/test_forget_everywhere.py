"""A sentence is forgotten that is on three devices, in a transcript, on two nodes over a PostgreSQL, and in a backup (docs/forgetting.md).

Nothing is asked of Confide about what is left: the test reads every byte, and a second reader of receipts, which has no code of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.chaos.cables import Cable
from tests.interop import receipts
from tests.support.daemon import residue
from tests.support.daemon.postgres import Postgres, server
from tests.support.documents.transcripts import ClaudeSession
from tests.support.kills.forget_nodes_schedule import WAL
from tests.support.programs.forked import run
from tests.support.programs.nodes import Node, Nodes, several
from tests.support.programs.processes import (
    COMMAND_DEADLINE_S,
    CONFIDED,
    NO_MODEL,
    SERVER_KEEPS,
    Daemon,
    Inside,
    Machine,
)

from confide_daemon.access.registry import open_state
from confide_daemon.datadir.paths import DataFolder
from confide_daemon.spaces.custodian import Custodian

SENTENCE = "The quillfeather ledger is kept beneath the zanzibar stairs."
WORDS = ("quillfeather", "zanzibar")
NOTE = "memory/house.md"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with server(settings=WAL) as found:
        yield found


def joined(root: Path, node: Node, port: int, name: str, *options: str) -> Machine:
    """A machine that the operator lets in; the first one makes the space. `port`: where it finds the nodes."""
    url = f"confide://127.0.0.1:{port}"
    return with_invite(root, name, node.json("invite", name, "--no-wait", "--url", url, *options)["invite"])


def with_invite(root: Path, name: str, invite: str) -> Machine:
    machine = Inside(root, name)
    machine.call_project("house")
    machine.run("join", invite)
    return machine


def opened(folder: DataFolder) -> Iterator[bytes]:
    """The databases of the space in a data folder, as somebody reads them who has its keys."""
    with closing(open_state(folder, as_it_is=True)) as state:
        space_id = state.registry.spaces()["ann"]
        path = state.folder.space(space_id)
        number = Custodian(space_id, state.folder, state.master).custody.key.number
        key = state.master.space_key(space_id, number)
    if path.exists():
        yield residue.image(path, key)
        yield "\n".join([*residue.texts(path, key), *residue.words(path, key)]).encode()


def places_with_it(root: Path, *data: DataFolder, but: Path) -> set[str]:
    """Where a word of the sentence is: files below `root`, and opened databases. `but`: what its owner keeps."""
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*")
        if file.is_file() and not file.is_relative_to(but) and has_it(file.read_bytes())
    }
    return found | {f"opened {folder.root}" for folder in data if any(has_it(image) for image in opened(folder))}


def has_it(data: bytes) -> bool:
    folded = data.lower()
    return any(word.encode() in folded or word.encode("utf-16-le") in folded for word in WORDS)


def test_nothing_of_a_sentence_is_left_anywhere_and_a_stranger_can_check(postgres: Postgres, tmp_path: Path) -> None:
    """One device is offline meanwhile, and an older copy of the backup is restored afterwards."""
    backups = tmp_path / "backups"
    with several(tmp_path, postgres, count=0) as nodes:
        first = nodes.add(more=f'{SERVER_KEEPS}[backup]\nto = "{backups}"\n')
        second = nodes.add()
        balancer = Cable(first.port)
        ann = joined(tmp_path, first, balancer.port, "ann")
        names = ("bob", "cleo")
        bob, cleo = (
            with_invite(tmp_path, name, ann.json("device", "invite", name, "--no-wait")["invite"]) for name in names
        )
        waiting = joined(tmp_path, first, balancer.port, "waiting", "--space", "ann")
        ann.run("sync")
        balancer.lead_to(second.port)
        own_copy = Path(ann.env["HOME"]) / ".claude"
        (ann.home / "proxy.toml").write_text('transcripts = ["claude-code"]\ntranscript_quiet_s = 1\n')
        talk = ClaudeSession(own_copy / "projects", ann.project)
        talk.user(f"Do you know this? {SENTENCE} Remember it.")
        os.utime(talk.path, (0, 0))
        ann.write(NOTE, f"# House\n\nThe cellar is dry.\n\n{SENTENCE}\n")
        for machine in (ann, bob, cleo, waiting):
            machine.run("sync")
            assert SENTENCE in (machine.project / NOTE).read_text()
        assert "sent" in ann.run("learn", "transcripts")
        code = first.json("backup", "init", "--to", str(backups))["recoveryCode"]
        first.run("backup")
        shutil.copytree(backups, tmp_path / "elsewhere")
        before = places_with_it(tmp_path, first.folder, second.folder, but=own_copy)
        assert {"ann/project/memory/house.md", "cleo/project/memory/house.md"} <= before, (
            "the search finds what is there"
        )
        assert [place for place in before if place.startswith("opened")], "also in what is encrypted"

        # Cleo is offline, and Ann comes by the other node.
        balancer.lead_to(first.port)
        told = ann.run("forget", "--text", "-", "--file", "--backups", "--yes", stdin=SENTENCE)
        receipt = Path(re.sub(r"\s+", "", told.partition("receipt:")[2]))
        bob.run("sync")
        levels = checked(receipt)
        assert "still in" not in told
        assert (levels["cleo"], levels["waiting"]) == ("gone when it connects", "not known")
        assert "kept" not in levels.values()
        assert "device, cleo: goes when it connects" in ann.run("forget", "--verify", str(receipt))
        left = places_with_it(tmp_path, first.folder, second.folder, but=own_copy)
        assert {place for place in left if not place.startswith(("cleo/", "waiting/"))} == set(), told

        # Cleo comes back by the second node, with an edit of the old note and a copy of it.
        balancer.lead_to(second.port)
        cleo.write("memory/copied.md", f"# Copied\n\n> {SENTENCE}\n")
        for machine in (cleo, ann, bob):
            machine.run("sync")
            assert "The cellar is dry." in (machine.project / NOTE).read_text()
        now = ann.run("forget", "--verify", str(receipt))
        for name in ("ann", "bob", "cleo"):
            assert f"device, {name}: gone\n" in now, now
        left = places_with_it(tmp_path, first.folder, second.folder, but=own_copy)
        assert {place for place in left if not place.startswith("waiting/")} == set()
        in_postgres(nodes)

    an_older_copy_is_restored(tmp_path, code, balancer, (ann, bob), own_copy)
    balancer.close()


def checked(receipt: Path) -> dict[str, str]:
    """The level of each place, as the second reader's program says; it refuses the receipt with a changed byte."""
    command = [sys.executable, "-m", "tests.interop.receipts", str(receipt)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    data = receipt.read_bytes()
    assert not has_it(data)
    with pytest.raises(receipts.RefusedError):
        receipts.read(data.replace(b'"gone"', b'"kept"', 1))
    places = (line.partition(" ")[2].rpartition(": ") for line in done.stdout.splitlines())
    return {name: level for name, _, level in places}


def in_postgres(nodes: Nodes) -> None:
    """PostgreSQL has never seen it in clear: tables, indexes, write-ahead log."""
    nodes.sql("CHECKPOINT")
    assert [file for file in nodes.postgres.files.rglob("*") if file.is_file() and has_it(file.read_bytes())] == []


def an_older_copy_is_restored(
    root: Path, code: str, address: Cable, machines: Sequence[Machine], own_copy: Path
) -> None:
    """The snapshot from before, from a place that Confide does not know, on a new server: the first device has it forget again."""
    (snapshot,) = (each for each in (root / "elsewhere").iterdir() if re.fullmatch(r"\d{4}-.*Z", each.name))
    new = root / "new"
    (new / "server-home").mkdir(parents=True)
    (new / "server-home/daemon.toml").write_text(NO_MODEL + SERVER_KEEPS)  # without a store
    env = {**machines[0].env, "HOME": str(new), "CONFIDE_HOME": str(new / "server-home")}
    command = [CONFIDED, "restore", str(snapshot), "--code", "--data", str(new / "server")]
    done = run(command, env=env, input=f"{code}\n", timeout=COMMAND_DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    restored = Daemon(new, opens_itself=True)
    restored.start()
    address.lead_to(restored.port)
    try:
        for machine in machines:
            machine.run("sync")
            for word in WORDS:
                assert word not in machine.run("search", word, "--min-score", "0")
            assert SENTENCE not in (machine.project / NOTE).read_text()
    finally:
        restored.stop()
    left = places_with_it(root, DataFolder(new / "server"), but=own_copy)
    assert {place for place in left if not place.startswith("waiting/")} == set()
