"""A cross-encoder that reranks the best chunks of a search with the query. It is optional, and the
slowest step of a search.

It is a folder with `model.onnx` and `tokenizer.json`, as Hugging Face lays out a sequence
classifier (such as `ms-marco-MiniLM-L6-v2`). It takes a query and a text as a pair and returns one
logit, which is higher for a better match. No such model is packaged with Confide. Its time is
limited; chunks that it did not reach follow the others in their previous order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from confide_crypto.errors import ConfideError
from confide_daemon.errors import EmbedderError

log = logging.getLogger(__name__)

DEADLINE_S = 0.3
PAIRS = 4  # in one run: between two runs the clock is looked at
TOKENS = 512
MODEL = "reranker"  # as errors call it
INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class CrossEncoder:
    def __init__(self, folder: Path, *, threads: int) -> None:
        """Load the folder. Raises EmbedderError if a file is missing or cannot be used."""
        # Imported late, as everything that brings onnxruntime.
        from confide_daemon.embedding.local.onnx import open_session, open_tokenizer
        from confide_daemon.embedding.local.weights import read_weights

        weights, tokenizer = folder / "model.onnx", folder / "tokenizer.json"
        if not weights.is_file() or not tokenizer.is_file():
            raise EmbedderError(
                f"cannot load the reranker in {folder}: it needs model.onnx and tokenizer.json",
                hint='leave search.reranker = "" in daemon.toml to go without',
            )
        self._tokenizer = open_tokenizer(read_weights(tokenizer, what=MODEL), TOKENS, what=MODEL)
        self._session = open_session(read_weights(weights, what=MODEL), threads, what=MODEL)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        if not self._inputs <= INPUTS:
            raise EmbedderError("cannot use the reranker: it asks for inputs that are not text")
        self.scores("a", ["b"], deadline=float("inf"))

    def scores(self, question: str, texts: Sequence[str], *, deadline: float) -> list[float]:
        """Return the scores of the first texts, as many as can be computed by the deadline
        (`time.monotonic`), but at least one batch. Raises EmbedderError if the model fails.
        """
        found: list[float] = []
        for start in range(0, len(texts), PAIRS):
            if found and time.monotonic() >= deadline:
                break
            found += self._run([(question, text) for text in texts[start : start + PAIRS]])
        return found

    def _run(self, pairs: list[tuple[str, str]]) -> list[float]:
        encoded = self._tokenizer.encode_batch(pairs)
        feed: dict[str, object] = {
            "input_ids": np.array([entry.ids for entry in encoded], dtype=np.int64),
            "attention_mask": np.array([entry.attention_mask for entry in encoded], dtype=np.int64),
            "token_type_ids": np.array([entry.type_ids for entry in encoded], dtype=np.int64),
        }
        try:
            output = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        except Exception as error:  # onnxruntime raises classes of its own, all below Exception
            raise EmbedderError(f"the reranker failed: {type(error).__name__}") from None
        logits = np.asarray(output, dtype=np.float64).reshape(len(pairs), -1)
        if logits.shape[1] == 0 or not np.isfinite(logits).all():
            raise EmbedderError("the reranker gave no usable scores")
        # Of two classes the second is "relevant".
        found: list[float] = (logits[:, -1] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]).tolist()
        return found


class Reranker:
    """A cross-encoder, which may be loading or failed. Searches do not wait for it to load."""

    def __init__(self, folder: Path, *, threads: int = 2, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._model: CrossEncoder | None = None
        self.failure: ConfideError | None = None
        self._settled = threading.Event()
        threading.Thread(target=self._load, args=(folder, threads), name="confide-rerank-load", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        return self._settled.wait(timeout_s)

    def order(self, question: str, texts: Sequence[str]) -> list[int]:
        """Return the indexes of the texts, best first. If the model is not ready or fails, return
        them in the given order.
        """
        model = self._model
        if model is None or len(texts) < 2:
            return list(range(len(texts)))
        try:
            scores = model.scores(question, texts, deadline=time.monotonic() + self._deadline_s)
        except EmbedderError as error:
            self.failure, self._model = error, None
            log.warning("%s; hits stay as they were ranked", error)
            return list(range(len(texts)))
        looked_at = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
        return looked_at + list(range(len(scores), len(texts)))

    def _load(self, folder: Path, threads: int) -> None:
        try:
            self._model = CrossEncoder(folder, threads=threads)
        except ConfideError as error:
            self.failure = error
        except Exception as error:  # a broken library must not end in silence
            self.failure = EmbedderError(f"cannot load the reranker: {type(error).__name__}")
        self._settled.set()
