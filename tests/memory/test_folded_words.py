"""Words are folded, named and paired in one way, so that a machine finds by words what its daemon finds."""

from __future__ import annotations

import unicodedata

import apsw
import pytest

from confide_memory.tools.question import question, words_score
from confide_memory.tools.words import fold, index_words, spelled_otherwise
from confide_proxy.offline.local_corpus import LocalIndex

LEAST = 0.25

FOUND = [
    # Scripts without blanks: words inside of sentences.
    ("支付超时是什么原因", "支付超时的原因是连接池太小。"),
    ("订单服务用哪个端口", "订单服务的端口是 8010。"),
    ("重试次数", "最大重试次数为三次。"),
    ("ログは何日保存しますか", "ログは30日保存します。"),
    ("なぜJWTを選んだのか", "JWTを選んだのは検証が速いからです。"),
    ("東京", "会議は東京で行われる。"),
    ("배치 작업", unicodedata.normalize("NFD", "배치 작업은 밤에 돈다.")),
    ("ｻｰﾊﾞｰ", "サーバーは東京にある。"),
    # Names.
    ("fetchUserById", "fetch_user_by_id is slow"),
    ("fetch_user_by_id", "fetchUserById is slow"),
    ("v1.2.3", "released 1.2.3 today"),
    ("a3f9c12b7d", "fixed by a3f9c12"),
    # Letters that are written in two ways.
    ("διακομιστης", "Ο διακομιστής είναι στην Αθήνα."),
    ("ΔΙΑΚΟΜΙΣΤΉΣ", "Ο διακομιστής είναι στην Αθήνα."),
    ("елка", "Ёлка стоит в офисе."),
    ("خادماً", "الخادم في فرانكفورت، خادما واحدا."),
    ("مکتبة", "مكتبه المشروع هنا"),
    ("ＡＷＳ", "we host at ＡＷＳ"),
    ("AWS", "we host at ＡＷＳ"),
    ("ＡＷＳ", "we host at AWS"),
    ("configuration", "the con\u00adfig\u00adu\u00adra\u00adtion is in etc"),
    ("con\u00adfiguration", "the configuration is in etc"),
    ("zero\u200bwidth", "a zerowidth space"),
    ("ﬁnance", "the finance team"),
    ("finance", "the ﬁnance team"),
    ("Strasse", "Die Straße ist gesperrt."),
    ("Straße", "Die Strasse ist gesperrt."),
    ("dung", "đung cu"),
    ("Đà Nẵng", "van phong o Da Nang"),
    ("Lodz", "das Büro in Łódź"),
    ("Goerlitz", "Der Zug nach Görlitz."),
    ("Görlitz", "Der Zug nach Goerlitz."),
    ("Schluesseluebergabe", "Schlüsselübergabe um neun."),
    (unicodedata.normalize("NFD", "Görlitzer"), "Der Görlitzer Zug."),
    (unicodedata.normalize("NFD", "Schlüsselübergabe"), unicodedata.normalize("NFD", "Schlüsselübergabe um neun.")),
    ("リンゴ", "りんごのアイコン"),
    ("İSTANBUL", "toplantı Istanbul'da"),
    ("जरूरी कागज", "ज़रूरी काग़ज़ तिजोरी में हैं।"),
    ("मुख्य सर्वर", "मुख्य सर्वर यहाँ है।"),
    ("சேவையகம்", "முதன்மை சேவையகம் சென்னையில் உள்ளது."),
    ("release 42", "الإصدار ٤٢ release"),
    ("paypal", "we pay by p\u0430yp\u0430l"),
    ("hello", "h\u0337e\u0334l\u0336l\u0335o\u0337 there"),
    ("🦊", "The mascot is 🦊."),
    ("👍🏽", "👍 means approved"),
    # Numbers.
    ("1,000 users", "the plan has 1000 users"),
    ("1000 users", "the plan has 1,000 users"),
    ("1000 users", "the plan has 1\u202f000 users"),
    ("10 MB", "uploads of 10mb at most"),
    ("10MB", "uploads of 10 MB at most"),
    ("RFC 7230", "RFC7230 describes HTTP"),
    ("RFC7230", "see RFC 7230 for HTTP"),
    ("SHOP1234", "Ticket SHOP-1234 is open"),
    ("978-3-16-148410-0", "the book 9783161484100"),
    *(
        (asked, f"the account is {stored}, at the bank")
        for asked in ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "DE89-3704-0044-0532-0130-00")
        for stored in ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000", "de89-3704-0044-0532-0130-00")
    ),
    *(
        (asked, f"the office has {stored}, until five")
        for asked in ("+49 30 123456", "0049-30-123456", "+4930123456", "+49 (0)30 / 12 34 56")
        for stored in ("+49 30 123456", "0049-30-123456", "+4930123456", "+49 (0) 30 1234-56")
    ),
    ("030 123456", "call 030/123456 at once"),
    ("030123456", "call (030) 12 34 56 at once"),
    ("(555) 123-4567", "call 555.123.4567 at once"),
    ("5551234567", "call 555-123-4567 at once"),
    ("+49 30 123456", "call +49 30 123456-78, or the hall"),
    # Hashes, both ways.
    ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "the digest is 9f86d081884c7d659a2f"),
    ("1234567", "fixed by 1234567abcdef12"),
    ("deadbeefcafe", "deadbeef removed it"),
    # Endings, where there is no stemmer.
    ("где находится сервер", "Серверы находятся во Франкфурте."),
    ("резервная копия", "Резервные копии делаются ночью."),
]
NOTHING = [
    ("Which Kubernetes version do we run?", "We run version 3 of the importer."),
    ("Which database does Anna use?", "Tom has to use the database of the shop."),
    ("SHOP-123", "Ticket SHOP-1234 is open."),
    ("chapter 3", "chapter 31 is long"),
    ("DE89 3704 0044 0532 0130 00", "the account is GB82 WEST 1234 5698 7654 32"),
    ("+49 30 123456", "call 0049-30-123457 at once"),
    ("00:1B:44:11:3A:B7", "the printer has the address 00:1B:44:11:3A:B8"),
    ("какая погода завтра", "Сервер стоит во Франкфурте."),
    ("휴가는 며칠인가요", "배포는 목요일에 합니다."),
    ("1234567", "fixed by 12345678"),
    ("what does 🦄 mean", "🔥 means a production incident"),
]


