"""Sizes, spans and facts as people read them."""

from __future__ import annotations

import pytest

from confide_memory.documents import local_time
from confide_proxy.cli import doctor, status_lines
from confide_proxy.cli.status_lines import details, duration, size, waiting_line


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 KB"), (315_000, "315 KB"), (78_200_000, "78.2 MB")],
)
def test_sizes(count: int, told: str) -> None:
    """No number of bytes above a thousand."""
    assert size(count) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.5, "0.5 seconds"), (59, "59 seconds"), (60, "1 minute"), (7300, "2 hours"), (90_000, "1 day")],
)
def test_spans(seconds: float, told: str) -> None:
    """The largest unit that fits."""
    assert duration(seconds) == told


@pytest.mark.parametrize(
    ("queued", "dead", "told"),
    [
        (0, 0, "nothing"),
        (1, 0, "1 store for the daemon: confide sync --queue shows it"),
        (2, 1, "2 stores for the daemon; 1 that it refused: confide sync --queue shows them"),
    ],
)
def test_what_waits(queued: int, dead: int, told: str) -> None:
    """With the command that shows it."""
    assert waiting_line(queued, dead) == told


def test_details_hold_no_json() -> None:
    """Names in words, lists of records a line each, times with their zone, what is not known said so."""
    facts = {
        "dbSize": 315_000,
        "lastSync": "2026-11-20T10:00:00Z",
        "items": [{"aB": 1}],
        "none": [],
        "link": {"isUp": True, "x": None},
    }
    assert list(details(facts)) == [
        "db size: 315 KB",
        f"last sync: {local_time('2026-11-20T10:00:00Z')}",
        "items:",
        "  a b 1",
        "none: none",
        "link:",
        "  is up: yes",
        "  x: not known",
    ]
    assert len(local_time("2026-11-20T10:00:00Z").split()) == 3


@pytest.mark.parametrize(
    ("here", "elsewhere", "told"),
    [(0, 0, "no conflict"), (0, 1, "no conflict"), (2, 1, "2 conflicts"), (0, 20, "not compared yet: confide sync")],
)
def test_a_conflict_is_of_its_project(here: int, elsewhere: int, told: str) -> None:
    """The daemon lists those of the whole space, the first of very many."""
    clashes = [{"project": "shop"}] * here + [{"project": "blog"}] * elsewhere
    facts = {"project": "shop", "filesHere": 3, "lastSync": None, "pendingUploads": 0, "clashes": clashes}
    assert status_lines._project(facts).endswith(f", {told}")


@pytest.mark.parametrize(("of_daemon", "is_far"), [("0.1.0", True), ("0.2.0", False), ("0.9.0", False)])
def test_a_daemon_that_is_too_old_is_a_problem(monkeypatch: pytest.MonkeyPatch, of_daemon: str, is_far: bool) -> None:
    """In the six lines too. Of a machine that is too old, the daemon's own warning tells."""
    monkeypatch.setattr(status_lines, "VERSION", "0.4.0")
    facts = {"daemonVersion": of_daemon, "sealing": {}, "warnings": []}
    (line,) = status_lines._problems(facts)
    assert ("upgrade it" in line) == is_far


@pytest.mark.parametrize(
    ("of_daemon", "state", "hint"),
    [
        ("0.4.0", "ok", ""),
        ("0.2.1", "hint", "Update the older one"),
        ("0.1.0", "problem", "upgrade confided;"),
        ("0.7.0", "problem", "upgrade confide on this device;"),
    ],
)
def test_doctor_tells_of_versions_that_are_too_far_apart(
    monkeypatch: pytest.MonkeyPatch, of_daemon: str, state: str, hint: str
) -> None:
    """And which of the two is the older one."""
    monkeypatch.setattr(doctor, "VERSION", "0.4.0")
    found = doctor._versions(of_daemon)
    assert (found.check, found.state) == ("versions", state)
    assert hint in found.hint


def test_a_machine_has_the_name_that_its_devices_know() -> None:
    """Not that of its invite, unless it is no device; codes on paper are counted apart; a daemon of before tells neither."""
    link = {"space": "home", "caller": "notebook", "words": "six words"}
    sealing = {"devices": 3, "canSeal": True}
    told = "home, 3 devices, secrets are sealed; this device is notebook: six words"
    assert status_lines._space({"link": link, "sealing": sealing}) == told
    link |= {"device": "laptop"}
    sealing |= {"recoveryCodes": 1}
    told = "home, 2 devices and 1 recovery code, secrets are sealed; this device is laptop: six words"
    assert status_lines._space({"link": link, "sealing": sealing}) == told
