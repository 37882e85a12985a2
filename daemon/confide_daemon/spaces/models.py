"""The embedding models of the daemon, and the index settings of its spaces, from the configuration."""

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
    """The settings of a space's index; each part of the index receives those it needs."""

    chunks: ChunkSettings = field(default_factory=ChunkSettings)
    weights: Weights = field(default_factory=Weights)
    patience: Patience = field(default_factory=Patience)
    reranker: Reranker | None = None
    # least similarity at which a note is reported as a duplicate of another one
    duplicate_similarity: float = 0.9
    # returns the former model of a provider, for queries on its generation until the next one is
    # complete
    former: Callable[[Generation], LoadedModel | None] | None = field(default=None, compare=False)


def index_settings(config: DaemonConfig) -> IndexSettings:
    """Return the index settings of every space of this daemon."""
    return IndexSettings(
        chunks=ChunkSettings.parse(config.index.chunks),
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
MULTILINGUAL = "multilingual"
# Order of preference in the original plan, best first.
ORDER = ("voyage", "openai", "local")


def order(settings: EmbeddingConfig) -> tuple[str, ...]:
    """Return the names of the providers to use, the preferred one first; empty if no embedding
    model is configured.

    A remote fallback is used only if the configuration names it or its key file. An API key in the
    environment alone is not enough to send it texts.
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
    """Load a provider's model and return it. `name` None: the preferred provider. A remote provider
    is not contacted yet.

    Raises EmbedderError if the model is missing or unusable.
    """
    # Imported late: it loads onnxruntime and numpy, and runs on a thread of its own.
    return providers.provider(name or settings.provider).create(settings)


def try_out(settings: EmbeddingConfig, name: str) -> None:
    """Load a provider's model and embed one word, as a test. Raises EmbedderError if the model
    cannot be used or does not answer now.
    """
    own = settings.sections.get(name)
    if isinstance(own, RemoteSettings):
        # A server that still has to load its model takes longer than a query may; a minute is too
        # long for a waiting user.
        own = replace(own, timeout_s=min(own.timeout_s, TRY_OUT_S))
        settings = replace(settings, sections={**settings.sections, name: own})
    embedder = load(settings, name)
    try:
        embedder.embed_documents(["hello"])
    finally:
        if (close := getattr(embedder, "close", None)) is not None:
            close()


def start(settings: EmbeddingConfig) -> list[LoadedModel]:
    """Start to load all configured models in the background; return them, the preferred one first.
    Searches use keywords only until a model is ready.

    With the packaged model, the multilingual model is loaded too, if it is installed
    (`LoadedModel.is_aside`).
    """
    token_counts.rest_after(settings.unload_after_s)
    names = order(settings)
    found = [_model(settings, name) for name in names] or [LoadedModel.none()]
    if names[:1] == ("local",) and not settings.folder:
        found += _multilingual_models(settings)
    return found


def _multilingual_models(settings: EmbeddingConfig) -> list[LoadedModel]:
    """Return the multilingual model, which is not loaded yet, or nothing if it is not installed."""
    from confide_daemon.embedding.local.multilingual import Multilingual, is_installed  # numpy: 16 MB

    if not is_installed():
        return []
    return [LoadedModel(lambda: Multilingual(settings.unload_after_s), name=MULTILINGUAL, is_aside=True)]


def former(settings: EmbeddingConfig, generation: Generation) -> LoadedModel | None:
    """Return the model that made an existing set of vectors, if the provider is now configured with
    another model. Otherwise return None.

    It embeds queries, so that semantic search continues until the new model's vectors are complete.
    A provider that is no longer configured gets no queries.
    """
    name = generation.provider
    own = settings.sections.get(name)
    # A name with a "+" contains more than the model (`embedding.settings.generation_name`).
    if name not in order(settings) or not isinstance(own, RemoteSettings) or "+" in generation.model:
        return None
    if own.model == generation.model and own.dimensions in (0, generation.dimensions):
        return None
    # The option is set only if it is configured: not every server knows it.
    then = replace(own, model=generation.model, dimensions=own.dimensions and generation.dimensions)
    if then.problem() is not None:
        return None
    return _model(replace(settings, sections={**settings.sections, name: then}), name)


def _resting(settings: EmbeddingConfig, name: str) -> Embedder:
    """Return a provider's local model, which is unloaded while it is unused. Raises EmbedderError."""
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
