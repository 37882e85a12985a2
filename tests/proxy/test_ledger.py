"""What the daemon has confirmed, remembered over restarts and lost without harm."""

from __future__ import annotations

from pathlib import Path

from confide_proxy.ledger import Confirmed, Ledger

STATE = Confirmed("h", 3, 10, 99)


def test_remembers_by_space_and_folder(tmp_path: Path) -> None:
    """Another space or another folder knows nothing of it."""
    ledger = Ledger(tmp_path / "l.db", "space", tmp_path)
    ledger.set("memory/a.md", STATE)
    ledger.close()
    again = Ledger(tmp_path / "l.db", "space", tmp_path)
    assert again.all() == {"memory/a.md": STATE}
    assert again.get("memory/a.md") == STATE
    others = [Ledger(tmp_path / "l.db", "other", tmp_path), Ledger(tmp_path / "l.db", "space", tmp_path / "x")]
    assert [other.all() for other in others] == [{}, {}]
    again.forget("memory/a.md")
    assert again.get("memory/a.md") is None
    for each in (again, *others):
        each.close()


def test_a_damaged_ledger_is_replaced(tmp_path: Path) -> None:
    """It is derived: garbage in its file costs a comparison, not a failure."""
    (tmp_path / "l.db").write_bytes(b"not a database" * 1000)
    ledger = Ledger(tmp_path / "l.db", "space", tmp_path)
    ledger.set("memory/a.md", STATE)
    assert ledger.get("memory/a.md") == STATE
    ledger.close()
