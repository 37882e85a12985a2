"""How a space is cut, embedded and searched, and the embedding models, as the configuration asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from confide_daemon.config import BALANCED, ChunkSettings, DaemonConfig, EmbeddingConfig, SearchConfig
from confide_daemon.embedding import Embedder, LoadedModel, providers, token_counts
from confide_daemon.embedding.memory.idle_unload import RestingEmbedder
from confide_daemon.embedding.reranker import Reranker
from confide_daemon.embedding.settings import AUTO, RemoteSettings
from confide_daemon.retrieval.indexing.generations import Patience
from confide_daemon.retrieval.search.ranking import ORIGINAL, Weights
from confide_daemon.store.tables.pieces import Generation


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The settings of a space's index. Each part of it gets what it needs of them."""

    chunks: ChunkSettings = field(default_factory=ChunkSettings)
    weights: Weights = field(default_factory=Weights)
    patience: Patience = field(default_factory=Patience)
    reranker: Reranker | None = None
    # what a note must have in common with another one, at least, to be told of as its duplicate
    duplicate_similarity: float = 0.9
    # a model for questions on the vectors of a generation that another one of the same provider is to follow
    former: Callable[[Generation], LoadedModel | None] | None = field(default=None, compare=False)


def index_settings(config: DaemonConfig) -> IndexSettings:
    """How every space of this daemon is cut and searched."""
    return IndexSettings(
        chunks=ChunkSettings.named(config.index.chunks),
        weights=_weights(config.search),
        reranker=_reranker(config),
        duplicate_similarity=config.notes.duplicate_similarity,
        former=partial(former, config.embedding),
    )


def _weights(settings: SearchConfig) -> Weights:
    factors = {name: getattr(settings, name) for name in (*BALANCED, "half_life_days", "usage_full")}
    if settings.ranking == "original":
        return replace(ORIGINAL, dated=settings.dated_weight, sessions=settings.sessions_weight, **factors)
    return Weights(
        vector=settings.vector_weight,
        keyword=settings.keyword_weight,
        exact=settings.exact_weight,
        dated=settings.dated_weight,
        sessions=settings.sessions_weight,
        **factors,
    )


def _reranker(config: DaemonConfig) -> Reranker | None:
    if not config.search.reranker:
        return None
    # Imported late: it brings numpy's weight.

    return Reranker(Path(config.search.reranker).expanduser(), threads=config.embedding.threads)


TRY_OUT_S = 15.0
# The original plan's order, best first.
ORDER = ("voyage", "openai", "local")


def order(settings: EmbeddingConfig) -> tuple[str, ...]:
    """The names of the providers to ask, the wanted one first; empty where there is to be none.

    Nothing is ever sent to a provider because a key for it happens to be in the environment: it is named, or has a key file.
    """
    if settings.provider == providers.NONE:
        return ()
    if settings.fallback != (AUTO,):
        return tuple(dict.fromkeys((settings.provider, *settings.fallback)))
    if not isinstance(settings.sections.get(settings.provider), RemoteSettings):
        return (settings.provider,)
    others = [name for name in ORDER if name == "local" or settings.section(name).key_file]
    return tuple(dict.fromkeys((settings.provider, *others)))


def load(settings: EmbeddingConfig, name: str | None = None) -> Embedder:
    """The model of a provider, loaded; the wanted one where none is named. One on the network is not asked whether it answers.

    Raises EmbedderError where it is missing or cannot be used.
    """
    # Imported late: it brings onnxruntime's and numpy's weight, and loading runs in a thread of its own.
    return providers.provider(name or settings.provider).create(settings)


def try_out(settings: EmbeddingConfig, name: str) -> None:
    """Loads the model of a provider and embeds a word with it. Raises EmbedderError: why it cannot be used, or does not answer now."""
    own = settings.sections.get(name)
    if isinstance(own, RemoteSettings):
        # A server that still has to load its model takes longer than a question may; a minute is too long for who looks on.
        own = replace(own, timeout_s=min(own.timeout_s, TRY_OUT_S))
        settings = replace(settings, sections={**settings.sections, name: own})
    embedder = load(settings, name)
    try:
        embedder.embed_documents(["hello"])
    finally:
        if (close := getattr(embedder, "close", None)) is not None:
            close()


def start(settings: EmbeddingConfig) -> list[LoadedModel]:
    """The configured models in the order of fallback, loading in the background; searches before one is ready go by keywords."""
    token_counts.rest_after(settings.unload_after_s)
    return [_model(settings, name) for name in order(settings)] or [LoadedModel.none()]


def former(settings: EmbeddingConfig, generation: Generation) -> LoadedModel | None:
    """The model of a generation, for questions, where its provider is asked for another one now.

    So searches go on by meaning until the vectors of the new model are complete. None where the provider is not used any more: a question
    goes to nobody who is not named.
    """
    name = generation.provider
    own = settings.sections.get(name)
    # A name with a "+" holds more than the model (`embedding.settings.named`).
    if name not in order(settings) or not isinstance(own, RemoteSettings) or "+" in generation.model:
        return None
    if own.model == generation.model and own.dimensions in (0, generation.dimensions):
        return None
    # Where a model's own dimensions are taken, not every server knows the option.
    then = replace(own, model=generation.model, dimensions=own.dimensions and generation.dimensions)
    if then.problem() is not None:
        return None
    return _model(replace(settings, sections={**settings.sections, name: then}), name)


def _resting(settings: EmbeddingConfig, name: str) -> Embedder:
    """The model of a provider on this machine, which is dropped while nobody uses it. Raises EmbedderError."""
    if not settings.unload_after_s:
        return load(settings, name)
    return RestingEmbedder(lambda: load(settings, name), settings.unload_after_s)


def _model(settings: EmbeddingConfig, name: str) -> LoadedModel:
    own = settings.sections.get(name)
    if not isinstance(own, RemoteSettings):
        return LoadedModel(lambda: _resting(settings, name), name=name)
    return LoadedModel(
        lambda: load(settings, name), name=name, monthly_tokens=own.monthly_tokens, price_per_million=own.price()
    )
