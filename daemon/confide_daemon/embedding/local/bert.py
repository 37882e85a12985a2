"""The encoder of a BERT model (Devlin et al., arXiv 1810.04805) in numpy, with 8-bit weights that
are mapped from their file.

A general runtime such as ONNX Runtime takes 35 MB besides the weights and never frees them. This
module runs only the packaged model, in the layout of its file. For a multiplication, a matrix is
converted to float in a buffer, and the columns of the result are scaled afterwards, since each has
one scale. The conversion costs less than the time saved by reading a quarter of the memory. The
vectors equal those of ONNX Runtime except for the last digits of a float.

The texts of a run are concatenated, so nothing is computed for padding. Attention is computed for
each text separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]

_HEAD: Final = 32
"""Width of one attention head."""
_EPSILON: Final = np.float32(1e-12)
"""Epsilon of layer normalization, as in BERT."""
_FOUR: Final = 4
"""Rows that a processor multiplies at once: ten take longer than twelve."""
_FEW: Final = 16
_SMALL: Final = 1_000_000
"""Largest product that OpenBLAS multiplies in place with AVX-512 (GEMM_SMALL_MATRIX_PERMIT); it
copies larger ones first.

For the few rows of a query that copy takes longer than the product, so the matrix is multiplied in
pieces.
"""
_BLOCK: Final = 16_384
"""Numbers that `_gelu` processes at a time, so that they stay in a core's cache."""
_P: Final = np.float32(0.3275911 / np.sqrt(2))
_A: Final = tuple(np.float32(a / 2) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
"""Abramowitz and Stegun 7.1.26, for half the complementary error function of x / √2; the error is
at most 1.5e-7.
"""


@dataclass(frozen=True, slots=True)
class _Desk:
    """Reusable buffers of a run; allocating them each time would cost a query a tenth.

    Attributes:
        matrix: one matrix of the model, as floats.
        block: three blocks of `_gelu`.
    """

    matrix: Floats
    block: Floats

    @classmethod
    def of(cls, largest: int) -> _Desk:
        return cls(np.empty(largest, dtype=np.float32), np.empty((3, _BLOCK), dtype=np.float32))


@dataclass(frozen=True, slots=True)
class _Dense:
    """A dense layer, `x @ (weights * scale) + bias`, with its weights in adjacent parts."""

    weights: tuple[NDArray[np.int8], ...]
    scale: Floats
    bias: Floats

    @classmethod
    def of(cls, *parts: tuple[NDArray[np.int8], Floats, Floats]) -> _Dense:
        weights, scales, biases = zip(*parts, strict=True)
        return cls(weights, np.concatenate([scale.reshape(-1) for scale in scales]), np.concatenate(biases))

    @property
    def size(self) -> int:
        return len(self.weights[0]) * len(self.scale)

    def __call__(self, x: Floats, desk: _Desk) -> Floats:
        height, width = x.shape[1], len(self.scale)
        step = height if len(x) > _FEW else max(1, min(height, _SMALL // (len(x) * width)))
        made = self._product(x[:, :step], 0, desk)
        for start in range(step, height, step):
            made += self._product(x[:, start : start + step], start, desk)
        made *= self.scale
        made += self.bias
        return made

    def _product(self, x: Floats, start: int, desk: _Desk) -> Floats:
        """Return the unscaled product of `x` with as many rows of the weights, from `start` on, as
        `x` has columns.
        """
        height, width = x.shape[1], len(self.scale)
        floats = desk.matrix[: height * width].reshape(height, width)
        for left, part in zip(range(0, width, part_width := self.weights[0].shape[1]), self.weights, strict=True):
            np.copyto(floats[:, left : left + part_width], part[start : start + height])
        made: Floats = x @ floats
        return made


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalization."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        """Normalize each row in place."""
        share = np.float32(1 / x.shape[1])
        x -= np.add.reduce(x, axis=1, keepdims=True) * share
        deviation = np.add.reduce(x * x, axis=1, keepdims=True) * share
        x /= np.sqrt(deviation + _EPSILON)
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True, slots=True)
class _Layer:
    attention: _Dense  # queries, keys and values
    attended: _Dense
    attended_norm: _Norm
    wide: _Dense
    narrow: _Dense
    norm: _Norm

    def __call__(self, x: Floats, ends: Sequence[int], desk: _Desk) -> Floats:
        asked = self.attention(x, desk)
        seen = np.zeros_like(x)
        for start, end in pairwise((0, *ends)):
            seen[start:end] = _attention(asked[start:end])
        seen = self.attended(seen, desk)
        seen += x
        x = self.attended_norm(seen)
        made = self.narrow(_gelu(self.wide(x, desk), desk), desk)
        made += x
        return self.norm(made)


class Bert:
    """The encoder of a BERT model. Usable from any thread, concurrently.

    Attributes:
        dimensions: the number of elements of a vector.
    """

    def __init__(self, constants: Mapping[str, NDArray[Any]], *, layers: int) -> None:
        """Args:
            constants: from `initializers`: a PyTorch export that names the biases; matrices are found by order, six a layer.

        Raises ValueError if they are not those of such a model.
        """
        try:
            self._read(constants, layers)
        except (KeyError, IndexError) as error:
            raise ValueError("not the constants of a BERT model") from error

    def _read(self, constants: Mapping[str, NDArray[Any]], layers: int) -> None:
        def floats(name: str) -> Floats:
            return np.array(constants[f"inner.{name}"], dtype=np.float32)  # where a processor wants floats to stand

        def norm(name: str) -> _Norm:
            return _Norm(floats(f"{name}.LayerNorm.weight"), floats(f"{name}.LayerNorm.bias"))

        self._words = _Table.of(constants, "inner.embeddings.word_embeddings.weight")
        self._places = _Table.of(constants, "inner.embeddings.position_embeddings.weight")
        self._kind = floats("embeddings.token_type_embeddings.weight")[0]
        self._norm = norm("embeddings")
        self.dimensions = len(self._kind)
        matrices = [name[:-2] for name in constants if name.startswith("val_") and name.endswith("_q")]
        self._layers = []
        for number in range(layers):
            layer = f"encoder.layer.{number}"
            dense = [
                (
                    constants[f"{name}_q"],
                    np.array(constants[f"{name}_scale"], dtype=np.float32),
                    floats(f"{layer}.{of}.bias"),
                )
                for name, of in zip(matrices[6 * number : 6 * number + 6], _ORDER, strict=True)
            ]
            # The scale of attention scores, applied to the weights in advance.
            for part in dense[0][1:]:
                part *= np.float32(_HEAD**-0.5)
            self._layers.append(
                _Layer(
                    _Dense.of(*dense[:3]),
                    _Dense.of(dense[3]),
                    norm(f"{layer}.attention.output"),
                    _Dense.of(dense[4]),
                    _Dense.of(dense[5]),
                    norm(f"{layer}.output"),
                )
            )
        self._largest = max(part.size for layer in self._layers for part in (layer.attention, layer.wide, layer.narrow))
        self._desks: list[_Desk] = []

    def means(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return the mean of the encoder's outputs over the tokens of each text, with shape (texts,
        dimensions). Each text must have at least one token.
        """
        ends = np.cumsum([len(text) for text in texts]).tolist()
        rows = np.zeros((-(-ends[-1] // _FOUR) * _FOUR, self.dimensions), dtype=np.float32)
        x = rows[: ends[-1]]
        x += self._words.rows([token for text in texts for token in text])
        x += self._places.rows([place for text in texts for place in range(len(text))])
        x += self._kind
        with self._desk() as desk:
            made = self._norm(rows)
            for layer in self._layers:
                made = layer(made, ends, desk)
        return np.stack([made[start:end].mean(axis=0) for start, end in pairwise((0, *ends))])

    @contextmanager
    def _desk(self) -> Iterator[_Desk]:
        """Yield buffers for one run; as many are kept as runs were concurrent."""
        try:
            desk = self._desks.pop()
        except IndexError:
            desk = _Desk.of(self._largest)
        yield desk
        self._desks.append(desk)


_ORDER: Final = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


@dataclass(frozen=True, slots=True)
class _Table:
    """A matrix in eight bits with one scale per row."""

    table: NDArray[np.int8]
    scale: Floats

    @classmethod
    def of(cls, constants: Mapping[str, NDArray[Any]], name: str) -> _Table:
        return cls(constants[f"{name}_q"], np.array(constants[f"{name}_scale"], dtype=np.float32))

    def rows(self, places: Sequence[int]) -> Floats:
        """Return the rows at these indexes as floats."""
        return np.asarray(self.table[places] * self.scale[places], dtype=np.float32)


def _attention(asked: Floats) -> Floats:
    """Return the attention output of one text. `asked` has queries, keys and values of all heads,
    side by side.
    """
    size = len(asked)
    queries, keys, values = asked.reshape(size, 3, -1, _HEAD).transpose(1, 2, 0, 3)
    seen = np.empty((size, len(queries), _HEAD), dtype=np.float32)
    # All heads at once while they fit into a core's cache.
    step = max(1, _BLOCK * 4 // size**2)
    for head in range(0, len(queries), step):
        heads = slice(head, head + step)
        weights = queries[heads] @ keys[heads].transpose(0, 2, 1)
        weights -= np.maximum.reduce(weights, axis=2, keepdims=True)
        np.exp(weights, out=weights)
        found = weights @ values[heads]
        found /= np.add.reduce(weights, axis=2, keepdims=True)
        seen[:, heads] = found.transpose(1, 0, 2)
    return seen.reshape(size, -1)


def _gelu(x: Floats, desk: _Desk) -> Floats:
    """Compute x Φ(x) of each number in place (Hendrycks and Gimpel, arXiv 1606.08415)."""
    flat = x.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK]
        size, t, half = desk.block[:, : len(block)]
        np.abs(block, out=size)
        np.multiply(size, _P, out=t)
        t += np.float32(1)
        np.divide(np.float32(1), t, out=t)
        np.multiply(t, _A[0], out=half)
        for factor in _A[1:]:
            half += factor
            half *= t
        # The result is max(x, 0) - |x| (1 - Φ(|x|)).
        half *= size
        size *= size
        size *= np.float32(-0.5)
        np.exp(size, out=size)
        half *= size
        np.maximum(block, np.float32(0), out=block)
        block -= half
    return x
