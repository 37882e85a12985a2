"""The weights of the shown scores, by logistic regression on the answers of the development side, and on nothing else.

    python -m bench.quiet.fit [--sizes 40 400 4000 40000] [--kept FILE]

It prints the weights, what each fifth of the memories comes to by a fit of the others, and what is shipped comes to. `--kept` writes
the answers to a file, or takes them from it: asking takes minutes, a fit seconds.

The hits of a question are outcomes of one choice: each hit, or none of them (multinomial logistic regression, McFadden 1974, with the
utility of "none" fixed at 0). So a question that nothing answers counts against all of its hits at once, as many as there are. Of a
search the order is given by the rank, so only the first hit counts where it is right. Each kind of question counts alike at each size.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.everyday import ANSWERED as EVERYDAY_ANSWERED
from bench.everyday import NOTES as EVERYDAY_NOTES
from bench.everyday import UNANSWERED as EVERYDAY_UNANSWERED
from bench.quality import embedder
from bench.quiet.background import SIZES
from bench.quiet.growing import notes
from bench.quiet.measure import Answer, answers, sized
from bench.quiet.others import is_there, other_answers
from bench.quiet.questions import HERE, SAME_PROJECT, SEED, Asked, Memory, memories, questions
from confide_daemon.retrieval.search.scoring import HYBRID, UNASKED

Numbers = npt.NDArray[np.float64]
Choice = tuple[Numbers, int | None, float]  # a row for each hit, which of them is right, and how much it counts

YEARS = ("booking", "shop", "meter", "lab", "atlas", "press")
NOISE = ("noise.txt", "noise-more.txt")
# So many questions of a kind and memory are asked, to keep the bed within minutes.
MOST = {
    "answered": 12,
    "removed": 8,
    "edited": 8,
    "absent": 5,
    "name": 6,
    "foreign": 16,
    "everyday": 8,
    "foreign prompt": 5,
    "day": 2,
    "no such day": 2,
}
NOISE_A_YEAR, FOREIGN_A_YEAR = 30, 8
FOLDS = 5
RIDGE = 2e-3
LOST, LOUD = 0.015, 0.02
SEARCH_BOUND, PROMPT_BOUND = 0.25, 0.4
# A right hit that is lost is worse than a wrong one that is shown.
RIGHT = 4.0
# LoCoMo is talk, in which everything is said more than once, and no project's memory.
APART: Mapping[str, float] = {"locomo_dev": 0.7, "devmembench_dev": 0.5, "devbench_dev": 0.2}
LOOKED_AT = 24
SHOWN = 3


def asked() -> tuple[dict[str, Memory], list[Asked]]:
    """The memories of the development side, those of `year/` and the notes of `bench.everyday`, with a part of the questions."""
    chance = random.Random(SEED)
    by_name = {memory.name: memory for memory in memories()}
    kinds: dict[tuple[str, str], list[Asked]] = {}
    for one in questions(list(by_name.values()), kept_aside=False):
        kinds.setdefault((one.memory, one.kind), []).append(one)
    found = [
        one
        for (_, kind), some in kinds.items()
        for one in chance.sample(some, min(len(some), MOST.get(kind, len(some))))
    ]
    lines = [line for name in NOISE for line in (HERE / "year" / name).read_text(encoding="utf-8").splitlines()]
    noise = [line for line in lines if not line.startswith("# ")]
    for name in YEARS:
        by_name[name] = notes(name)
    typed = [
        Asked("prompt", text, name, fact.places)
        for name in YEARS
        for fact in by_name[name].facts
        for text in fact.prompts
    ]
    for name in YEARS:
        others = [one.text for one in typed if one.memory != name]
        found += [Asked("everyday", text, name) for text in chance.sample(noise, NOISE_A_YEAR)]
        found += [Asked("foreign prompt", text, name) for text in chance.sample(others, FOREIGN_A_YEAR)]
    by_name["everyday"] = Memory(
        "everyday", {f"memory/notes/{name}.md": [text] for name, text in EVERYDAY_NOTES.items()}
    )
    found += typed
    for text, name in EVERYDAY_ANSWERED.items():
        found.append(Asked("prompt", text, "everyday", ((f"memory/notes/{name}.md", 1, 1),)))
    found += [Asked("everyday", text, "everyday") for text in EVERYDAY_UNANSWERED]
    return by_name, found


async def collected(sizes: Sequence[int]) -> list[Answer]:
    """All answers at these sizes, and of the sets of `make eval` where this machine has them."""
    by_name, every = asked()
    handle = embedder("local")
    found = await answers(handle, by_name, every, beside=sized(sizes))
    return found + (await other_answers(handle) if is_there() else [])


def rows(answer: Answer, names: Sequence[str]) -> Numbers:
    """A row for each hit, with a one for the constant."""
    some = answer.hits[:LOOKED_AT]
    found = np.array([[hit[_spelled(name)] or 0.0 for name in names] for hit in some]).reshape(len(some), len(names))
    return np.hstack([found, np.ones((len(found), 1))])


def _spelled(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def fitted(choices: Sequence[Choice]) -> Numbers:
    """The weights under which what was chosen is likeliest, by Newton's method, with a small ridge on all but the constant."""
    data = np.vstack([hits for hits, _, _ in choices])
    sizes = [len(hits) for hits, _, _ in choices]
    group = np.repeat(np.arange(len(choices)), sizes)
    begins = np.cumsum([0, *sizes[:-1]])
    truth = np.zeros(len(data))
    for begin, (_, right, _) in zip(begins, choices, strict=True):
        if right is not None:
            truth[begin + right] = 1
    each = np.array([count for _, _, count in choices])
    ridge = np.eye(data.shape[1]) * RIDGE * each.sum()
    ridge[-1, -1] = 1e-9
    weights: Numbers = np.zeros(data.shape[1])

    def judged(weights: Numbers) -> tuple[float, Numbers]:
        utility = data @ weights
        top = np.zeros(len(choices))
        np.maximum.at(top, group, utility)
        odds = np.exp(utility - top[group])
        total = np.exp(-top) + np.bincount(group, odds, len(choices))
        loss = each @ (np.log(total) + top) - (each[group] * truth) @ utility + weights @ ridge @ weights / 2
        return float(loss), odds / total[group]

    loss, likely = judged(weights)
    for _ in range(60):
        slope = data.T @ (each[group] * (likely - truth)) + ridge @ weights
        mean = np.zeros((len(choices), data.shape[1]))
        np.add.at(mean, group, data * likely[:, None])
        curve = (data * (likely * each[group])[:, None]).T @ data - (mean * each[:, None]).T @ mean + ridge
        step = np.linalg.solve(curve, slope)
        while (tried := judged(weights - step))[0] > loss + 1e-12 and np.abs(step).max() > 1e-9:
            step /= 2
        done = loss - tried[0] < 1e-9 * abs(loss)
        weights, (loss, likely) = weights - step, tried
        if done:
            break
    return weights


