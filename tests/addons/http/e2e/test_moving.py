"""A space that moves to another daemon while programs use it over HTTP."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Answer, serving
from tests.support.programs.panel import Visit, words_of
from tests.support.programs.processes import Inside, running_daemon, wait_until


def test_what_was_answered_while_the_space_moves_is_at_the_new_daemon(tmp_path: Path) -> None:
    """Every store that a program was told of, also those that waited meanwhile; from then on the gateway speaks to the new daemon alone."""
    ann = Inside(tmp_path, "ann", is_set_up=False)
    stores: list[tuple[str, Answer]] = []
    is_over, is_begun = threading.Event(), threading.Event()
    with running_daemon(tmp_path) as daemon:
        try:
            ann.run("quickstart")
            with serving(ann) as gateway:
                token = gateway.token("writer", "--scope", "write", "--trusted")
                visit = Visit.begin(gateway)

                def write() -> None:
                    while not is_over.wait(0.05) and len(stores) < 500:  # twenty a second, for as long as it takes
                        text = f"Swift number {len(stores)} is in the air."
                        stores.append((text, gateway.request("POST", "/api/memories", {"content": text}, token=token)))
                        is_begun.set()

                writing = threading.Thread(target=write)
                writing.start()
                try:
                    assert is_begun.wait(DEADLINE_S)
                    ann.run("move", "--to", daemon.invite("ann"), "--yes")
                    moved = len(stores)
                    wait_until("a store behind the move", lambda: len(stores) > moved + 2)
                finally:
                    is_over.set()
                    writing.join()
                assert {answer.status for _, answer in stores} <= {201, 202, 503}
                kept = [(text, answer.json["id"]) for text, answer in stores if answer.status < 300]
                assert len(kept) > 3
                ann.stop_local_daemon()
                wait_until("what waits", lambda: ann.json("status")["queuedOffline"] == 0)
                for text, identity in kept:
                    found = gateway.request("GET", f"/api/memories/{identity}", token=token)
                    assert (found.status, found.json.get("content")) == (200, text)
                assert ann.local_daemon is None, "the old daemon was started again"
                assert "is in the air" in words_of(visit.get(""))  # the panel has gone along
        finally:
            ann.stop_local_daemon()
