"""What a session does beside answering its agent may fail; the session goes on, says so, and takes it up again."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.documents.closed_folders import closed
from tests.support.network.relay import RecordingRelay
from tests.support.programs.command import confide
from tests.support.programs.pair import joined, pair
from tests.support.programs.processes import CONFIDE, Daemon, running_daemon, wait_until
from tests.support.programs.watch import Watching
from tests.support.programs.wire import Wire

_LIMITS = Path("/proc/sys/user")


def limited(kind: str, most: int) -> type[subprocess.Popen[Any]]:
    """A program in a user namespace that has so many of the kernel's `kind`, and everything else as it is."""
    script = f'echo {most} > {_LIMITS}/{kind}; exec "$@"'

    class Limited(subprocess.Popen[Any]):
        def __init__(self, command: list[str], **more: Any) -> None:
            super().__init__(["unshare", "-Ur", "sh", "-c", script, "sh", *command], **more)

    return Limited


def lower(process: subprocess.Popen[Any], kind: str, most: int) -> None:
    """Set the limit of a program that `limited` has started."""
    enter = ["nsenter", "-t", str(process.pid), "-U", "--preserve-credentials"]
    subprocess.run([*enter, "sh", "-c", f"echo {most} > {_LIMITS}/{kind}"], check=True)


def namespaces() -> bool:
    """Whether this system lets a user have a namespace with limits of its own."""
    if not shutil.which("unshare") or not (_LIMITS / "max_inotify_instances").exists():
        return False
    probe = ["unshare", "-Ur", "sh", "-c", f"echo 1 > {_LIMITS}/max_inotify_instances"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not namespaces(), reason="no user namespaces with limits of their own here")


def events(wire: Wire) -> bool:
    """Whether the process holds watches of inotify, as the kernel has it."""
    found = ""
    for fd in Path(f"/proc/{wire.process.pid}/fdinfo").iterdir():
        try:
            found += fd.read_text()
        except OSError:
            continue
    return "inotify wd:" in found


def warnings(wire: Wire) -> str:
    told: dict[str, Any] = wire.tool("memory_status", {})["structuredContent"]
    return "; ".join(told["warnings"])


def works(wire: Wire, name: str) -> None:
    """An agent's own calls are answered."""
    stored = wire.tool("memory_store", {"content": f"- the heron of {name}", "path": f"memory/{name}.md"})
    assert not stored.get("isError"), stored
    assert name in str(wire.tool("memory_search", {"query": f"the heron of {name}"}))


@needs_namespaces
@pytest.mark.parametrize(
    ("kind", "most"), [("max_inotify_instances", 0), ("max_inotify_instances", 1), ("max_inotify_watches", 2)]
)
def test_a_session_without_events_looks_itself(tmp_path: Path, kind: str, most: int) -> None:
    """No instance of inotify is left, one for two folders, or watches for the first folders alone: all folders are looked at, deep ones
    as well, calls are answered, and `memory_status` says why it is slow."""
    with pair(tmp_path) as (_daemon, ann, bob):
        (ann.project / "memory/x/y/z").mkdir(parents=True)
        with Wire(ann, start=limited(kind, most)) as wire, Wire(bob) as far:
            wire.open()
            far.open()
            works(wire, "first")
            wait_until("the reason", lambda: "no file events for a memory folder" in warnings(wire))
            ann.write("memory/x/y/z/deep.md", "The ibis waits.\n")
            wait_until("the deep file at bob", (bob.project / "memory/x/y/z/deep.md").exists)
            ann.write("MEMORY.md", "The okapi sleeps.\n")
            wait_until("the top at bob", (bob.project / "MEMORY.md").exists)
        assert wire.process.returncode == 0
        assert wire.stderr.count("no file events") <= 2, wire.stderr
        assert "Traceback" not in wire.stderr


@needs_namespaces
def test_a_watch_without_events_looks_itself(tmp_path: Path) -> None:
    """`confide sync --watch` alike, which has no agent and ends by itself as little."""
    with pair(tmp_path) as (_daemon, ann, bob):
        script = f'echo 0 > {_LIMITS}/max_inotify_instances; exec "$@"'
        command = ["unshare", "-Ur", "sh", "-c", script, "sh", CONFIDE, "watch", "--json"]
        with Wire(bob) as far:
            far.open()
            watch = Watching(command, ann)
            try:
                watch.until("compared", project="shared")
                ann.write("memory/a.md", "The heron fishes.\n")
                watch.until("synced", project="shared", sent=1)
                wait_until("the file at bob", (bob.project / "memory/a.md").exists)
                watch.process.terminate()
                assert watch.process.wait(DEADLINE_S) == 0
            finally:
                watch.process.kill()
                watch.process.wait(DEADLINE_S)
                watch.close()


@pytest.fixture(scope="module")
def cable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, RecordingRelay]]:
    """A daemon, and a line to it that breaks where a test says so."""
    folder = tmp_path_factory.mktemp("cable")
    with running_daemon(folder) as daemon, RecordingRelay(daemon.port) as relay:
        yield daemon, relay


@needs_namespaces
def test_a_break_of_the_line_needs_no_new_events(tmp_path: Path, cable: tuple[Daemon, RecordingRelay]) -> None:
    """A session that has its watchers keeps them: instances that others have used up meanwhile cost it nothing."""
    daemon, relay = cable
    relay.mend()
    (ann,) = joined(tmp_path, daemon, "ann", project="kept", port=relay.port)
    with Wire(ann, start=limited("max_inotify_instances", 20)) as wire:
        wire.open()
        works(wire, "first")
        wait_until("watches", lambda: events(wire) and not warnings(wire))
        lower(wire.process, "max_inotify_instances", 0)
        relay.cut()
        relay.mend()
        works(wire, "second")
        wait_until("the comparison", lambda: not warnings(wire))
        assert events(wire)
        ann.write("memory/by_hand.md", "The ibis waits.\n")
        wait_until("the file", lambda: "ibis" in str(wire.tool("memory_search", {"query": "ibis waits"})))
    assert wire.process.returncode == 0


