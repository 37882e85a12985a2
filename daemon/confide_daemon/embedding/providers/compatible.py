"""The provider `compatible`: any server with OpenAI's embeddings API, such as Ollama, vLLM,
llama.cpp's server, Text Embeddings Inference, or a gateway.

Some models were trained with prefixes that mark a query or a document; these are added to the texts
(`embedding.settings`).
"""

from __future__ import annotations

from dataclasses import dataclass

from confide_daemon.embedding.embedder import BatchLimits, Embedder, Purpose
from confide_daemon.embedding.settings import AUTO, EmbeddingSettings, RemoteSettings, for_model, generation_name
from confide_daemon.errors import QuotaError

# Text Embeddings Inference accepts no more in a request by default (--max-client-batch-size).
TEXTS = 32


@dataclass(frozen=True, slots=True)
class Settings(RemoteSettings):
    """The options of `[embedding.compatible]` in daemon.toml.

    Attributes:
        query_prefix, document_prefix: put before each text; `auto` takes the known ones for the
            model's name.
        max_tokens: limit on one text in the model's own tokens; 0 takes the known limit of the
            model, else 512.
    """

    key_env: str = ""
    query_prefix: str = AUTO
    document_prefix: str = AUTO
    max_tokens: int = 0

    def problem(self) -> tuple[str, str] | None:
        if not 0 <= self.max_tokens <= 1_000_000:
            return "max_tokens", "it is at least 0 and at most 1,000,000"
        return RemoteSettings.problem(self)


def create(config: EmbeddingSettings) -> Embedder:
    """Return the configured model. It queries the server for the length of its vectors if that is
    not set. Raises EmbedderError if the server cannot be used.
    """
    from confide_daemon.embedding.remote import connect  # numpy: 16 MB

    settings: Settings = config.section("compatible")
    if not settings.base_url or not settings.model:
        raise QuotaError(
            "the OpenAI-compatible server is not configured",
            hint="set base_url and model in [embedding.compatible] of daemon.toml",
        )
    prefixes = for_model(
        settings.model, query=settings.query_prefix, document=settings.document_prefix, max_tokens=settings.max_tokens
    )

    def wire(texts: list[str], purpose: Purpose) -> dict[str, object]:
        prefix = prefixes.query if purpose is Purpose.QUERY else prefixes.document
        body: dict[str, object] = {
            "input": [prefix + text for text in texts],
            "model": settings.model,
            "encoding_format": "float",
        }
        return body | ({"dimensions": settings.dimensions} if settings.dimensions else {})

    return connect(
        settings,
        wire,
        id="compatible",
        name="the embedding server",
        model=generation_name(settings.model, prefixes),
        dimensions=settings.dimensions or None,
        # These models split text finer than cl100k_base does; a text that is refused nevertheless
        # is halved.
        max_tokens=max(1, prefixes.max_tokens * 3 // 4 - len(prefixes.document) // 2),
        limits=BatchLimits(texts=TEXTS, tokens=8_000, concurrency=4),
        key_is_needed=False,
    )
