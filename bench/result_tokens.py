"""What a model reads for a search: tokens of the text, and of the structured form, to those of the snippets alone.

    python -m bench.result_tokens

Five hits for each of twenty questions over these documents as memory files, and over notes made of their sections, through
`confide mcp` with the packaged model; counted in cl100k_base. Fails above `MOST`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.programs.processes import Machine
from tests.support.programs.wire import Wire

from confide_daemon.embedding.token_counts import count_tokens

DOCS = Path(__file__).parents[1] / "docs"
HITS = 5
MOST = {"files": 1.3, "notes": 1.3}
NOTES = 60
SYNC_DEADLINE_S = 600.0
QUESTIONS = (
    "how do I join a second machine?",
    "what happens to stores while the daemon is away?",
    "how is a credential sealed?",
    "where does the daemon keep its data?",
    "how do I restore a deleted note?",
    "which model computes the vectors?",
    "what does the six-word fingerprint show?",
    "how long are old revisions kept?",
    "can I use an nginx reverse proxy?",
    "what does exit code 5 mean?",
    "how are transcripts of sessions searched?",
    "what does rank balanced do?",
    "how do I move my memory to another server?",
    "who can read a sealed secret?",
    "how do I import from claude-mem?",
    "what is a project?",
    "how do I remove a stolen laptop?",
    "what is stored at rest, and under which key?",
    "how do two people edit the same file?",
    "how do I upgrade the daemon?",
)


def main() -> None:
    """Print the ratios; exit code 1 where the files' is above `MOST`."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as folder:
        ratios = {kind: measured(Path(folder), kind) for kind in ("files", "notes")}
    for kind, (text, structured) in ratios.items():
        print(
            f"{kind}: the text of {HITS} hits is {text:.2f} x the tokens of their snippets, structured {structured:.2f} x"
        )
    print("  (must be <= " + ", ".join(f"{most} for {kind}" for kind, most in MOST.items()) + ")")
    if any(ratios[kind][0] > most for kind, most in MOST.items()):
        sys.exit(1)


def measured(folder: Path, kind: str) -> tuple[float, float]:
    """(text, structured) to the snippets, over all questions."""
    machine = Machine(folder, kind, has_model=True)
    text = structured = snippets = 0
    try:
        with Wire(machine) as wire:
            wire.open()
            fill(machine, wire, kind)
            for question in QUESTIONS:
                asked = {"query": question, "maxResults": HITS, "minScore": 0}
                result = wire.tool("memory_search", asked)
                told: dict[str, Any] = result["structuredContent"]
                assert told["searchMode"] == "hybrid", told["warnings"]
                text += count_tokens(result["content"][0]["text"])
                structured += count_tokens(json.dumps(told, ensure_ascii=False))
                snippets += sum(count_tokens(hit["snippet"]) for hit in told["results"])
    finally:
        machine.stop_local_daemon()
    return text / snippets, structured / snippets


def fill(machine: Machine, wire: Wire, kind: str) -> None:
    """Store the documents as files, or their sections as notes."""
    pages = sorted(DOCS.glob("*.md"))
    if kind == "files":
        for page in pages:
            machine.write(f"memory/{page.name}", page.read_text(encoding="utf-8"))
    else:
        sections = [part for page in pages for part in page.read_text(encoding="utf-8").split("\n## ")[1:]]
        for section in sections[:: max(1, len(sections) // NOTES)]:
            title, _, body = section.partition("\n")
            if body.strip():
                stored = {"content": body.strip()[:600], "title": title.strip("# `"), "tags": ["docs"]}
                wire.tool("memory_store", stored)
    wire.tool("memory_sync", {}, timeout_s=SYNC_DEADLINE_S)


if __name__ == "__main__":
    main()
