"""How well credentials are found, and how often ordinary text is taken for one.

    python -m bench.secrets [--count 120] [--seed 11] [--lines 2000000] [--detect-secrets FOLDER] [--json OUT]

Positives and look-alikes are made from the seed (the tests' `secret_corpus`): one is found when a finding covers its value and no
more. Ordinary text is what this machine has: Python's standard library, the packages beside it, this project's documents, and where they
are there, the documentation of Debian's packages, Go's source, and JavaScript packages; whatever is found there counts as wrong, be it the
real token of an example. `--detect-secrets` names a folder with that library (pip install --target) and runs its plugins on the same
texts, each as a markdown file; there a secret counts as found if what is reported holds it or is a part of it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.sealing import known_forms, plain_forms
from tests.support.sealing.secret_corpus import Sample, negatives, positives

from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.config import Policy
from confide_proxy.sealing.detection.scanner import scan
from confide_proxy.sealing.known_values import KnownValues
from confide_proxy.sealing.sealer import Fingerprints, Sealer

ROOT = Path(__file__).parents[1]
SURE = 0.75
KNOWN = 5_000
MOST_FALSE = 1.0  # in 10,000 lines
LARGEST = 4 * 1024 * 1024
SLOW_LINES = 200_000  # as many for the other library, which takes minutes for more
TEXT = {"", ".md", ".txt", ".rst", ".html", ".Debian", ".copyright"}
CODE = {".py", ".pyi", ".go", ".js", ".mjs", ".ts", ".json", ".toml", ".yaml", ".lock", ".sh", ".c", ".h"}


def ordinary() -> Iterator[tuple[str, str]]:
    """(collection, text) of what is no memory, but reads like what memories quote."""
    library, packages = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib"))
    yield from _texts("standard library", library, CODE)
    yield from _texts("packages", packages, CODE | TEXT)
    yield from _texts("own documents", ROOT / "docs", TEXT)
    yield from _texts("own documents", ROOT / "crypto", TEXT)
    yield from _texts("Debian's documents", Path("/usr/share/doc"), TEXT)
    for folder in ("/usr/lib/go/src", "/usr/lib/go-1.19/src", "/usr/share/go-1.19/src", "/usr/local/go/src"):
        yield from _texts("Go", Path(folder), CODE)
    for folder in ("/usr/lib/node_modules", "/usr/share/nodejs", "/usr/local/lib/node_modules"):
        yield from _texts("JavaScript", Path(folder), CODE | TEXT)


def _texts(name: str, folder: Path, suffixes: set[str]) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        is_installed = "site-packages" in path.relative_to(folder).parts
        if path.suffix not in suffixes or is_installed or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if len(text) <= LARGEST and "\0" not in text:
            yield name, text


class Tally:
    """Counts by kind."""

    def __init__(self) -> None:
        self.there: Counter[str] = Counter()
        self.found: Counter[str] = Counter()  # at any confidence, the whole value and no more
        self.sure: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.right: Counter[str] = Counter()

    def take(self, sample: Sample) -> None:
        """Scan one positive. Beside the value of the sample nothing is one."""
        self.there[sample.kind] += 1
        for finding in scan(sample.text, 0.5):
            is_exact = (finding.start, finding.end) == (sample.start, sample.end)
            self.found[sample.kind] += is_exact
            self.sure[sample.kind] += is_exact and finding.confidence >= SURE
            (self.right if is_exact else self.wrong)[finding.kind] += 1

    def show(self) -> dict[str, Any]:
        """Print and return recall and precision of each kind."""
        table = {}
        print(f"{'kind':22} {'there':>6} {'found':>6} {'recall':>7} {'at 0.75':>8} {'precision':>10}")
        for kind in sorted(self.there):
            there, right = self.there[kind], self.right[kind]
            told = right + self.wrong[kind]
            recall, sure = self.found[kind] / there, self.sure[kind] / there
            precision = right / told if told else 0.0
            table[kind] = {"there": there, "recall": recall, "sure": sure, "precision": precision}
            print(f"{kind:22} {there:6} {self.found[kind]:6} {recall:7.3f} {sure:8.3f} {precision:10.3f}")
        there, right, wrong = self.there.total(), self.right.total(), self.wrong.total()
        print(
            f"{'all':22} {there:6} {self.found.total():6} {self.found.total() / there:7.3f} {'':8} {right / (right + wrong):10.3f}"
        )
        return table


def false_positives(tally: Tally, most_lines: int) -> dict[str, Any]:
    """Scan ordinary text; print findings per 10,000 lines, and how fast it went."""
    lines: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    characters, seconds = 0, 0.0
    kinds: Counter[str] = Counter()
    for name, text in ordinary():
        if lines[name] >= most_lines:
            continue
        lines[name] += text.count("\n") + 1
        characters += len(text)
        begin = time.process_time()
        findings = scan(text, 0.5)
        seconds += time.process_time() - begin
        for finding in findings:
            tally.wrong[finding.kind] += 1
            wrong[name] += finding.confidence >= SURE
            kinds[f"{finding.kind} {finding.confidence:.2f}"] += 1
    for name in lines:
        print(
            f"{name:22} {lines[name]:9,} lines {wrong[name]:5} findings {wrong[name] * 10_000 / lines[name]:7.3f} in 10,000 lines"
        )
    rate = wrong.total() * 10_000 / lines.total()
    print(
        f"{'all':22} {lines.total():9,} lines {wrong.total():5} findings {rate:7.3f} in 10,000 lines (limit {MOST_FALSE})"
    )
    print(f"found there: {dict(kinds.most_common())}")
    speed = characters / 1e6 / seconds
    print(f"{speed:.1f} MB/s, {seconds / lines.total() * 1e6:.1f} µs a line")
    if rate >= MOST_FALSE:
        sys.exit("too many findings in ordinary text")
    return {"lines": lines.total(), "findings": wrong.total(), "per10000": rate, "mbPerSecond": speed}


def plain_and_known(seed: int, count: int) -> dict[str, Any]:
    """Print and return the shares found of plain forms and of known values, and the cost of a text with 5,000 known values."""
    shares: dict[str, float] = {}
    for form in plain_forms.FORMS:
        samples = list(plain_forms.samples(form, seed, count))
        spans = [[(each.start, each.end) for each in scan(one.text, SURE)] for one in samples]
        shares[form] = sum(map(plain_forms.is_covered, samples, spans)) / count
    chance = random.Random(seed)
    values = [known_forms.value(chance) for _ in range(KNOWN)]
    with tempfile.TemporaryDirectory() as place:
        keys = SpaceKeys.generate()
        KnownValues(Path(place), lambda: keys).remember(("password", value.encode()) for value in values)
        known = KnownValues(Path(place), lambda: keys)  # as after a restart
        for form in known_forms.FORMS:
            said = known_forms.said_again(form, values[:count], seed)
            shares[f"known, {form}"] = sum(bool(known.find(text)) for _, text in said) / count
        sealer = Sealer(Policy(), lambda: keys, lambda: Fingerprints(bytes(32)), known)
        costs = []
        for path in sorted((ROOT / "docs").rglob("*.md")):
            text = path.read_text(encoding="utf-8")
            for at in range(0, len(text) - 2048, 2048):
                begin = time.thread_time()
                sealer.seal(text[at : at + 2048], "files")
                costs.append(1000 * (time.thread_time() - begin))
    for form, share in shares.items():
        print(f"{form:32} {share:.3f}")
    cost = statistics.median(costs)
    print(f"2 KiB with {KNOWN:,} known values: {cost:.2f} ms p50 of {len(costs)} pieces of our documents")
    return {"shares": shares, "cost2KiBms": cost}


def compared(folder: str, samples: list[Sample]) -> dict[str, Any]:
    """The same of detect-secrets, with all its plugins and filters at their defaults. Prints and returns its recall and wrong findings."""
    sys.path.append(folder)
    from detect_secrets.core.scan import scan_file
    from detect_secrets.settings import default_settings

    there: Counter[str] = Counter()
    found: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    beside = seconds = 0.0
    with default_settings(), tempfile.TemporaryDirectory() as place:
        file = Path(place) / "note.md"

        def reported(text: str) -> list[str]:
            file.write_text(text, encoding="utf-8")
            return [str(each.secret_value) for each in scan_file(str(file))]

        for sample in samples:
            value = sample.text[sample.start : sample.end]
            values = reported(sample.text)
            hits = [each for each in values if each in value or value in each]
            there[sample.kind] += 1
            found[sample.kind] += bool(hits)
            beside += len(values) > len(hits)
        alike = sum(len(reported(text)) for _, text in negatives(5, 20))
        for name, text in ordinary():
            if lines[name] >= SLOW_LINES // 4:
                continue
            lines[name] += text.count("\n") + 1
            begin = time.process_time()
            wrong[name] += len(reported(text))
            seconds += time.process_time() - begin
    print("\ndetect-secrets")
    for kind in sorted(there):
        print(f"{kind:22} {there[kind]:6} {found[kind]:6} {found[kind] / there[kind]:7.3f}")
    print(
        f"{'all':22} {there.total():6} {found.total():6} {found.total() / there.total():7.3f}; {alike} findings in look-alikes"
    )
    for name in lines:
        print(
            f"{name:22} {lines[name]:9,} lines {wrong[name]:5} findings {wrong[name] * 10_000 / lines[name]:7.3f} in 10,000 lines"
        )
    print(f"{seconds / lines.total() * 1e6:.0f} µs a line")
    return {"recall": found.total() / there.total(), "per10000": wrong.total() * 10_000 / lines.total(), "alike": alike}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, help="positives of each kind")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--lines", type=int, default=2_000_000, help="at most so many of each collection")
    parser.add_argument("--detect-secrets", metavar="FOLDER", help="compare with the library in this folder")
    parser.add_argument("--json", metavar="OUT", help="write the figures here")
    options = parser.parse_args()
    samples = list(positives(options.seed, options.count))
    tally = Tally()
    for sample in samples:
        tally.take(sample)
    alike = [(name, finding) for name, text in negatives(options.seed, options.count) for finding in scan(text, 0.5)]
    tally.wrong.update(finding.kind for _, finding in alike)
    result: dict[str, Any] = {"ordinary": false_positives(tally, options.lines)}
    print(f"look-alikes: {len(alike)} findings\n")
    result |= {"kinds": tally.show(), "lookAlikes": len(alike)}
    result |= plain_and_known(options.seed, 200)
    if options.detect_secrets:
        result["detectSecrets"] = compared(options.detect_secrets, samples)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
