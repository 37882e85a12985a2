"""Writes the vectors of the cohort that ship with the daemon, anew: after a change of its texts, of `PAIRS`, or of the packaged model.

python -m bench.quiet.cohort
"""

from __future__ import annotations

import numpy as np

from confide_daemon.embedding.local.minilm import load_minilm
from confide_daemon.retrieval.search import cohort
from confide_daemon.retrieval.search.scoring import PAIRS


def main() -> None:
    """Half a second."""
    texts = cohort.texts([answer for _, answer in PAIRS])
    np.save(cohort.HERE / "cohort.npy", np.asarray(load_minilm().embed_documents(texts), dtype=np.float16))


if __name__ == "__main__":
    main()
