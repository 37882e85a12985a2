"""Notes that know what they are true of, through a real session and a real daemon."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs.processes import Machine, wait_until
from tests.support.programs.wire import Wire

AUTH = '''"""Sign-in."""


def login(user):
    # first the lock
    return user.name


def logout(user):
    return None
'''


def test_a_note_is_tied_marked_and_confirmed(tmp_path: Path) -> None:
    """A store ties the note to the function that it names; a search says when that is another one, in this checkout
    alone, and a change of the note confirms it.
    """
    machine = Machine(tmp_path, "ann")
    source = machine.project / "src/auth.py"
    source.parent.mkdir(parents=True)
    source.write_text(AUTH)
    machine.write("MEMORY.md", "# Notes\n")
    try:
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            stored = wire.tool(
                "memory_store",
                {"content": "`login()` in src/auth.py takes the lock before the cache", "title": "Order of locks"},
            )
            (file,) = (machine.project / "memory/notes").glob("*.md")
            head = file.read_text()
            assert "src/auth.py#login: " in head
            assert "lock" in head

            def found() -> str:
                return wire.tool("memory_search", {"query": "login lock before the cache"})["content"][0]["text"]

            assert "order" in file.name
            assert "Stored in" in str(stored)
            wait_until("the note to be found", lambda: "takes the lock" in found())
            assert "changed since" not in found()
            source.write_text(AUTH.replace("# first the lock", "# why").replace("return None", "return 1"))
            assert "changed since" not in found()
            source.write_text(AUTH.replace("user.name", "user.id"))
            assert "changed since" in found()
            assert "src/auth.py#login" in found()
            read = wire.tool("memory_read", {"path": f"memory/notes/{file.name}"})["content"][0]["text"]
            assert "changed since" in read.split("\n")[0]
            assert "user" not in head
            source.unlink()
            assert "· gone: src/auth.py#login" in found()

            source.write_text(AUTH.replace("user.name", "user.id"))
            said = found()
            short = next(line.split(" ")[0] for line in said.split("\n") if line.startswith("mem_"))
            wire.tool("memory_update", {"id": short, "tags": ["locks"]})
            assert "changed since" not in found()
    finally:
        machine.stop_local_daemon()


def test_a_note_that_a_person_saves_is_tied(tmp_path: Path) -> None:
    """By what its field `about` names, or its text; what was seen before stays as it was, and what git tracks is left alone."""
    machine = Machine(tmp_path, "ann")
    source = machine.project / "src/auth.py"
    source.parent.mkdir(parents=True)
    source.write_text(AUTH)
    try:
        with Wire(machine) as wire:
            wire.open()
            wire.tool("memory_sync", {})
            file = machine.write(
                "memory/notes/lock.md", "---\ntitle: Lock\nabout: src/auth.py#login\n---\n\nFirst the lock.\n"
            )
            wait_until("the note to be tied", lambda: "  src/auth.py#login: " in file.read_text())
            before = file.read_text()
            assert before.endswith("---\n\nFirst the lock.\n")
            source.write_text(AUTH.replace("user.name", "user.id"))
            file.write_text(before.replace("the lock", "a lock"))
            wait_until(
                "the daemon to have it",
                lambda: "a lock" in str(wire.tool("memory_read", {"path": "memory/notes/lock.md"})),
            )
            read = wire.tool("memory_read", {"path": "memory/notes/lock.md"})["content"][0]["text"]
            assert "changed since" in read.split("\n")[0]
            assert file.read_text() == before.replace("the lock", "a lock")
    finally:
        machine.stop_local_daemon()
