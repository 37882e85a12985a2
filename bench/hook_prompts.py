"""What a hook puts before a model at 100 and more everyday prompts, by the threshold of a hit: chooses `recall.HIT_SCORE`.

A daemon with the packaged model gets the notes of `bench.everyday` (a file each), or this repository's own documents; every prompt is
asked as a hook asks it. A prompt without an answer should get nothing, one with an answer should get the note that has it.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.programs.processes import CONFIDE, Machine
from tests.support.programs.wire import Wire

from bench.everyday import ANSWERED, HELD_OUT, NOTES, UNANSWERED
from confide_proxy.hooks.prompt_filter import question
from confide_proxy.hooks.server.form import HITS
from confide_proxy.hooks.server.recall import HIT_SCORE

DOCUMENTS: Final = Path(__file__).parents[1] / "docs"
LEAST_QUIET, MOST_LOST = 95.0, 10.0
STEPS: Final = [step / 100 for step in range(30, 95, 5)]
Found = list[tuple[float, str]]


def main() -> None:
    """Ask all prompts of both memories, and print what each threshold comes to."""
    notes = {f"memory/{name}.md": f"# {name.capitalize()}\n\n{text}\n" for name, text in NOTES.items()}
    pages = {f"memory/{page.name}": page.read_text(encoding="utf-8") for page in sorted(DOCUMENTS.glob("*.md"))}
    everyday = asked(notes, [*ANSWERED, *UNANSWERED, *HELD_OUT])
    ours = asked(pages, [*UNANSWERED, *HELD_OUT])
    counts = f"{len(UNANSWERED)} prompts without an answer, {len(ANSWERED)} with one"
    print(f"{counts}; {LEAST_QUIET:.0f} % must get nothing, at most {MOST_LOST:.0f} % lose it")
    print("  score   nothing   nothing, our documents   lost")
    for step in [*STEPS, HIT_SCORE]:
        quiet, beside = (share(not hits(each[prompt], step) for prompt in UNANSWERED) for each in (everyday, ours))
        lost = share(f"memory/{name}.md" not in hits(everyday[prompt], step) for prompt, name in ANSWERED.items())
        mark = "   <- HIT_SCORE" if step == HIT_SCORE else ""
        print(f"   {step:.2f}   {quiet:6.1f} %               {beside:6.1f} %  {lost:5.1f} %{mark}")
    kept = [share(not hits(each[prompt], HIT_SCORE) for prompt in HELD_OUT) for each in (everyday, ours)]
    print(f"{len(HELD_OUT)} that nothing was chosen by: {kept[0]:.1f} %, beside our documents {kept[1]:.1f} %")
    print("\nwithout an answer, and yet above HIT_SCORE:")
    for memory in (everyday, ours):
        for prompt in UNANSWERED:
            for score, path in memory[prompt][:1]:
                if score >= HIT_SCORE:
                    print(f"  {score:.2f} {path:32} {prompt[:80]}")
    print("with an answer, and lost:")
    for prompt, name in ANSWERED.items():
        if f"memory/{name}.md" not in hits(everyday[prompt], HIT_SCORE):
            scores = [f"{score:.2f}" for score, path in everyday[prompt] if path == f"memory/{name}.md"] or [
                "not found"
            ]
            print(f"  {scores[0]} {name:12} {prompt[:80]}")


def hits(found: Found, least: float) -> list[str]:
    return [path for score, path in found if score >= least][:HITS]


def share(values: Any) -> float:
    listed = list(values)
    return 100 * sum(listed) / len(listed)


def asked(files: dict[str, str], prompts: Any) -> dict[str, Found]:
    """What each prompt finds, with scores; the best first."""
    with tempfile.TemporaryDirectory(prefix="confide-bench-") as name:
        machine = Machine(Path(name), "bench", has_model=True)
        for path, text in files.items():
            machine.write(path, text)
        try:
            # Which waits until all is indexed.
            sync = [CONFIDE, "sync"]
            subprocess.run(
                sync, cwd=machine.project, env=machine.env, check=True, stdout=subprocess.DEVNULL, timeout=900
            )
            with Wire(machine, start=subprocess.Popen) as wire:
                wire.open()
                return {prompt: _found(wire, prompt) for prompt in prompts}
        finally:
            machine.stop_local_daemon()


def _found(wire: Wire, prompt: str) -> Found:
    words = question(prompt)
    if not words:
        return []
    arguments = {"query": words, "maxResults": 8, "minScore": 0.2}
    meta = {"confide/structured": True, "confide/unasked": True}
    answer = wire.call("tools/call", {"name": "memory_search", "arguments": arguments, "_meta": meta}, timeout_s=60)
    return [(hit["score"], hit["path"]) for hit in answer["result"]["structuredContent"]["results"]]


if __name__ == "__main__":
    main()
