"""The provider `openai`: OpenAI's embeddings
(developers.openai.com/api/reference/resources/embeddings). Texts and queries are sent to OpenAI.

A text may have 8,192 tokens, a request 2,048 texts and 300,000 tokens. OpenAI rejects longer texts,
so they are shortened here, in OpenAI's own tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from confide_daemon.embedding.embedder import Embedder, Purpose
from confide_daemon.embedding.settings import EmbeddingSettings, RemoteSettings

# Default dimensions of each model; a model not listed is queried.
OWN_DIMENSIONS: Mapping[str, int] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
# Models that can shorten their vectors.
CHOOSABLE = "text-embedding-3-"
MAX_TOKENS = 8191


@dataclass(frozen=True, slots=True)
class Settings(RemoteSettings):
    """The options of `[embedding.openai]` in daemon.toml."""

    # developers.openai.com/api/docs/pricing, US dollars for a million tokens.
    PRICES: ClassVar[Mapping[str, float]] = {
        "text-embedding-3-small": 0.02,
        "text-embedding-3-large": 0.13,
        "text-embedding-ada-002": 0.10,
    }

    model: str = "text-embedding-3-small"
    base_url: str = "https://api.openai.com/v1"
    key_env: str = "OPENAI_API_KEY"

    def problem(self) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid. Also checks that OpenAI's models support the dimensions.
        """
        own = OWN_DIMENSIONS.get(self.model, 0)
        if own and self.dimensions > own:
            return "dimensions", f"{self.model} has {own:,} at most"
        if own and self.dimensions not in (0, own) and not self.model.startswith(CHOOSABLE):
            return "dimensions", f"{self.model} has {own:,} and no others"
        return RemoteSettings.problem(self)


def create(config: EmbeddingSettings) -> Embedder:
    """Return the configured model. Contacts OpenAI only if the model is not a listed one. Raises
    EmbedderError if the model cannot be used.
    """
    from confide_daemon.embedding.remote import connect  # numpy: 16 MB

    settings: Settings = config.section("openai")
    own = OWN_DIMENSIONS.get(settings.model)
    dimensions = settings.dimensions or own
    # A model that cannot shorten its vectors rejects the option even if it changes nothing.
    asked = {} if dimensions in (None, own) else {"dimensions": dimensions}

    def wire(texts: list[str], purpose: Purpose) -> dict[str, object]:  # noqa: ARG001 - its models know no difference
        body: dict[str, object] = {"input": texts, "model": settings.model, "encoding_format": "base64"}
        return body | asked

    return connect(settings, wire, id="openai", name="OpenAI", dimensions=dimensions, max_tokens=MAX_TOKENS)
