"""The options of `[embedding]` in daemon.toml and of providers on the network, with the checks on
their values.

Imports nothing large, because the configuration imports it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# A pasted key rather than a path: one long word without slash or dot.
KEY_LIKE = re.compile(r"[A-Za-z0-9_\-+=]{20,}")
MOST_DIMENSIONS = 16_384
# Value of `fallback`: all other configured providers, in the order of the original plan.
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """The options that choose the embedding model and its fallbacks.

    Attributes:
        provider: a name of `providers.names()`, or `none` to search by keywords only. `local` and
            `hashed` send nothing anywhere.
        fallback: the providers to use, in order, while those before them fail. `["auto"]` means,
            for a provider on the network, the others that have a key file, then `local`; for a
            local one, nothing.
        folder: a model of your own (`model.onnx` and `tokenizer.json`) for `local`, instead of the
            packaged one.
        threads: processor cores that a local model may use.
        unload_after_s: idle time after which a local model is dropped from memory; 0 keeps it.
        sections: each provider's own options by its name (`[embedding.voyage]`).
    """

    provider: str = "local"
    fallback: tuple[str, ...] = (AUTO,)
    folder: str = ""
    threads: int = 2
    unload_after_s: int = 900
    sections: Mapping[str, Any] = field(default_factory=dict)

    def section(self, name: str) -> Any:
        return self.sections[name]


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """The options of a model that a provider runs, reached over the network.

    Attributes:
        model: the provider's name for the model.
        dimensions: length of the vectors, if the model offers a choice; 0 leaves it to the model.
        base_url: the URL of the API, without `/embeddings`.
        allow_plain_http: allow `http://` to an address that is neither this computer nor in a
            private network.
        key_file: a file of mode 0600 that contains only the API key.
        key_env: the environment variable with the API key, if there is no such file and no systemd
            credential.
        timeout_s: limit for embedding one batch of documents, including retries. Queries have 1.5
            s.
        price_per_million: US dollars for a million tokens; -1 takes the documented price, if known.
        monthly_tokens: limit on the tokens of documents and queries of one space in a month; 0 is
            no limit.
    """

    PRICES: ClassVar[Mapping[str, float]] = {}

    model: str = ""
    dimensions: int = 0
    base_url: str = ""
    allow_plain_http: bool = False
    key_file: str = ""
    key_env: str = ""
    timeout_s: float = 60.0
    price_per_million: float = -1.0
    monthly_tokens: int = 0

    def price(self) -> float | None:
        """The price in US dollars for a million tokens; None if unknown."""
        return self.price_per_million if self.price_per_million >= 0 else self.PRICES.get(self.model)

    def problem(self) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid. The result never contains the value, which may be a pasted API key.
        """
        if self.base_url and (hint := url_problem(self.base_url, allow_plain_http=self.allow_plain_http)):
            return "base_url", hint
        if self.key_env and (not VARIABLE.fullmatch(self.key_env) or self.key_env.startswith(("sk_", "pa_"))):
            return "key_env", "it is the name of a variable such as OPENAI_API_KEY, not the key itself"
        if KEY_LIKE.fullmatch(self.key_file):
            return "key_file", "it is the path of a file that holds the key, not the key itself"
        if KEY_LIKE.fullmatch(self.model) and self.model.startswith(("sk-", "pa-")):
            return "model", "it is the name of a model, not a key"
        bounds = {
            "dimensions": (self.dimensions, 0, MOST_DIMENSIONS),
            "timeout_s": (self.timeout_s, 0.05, 600),
            "price_per_million": (self.price_per_million, -1, 1000),
            "monthly_tokens": (self.monthly_tokens, 0, 10**12),
        }
        for name, (value, least, most) in bounds.items():
            if not least <= value <= most:
                return name, f"it is at least {least} and at most {most:,}"
        return None


def url_problem(url: str, *, allow_plain_http: bool) -> str | None:
    """Return why a text cannot be the base URL of an API, or None if it can."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is an address such as https://api.openai.com/v1"
    if parts.username is not None or parts.password is not None:
        return "it holds a name or a password; a key goes into key_file"
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        return "it is an address such as https://api.openai.com/v1"
    if parts.query or parts.fragment:
        return "it ends before any ? or #"
    if parts.scheme == "http" and not (allow_plain_http or _is_near(host)):
        return "it begins with https://, or set allow_plain_http = true: the key and the texts then go over the network readable"
    return None


def _is_near(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_private
    except ValueError:
        return False


# Prefixes for queries and documents, and maximum tokens, of open models by name, from their model
# cards. A model not listed gets no prefix unless `query_prefix` and `document_prefix` set one.

# Maximum tokens of BERT-like models, for an unknown model.
DEFAULT_TOKENS = 512

_PASSAGES = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The texts that a model expects before each query and each document.

    Attributes:
        query, document: the prefix of a query, and that of a document.
        max_tokens: the model's limit on one text, in its own tokens.
    """

    query: str = ""
    document: str = ""
    max_tokens: int = DEFAULT_TOKENS


# The first match in the name counts, so longer names of a family come before shorter ones.
KNOWN: tuple[tuple[str, Prefixes], ...] = (
    (r"nomic-embed-(text|code)", Prefixes("search_query: ", "search_document: ", 2048)),
    (r"e5-.*instruct", Prefixes(_INSTRUCT, "", 512)),
    (r"(^|[-_])e5[-_]", Prefixes("query: ", "passage: ", 512)),
    (r"bge-m3", Prefixes("", "", 8192)),
    (r"bge-(micro|small|base|large)", Prefixes(_PASSAGES, "", 512)),
    (r"mxbai-embed", Prefixes(_PASSAGES, "", 512)),
    (r"arctic-embed(2|.*-v2)", Prefixes("query: ", "", 8192)),
    (r"arctic-embed", Prefixes(_PASSAGES, "", 512)),
    (r"embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ", 2048)),
    (r"qwen3-embedding", Prefixes(_INSTRUCT, "", 8192)),
    (r"all-minilm", Prefixes("", "", 256)),
)


def for_model(model: str, *, query: str = AUTO, document: str = AUTO, max_tokens: int = 0) -> Prefixes:
    """Return the prefixes and the token limit of a model. A value of `auto` (0 for the tokens) is
    replaced by the known one for the model's name.

    `model` is the name on a server or of a file: `BAAI/bge-small-en-v1.5`,
    `nomic-embed-text:latest`, `e5-small-v2.Q8_0.gguf`.
    """
    name = model.lower().rsplit("/", 1)[-1]
    known = next((prefixes for pattern, prefixes in KNOWN if re.search(pattern, name)), Prefixes())
    return Prefixes(
        known.query if query == AUTO else query,
        known.document if document == AUTO else document,
        max_tokens or known.max_tokens,
    )


def generation_name(model: str, prefixes: Prefixes) -> str:
    """Return the name under which a model's vectors are stored. It includes the prefixes, because
    other prefixes give other vectors.
    """
    if prefixes.document == for_model(model).document:
        return model
    return f"{model}+{hashlib.blake2b(prefixes.document.encode(), digest_size=4).hexdigest()}"
