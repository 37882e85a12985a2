"""The panel at 10,000 notes: how long each page takes on the server, and how large it is.

    python -m bench.panel [--notes 10000]

The daemon makes its vectors by hashing, which takes a question 2 ms less than the packaged model, and ten thousand notes five minutes less.

Times are from a request's first byte to the answer's last, over loopback on a connection that stays open, so the client's own share is in
them; pages are asked for in turns. Budgets: p95 50 ms, 60 KB. On a busy machine the load beside them says what they are worth, and what a
page costs both processes of a processor's time, which waiting does not change.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.panel import Visit
from tests.support.programs.processes import Machine, wait_until

NOTES = 10_000
ROUNDS = 40
P95_MS: Final = 50.0
MOST_BYTES: Final = 60_000
A_BATCH: Final = 500
WORDS = tuple(
    """postgres elixir deploy checkout cart stock price invoice search index cache queue worker retry timeout lock row
    table schema migration release branch token limit gateway proxy daemon session memory note agent prompt hook""".split()  # noqa: SIM905
)
ABOUT = tuple(f"service-{n}" for n in range(40))


def fill(gateway: Gateway, count: int) -> None:
    """So many notes, a tenth of which state something of another one, in lists as a program would send them."""
    draw = random.Random(7)
    token = gateway.token("bench", "--scope", "write")
    for first in range(0, count, A_BATCH):
        brought = []
        for n in range(first, min(first + A_BATCH, count)):
            text = " ".join(draw.choices(WORDS, k=30))
            id_ = f"mem_note-{n}_{1_760_000_000 + n}_{n:08x}"
            note = {
                "id": id_,
                "content": f"{text}.",
                "title": f"Note {n}: {text[:30]}",
                "type": draw.choice(["fact", "decision"]),
            }
            note |= {"entity": draw.choice(ABOUT), "tags": draw.sample(WORDS, 2), "importance": draw.random()}
            if n and n % 10 == 0:
                other = draw.randrange(n)
                note["relations"] = [
                    {"relation": "supports", "id": f"mem_note-{other}_{1_760_000_000 + other}_{other:08x}"}
                ]
            brought.append(note)
        answer = gateway.request("POST", "/api/memories/import?confirm=true", brought, token=token)
        assert answer.status < 300, answer.body


def pages(visit: Visit, short: str) -> dict[str, str]:
    """Their addresses below the visit's place."""
    found = {
        name: name
        for name in ("projects", "project", "entities", "timeline", "remember", "learned", "usage", "devices", "health")
    }
    for name, query in (
        ("search hits", {"q": "why did the checkout take a row lock"}),
        ("prompt", {"prompt": "why postgres row lock"}),
    ):
        answer = visit.post("find", **query)
        found[name] = answer.headers["location"].removeprefix(f"{visit.base}/")
    found |= {
        "first": "",
        "note": f"note/{short}",
        "edit": f"edit?id={short}",
        "graph": "graph",
        "note graph": f"graph?id={short}",
    }
    found |= {"day": f"day?day={time.strftime('%Y-%m-%d')}", "entity": f"entity?name={ABOUT[0]}", "deleted": "deleted"}
    return found | {"file": "file?path=MEMORY.md", "changes": "changes?path=MEMORY.md&to=1"}


def first_look(visit: Visit) -> float:
    """Milliseconds of the page of health while nothing is known yet: it is not in the turns, where the figures of the last one are."""
    visit.get("remember")  # what all pages need is loaded by then
    began = time.perf_counter()
    answer = visit.get("health")
    assert answer.status == 200
    return 1000 * (time.perf_counter() - began)


def spent_ms(processes: Sequence[int]) -> float:
    """What these processes have had of a processor, in milliseconds."""
    # clock_getcpuclockid(3), which Python does not have: the process's number, inverted, and 2 for the scheduler's own clock.
    return sum(1000 * time.clock_gettime((~process << 3) | 2) for process in processes)


@dataclass
class Measured:
    """Of one page: milliseconds by the wall and of a processor, each time, and its bytes."""

    size: int
    took_ms: list[float] = field(default_factory=list)
    spent_ms: list[float] = field(default_factory=list)


def measured(visit: Visit, addresses: dict[str, str], processes: Sequence[int]) -> dict[str, Measured]:
    """Each page, of a gateway and its daemon."""
    connection = http.client.HTTPConnection("127.0.0.1", visit.gateway.port, timeout=DEADLINE_S)
    found: dict[str, Measured] = {}
    for turn in range(ROUNDS + 2):
        for name, address in addresses.items():
            worked, began = spent_ms(processes), time.perf_counter()
            connection.request("GET", f"{visit.base}/{address}", headers={"Cookie": visit.cookie})
            answer = connection.getresponse()
            body = answer.read()
            took_ms = 1000 * (time.perf_counter() - began)
            assert answer.status == 200, (name, answer.status, body[-600:])
            if turn >= 2:  # templates and imports are loaded by then
                page = found.setdefault(name, Measured(len(body)))
                page.took_ms.append(took_ms)
                page.spent_ms.append(spent_ms(processes) - worked)
    connection.close()
    return found


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.panel", description=__doc__.partition("\n")[0])
    parser.add_argument("--notes", type=int, default=NOTES)
    count = parser.parse_args().notes
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), "ann")
        machine.write("MEMORY.md", "# Facts\n\n" + "".join(f"- Fact {n} of the shop.\n" for n in range(80)))
        try:
            with serving(machine) as gateway:
                wait_until("the first file", lambda: machine.json("ls")["documents"])
                fill(gateway, count)
                status = machine.json("status")
                print(f"{status['notes']['total']:,} notes, {status['queuedChunks']:,} pieces wait for their vectors")
                visit = Visit.begin(gateway)
                print(f"health, the first look: {first_look(visit):.1f} ms")
                short = machine.json("ls", "--limit", "1")["documents"][0]["id"]
                before = os.getloadavg()[0]
                found = measured(visit, pages(visit, short), [gateway.process.pid, machine.local_daemon["pid"]])
                print(f"load {before:.1f} to {os.getloadavg()[0]:.1f}")
        finally:
            machine.stop_local_daemon()
    for name, page in sorted(found.items(), key=lambda pair: -statistics.median(pair[1].spent_ms)):
        print(
            f"{name:<12} p50 {statistics.median(page.took_ms):6.1f} ms  p95 {p95_of(page.took_ms):6.1f} ms"
            f"  of a processor {statistics.median(page.spent_ms):5.1f} ms  {page.size / 1000:5.1f} KB"
        )
    every = [took for page in found.values() for took in page.took_ms]
    print(f"all          p50 {statistics.median(every):6.1f} ms  p95 {p95_of(every):6.1f} ms (budget {P95_MS:.0f})")
    print(f"largest {max(page.size for page in found.values()) / 1000:.1f} KB (budget {MOST_BYTES / 1000:.0f})")


def p95_of(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * len(values))]


if __name__ == "__main__":
    main()
