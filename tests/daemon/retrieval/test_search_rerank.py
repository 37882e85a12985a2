"""The optional cross-encoder: a folder with a model, its time, and what happens when it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S

from confide_daemon.embedding import LoadedModel
from confide_daemon.embedding.libraries import read_packaged
from confide_daemon.embedding.reranker import CrossEncoder, Reranker
from confide_daemon.errors import EmbedderError
from confide_daemon.retrieval.search.query import SearchQuery
from confide_daemon.spaces.models import IndexSettings
from confide_daemon.spaces.space import Space, SpaceShared

# ---------------------------------------------------------------- a tiny model, as protobuf (onnx.proto3)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _value(name: str, kind: int, *shape: str) -> bytes:
    dimensions = b"".join(_field(1, _field(2, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, dimensions)))


def _node(kind: str, inputs: list[str], output: str, *attributes: bytes) -> bytes:
    body = b"".join(_field(1, name) for name in inputs) + _field(2, output) + _field(4, kind)
    return body + b"".join(_field(5, attribute) for attribute in attributes)


def counting_model(token: int) -> bytes:
    """A graph whose logit is how often the token stands in the pair: Cast(Equal(input_ids, token)), summed over each row."""
    constant = _field(1, 1) + _field(2, 7) + _field(8, "token") + _field(9, token.to_bytes(8, "little"))
    axes = _field(1, 1) + _field(2, 7) + _field(8, "axes") + _field(9, (1).to_bytes(8, "little"))
    to_float = _field(1, "to") + _field(3, 1) + _field(20, 2)
    nodes = [
        _node("Equal", ["input_ids", "token"], "same"),
        _node("Cast", ["same"], "ones", to_float),
        _node("ReduceSum", ["ones", "axes"], "logits"),
    ]
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, "counting") + _field(5, constant) + _field(5, axes)
    graph += _field(11, _value("input_ids", 7, "pairs", "tokens")) + _field(12, _value("logits", 1, "pairs", "one"))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cross-encoder that likes the word "harbour"."""
    from tokenizers import Tokenizer

    data = read_packaged("minilm.tokenizer.json")
    token = Tokenizer.from_buffer(data).token_to_id("harbour")
    assert token is not None
    (tmp_path / "reranker").mkdir()
    (tmp_path / "reranker" / "tokenizer.json").write_bytes(data)
    (tmp_path / "reranker" / "model.onnx").write_bytes(counting_model(token))
    return tmp_path / "reranker"


# ---------------------------------------------------------------- behaviour


def test_texts_are_put_in_the_models_order(folder: Path) -> None:
    """The better first, the others as they came."""
    reranker = Reranker(folder)
    assert reranker.wait(DEADLINE_S)
    assert reranker.failure is None
    assert reranker.order("where", ["a ship", "the harbour", "harbour, harbour", "a mast"]) == [2, 1, 0, 3]


def test_what_there_is_no_time_for_stays_behind_as_it_was(folder: Path) -> None:
    """One batch is always looked at."""
    model = CrossEncoder(folder, threads=1)
    assert len(model.scores("where", ["text"] * 20, deadline=0.0)) == 4
    reranker = Reranker(folder, deadline_s=0.0)
    assert reranker.wait(DEADLINE_S)
    texts = ["a", "b", "c", "harbour", "harbour harbour", "f"]
    assert reranker.order("where", texts) == [3, 0, 1, 2, 4, 5]


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
def test_a_folder_that_cannot_be_used_is_told(folder: Path, broken: str) -> None:
    """And nothing waits for it."""
    (folder / broken).write_bytes(b"nonsense")
    with pytest.raises(EmbedderError, match="reranker"):
        CrossEncoder(folder, threads=1)
    (folder / broken).unlink()
    reranker = Reranker(folder)
    assert reranker.wait(DEADLINE_S)
    assert "needs model.onnx and tokenizer.json" in str(reranker.failure)
    assert reranker.order("where", ["a", "harbour"]) == [0, 1]


async def test_a_search_uses_it_and_says_when_it_cannot(tmp_path: Path, folder: Path) -> None:
    """The ranking is the model's, the score that is shown is not."""
    key = os.urandom(32)
    for place, first in ((folder, "memory/b.md"), (tmp_path / "nowhere", "memory/a.md")):
        reranker = Reranker(place)
        assert reranker.wait(DEADLINE_S)
        path, settings = tmp_path / f"{place.name}.db", IndexSettings(reranker=reranker)
        space = await Space.open(path, key, SpaceShared(settings, LoadedModel.none()), space_id="s")
        await space.documents.put("p", "memory/a.md", "ships and ships and boats\n", base=0, author="a")
        await space.documents.put("p", "memory/b.md", "ships lie in the old harbour of the town\n", base=0, author="a")
        result = await space.index.searcher.search(SearchQuery("ships", min_score=0))
        assert result.hits[0].path == first
        assert any("ranked without it" in warning for warning in result.warnings) == (place != folder)
        await space.close()