def local_scores(asked: str, text: str) -> list[float]:
    index = LocalIndex()
    try:
        index.put(("p", "memory/a.md"), f"{text}\n")
        return [hit[2] for hit in index.search(question(asked))]
    finally:
        index.close()


@pytest.mark.parametrize(("asked", "text"), FOUND)
def test_both_ends_find_it(asked: str, text: str) -> None:
    """By the daemon's tokenizer, and with a score that is shown by the search of this machine's files."""
    database = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'porter unicode61')")
    database.execute("INSERT INTO t VALUES (?)", (f"{text}\n{index_words(text)}",))
    terms = question(asked).terms
    held = [term for term in terms if database.execute("SELECT 1 FROM t WHERE t MATCH ?", (term.match,)).fetchall()]
    assert 2 * len(held) >= len(terms) > 0
    assert max(local_scores(asked, text)) >= LEAST


@pytest.mark.parametrize(("asked", "text"), NOTHING)
def test_what_shares_a_word_or_two_is_no_answer_here_either(asked: str, text: str) -> None:
    """The score by words knows how much of the question a piece holds, on both ends."""
    assert max(local_scores(asked, text), default=0.0) < LEAST


def test_rows_from_before_letters_were_folded_are_found_as_they_were() -> None:
    """Until the daemon has been through all documents, and it says that it has not."""
    database = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'porter unicode61')")
    database.executemany("INSERT INTO t VALUES (?)", [("ＡＷＳ straße",), ("ﾊﾞｯｸｱｯﾌﾟ ﾊﾞ ｯｸ",)])
    for asked in ("ＡＷＳ", "Straße", "ﾊﾞ"):
        assert database.execute("SELECT 1 FROM t WHERE t MATCH ?", (question(asked).match,)).fetchall(), asked


def test_plain_texts_have_nothing_beside_them() -> None:
    """The index of English and of most German grows by nothing."""
    for text in ("the pool was empty", "Der Zug nach Görlitz fährt über Köln, naïve café", "Größe 20 € – „so“…"[8:]):
        assert index_words(text) == ""
        assert fold(text).split()[0] == unicodedata.normalize("NFKC", text).split()[0]
    assert fold("plain") == "plain"
    assert [spelled_otherwise(word) for word in ("queue", "value", "request", "issue", "shoe", "true")] == [None] * 6
    assert spelled_otherwise("mueller") == "müller"


def test_a_score_by_words_is_bounded_by_names() -> None:
    assert words_score(0.0, 0.0, is_named=True) > 0.35
    assert words_score(1.0, 1.0) > 0.9 > 0.25 > words_score(1.0, 1.0, lacking=0.8)
