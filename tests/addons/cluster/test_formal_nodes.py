"""The models of the registry and of nodes in crypto/formal/ have the terms of the code, and its rule of what is carried over."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from bench.proof import FORMAL
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt as decrypt
from tests.support.crypto.model_terms import holds, model, term
from tests.support.daemon.registries import ALICE, BOB, KEY

from confide_cluster.daemon.log.log_sealing import LogPosition, LogSealing
from confide_cluster.shared.speaking import Speaker
from confide_crypto.keys.identity import Identity
from confide_daemon.access.enrolled_callers import Grants
from confide_daemon.access.history import rollback
from confide_daemon.access.registry import Registry
from confide_daemon.store.database import connect, transaction

DAEMON, RUN = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
NOW = 1_800_000_000


def test_an_entry_is_bound_to_what_the_model_says() -> None:
    """Its log, number, lease and schema, and the tag of the entry before."""
    sealing = LogSealing("registry", os.urandom(32))
    body = sealing.seal(LogPosition(3, 0, 17, b"t" * 16), b"a change")
    fields = term(model("registry.pvl", "MakeLogEntry"), "sealed(k, ").parts
    said = {"number": "3", "lease": "0", "schema": "17", "before": (b"t" * 16).hex()}
    about = "\n".join(said.get(each.name, each.name) for each in fields).encode()
    assert decrypt(body[24:], about, body[:24], sealing._key)
    read = term(model("registry.pvl", "ReadLogEntry"), "unsealed(k, ").parts
    assert [str(each) for each in read] == [str(each) for each in fields]


def test_a_certificate_is_the_models() -> None:
    """PROTOCOL.md 12.2."""
    hello = Speaker(7, bytes(32), "ab" * 16).hello(DAEMON, RUN.public_key, now=NOW)
    signed = term(model("nodes.pvl", "MakeProof"), "= ")
    known = {"N": RUN.public_key, "node": (7).to_bytes(8), "at": NOW.to_bytes(8)}
    assert signed.bytes(known, DAEMON).hex() == hello["proof"]


@pytest.mark.parametrize("own", ["current", "ended", "unknown"])
def test_what_is_carried_over_is_the_models(tmp_path: Path, own: str) -> None:
    """A device that the store has as a current one, and the copy from before in this state."""
    before, shown = tmp_path / "own.db", tmp_path / "shown.db"
    with closing(Registry.open(before, KEY)) as registry:
        registry.add_caller(BOB, Grants("desk"), space="home", added_by="line")
        if own != "unknown":
            registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
    shutil.copy(before, shown)
    with closing(Registry.open(shown if own == "unknown" else before, KEY)) as registry:
        if own == "unknown":
            registry.add_caller(ALICE, Grants("laptop"), space="home", added_by="line")
        if own == "ended":
            registry.revoke("laptop")
    with (
        closing(connect(shown, KEY, writer=True)) as store,
        closing(connect(before, KEY, writer=False)) as copy,
        transaction(store),
    ):
        rollback.carry_over(store, copy, now=NOW)
    with closing(Registry.open(shown, KEY)) as registry:
        found = registry.caller(ALICE)
        assert found is not None
        (condition,) = re.findall(r"IsAdmitted\(.*?= (.*)\.", (FORMAL / "carried.pvl").read_text("ascii"))
        states = {each: each for each in ("current", "ended", "unknown")}
        assert (found.refusal_reason(NOW) is None) == holds(condition, **states, shown="current", own=own)
