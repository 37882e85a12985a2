"""The terminal session of the README, run for real and drawn as an SVG.

    python -m tests.support.programs.session_picture docs/pictures/session.svg

Each command runs in a shell, in the folder of a new project, with the packaged model. Times, days and ids in the output
are replaced by fixed ones, so that two runs of one version give the same bytes.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from tests.support.programs.forked import BIN, run
from tests.support.programs.processes import COMMAND_DEADLINE_S, Machine, wait_until

PROMPT: Final = "$ "
TOKEN: Final = "ghp_" + "R7dQ2mXw9KcT4bLz8VnY3sHf6JpA1eGu5ioM"
"""Made up, it opens nothing; in two parts, so that no scanner takes it for a real one."""
COMMANDS: Final = (
    'confide store "We chose postgres over mysql for its row locks."',
    'confide search "can we move the shop to mysql?"',
    f'echo "The token of the deploy bot is {TOKEN}" | confide store - --path memory/bot.md',
    'confide search "deploy bot"',
    "confide rm memory/bot.md --yes",
    "confide restore memory/bot.md",
)
"""What the picture shows, in this order."""
FIXED: Final = (
    (re.compile(r"until \d{4}-\d\d-\d\d \d\d:\d\d UTC"), "until 2027-02-23 10:42 UTC"),
    (re.compile(r"(?<!until )\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "2026-11-25 10:42 UTC"),
    (re.compile(r"memory/\d{4}-\d\d-\d\d\.md"), "memory/2026-11-25.md"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "95c8d3f0b1a24e6d8f7c5b3a19e0d246"),
    (re.compile(re.escape(TOKEN)), f"{TOKEN[:8]}…"),
)
"""Text that differs from run to run, and what the picture shows instead; the token is shortened."""
COLUMNS: Final = 104
FONT_PX: Final = 13
LINE_PX: Final = 19
CHARACTER_PX: Final = 7.83
MARGIN_PX: Final = 18
LINE_S: Final = 0.25
"""Seconds between two lines where the picture is animated."""
STYLE: Final = """
svg { background: #ffffff; }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; white-space: pre; }
.command { font-weight: bold; fill: #0a5c36; }
@media (prefers-color-scheme: dark) {
  svg { background: #161b22; }
  text { fill: #d0d7de; }
  .command { fill: #7ee2a8; }
}
@media (prefers-reduced-motion: no-preference) {
  text { animation: shown 0.05s both; }
  @keyframes shown { from { opacity: 0; } to { opacity: 1; } }
}
"""


def record(folder: Path) -> list[str]:
    """Run the commands on a new machine in `folder`; return the lines of the terminal.

    Raises:
        AssertionError: A command failed, or the daemon did not index what was stored.
    """
    machine = Machine(folder, "laptop", has_model=True, is_set_up=False)
    machine.project = machine.project.rename(folder / "shop")
    machine.env |= {"COLUMNS": str(COLUMNS), "PATH": f"{BIN}:{machine.env['PATH']}"}
    machine.run("quickstart")
    lines: list[str] = []
    try:
        for command in COMMANDS:
            shell = ["/bin/sh", "-c", f"exec 2>&1; {command}"]
            done = run(shell, cwd=machine.project, env=machine.env, timeout=COMMAND_DEADLINE_S)
            assert done.returncode == 0, done.stdout
            lines += [PROMPT + command, *done.stdout.rstrip("\n").split("\n"), ""]
            wait_until("the index", lambda: _is_indexed(machine))
    finally:
        machine.stop_local_daemon()
    return [_fixed(line) for line in lines[:-1]]


def _is_indexed(machine: Machine) -> bool:
    status = machine.json("status")
    return bool(status["embedder"] == "ready" and not status["queuedChunks"] and not status["pendingUploads"])


def _fixed(line: str) -> str:
    for pattern, shown in FIXED:
        line = pattern.sub(shown, line)
    return line.rstrip()


def draw(lines: Sequence[str]) -> str:
    """An SVG of the lines, one `text` element each, which follows the viewer's colour scheme."""
    lines = [part for line in lines for part in _wrapped(line)]
    width = round(2 * MARGIN_PX + COLUMNS * CHARACTER_PX)
    height = 2 * MARGIN_PX + len(lines) * LINE_PX
    texts = [
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + number * LINE_PX + FONT_PX}"'
        f' style="animation-delay: {number * LINE_S:.2f}s" class="{_style(line)}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" xml:space="preserve">'
    title = "<title>A terminal session with Confide: store, search, a sealed token, delete and restore</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *texts, "</svg>", ""])


def _style(line: str) -> str:
    return "command" if line.startswith(PROMPT) else "output"


def _wrapped(line: str) -> list[str]:
    """The line as a terminal of `COLUMNS` columns breaks it."""
    return [line[at : at + COLUMNS] for at in range(0, max(1, len(line)), COLUMNS)]


def shown(picture: Path) -> list[str]:
    """The lines of text in a picture that `draw` made."""
    root = ElementTree.fromstring(picture.read_text("utf-8"))
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the session of the README and draw it.")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    picture: Path = parser.parse_args().picture
    with tempfile.TemporaryDirectory() as folder:
        picture.write_text(draw(record(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