def _place(answer: Answer) -> tuple[str, str]:
    return answer.origin, answer.beside


def _is_right_first(answer: Answer) -> bool:
    return answer.asked.kind == "answered" and bool(answer.hits) and bool(answer.hits[0]["isRight"])


def of_searches(found: Sequence[Answer], names: Sequence[str]) -> Numbers:
    """The weights of `HYBRID`. Everyday prompts and days are judged, not fitted on."""
    some = [one for one in found if one.hits and (_is_right_first(one) or one.asked.kind in (*SAME_PROJECT, "foreign"))]
    counts = Counter((_place(one), one.asked.kind) for one in some)
    choices: list[Choice] = []
    for one in some:
        each = APART.get(one.origin, 1.0) / counts[_place(one), one.asked.kind]
        is_right = _is_right_first(one)
        hits = rows(one, names)
        choices.append((hits[:1], 0, RIGHT * 2 * each) if is_right else (hits, None, each))
    return fitted(choices)


def of_prompts(found: Sequence[Answer], names: Sequence[str]) -> Numbers:
    """The weights of `UNASKED`. A prompt of another project counts half: some of them fit here as well."""
    choices: list[Choice] = []
    some = [one for one in found if one.asked.kind in ("prompt", "everyday", "foreign prompt") and one.hits]
    counts = Counter((one.beside, one.asked.kind) for one in some)
    share = {"prompt": 1.0, "everyday": 0.7, "foreign prompt": 0.3}
    for one in some:
        right = next((place for place, hit in enumerate(one.hits[:LOOKED_AT]) if hit["isRight"]), None)
        if (right is None) != (one.asked.kind == "prompt"):
            choices.append((rows(one, names), right, share[one.asked.kind] / counts[one.beside, one.asked.kind]))
    return fitted(choices)


