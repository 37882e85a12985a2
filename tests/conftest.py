"""An agent with all tools, on a daemon in this process; and the choice of tests for the inner loop, `make test-quick`."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving
from tests.support.documents.notes import Agent, acting
from tests.support.patience import be_patient
from tests.support.programs import forked

from confide_proxy.run.shown_values import AGENT_MARKS

_PROGRAMS = r"support[.](programs|confided|forked|wire|pair|mcp_session|watch|watching|runs)\b"
PROGRAMS = re.compile(_PROGRAMS)
"""What a module of tests says that starts programs of ours."""
STARTS = re.compile(rf"{_PROGRAMS}|^import (subprocess|multiprocessing)", re.MULTILINE)
"""What a module of tests says that starts any."""
SLOW = {
    *("e2e", "chaos", "interop", "backup", "log"),
    *("test_protocol_adversary.py", "test_fuzz.py", "test_protocol_tampering.py", "test_inbox_back_pressure.py"),
    *(
        "test_chunker_properties.py",
        "test_chunker.py",
        "test_custodian_restored.py",
        "test_provider_faults.py",
        "test_vault.py",
    ),
    *("test_store_contract.py", "test_indexing_faults.py", "test_transcript_parsers.py", "test_provider_libraries.py"),
    *(
        "test_tunnel_calls.py",
        "test_what_reaches_the_client.py",
        "test_hostile_folders.py",
        "test_sealer_titles.py",
    ),
    *(
        "test_generations.py",
        "test_rates.py",
        "test_embedder.py",
        "test_row_scaled.py",
        "test_replicas_untaken_revisions.py",
    ),
    *("test_sealed_files.py", "test_server_folder_put_back.py", "test_rewrite.py", "test_task_times.py"),
    *(
        "test_streams.py",
        "test_classes.py",
        "test_session.py",
        "test_notes_deleted.py",
        "test_deduplication.py",
        "test_dial.py",
    ),
    *(
        "test_connection_goodbye.py",
        "test_connection_ends.py",
        "test_job_queue.py",
        "test_duplicates.py",
        "test_dear_requests.py",
    ),
    *(
        "test_sealing_requests.py",
        "test_limited_caller.py",
        "test_move_breaks.py",
        "test_search_hits.py",
        "test_request_limits.py",
        "test_rates_limits.py",
    ),
    *(
        "test_import_odd_exports.py",
        "test_replicas_lying_machines.py",
        "test_cli_drawn_lies.py",
        "test_notes_isolation.py",
        "test_keyring.py",
    ),
}
"""Folders that start programs, and modules that draw or wait for long."""


E2E = {
    *("e2e", "chaos", "browser", "test_server_locked_and_tls.py", "test_oauth.py", "test_vaulted_records.py"),
    # Several nodes over one PostgreSQL, and the leases of spaces (addons/cluster).
    *("log", "test_forwarded_requests.py", "test_relay.py", "test_balancer.py"),
    # Floods, full disks, and whatever else fills a daemon up.
    *("test_listening_hostile_peers.py", "test_strangers.py", "test_rates.py", "test_dear_requests.py"),
    *("test_server_attacks.py", "test_serving.py", "test_request_limits.py", "test_rates_limits.py"),
    *("test_health.py", "test_store_faults.py"),
    # More than three programs at once, or programs that are killed again and again.
    *("backup", "test_generation_kills.py", "test_store_crash.py", "test_oauth_killed.py", "test_migration_kills.py"),
    "test_forked.py",
    *("test_local_files_write_faults.py", "test_daemon_keys_rotation.py", "test_checkouts.py"),
    # Services outside that fail in all their ways, folders put back from a backup, and several devices that seal for each other.
    *("test_provider_faults.py", "test_indexing_faults.py", "test_vault.py"),
    *("test_custodian_restored.py", "test_server_folder_put_back.py", "test_context_sealed_files.py"),
    # Installs of the wheel, one for each extra; what each target would run.
    *("test_installs.py", "test_targets.py"),
}
"""Folders and modules whose tests are marked `e2e` beside those that start PROGRAMS: `make e2e` runs them, and `make test` all others."""
JOURNEYS = {
    "addons/http/e2e/test_mcp_over_http.py",
    "addons/http/e2e/test_rest.py",
    "e2e/cli/test_commands.py",
    "e2e/cli/test_memory_commands.py",
    "e2e/cli/test_not_set_up.py",
    "e2e/cli/test_way_in.py",
    "e2e/cli/test_wrong_input.py",
    "e2e/hooks/test_hook.py",
    "e2e/sessions/test_first_light.py",
    "e2e/sync/test_absence.py",
    "e2e/sync/test_notes_by_hand.py",
    "e2e/sync/test_two_clones.py",
    "proxy/cli/test_app.py",
    "proxy/cli/test_old_spellings.py",
    "proxy/cli/test_setup.py",
}
"""Modules of those that `make test` runs as well: one way through each part of the product, with its real programs."""
MARKS = re.compile(r"\b(not )?e2e\b")
"""Which of both an expression of marks wants (`-m`)."""
OWN_MARK = "@pytest.mark.e2e"
"""Marks a single test for `make e2e`, in a module that `make test` runs."""
TESTS = Path(__file__).parent
HAS_ADDONS = importlib.util.find_spec("confide_night") is not None
ADDONS = "|".join(path.name for path in (TESTS.parent / "addons").glob("confide_*"))
NAMES_ADDON = re.compile(rf"^\s*(from|import) ({ADDONS})\b", re.MULTILINE)
"""What a module of tests says that needs add-ons. Where there are none (`make core`) it is passed over, as is a test marked so."""


SHARED_MEMORY = Path("/dev/shm")
LEAST_FREE = 4 * 2**30


# How long one example takes is the machine's business: a test that hangs has the suite's own limit.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    """One of the processes that run the tests forks programs where all do."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        gc.disable()  # until all is loaded, of which nothing goes; whoever only hands out tests loads none
    forked.share(getattr(config, "workerinput", {}).get("zygotes", {}))
    use_memory()
    # The memory of whoever runs the tests is none of theirs: its configuration changes no result, and nothing is written into it.
    os.environ["CONFIDE_HOME"] = str(Path(tempfile.gettempdir()) / "confide-of-no-test")
    for name in AGENT_MARKS:  # the tests are a person's, also where an agent runs them
        os.environ.pop(name, None)


