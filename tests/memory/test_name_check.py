"""A name or a number that a query asks for: a text with another one is no certain answer, at neither end."""

from __future__ import annotations

import time

import apsw
import pytest

from confide_memory.tools.name_check import NameCheck
from confide_memory.tools.question import PARTLY, bounds, logistic, question
from confide_memory.tools.words import fold, index_words

# Asked, a text that has it, and one that has its neighbour.
NEIGHBOURS = [
    ("SHOP-123", "Ticket SHOP-123 is closed.", "Ticket SHOP-1234 is open."),
    ("SHOP-123", "on the branch fix/SHOP-123-login", "Ticket SHOP-123-4 is open."),
    ("10.0.0.1", "The gateway is 10.0.0.1:8080", "The gateway is 10.0.0.12"),
    ("what changed in v1.2", "v1.2 got a dark mode", "v1.20 got a dark mode"),
    ("what changed in v1.2", "1.2 got a dark mode", "v1.2.1 got a dark mode"),
    ("which service uses port 808", "the proxy uses port 808", "the proxy uses port 8080"),
    ("error 404", "the page gave error 404", "the page gave error 4040"),
    ("1,000 users", "the plan has 1000 users", "the plan has 1,000,000 users"),
    ("1000 users", "the plan has 1,000 users", "the plan has 10,000 users"),
    ("100 users", "the plan has 100 users", "the plan has 100,000 users"),
    ("1,299.00 USD", "it costs 1,299.00 USD", "it costs 1,299.50 USD"),
    ("1299.00 USD", "it costs 1,299.00 USD", "it costs 11,299.00 USD"),
    ("1,299.00 USD", "it costs 1299.00 USD", "it costs 299.00 USD"),
    ("1.299,00 €", "es kostet 1299,00 €", "es kostet 1.299,01 €"),
    ("1299,00 €", "es kostet 1.299,00 €", "es kostet 299,00 €"),
    ("1'234.50 CHF", "it costs 1234.50 CHF", "it costs 1'234.55 CHF"),
    ("$1,000,000.00", "a budget of $1000000.00", "a budget of $1,000.00"),
    ("12,50 €", "die Karte kostet 12,50 €", "die Karte kostet 12,55 €"),
    ("10,5 %", "der Satz ist 10,5 %", "der Satz ist 10,6 %"),
    ("what fixed ERR_CONN_42", "ERR_CONN_42 went with a larger pool", "ERR_CONN_41 went with a larger pool"),
    ("which rights does user_a have", "user_a may write", "user_b may write"),
    ("what does alice.smith own", "alice.smith owns billing", "alice.smyth owns billing"),
    ("who is alice@example.com", "alice@example.com owns billing", "alice@example.org owns billing"),
    ("what broke in v1.2.3", "v1.2.3 broke the import", "v1.2.4 broke the import"),
    ("what does getUserById do", "get_user_by_id reads the cache", "getUserByName reads the cache"),
    ("what does getUserById do", "client.getUserById() reads the cache", "getUserByIds reads the cache"),
    ("docs at https://example.com/setup", "see example.com/setup", "see https://example.com/setup-old"),
    ("why src/app/main.py failed", "src/app/main.py:142 failed", "src/app/main_test.py failed"),
    ("who is fe80::1", "the router is fe80::1", "the router is fe80::12"),
    ("which lab has python 3.1", "the lab has python 3.1", "the lab has python 3.12"),
    ("what did a3f9c12b7d fix", "a3f9c12 fixed the race", "a3f9c13 fixed the race"),
    ("what did a3f9c12b7d fix", "a3f9c12b7d44e fixed the race", "a3f9c12b7e fixed the race"),
    ("what did deadbeefcafe fix", "deadbeef fixed the race", "deadbead fixed the race"),
    ("commit 1234567", "commit 1234567abcdef12", "commit 12345678"),
    ("call +49 30 1234567", "call +49 30 1234567", "call +49 30 12345678"),
    ("the mail on 2026-11-01", "2026-11-01: the mail", "2026-11-02: the mail"),
    ("call +4930123456", "call 0049-30-123456", "call 0049-30-123457"),
    ("call 030/123456", "call 030 12 34 56", "call 030 12 34 57"),
    (
        "which bank has DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00 is at the bank",
        "DE75 5121 0800 1245 1261 99 is at the bank",
    ),
    ("what is in chapter 3", "chapter 3 is on taxes", "chapter 31 is on taxes"),
    ("which step was skipped, step 2?", "Step 2: skipped", "Step 1: done\n\nStep 3: skipped"),
    ("what happened in KW 4", "KW 4: the move", "KW 46: the move"),
    ("who sits in room B12", "room B12: Ann", "room B121: Ann"),
    ("A1", "cell A1 has the sum", "cell A12 has the sum"),
    ("Q3 results", "the Q3 results are good", "the Q4 results are good"),
    ("which printer has 00:1B:44:11:3A:B7", "00:1B:44:11:3A:B7 is in the hall", "00:1B:44:11:3A:B8 is in the hall"),
    ("what does RFC 7230 say", "RFC7230 is on HTTP", "RFC7231 is on HTTP"),
    ("RFC7230", "RFC 7230 is on HTTP", "RFC 7231 is on HTTP"),
    ("is SHOP1234 open", "SHOP-1234 is open", "SHOP-1235 is open"),
    ("invoice 4472", "invoice no. 4472 is paid", "invoice number 4471 is paid"),
    ("is invoice number 4472 paid", "Invoice #4472 is paid", "Invoice 4471 is paid"),
    ("revenue 2025", "Revenue 2024: 5 M EUR. 2025: 6 M EUR.", "Revenue 2024: 5 M EUR. 2026: 6 M EUR."),
    ("who annotated chapters 41 to 75?", "Ann did chapters 1-40, Tom 41-75", "Ann did chapters 1-40, Tom 42-74"),
    ("who wrote chapter 50?", "Tom wrote chapters 41\u201375", "Tom wrote chapters 51\u201375"),
    ("which room has 30 seats, room 12?", "room 12 has 30 seats", "room 13 has 30 seats"),
    ("When is Anna Strand's birthday?", "Anna Strand's birthday is in May", "Anna Berg's birthday is in May"),
    ("Anna Strand birthday", "The birthday of Anna is in May", "The birthday of Tom Strand is in May"),
    ("what does Norsk Hydro owe", "Norsk owes 4 EUR", "Norsk Data owes 4 EUR"),
    ("where is the Claude Desktop config", "Desktop: the config of Claude is in ~", "the Claude Code config is in ~"),
    ("978-3-16-148410-0", "the book 9783161484100", "the book 9783161484101"),
]


