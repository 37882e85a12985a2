"""Relations between memories of other systems, as the nine kinds that notes have."""

from __future__ import annotations

import re

_SAME = {
    "supports": "supports",
    "contradicts": "contradicts conflicts_with",
    "supersedes": "supersedes replaces obsoletes",
    "refines": "refines elaborates",
    "depends_on": "depends_on requires relies_on",
    "implements": "implements",
    "example_of": "example_of is_example_of instance_of is_instance_of",
    "part_of": "part_of is_part_of component_of",
    "see_also": "see_also relates_to related_to related is_related_to links_to",
}
_KIND_OF = {name: kind for kind, names in _SAME.items() for name in names.split()}


def kind_of(name: str) -> tuple[str, bool]:
    """The kind for another system's name of a relation, and whether it means the same; `see_also` where none does."""
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    kind = _KIND_OF.get(plain)
    return (kind, True) if kind else ("see_also", False)
