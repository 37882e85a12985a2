"""Where a space is kept. `Store` says what a backend must do; `sqlite` is the one that ships."""

from confide_daemon.store.protocol import (
    DocumentRow,
    Filter,
    Generation,
    Healed,
    HitRow,
    OperationRow,
    PieceChanges,
    Place,
    ProjectRow,
    RevisionEntry,
    RevisionRow,
    SourceCount,
    Store,
    TranscriptRow,
    Waiting,
    model_name,
)

__all__ = [
    "DocumentRow",
    "Filter",
    "Generation",
    "Healed",
    "HitRow",
    "OperationRow",
    "PieceChanges",
    "Place",
    "ProjectRow",
    "RevisionEntry",
    "RevisionRow",
    "SourceCount",
    "Store",
    "TranscriptRow",
    "Waiting",
    "model_name",
]