def lacking(asked: str, text: str) -> float:
    database = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'porter unicode61')")
    database.execute("INSERT INTO t VALUES (?)", (f"{text}\n{index_words(text)}",))
    names = NameCheck(question(asked))

    def holds(place: int) -> bool:
        return bool(database.execute("SELECT 1 FROM t WHERE t MATCH ?", (names.terms[place].match,)).fetchall())

    return names.lacking(text, holds) if names.is_needed else 0.0


@pytest.mark.parametrize(("asked", "text", "other"), NEIGHBOURS)
def test_a_neighbour_is_no_certain_answer(asked: str, text: str, other: str) -> None:
    """Its score is less than a half whatever else it says, that of the right one has no such bound."""
    assert lacking(asked, text) == 0.0
    _, most = bounds(is_named=True, lacking=lacking(asked, other))
    assert logistic(most) < 0.5


@pytest.mark.parametrize(
    "text",
    [
        "Strand's birthday is in May",
        "Anna S. has her birthday in May",
        "Anna's birthday is in May",
        "Anna Maria Strand was born in May",
        "Anna Strands birthday is in May",
        "Anna Stand was born in May",
        "Birthdays: anna in may",
        "Mrs Strand was born in May, says Anna",
    ],
)
def test_a_part_of_a_name_may_be_the_same_one(text: str) -> None:
    assert lacking("When is Anna Strand's birthday?", text) == 0.0


def test_neighbours_that_name_the_one_who_is_asked_for_leave_a_doubt() -> None:
    names = NameCheck(question("When is Anna Strand's birthday?"))
    own, around = "Unlike Anna Berg, she was born in May.", "Anna Strand leads the team."
    shares = [names.lacking(f"{other}\n{own}", lambda _place: True, own=own) for other in (around, "She leads it.")]
    most = [logistic(bounds(is_named=False, lacking=share)[1]) for share in shares]
    assert most == pytest.approx([0.45, 0.18], abs=0.01)


@pytest.mark.parametrize(("asked", "text"), [("ERR_CONN", "ERR_CONN_42 again"), ("fetch_user", "fetch_user_by_id")])
def test_the_beginning_of_a_name_is_less_certain_than_the_name(asked: str, text: str) -> None:
    assert lacking(asked, text) == PARTLY
    assert lacking(asked, text.split()[0].replace("_42", "").replace("_by_id", "")) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        *(
            "how do we deploy",
            "is the follow-up done",
            "what did we decide last week",
            "which of the 3 replicas is slow",
        ),
        *("the top 3 reasons for Postgres", "what came on March 3?"),
    ],
)
def test_questions_without_names_are_not_bounded(text: str) -> None:
    """A digit says little, unless the text has another number of the same kind."""
    assert lacking(text, "an unrelated line, of March 14") == 0.0


HOSTILE = {
    "emoji": "".join(chr(0x1F300 + number % 700) for number in range(10_000)),
    "zalgo": "".join(letter + "\u0335\u0341\u0317" * 20 for letter in "why does it crash " * 20),
    "directions": "\u202eabc\u202c שלום \u2066x\u2069 مرحبا " * 300,
    "digits": "9" * 500 + " " + "1,000" * 500 + " " + "1." * 2000,
    "hashes": "deadbeef" * 500 + " " + "1234567a " * 500,
    "long word": "a" * 5000 + " " + "я" * 5000 + " " + "支" * 5000,
    "disguised": "p\u0430yp\u0430l" * 800 + " " + "p\u0430\u0434" * 1500,
    "joined": "a_" * 2000 + "b-" * 2000 + "c/" * 2000 + "d.e@" * 1000,
    "humps": "aB" * 3000,
    "a file": "\n".join(f"def name_{number}(x={number}):  # ERR_{number} v1.{number}.2" for number in range(400)),
    "ligatures": "\ufdfa" * 4000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_texts_of_any_kind_take_bounded_time(kind: str) -> None:
    """As a query, in the index, and as a text that is looked through."""
    text = HOSTILE[kind]
    since = time.process_time()
    fold(text)
    index_words(text)
    asked = question(text)
    assert len(asked.terms) <= 48
    NameCheck(asked).lacking(text, lambda _place: True)
    lacking("ERR_CONN_42 a3f9c12b7d 1,000 aB.c", text)
    assert time.process_time() - since < 3
