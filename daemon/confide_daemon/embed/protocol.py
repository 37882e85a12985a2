"""What every embedding model offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    # Float32 rows of unit length, shape (texts, dimensions).
    Vectors: TypeAlias = NDArray[np.float32]
else:
    Vectors = object


class Embedder(Protocol):
    """One model. The three names together say which vectors may be compared: those of one (id, model, dimensions) only.

    Both methods may be called from any thread, and from several at once; they raise `EmbedderError`.
    """

    @property
    def id(self) -> str:
        """The provider, such as `local`."""

    @property
    def model(self) -> str:
        """The model, such as `all-MiniLM-L6-v2-int8`; changes when its weights do."""

    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    def embed_query(self, text: str) -> Vectors:
        """The vector of a question, shape (dimensions,)."""

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of some texts, in their order, shape (len(texts), dimensions)."""
