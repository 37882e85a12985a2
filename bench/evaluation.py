"""The table of search quality, measured through the product's own MCP tool: `confide mcp`, a daemon of its own, an encrypted space.

    python -m bench.evaluation [--json OUT]

The data and the harness lie in the folder that CONFIDE_EVAL names; without it this says so and ends well. Notes of
one turn each and identifiers are measured in the process (`bench.quality`, `bench.identifiers`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from bench import identifiers
from bench.quality import EVAL, SpaceSystem, Thresholds, embedder, harness
from confide_daemon.spaces.models import IndexSettings

THRESHOLD = 0.25
BIN = Path(sys.executable).parent


def product(*, model: str) -> dict[str, Any]:
    """How the harness starts the product: as product.json says, with the model that is meant."""
    config: dict[str, Any] = json.loads((EVAL / "product.json").read_text(encoding="utf-8"))
    settings = f'[embedding]\nprovider = "{model}"\n'
    command = shlex.join([str(BIN / config["command"]), *config["args"]])
    script = (
        f'mkdir -p "$CONFIDE_HOME" && printf %s {shlex.quote(settings)} > "$CONFIDE_HOME/daemon.toml" && exec {command}'
    )
    # The harness puts its folder into every argument.
    return config | {"command": "sh", "args": ["-c", script], "timeout": 900}


def ending(system: Any) -> Any:
    """The product, whose daemon is ended with it: one on demand stays for fifteen minutes."""
    close = system.close

    def closed() -> None:
        close()
        address = Path(system.dir) / ".confide-home" / "daemon" / "daemon.address"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(json.loads(address.read_text(encoding="utf-8"))["pid"], signal.SIGTERM)
        shutil.rmtree(system.dir, ignore_errors=True)

    system.close = closed
    return system


def main() -> None:
    """Measure, and print each figure beside what it must be and what it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    if not (EVAL / "eval_retrieval.py").is_file():
        print(f"skipped: no evaluation data at {EVAL}; set CONFIDE_EVAL to the folder that holds eval_retrieval.py")
        return
    module = harness()
    bundles = {
        name: module.load(EVAL / f"{name}.json.gz") for name in ("locomo_dev", "devmembench_dev", "devbench_dev")
    }
    counted = Thresholds(THRESHOLD)

    def measured(name: str, model: str = "local") -> dict[str, Any]:
        print(f"{name}, {model} …", file=sys.stderr, flush=True)
        system = lambda: ending(module.Product(product(model=model)))  # noqa: E731
        watch = counted.watching if model == "local" else lambda plain: plain
        result: dict[str, Any] = module.run(lambda: watch(system()), bundles[name], "files")
        return {key: 100 * value for key, value in result.items() if isinstance(value, float)}

    locomo, devmem = measured("locomo_dev"), measured("devmembench_dev")
    measured("devbench_dev")
    keywords = measured("locomo_dev", "none")
    notes = module.run(
        lambda: SpaceSystem(module, embedder("local"), IndexSettings()), bundles["locomo_dev"], "records"
    )
    names = [
        is_right for found in asyncio.run(identifiers.measure(embedder("local"))).values() for _, is_right in found
    ]
    shares = counted.shares
    rows = [
        ("LoCoMo, recall within 500 tokens", locomo["rec@500t"], 75, 82),
        ("LoCoMo, recall within 1,000 tokens", locomo["rec@1000t"], 83, 88),
        ("LoCoMo, right session among the first five", locomo["file-hit@5"], 94, 96),
        ("LoCoMo, one note a turn, recall@5 (in the process)", 100 * notes["recall@5"], 62, 68),
        ("DevMemBench, recall within 500 tokens", devmem["rec@500t"], 90, 95),
        ("DevMemBench, nDCG@10", devmem["ndcg@10"], 90, 92),
        ("LoCoMo by keywords alone, within 1,000 tokens", keywords["rec@1000t"], 80, 84),
        ("unanswerable questions answered with nothing", shares["unanswerable answered with nothing"], 40, 70),
        ("right first hits lost by that (at most)", shares["right first hits lost"], 3, 0),
        ("answerable questions left empty (at most)", shares["answerable left empty"], None, 0),
        ("identifiers, hit@1 (in the process)", 100 * sum(names) / len(names), 95, 99),
    ]
    print(f"\n{'measure':54s} {'is':>6s} {'must':>6s} {'aim':>6s}")
    for label, value, must, aim in rows:
        print(f"{label:54s} {value:6.1f} {must if must is not None else '–':>6} {aim:>6}")
    if arguments.json:
        arguments.json.write_text(json.dumps({row[0]: row[1] for row in rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
