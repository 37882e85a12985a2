"""The recorded terminal session of the README is what the commands print today."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs.session_picture import draw, record, shown

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "session.svg"


def test_the_recorded_session_is_a_real_one(tmp_path: Path) -> None:
    """Run the session again and compare its text. If a message changed, draw the picture again: see `session_picture`."""
    drawn = tmp_path / "session.svg"
    drawn.write_text(draw(record(tmp_path)), encoding="utf-8")
    assert shown(drawn) == shown(PICTURE)
