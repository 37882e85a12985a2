"""The fuzz targets in short: every seed, and some thousand inputs made from seeds by a seeded generator. `make fuzz` is the long form."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from fuzz.targets import TARGETS

EXECUTIONS = 3000


def mutated(seeds: list[bytes], chance: random.Random, most: int) -> Iterator[bytes]:
    """What a fuzzer does first: noise, changed bytes, cuts, and pieces of one seed behind another."""
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data) + 1)
            match chance.randrange(5):
                case 0:
                    data[place:place] = chance.randbytes(chance.randrange(1, 12))
                case 1:
                    del data[place : place + chance.randrange(1, 12)]
                case 2:
                    data[place : place + 1] = chance.randbytes(1)
                case 3:
                    data[place:] = chance.choice(seeds)
                case _:
                    data += chance.randbytes(chance.randrange(40))
        yield bytes(data[:most])


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_come_out(name: str) -> None:
    target = TARGETS[name]
    seeds = list(target.seeds())
    for seed in seeds:
        target.run(seed)
    inputs = mutated(seeds, random.Random(name), target.max_length)
    for _ in range(EXECUTIONS):
        target.run(next(inputs))