def use_memory() -> None:
    """Temporary folders in memory where there is room, unless somebody has chosen a place: a run writes 4 GB and syncs them all the time.

    What these tests cut and kill is processes; that a disk keeps what it was told to is not theirs to show.
    """
    if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
        room = os.statvfs(SHARED_MEMORY)
        if room.f_bavail * room.f_frsize > LEAST_FREE and not room.f_flag & getattr(os, "ST_NOEXEC", 0):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """What xdist calls for each process that will run tests."""
    if not node.config.getoption("--quick"):
        node.workerinput["zygotes"] = forked.shared()


def pytest_collection_finish() -> None:
    """What is loaded by now stays loaded: nothing of it has to be looked through again and again for what nobody refers to."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="only tests that start no program, and neither draw nor wait for long"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is not to run is not even imported: what `-m` or `--quick` leave out, and without add-ons what names them."""
    if not HAS_ADDONS and collection_path.suffix == ".py" and NAMES_ADDON.search(collection_path.read_text("utf-8")):
        return True
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if is_test and (marks := MARKS.search(config.getoption("markexpr"))):
        is_passed_over = is_e2e(collection_path) if marks[1] else not has_e2e(collection_path)
        if is_passed_over:
            return True
    if not config.getoption("--quick"):
        return None
    if collection_path.name in SLOW:
        return True
    return True if is_test and STARTS.search(collection_path.read_text(encoding="utf-8")) else None


@functools.cache
def is_e2e(path: Path) -> bool:
    """Whether `make e2e` runs a module, and not `make test`."""
    place = path.relative_to(TESTS)
    if place.as_posix() in JOURNEYS:
        return False
    is_about_the_house = path.parent == TESTS
    return not E2E.isdisjoint(place.parts) or (
        not is_about_the_house and bool(PROGRAMS.search(path.read_text("utf-8")))
    )


@functools.cache
def has_e2e(path: Path) -> bool:
    """Whether `make e2e` runs any test of a module: all, or those with a mark of their own."""
    return is_e2e(path) or OWN_MARK in path.read_text("utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark those of `E2E`; with `--quick`, leave out what takes long."""
    for item in items:
        if is_e2e(item.path):
            item.add_marker("e2e")
    if not HAS_ADDONS:
        needing = [item for item in items if item.get_closest_marker("addons")]
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]
    if config.getoption("--quick"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(autouse=True)
def _patient() -> None:
    be_patient()


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def laptop(daemon: Serving) -> AsyncIterator[Machine]:
    async with machine(daemon) as connected:
        await connected.attach("proj", "global", toolsets=["all"])
        yield connected


@pytest.fixture
async def agent(laptop: Machine) -> AsyncIterator[Agent]:
    async with acting(laptop) as agent:
        yield agent