def test_a_session_outlives_a_time_without_descriptors(tmp_path: Path, cable: tuple[Daemon, RecordingRelay]) -> None:
    """No descriptor is left when its line breaks: it cannot come back until there are some, and then it does."""
    daemon, relay = cable
    relay.mend()
    (ann,) = joined(tmp_path, daemon, "eve", project="short", port=relay.port)
    with Wire(ann, start=subprocess.Popen) as wire:
        wire.open()
        works(wire, "first")
        soft, hard = resource.prlimit(wire.process.pid, resource.RLIMIT_NOFILE)
        count = len(os.listdir(f"/proc/{wire.process.pid}/fd"))
        resource.prlimit(wire.process.pid, resource.RLIMIT_NOFILE, (3, hard))
        assert count > 3
        relay.cut()
        relay.mend()
        ann.write("memory/meanwhile.md", "The okapi sleeps.\n")
        assert "isError" in wire.tool("memory_read", {"path": "memory/none.md"})
        resource.prlimit(wire.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        wait_until("the link", lambda: "okapi" in str(wire.tool("memory_search", {"query": "okapi sleeps"})))
        works(wire, "second")
    assert wire.process.returncode == 0


@needs_namespaces
def test_a_state_folder_that_takes_no_writes_ends_nothing(tmp_path: Path) -> None:
    """Calls are answered; the services that need the folder are tried again, each says so once, and `memory_status` as long as it lasts."""
    with pair(tmp_path) as (_daemon, ann, _bob):
        with (ann.home / "proxy.toml").open("a") as file:
            file.write('transcripts = ["claude-code"]\n')
        state = ann.home / "proxy"
        script = f'mount --bind "{state}" "{state}" && mount -o remount,bind,ro "{state}" && exec "$@"'

        class ReadOnly(subprocess.Popen[Any]):
            def __init__(self, command: list[str], **more: Any) -> None:
                super().__init__(["unshare", "-Urm", "sh", "-c", script, "sh", *command], **more)

        with Wire(ann, start=ReadOnly) as wire:
            wire.open()
            works(wire, "first")
            wait_until(
                "the hooks' trouble", lambda: "answering hooks stopped (Read-only file system)" in warnings(wire)
            )
            works(wire, "second")
        assert wire.process.returncode == 0
        assert wire.stderr.count("answering hooks stopped") == 1, wire.stderr
        assert "Traceback" not in wire.stderr


def test_a_folder_that_goes_and_comes_ends_nothing(tmp_path: Path) -> None:
    """The project's folder is removed under a session and made anew: what is put into it then is sent."""
    with pair(tmp_path) as (_daemon, ann, bob):
        with Wire(ann) as wire, Wire(bob) as far:
            wire.open()
            far.open()
            works(wire, "first")
            ann.project.rename(ann.project.with_name("aside"))
            wait_until("an answer", lambda: not wire.tool("memory_search", {"query": "heron"}).get("isError"))
            (ann.project / "memory").mkdir(parents=True)
            ann.write("memory/anew.md", "The ibis waits.\n")
            wait_until("the new file at bob", (bob.project / "memory/anew.md").exists)
        assert wire.process.returncode == 0
        assert "Traceback" not in wire.stderr
        assert "RuntimeWarning" not in wire.stderr


@pytest.mark.parametrize(
    ("trick", "why"),
    [
        ("link", "is a link to a folder that is not there"),
        ("file", "is no folder"),
        ("closed", "cannot be used: Permission denied"),
    ],
)
def test_a_project_goes_on_without_the_memory_of_all_projects(tmp_path: Path, trick: str, why: str) -> None:
    """Whose folder is a link to a disk that is away, or another user's: it is named, and the project's files are sent."""
    with pair(tmp_path) as (_daemon, ann, bob):
        ann.run("store", "- the ibis", "--global", "--path", "memory/birds.md")
        (note,) = ann.home.rglob("birds.md")
        shared, aside = note.parent.parent, tmp_path / "aside"
        ann.write("memory/a.md", "- the heron\n")
        with ExitStack() as stack:
            if trick == "closed":
                stack.enter_context(closed(shared))
            else:
                shared.rename(aside)
                if trick == "link":
                    shared.symlink_to(tmp_path / "unmounted")
                else:
                    shared.write_text("in the way")
                stack.callback(lambda: (shared.unlink(), aside.rename(shared)))
            told = ann.run("sync", code=8)
            assert "1 sent" in told
            assert f"skipped {shared}: {why}" in told
            assert "heron" in ann.run("search", "heron")
            assert "ibis" in ann.run("search", "ibis")
            ann.run("store", "- the newt", "--path", "memory/b.md")
            assert (ann.project / "memory/b.md").read_text() == "- the newt\n"
            if trick != "closed":
                assert f"{shared} {why}" in ann.run("status")
            assert f"{shared} {why.replace('used', 'listed')}" in confide(ann, "doctor").out
        assert "skipped" not in ann.run("sync")
        assert str(shared) not in ann.run("status")
        bob.run("sync")
        assert note.exists()
        assert (bob.project / "memory/b.md").exists()
