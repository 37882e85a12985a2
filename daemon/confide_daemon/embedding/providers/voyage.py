"""The provider `voyage`: Voyage AI's text embeddings (docs.voyageai.com/reference/embeddings-api).
Texts and queries are sent to Voyage.

A request may contain up to 1,000 texts and, for the largest models, 120,000 tokens; Confide's
requests stay far below (`REMOTE_LIMITS`). Voyage shortens texts that are too long for a model
(`truncation`), and distinguishes queries from documents itself (`input_type`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from confide_daemon.embedding.embedder import Embedder, Purpose
from confide_daemon.embedding.settings import EmbeddingSettings, RemoteSettings

# Available dimensions of each model, the default first. A model not listed is queried.
CHOICES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "voyage-4-large",
            "voyage-4",
            "voyage-4-lite",
            "voyage-3-large",
            "voyage-3.5",
            "voyage-3.5-lite",
            "voyage-code-3",
        ),
        (1024, 256, 512, 2048),
    ),
    **dict.fromkeys(("voyage-finance-2", "voyage-law-2", "voyage-3", "voyage-multilingual-2"), (1024,)),
    "voyage-3-lite": (512,),
    "voyage-code-2": (1536,),
}
MAX_TOKENS = 32_000


@dataclass(frozen=True, slots=True)
class Settings(RemoteSettings):
    """The options of `[embedding.voyage]` in daemon.toml. The default model is the one that Voyage
    recommends for the best retrieval.
    """

    # docs.voyageai.com/docs/pricing, US dollars for a million tokens.
    PRICES: ClassVar[Mapping[str, float]] = {
        "voyage-4-large": 0.12,
        "voyage-4": 0.06,
        "voyage-4-lite": 0.02,
        "voyage-3-large": 0.18,
        "voyage-3.5": 0.06,
        "voyage-3.5-lite": 0.02,
        "voyage-code-3": 0.18,
        "voyage-finance-2": 0.12,
        "voyage-law-2": 0.12,
        "voyage-code-2": 0.12,
        "voyage-multilingual-2": 0.12,
        "voyage-3": 0.06,
        "voyage-3-lite": 0.02,
    }

    model: str = "voyage-4-large"
    dimensions: int = 1024
    base_url: str = "https://api.voyageai.com/v1"
    key_env: str = "VOYAGE_API_KEY"

    def problem(self) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid. Also checks that Voyage's models support the dimensions.
        """
        choices = CHOICES.get(self.model, ())
        if self.dimensions and choices and self.dimensions not in choices:
            return "dimensions", f"{self.model} has {' or '.join(map(str, sorted(choices)))}"
        return RemoteSettings.problem(self)


def create(config: EmbeddingSettings) -> Embedder:
    """Return the configured model without contacting Voyage. Raises EmbedderError if it cannot be
    used.
    """
    from confide_daemon.embedding.remote import connect  # numpy: 16 MB

    settings: Settings = config.section("voyage")
    choices = CHOICES.get(settings.model, (0,))
    dimensions = settings.dimensions or choices[0]

    def wire(texts: list[str], purpose: Purpose) -> dict[str, object]:
        body = {
            "input": texts,
            "model": settings.model,
            "input_type": purpose.value,
            "truncation": True,
            "encoding_format": "base64",
        }
        return body | ({"output_dimension": dimensions} if dimensions and len(choices) > 1 else {})

    return connect(settings, wire, id="voyage", name="Voyage", dimensions=dimensions or None, max_tokens=MAX_TOKENS)