def unseen(
    found: Sequence[Answer], names: Sequence[str], fit: Callable[[Sequence[Answer], Sequence[str]], Numbers]
) -> dict[int, Numbers]:
    """The utility of each hit by a fit that never saw its memory, by the answer's place in the list."""
    whose = sorted({one.asked.memory for one in found})
    random.Random(SEED).shuffle(whose)
    scores: dict[int, Numbers] = {}
    for fold in range(FOLDS):
        aside = set(whose[fold::FOLDS])
        weights = fit([one for one in found if one.asked.memory not in aside], names)
        scores |= {place: rows(one, names) @ weights for place, one in enumerate(found) if one.asked.memory in aside}
    return scores


def printed(names: Sequence[str], weights: Numbers, bound: float, least: float) -> str:
    """The weights, with a constant by which this utility has the score of the bound."""
    moved = weights[-1] - least + float(np.log(bound / (1 - bound)))
    return str(
        {name: round(float(weight), 2) for name, weight in zip(names, weights, strict=False)}
        | {"constant": round(moved, 2)}
    )


def show_searches(found: Sequence[Answer], names: Sequence[str]) -> None:
    scores = unseen(found, names, of_searches)
    weights = of_searches(found, names)
    right = [place for place, one in enumerate(found) if _is_right_first(one)]

    def least(scores: Mapping[int, Numbers]) -> float:
        return float(np.quantile([scores[place][0] for place in right if found[place].origin == "quiet"], LOST))

    every = {place: rows(one, names) @ weights for place, one in enumerate(found)}
    print("HYBRID", printed(names, weights, SEARCH_BOUND, least(every)))
    bound = least(scores)
    for name in dict.fromkeys(map(_place, found)):
        here = [place for place, one in enumerate(found) if _place(one) == name]

        def share(kinds: Sequence[str], here: Sequence[int] = here) -> str:
            some = [place for place in here if found[place].asked.kind in kinds]
            return (
                f"{100 * np.mean([scores[place].max(initial=-99) < bound for place in some]):5.1f} %"
                if some
                else "    - "
            )

        lost = [scores[place][0] < bound for place in here if place in set(right)]
        parts = " ".join(f"{kind} {share((kind,))}" for kind in SAME_PROJECT)
        print(
            f"  {' '.join(name):30s} right first lost {100 * np.mean(lost):4.1f} % of {len(lost)}; nothing for same project"
            f" {share(SAME_PROJECT)}, foreign {share(('foreign',))}; {parts}"
        )


