"""Whether a question asks for the past, and which statuses are of it."""

from __future__ import annotations

import pytest

from confide_memory.tools.past import asks_for_done, asks_for_former, is_over

FORMER = """what did we use before
what was used before postgres?
which port did we use previously
the old deploy key
which server did we use to rent
we used to deploy with fabric, where?
where did we formerly host
history of the deploy key
what changed in the API
Was haben wir früher benutzt?
wo war die alte Wohnung
qu'est-ce qu'on utilisait avant ?
l'ancienne adresse
¿qué usábamos antes?
la dirección anterior"""
NOW = """what do we do before a release?
how old is Ann
logs older than 30 days
what is used to build the docs
tools used to lint
que faire avant de déployer
qué hacer antes de desplegar
why did we choose postgres
where does the deploy key live
Wo liegt der Schlüssel?"""


@pytest.mark.parametrize("text", FORMER.splitlines())
def test_what_was_is_asked_for(text: str) -> None:
    assert asks_for_former(text)
    assert asks_for_done(text)


@pytest.mark.parametrize("text", NOW.splitlines())
def test_what_is_is_asked_for(text: str) -> None:
    assert not asks_for_former(text)


def test_a_status_is_read_by_its_first_word() -> None:
    for status in ("resolved", "Done.", "superseded by ADR-7", "won't fix", "erledigt", "résolu", "**closed**"):
        assert is_over(status), status
    for status in (None, "", "open", "accepted", "proposed", "in progress", "not done", "?!"):
        assert not is_over(status), status


def test_a_long_text_takes_no_time() -> None:
    assert not asks_for_former("was " * 100_000)
