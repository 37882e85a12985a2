"""How quiet a search is when it knows nothing: precision, recall, what gets nothing, and whether scores mean what they say.

    python -m bench.quiet [--model local|none] [--side development|kept-aside] [--threshold 0.25] [--prompts 0.4]

Each share comes with two 95 % intervals: Wilson's, and one by drawing whole memories. The kept-aside side is for judging: look seldom, and
write down when (README.md).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from bench.quality import embedder
from bench.quiet.measure import Answer, answers, others, share
from bench.quiet.others import is_there as others_are_there
from bench.quiet.others import other_answers
from bench.quiet.questions import SAME_PROJECT, UNANSWERED, memories, questions

BINS = 10
# A prompt is answered with three hits at most; the search looks at four times as many.
PROMPT_HITS, PROMPT_LOOKS = 3, 12


def main() -> None:
    """Ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["local", "hashed", "none"], default="local")
    parser.add_argument("--side", choices=["development", "kept-aside"], default="development")
    parser.add_argument("--threshold", type=float, default=0.25, help="of a search")
    parser.add_argument("--prompts", type=float, default=0.4, help="of hits that come unasked")
    arguments = parser.parse_args()
    found = asyncio.run(measured(arguments.model, kept_aside=arguments.side == "kept-aside"))
    is_developed = arguments.side == "development" and others_are_there()
    sets = asyncio.run(other_answers(embedder(arguments.model))) if is_developed else []
    for beside in dict.fromkeys(answer.beside for answer in found):
        some = [answer for answer in found if answer.beside == beside]
        print(f"\n## {beside}, {len(some)} questions   [Wilson] [by memories]")
        print_shares(some, arguments.threshold)
        print_prompts(some, arguments.prompts)
    print(f"\n## calibration of the first hit's score, all {len(found)} answers: how many are right")
    print_calibration(found)
    for name, beside in dict.fromkeys((answer.origin, answer.beside) for answer in sets):
        print(f"\n## {name}, {beside}")
        print_shares([one for one in sets if (one.origin, one.beside) == (name, beside)], arguments.threshold)


async def measured(model: str, *, kept_aside: bool) -> list[Answer]:
    """The answers to all questions of a side, of memories alone first, then beside other texts."""
    every = memories()
    asked = questions(every, kept_aside=kept_aside)
    by_name = {memory.name: memory for memory in every}
    return await answers(embedder(model), by_name, asked, beside=others(kept_aside=kept_aside))


def print_shares(found: Sequence[Answer], threshold: float) -> None:
    """What a search with this threshold makes of questions."""
    kinds: dict[str, list[Answer]] = {}
    for answer in found:
        kinds.setdefault(answer.asked.kind, []).append(answer)
    known = [answer for kind in ("answered", "day") for answer in kinds.get(kind, [])]
    right = [answer for answer in known if answer.right(1) is not None]

    def is_shown(answer: Answer) -> bool:
        return answer.best >= threshold

    def is_right(answer: Answer) -> bool:
        return (answer.right(1) or 0.0) >= threshold

    same = [answer for kind in SAME_PROJECT for answer in kinds.get(kind, [])]
    unknown = [*same, *kinds["foreign"], *kinds.get("no such day", [])]
    shown = [answer for answer in [*known, *unknown] if is_shown(answer)]
    for label, some, holds in (
        ("precision: of first hits shown, right", shown, is_right),
        ("recall: of questions with an answer, right first", known, is_right),
        ("right first hits lost by the threshold", right, lambda answer: not is_right(answer)),
        ("questions with an answer left empty", known, lambda answer: not is_shown(answer)),
        ("same project, answered with nothing", same, lambda answer: not is_shown(answer)),
        ("foreign, answered with nothing", kinds["foreign"], lambda answer: not is_shown(answer)),
        *((f"  {kind}", kinds[kind], lambda answer: not is_shown(answer)) for kind in UNANSWERED if kind in kinds),
    ):
        print(f"{label:50s} {share(some, holds)}")


def print_prompts(found: Sequence[Answer], threshold: float) -> None:
    """What hits that come unasked make of everyday prompts, at a threshold of their own and at others."""
    without = [answer for answer in found if answer.asked.kind in ("everyday", "foreign prompt")]
    known = [answer for answer in found if answer.asked.kind == "prompt" and answer.right(PROMPT_HITS) is not None]

    def is_silent(answer: Answer, at: float) -> bool:
        return all(hit["ownScore"] < at for hit in answer.hits[:PROMPT_LOOKS])

    print(
        f"prompts without an answer, get nothing at {threshold}: {share(without, lambda answer: is_silent(answer, threshold))}"
    )
    print(
        f"prompts with an answer, lose it at {threshold}:      "
        f"{share(known, lambda answer: (answer.right(PROMPT_HITS) or 0.0) < threshold)}"
    )
    for at in (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8):
        silent = share(without, lambda answer: is_silent(answer, at)).percent  # noqa: B023 - called at once
        lost = share(known, lambda answer: (answer.right(PROMPT_HITS) or 0.0) < at).percent  # noqa: B023 - called at once
        print(f"    at {at:4.2f}: {silent:5.1f} % get nothing, {lost:5.1f} % lose it")


def print_calibration(found: Sequence[Answer]) -> None:
    """For each tenth of the shown score, how many first hits are right, prompts left out."""
    asked = [answer for answer in found if "prompt" not in answer.asked.kind and answer.asked.kind != "everyday"]
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        some = [
            answer for answer in asked if answer.hits and low <= answer.hits[0]["shown"] < high + (number == BINS - 1)
        ]
        if some:
            print(f"{low:4.1f}-{high:3.1f}  {share(some, lambda answer: answer.right(1) is not None)}")


if __name__ == "__main__":
    main()