def show_prompts(found: Sequence[Answer], names: Sequence[str]) -> None:
    scores = unseen(found, names, of_prompts)
    weights = of_prompts(found, names)
    noise = [place for place, one in enumerate(found) if one.asked.kind == "everyday" and one.origin == "quiet"]

    def least(scores: Mapping[int, Numbers]) -> float:
        return float(np.quantile([scores[place].max(initial=-99.0) for place in noise], 1 - LOUD))

    every = {place: rows(one, names) @ weights for place, one in enumerate(found)}
    print("UNASKED", printed(names, weights, PROMPT_BOUND, least(every)))
    bound = least(scores)
    for beside in dict.fromkeys(one.beside for one in found if one.origin == "quiet"):
        for label, is_of in (("notes", True), ("logs", False)):
            here = [
                place
                for place, one in enumerate(found)
                if one.beside == beside
                and one.origin == "quiet"
                and (one.asked.memory in (*YEARS, "everyday")) == is_of
            ]

            def has_note(place: int, bound: float) -> bool:
                best = [int(at) for at in np.argsort(-scores[place]) if scores[place][at] >= bound]
                return any(found[place].hits[at]["isRight"] for at in best[:SHOWN])

            kinds = {
                kind: [place for place in here if found[place].asked.kind == kind]
                for kind in ("prompt", "everyday", "foreign prompt")
            }
            got, could = (100 * np.mean([has_note(place, at) for place in kinds["prompt"]]) for at in (bound, -99.0))
            loud, foreign = (
                100 * np.mean([scores[place].max(initial=-99.0) >= bound for place in kinds[kind]])
                for kind in ("everyday", "foreign prompt")
            )
            print(
                f"  {beside:12s} {label}: {got:4.1f} % of {len(kinds['prompt'])} get their note (among the first three: {could:4.1f} %);"
                f" noise {loud:4.1f} % of {len(kinds['everyday'])}, prompts of others {foreign:4.1f} %"
            )


def show_shipped(found: Sequence[Answer]) -> None:
    """What the shipped weights and thresholds come to at each size."""
    print("as shipped")
    for beside in dict.fromkeys(one.beside for one in found):
        kinds: dict[str, list[Answer]] = {}
        for one in found:
            if one.beside == beside:
                kinds.setdefault(one.asked.kind, []).append(one)
        known = [one for kind in ("answered", "day") for one in kinds.get(kind, [])]
        right = [one.right(1) or 0.0 for one in known if one.right(1) is not None]
        same = [one.best for kind in SAME_PROJECT for one in kinds.get(kind, [])]
        foreign = [one.best for one in kinds["foreign"]]
        silent, others = (100 * np.mean([best < SEARCH_BOUND for best in some]) for some in (same, foreign))
        got, could = (
            100 * np.mean([_has_note(one, bound) for one in kinds["prompt"]]) for bound in (PROMPT_BOUND, -1.0)
        )
        loud = 100 * np.mean([one.best >= PROMPT_BOUND for one in kinds["everyday"]])
        print(
            f"  {beside:12s} same project {silent:4.1f} % and foreign {others:4.1f} % get nothing,"
            f" right first lost {100 * np.mean([score < SEARCH_BOUND for score in right]):4.1f} %;"
            f" prompts: {got:4.1f} % get their note (among the first three: {could:4.1f} %), noise {loud:4.1f} %"
        )


def _has_note(answer: Answer, bound: float) -> bool:
    """Whether a right hit is among the first three that have this score."""
    return any(hit["isRight"] for hit in [hit for hit in answer.hits if hit["ownScore"] >= bound][:SHOWN])


def main() -> None:
    """Ask, fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kept", type=Path, help="the file that has the answers, or gets them")
    arguments = parser.parse_args()
    kept: Path | None = arguments.kept
    if kept is not None and kept.exists():
        found = pickle.loads(kept.read_bytes())
    else:
        found = asyncio.run(collected(arguments.sizes))
        if kept is not None:
            kept.write_bytes(pickle.dumps(found))
    # `few` is of the whole search, and was chosen by hand (README.md).
    show_searches(found, [name for name in HYBRID if name not in ("constant", "few")])
    ours = [one for one in found if one.origin == "quiet"]
    show_prompts(ours, [name for name in UNASKED if name != "constant"])
    show_shipped(ours)


if __name__ == "__main__":
    main()
