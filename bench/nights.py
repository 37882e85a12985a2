"""What tasks of the night must hold, all of it, each figure beside what it must be.

    python -m bench.nights [--nights 2000] [--cancels 300] [--idle-s 130]

Drawn nights run on two processors; the rest is measured one after the other, on an otherwise idle machine. What is no figure but a proof is
the tests' own: they are run, and what counts is that none fails. Runs take a sandbox: without one they are said to be skipped. The real
agents' first request is in `make clients`, and claims behind a busy daemon are in `bench.tasks`, which this calls.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.daemon.task_runners import order as ordered
from tests.support.daemon.task_world import World
from tests.support.nights import allow
from tests.support.programs.processes import Machine, wait_until
from tests.support.sealing.rosters import DESKTOP, LAPTOP, PHONE, SPACE, STRANGER, device, flipped, shared

from bench import tasks
from confide_crypto.errors import OrderError
from confide_night.order.order import Approval, Order, approve_order, open_order, sign_order

PROCESSES = 2
AT_ONCE = 20
"""Drawn nights that a process takes at a time."""
CANCEL_P99_S = 2.0
IDLE_MIB = 45.0
IDLE_SHARE = 0.1
"""Of a core, in percent."""
ROOMS = "tests/addons/night/runner/"


@dataclass(frozen=True)
class Told:
    """A figure: what was measured, what it must be, and whether it is."""

    what: str
    found: str
    must: str
    holds: bool

    def line(self) -> str:
        return f"{'ok  ' if self.holds else 'FAIL'} {self.what}: {self.found} (must: {self.must})"


def drawn(seeds: range) -> tuple[Counter[str], list[str]]:
    """What happened in these nights, and what must not have."""
    logging.disable(logging.CRITICAL)  # what is damaged is told of, night after night
    found: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            world = World(seed, Path(folder))
            try:
                world.live()
            finally:
                world.close()
            found.update(world.tried)
            found["begun"] += len(world.spawned)
            found["ended"] += len(world.final)
            if world.wrong:
                wrong.append(f"seed {seed}: {world.wrong}")
    return found, wrong


def nights(count: int) -> Iterator[Told]:
    """Drawn nights: no slot begun twice, each with exactly one end, no order followed that nobody gave."""
    found: Counter[str] = Counter()
    wrong: list[str] = []
    seeds = [range(first, min(first + AT_ONCE, count)) for first in range(0, count, AT_ONCE)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for happened, problems in pool.map(drawn, seeds):
            found += happened
            wrong += problems
    for one in wrong:
        print(one)
    told = ", ".join(f"{found[what]:,} {what}" for what in ("move", "new key", "devices", "flip", "put back", "jump"))
    yield Told(f"{count:,} drawn nights", f"{found['begun']:,} begun, {len(wrong)} wrong; {told}", "0 wrong", not wrong)


def orders() -> Iterator[Told]:
    """Every bit of an order, its signature and its approval, and orders that were never given so here."""
    roster, keys = shared()
    whole = ordered(LAPTOP, schedule="30 2 * * 1-5", context='{"branch":"main"}')
    data, space = whole.encode(), SPACE
    signature, approval = sign_order(LAPTOP, space, data), approve_order(DESKTOP, space, data)
    assert open_order(roster, data, signature, [approval]) == whole
    tried = accepted = 0
    tampered: list[tuple[bytes, bytes, Approval]] = [
        *((wrong, signature, approval) for wrong in flipped(data)),
        *((data, wrong, approval) for wrong in flipped(signature)),
        *((data, signature, replace(approval, signature=wrong)) for wrong in flipped(approval.signature)),
        *((data, signature, replace(approval, key=wrong)) for wrong in flipped(approval.key)),
        (data, sign_order(LAPTOP, bytes(16), data), approval),
        (data, sign_order(STRANGER, space, data), approval),
        (data, signature, approve_order(LAPTOP, space, data)),
        (data, signature, approve_order(DESKTOP, bytes(16), data)),
    ]
    for one, signed, approved in tampered:
        tried += 1
        accepted += _is_taken(
            lambda one=one, signed=signed, approved=approved: open_order(roster, one, signed, [approved])
        )
    phone = roster.add(LAPTOP, device(PHONE, "phone"), keys, now=int(time.time()))
    own = replace(whole, signer=PHONE.public_key.hex()).encode()
    without, _ = phone.remove(LAPTOP, PHONE.public_key, keys, now=int(time.time()))
    late = float(whole.expires)
    for refused in (
        lambda: open_order(without, own, sign_order(PHONE, space, own)),
        lambda: open_order(roster, data, signature, now=late),
        lambda: _slot(whole, whole.added + 61),
        lambda: _slot(whole, whole.added - 86_400),
    ):
        tried += 1
        accepted += _is_taken(refused)
    yield Told("forged, altered and expired orders", f"{tried:,} tried, {accepted} accepted", "0", accepted == 0)


def _slot(whole: Order, at: int) -> None:
    whole.check_slot(at, now=float(whole.added + 120))


def _is_taken(work: Callable[[], object]) -> bool:
    try:
        work()
    except OrderError:
        return False
    return True


def proven(what: str, must: str, *tests: str, pattern: str = "", **variables: str) -> Iterator[Told]:
    """What tests prove: none fails. `pattern`: of what one of them prints, which is told too."""
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "--timeout", "3600", *tests]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=7200)
    said = re.findall(pattern, done.stdout) if pattern else []
    ended = (re.findall(r"\d+ (?:passed|failed|skipped)[^=]* in [\d.]+ ?s", done.stdout) or ["nothing was run"])[-1]
    if done.returncode:
        print(done.stdout[-4_000:])
    yield Told(what, "; ".join([*said, ended]), must, done.returncode == 0 and "passed" in ended)


def idle(seconds: float) -> Iterator[Told]:
    """A runner that waits, as a process of its own: resident memory, and its share of a core."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), "laptop")
        allow(machine, '[recipes.nap]\nkind = "command"\ncommand = ["true"]')
        later = ("task", "add", "later", "--recipe", "nap", "--schedule", "0 2 * * *", "--json")
        machine.run(*later)
        command = [sys.executable, "-m", "confide_proxy", "runner"]
        nothing = subprocess.DEVNULL
        with subprocess.Popen(command, cwd=machine.project, env=machine.env, stdout=nothing, stderr=nothing) as waiting:
            try:
                wait_until("it to have asked", lambda: "no runner" not in machine.run(*later))
                time.sleep(5)
                before = _processor_s(waiting.pid)
                time.sleep(seconds)
                share = (_processor_s(waiting.pid) - before) / seconds * 100
                status = Path(f"/proc/{waiting.pid}/status").read_text()
            finally:
                waiting.terminate()
                waiting.wait(20)
                machine.stop_local_daemon()
    mib = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
    yield Told("an idle runner's memory", f"{mib:.1f} MiB", f"{IDLE_MIB:.0f} MiB", mib <= IDLE_MIB)
    yield Told(f"its share of a core in {seconds:.0f} s", f"{share:.3f} %", f"{IDLE_SHARE} %", share <= IDLE_SHARE)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure all, and say what holds."""
    parser = argparse.ArgumentParser(prog="python -m bench.nights", description="What tasks of the night must hold.")
    parser.add_argument("--nights", type=int, default=2_000)
    parser.add_argument("--cancels", type=int, default=300)
    parser.add_argument("--idle-s", type=float, default=130.0)
    options = parser.parse_args()
    cancel = f"{ROOMS}test_runs.py::test_nothing_lives_behind_a_cancel"
    canaries = ("no_key_and_no_secret", "no_secret", "no_credential", "an_agent_and_the_morning", "crosses_the_wire")
    told = [
        lambda: orders(),
        lambda: proven("orders at daemon and runner, replayed too", "0 failed", *_ORDERS),
        lambda: proven(
            "clock changes, 12 zones × 8 patterns × 2 nights", "0 failed", "tests/addons/night/order/test_task_times.py"
        ),
        lambda: claims(),
        lambda: idle(options.idle_s),
        lambda: proven(
            f"{options.cancels} cancels → no process left",
            f"p99 {CANCEL_P99_S:.0f} s, 0 failed",
            cancel,
            pattern=r"\d+ cancels: .*ms",
            CONFIDE_RUNS=str(options.cancels),
        ),
        lambda: proven("hostile repositories", "0 effects outside", f"{ROOMS}test_run_hostile_repositories.py"),
        lambda: proven("canaries in logs, wire, disk and sandbox", "0 found", *_CANARIES, "-k", " or ".join(canaries)),
        lambda: proven("money: limit and the input of one request", "0 failed", f"{ROOMS}test_budget.py"),
        lambda: nights(options.nights),
    ]
    began, failed = time.monotonic(), 0
    for measure in told:
        for one in measure():
            print(f"{one.line()}  [load {os.getloadavg()[0]:.1f}]", flush=True)
            failed += not one.holds
    print(f"{time.monotonic() - began:.0f} s")
    if failed:
        sys.exit(f"bench: {failed} of these do not hold")


_ORDERS = (
    "tests/addons/night/order/test_orders.py",
    "tests/addons/night/daemon/test_task_requests.py::test_an_order_that_no_device_signed_is_not_taken",
    f"{ROOMS}test_supervisor.py::test_an_order_is_checked_before_anything_of_it_begins",
    f"{ROOMS}test_supervisor.py::test_nothing_is_begun_twice",
)
_CANARIES = (
    f"{ROOMS}test_runs.py",
    f"{ROOMS}test_runlog.py",
    "tests/addons/night/e2e/test_nights.py",
    "tests/addons/night/e2e/test_tasks_cli.py",
)


def claims() -> Iterator[Told]:
    """A claim at 10,000 slots that are due, behind 100,000 that have ended."""
    p95 = tasks.claims_p95_ms(10_000, 100_000, 200)
    yield Told("a claim at 10,000 due slots, p95", f"{p95:.1f} ms", f"{tasks.BUDGET_MS:.0f} ms", p95 <= tasks.BUDGET_MS)


if __name__ == "__main__":
    main()
