"""Sentence models in a folder, run locally with ONNX Runtime. The libraries are imported when a
model is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from confide_daemon.embedding import libraries
from confide_daemon.embedding.embedder import BatchLimits, Vectors, unit
from confide_daemon.embedding.local.batches import THREADS, Batches
from confide_daemon.embedding.local.weights import MODEL, read_weights
from confide_daemon.errors import EmbedderError

FOLDER_TOKENS = 512  # for a folder that does not say: what BERT-like models can read at most


def load_folder(folder: Path, *, threads: int = THREADS) -> OnnxEmbedder:
    """Load a sentence model from a folder as Hugging Face lays it out: `model.onnx` (or
    `onnx/model.onnx`) and `tokenizer.json`.

    The pooling is read from `1_Pooling/config.json` (the mean if there is no such file), and the
    maximum length from `sentence_bert_config.json`. Prefixes for queries and documents are read
    from the `prompts` of `config_sentence_transformers.json` (`query`, `document` or `passage`).

    Raises EmbedderError if a file is missing or cannot be used.
    """
    weights = next((path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.is_file()), None)
    tokenizer = folder / "tokenizer.json"
    if weights is None or not tokenizer.is_file():
        raise EmbedderError(
            f"cannot load the embedding model in {folder}: it needs model.onnx and tokenizer.json",
            hint='export the model to ONNX, or use the packaged one: provider = "local"',
        )
    data = read_weights(weights)
    digest = hashlib.sha256(data)
    limit = _setting(folder / "sentence_bert_config.json", "max_seq_length")
    prompts = _setting(folder / "config_sentence_transformers.json", "prompts")
    query, document = _prompt(prompts, "query"), _prompt(prompts, "document", "passage")
    digest.update(document.encode())
    return OnnxEmbedder(
        data,
        read_weights(tokenizer),
        # The name includes a hash: other weights or prompts in the same folder make another model.
        model=f"{folder.name}@{digest.hexdigest()[:12]}",
        max_tokens=limit if isinstance(limit, int) and 8 <= limit <= 8192 else FOLDER_TOKENS,
        threads=threads,
        use_first_token=_setting(folder / "1_Pooling" / "config.json", "pooling_mode_cls_token") is True,
        query_prefix=query,
        document_prefix=document,
    )


class OnnxEmbedder:
    """A sentence model that runs with ONNX Runtime. It returns one vector of unit length per text."""

    id = "local"
    limits = BatchLimits()

    def __init__(
        self,
        weights: bytes,
        tokenizer: bytes,
        *,
        model: str,
        max_tokens: int,
        threads: int = THREADS,
        use_first_token: bool = False,
        query_prefix: str = "",
        document_prefix: str = "",
    ) -> None:
        self.model = model
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._use_first_token = use_first_token
        self._tokenizer = open_tokenizer(tokenizer, max_tokens)
        self._session = open_session(weights, 1)
        self._documents = libraries.onnxruntime(MODEL).RunOptions()
        # Free the memory of the longest texts after a run: it saves 20 MB and costs no time. A
        # query's run keeps its memory.
        self._documents.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._batches = Batches(threads)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        if not self._inputs <= {"input_ids", "attention_mask", "token_type_ids"}:
            raise EmbedderError("cannot use the embedding model: it asks for inputs that are not text")
        # A short run finds the dimensions, and makes the first real query as fast as later ones.
        self.dimensions = int(self._run(["dimensions"]).shape[1])

    def embed_query(self, text: str) -> Vectors:
        return np.asarray(self._run([self._query_prefix + text])[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, computed in small batches of similar length."""
        if self._document_prefix:
            texts = [self._document_prefix + text for text in texts]
        run = partial(self._run, options=self._documents)
        return self._batches.vectors(texts, run, dimensions=self.dimensions)

    def close(self) -> None:
        """Stop the threads that embed documents."""
        self._batches.close()

    def _run(self, texts: list[str], *, options: Any = None) -> Vectors:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([entry.ids for entry in encoded], dtype=np.int64)
        mask = np.array([entry.attention_mask for entry in encoded], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            output = self._session.run(None, {name: feed[name] for name in self._inputs}, options)[0]
        except Exception as error:  # onnxruntime raises classes of its own, all below Exception
            raise EmbedderError(f"the embedding model failed: {type(error).__name__}") from None
        return unit(self._pool(np.asarray(output, dtype=np.float32), mask), count=len(texts), dimensions=None)

    def _pool(self, output: Vectors, mask: Any) -> Vectors:
        if output.ndim == 2:
            return output
        if self._use_first_token:
            return output[:, 0]
        weight = mask[..., None].astype(np.float32)
        return np.asarray((output * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0), dtype=np.float32)


def open_session(weights: bytes, threads: int, *, what: str = MODEL) -> Any:
    """Load an ONNX model as an `onnxruntime.InferenceSession`. Raises EmbedderError if it cannot be
    loaded.
    """
    onnxruntime = libraries.onnxruntime(what)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads would waste a core between two batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    # It would plan and keep memory for each shape, and texts have all lengths.
    options.enable_mem_pattern = False
    try:
        return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EmbedderError(
            f"cannot load the {what}: {type(error).__name__}", hint="is the file a complete ONNX model?"
        ) from None


def open_tokenizer(data: bytes, max_tokens: int, *, what: str = MODEL) -> Any:
    """Load a `tokenizer.json` that cuts texts at `max_tokens` and pads them to the longest one.
    Raises EmbedderError if it cannot be loaded.
    """
    tokenizers = libraries.tokenizers(what)
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:
        raise EmbedderError(f"cannot read the tokenizer of the {what}: {type(error).__name__}") from None
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()
    return tokenizer


def _setting(path: Path, name: str) -> object:
    try:
        settings = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return settings.get(name) if isinstance(settings, dict) else None


def _prompt(prompts: object, *names: str) -> str:
    """Return the first of the named prompts that exists."""
    found = [prompts[name] for name in names if isinstance(prompts, dict) and isinstance(prompts.get(name), str)]
    return str(found[0]) if found else ""
