"""Which sessions have read text of third parties: by the client's process, for as long as the session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from confide_proxy.hooks import session_marks
from confide_proxy.hooks.session_marks import CLIENT_PID, MOST_FOREIGN, follow, has_read_foreign, note_foreign

OURS, OTHER = str(os.getppid()), "999999"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The state folder, for hooks of the client that started this process."""
    monkeypatch.setenv(CLIENT_PID, OURS)
    monkeypatch.setattr(session_marks, "SHELLS", frozenset())  # tests may be started by one
    return str(tmp_path)


def test_a_session_is_marked_until_the_next_one(state: str) -> None:
    assert not has_read_foreign(state)
    follow(state, "a", is_new=True)
    assert not (Path(state) / "hooks/foreign").exists()
    for _ in range(3):
        note_foreign(state, "a")
        follow(state, "a", is_new=False)
    assert has_read_foreign(state)
    assert len((Path(state) / "hooks/foreign").read_bytes().splitlines()) == 1
    follow(state, "b", is_new=True)
    assert not has_read_foreign(state)
    follow(state, "b", is_new=False)
    assert not has_read_foreign(state)


def test_another_clients_session_marks_nothing_here(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    note_foreign(state, "a")
    monkeypatch.setenv(CLIENT_PID, OTHER)
    note_foreign(state, "b")
    follow(state, "c", is_new=True)
    assert has_read_foreign(state)
    monkeypatch.setenv(CLIENT_PID, OURS)
    follow(state, "d", is_new=True)
    assert not has_read_foreign(state)


def test_a_session_that_goes_on_in_another_process_keeps_its_mark(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLIENT_PID, OTHER)
    note_foreign(state, "a")
    assert not has_read_foreign(state)
    monkeypatch.setenv(CLIENT_PID, OURS)
    follow(state, "a", is_new=False)
    assert has_read_foreign(state)


def test_names_that_no_client_uses(state: str) -> None:
    """The client's process is marked all the same."""
    for number, name in enumerate(("", "x" * 200, "a\nb", "é", "two words", "+", f"p:{OTHER}")):
        note_foreign(state, name)
        assert has_read_foreign(state)
        follow(state, f"next{number}", is_new=True)
        assert not has_read_foreign(state)
    assert not session_marks._is_foreign(state, f"p:{OTHER}".encode())


def test_a_damaged_or_large_file(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newer half stays; lines of no form mark nobody; a client's process that is no number is not believed."""
    file = Path(state) / "hooks/foreign"
    file.parent.mkdir()
    file.write_bytes(b"\xff\n+\n\n-\n" + b"+ s:old p:1\n" * (MOST_FOREIGN // 10))
    assert not has_read_foreign(state)
    note_foreign(state, "a")
    assert has_read_foreign(state)
    assert file.stat().st_size < MOST_FOREIGN
    monkeypatch.setenv(CLIENT_PID, "1e3; rm")
    note_foreign(state, "b")
    file.unlink()
    file.mkdir()
    note_foreign(state, "a")
    follow(state, "a", is_new=True)
    assert not has_read_foreign(state)


def test_a_shell_between_is_not_the_client(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = {10: (9, "sh"), 9: (8, "bash"), 8: (1, "claude"), 1: (0, "init")}
    monkeypatch.setattr(session_marks, "SHELLS", frozenset({"sh", "bash"}))
    monkeypatch.setattr(session_marks, "_parent", lambda pid: parents.get(pid, (0, "")))
    monkeypatch.setenv(CLIENT_PID, "10")
    note_foreign(state, "a")
    assert session_marks._is_foreign(state, b"p:8")
