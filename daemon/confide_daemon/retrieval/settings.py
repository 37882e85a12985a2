"""How a space is cut, embedded and searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confide_daemon.config import ChunkSettings
from confide_daemon.retrieval.indexing.generations import Patience
from confide_daemon.retrieval.search.ranking import Weights
from confide_daemon.store.rows import Generation

if TYPE_CHECKING:
    from confide_daemon.embedding import Model
    from confide_daemon.embedding.reranker import Reranker


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The settings of a space's index. Each part of it gets what it needs of them.

    Attributes:
        duplicate_similarity: what a note must have in common with another one, at least, to be told of as its duplicate.
        former: a model for questions on the vectors of a generation that another one of the same provider is to follow.
    """

    chunks: ChunkSettings = field(default_factory=ChunkSettings)
    weights: Weights = field(default_factory=Weights)
    patience: Patience = field(default_factory=Patience)
    reranker: Reranker | None = None
    duplicate_similarity: float = 0.9
    former: Callable[[Generation], Model | None] | None = field(default=None, compare=False)
