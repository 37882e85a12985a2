"""`confided` of the version after this one: this tree, with a step more of the registry and of every space."""

from __future__ import annotations

from pathlib import Path

from tests.support.programs.released import PACKAGES, ROOT, script

import confide_daemon

VERSION = "9.9.9"
REGISTRY_STEP = """ALTER TABLE callers ADD COLUMN colour TEXT;
UPDATE callers SET colour = 'of ' || alias;
CREATE TABLE shades (name TEXT PRIMARY KEY, shade TEXT NOT NULL);
INSERT INTO shades VALUES ('first', 'grey');
"""
"""What the one before cannot read: a column of a table that it knows, and a table."""
SPACE_STEP = """ALTER TABLE document ADD COLUMN colour TEXT;
UPDATE document SET colour = 'of ' || path;
"""
_SQL = {"access": REGISTRY_STEP, "store": SPACE_STEP}


def newer(folder: Path) -> str:
    """Its program, made in `folder`."""
    ours = Path(confide_daemon.__file__).parent
    package = folder / "confide_daemon"
    package.mkdir(parents=True)
    for path in ours.iterdir():
        if path.name in _SQL:
            _with_a_step(path, package / path.name)
        elif path.name != "__init__.py":
            (package / path.name).symlink_to(path)
    text = (ours / "__init__.py").read_text()
    (package / "__init__.py").write_text(text.replace(confide_daemon.__version__, VERSION))
    packages = [str(ROOT / name) for name in PACKAGES if name != "daemon"]
    return script(folder / "confided", [str(folder), *packages], "confide_daemon")


def _with_a_step(ours: Path, theirs: Path) -> None:
    (theirs / "sql").mkdir(parents=True)
    for path in ours.iterdir():
        if path.name != "sql":
            (theirs / path.name).symlink_to(path)
    steps = sorted((ours / "sql").glob("[0-9]*.sql"))
    for path in steps:
        (theirs / "sql" / path.name).symlink_to(path)
    number = int(steps[-1].name[:4]) + 1
    (theirs / "sql" / f"{number:04}_fixture.sql").write_text(_SQL[ours.name])
