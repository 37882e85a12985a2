"""What open models want before a question and before a document, and how much they read, by the name they go under.

From the models' cards. A model that is not here gets no prefix; the options `query_prefix` and `document_prefix` say otherwise.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

AUTO = "auto"
# What BERT-like models read at most, for a model that is not known.
DEFAULT_TOKENS = 512

_PASSAGES = "Represent this sentence for searching relevant passages: "
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What is put before each, and how much the model reads, in its own tokens."""

    query: str = ""
    document: str = ""
    max_tokens: int = DEFAULT_TOKENS


# The first that is found in the name counts, so the longer names of a family stand before the shorter.
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
    """The prefixes of a model: what is given, and where that is `auto` (0 for the tokens), what is known by its name.

    `model` is as a server or a file calls it: `BAAI/bge-small-en-v1.5`, `nomic-embed-text:latest`, `e5-small-v2.Q8_0.gguf`.
    """
    name = model.lower().rsplit("/", 1)[-1]
    known = next((prefixes for pattern, prefixes in KNOWN if re.search(pattern, name)), Prefixes())
    return Prefixes(
        known.query if query == AUTO else query,
        known.document if document == AUTO else document,
        max_tokens or known.max_tokens,
    )


def named(model: str, prefixes: Prefixes) -> str:
    """The model's name in generations: with other prefixes than the known ones, documents have other vectors, so it is another model."""
    if prefixes.document == for_model(model).document:
        return model
    return f"{model}+{hashlib.blake2b(prefixes.document.encode(), digest_size=4).hexdigest()}"
