"""Terms of the models in crypto/formal/, as bytes that the code would make of them.

A tuple is its parts behind one another, a signature or a MAC is one of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from bench.proof import FORMAL

from confide_crypto.keys.identity import Identity
from confide_crypto.sealing.encoding import join_labelled

LABELS = {
    "label_id": b"confide/handshake-id/1",
    "label_static": b"confide/daemon-static/1",
    "label_card": b"confide/device-card/1",
    "label_entry": b"confide/roster-entry/1",
    "label_request": (b"confide/pair-request/1", b"confide-pair-r-1"),
    "label_answer": (b"confide/pair-answer/1", b"confide-pair-a-1"),
    "label_order": b"confide/task-order/1",
    "label_approval": b"confide/task-approval/1",
    "label_node": b"confide-node/1",
    "label_record": b"confide forget record 1",
    "label_receipt": b"confide forget receipt 1",
}
_TOKEN = re.compile(r"\s*([A-Za-z0-9_]+|[(),])")


class Term:
    """A term of the model: a name, a function of terms, or (without a name) a tuple."""

    def __init__(self, name: str, parts: list[Term]) -> None:
        self.name, self.parts = name, parts

    @classmethod
    def read(cls, text: str) -> Term:
        """The term that a text begins with."""
        return cls._next(_tokens(text))[0]

    @classmethod
    def _next(cls, tokens: Iterator[str], first: str | None = None) -> tuple[Term, str]:
        """A term, and the token behind it."""
        token = first or next(tokens)
        name = "" if token == "(" else token
        behind = token if token == "(" else next(tokens, "")
        if behind != "(":
            return cls(name, []), behind
        parts = []
        while behind in "(,":
            part, behind = cls._next(tokens)
            parts.append(part)
        return cls(name, parts), next(tokens, "")

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parts))})" if self.parts else self.name

    def bytes(self, known: Mapping[str, bytes], signer: Identity) -> bytes:
        """What the code would make of it. `known`: names, and terms as they are written; the code has no others."""
        if str(self) in known:
            return known[str(self)]
        if self.name == "sign":
            label, *signed = self.parts[1].parts
            return signer.sign(LABELS[label.name], b"".join(each.bytes(known, signer) for each in signed))
        if self.name == "mac":
            label, person = LABELS[self.parts[1].name]
            parts = [each.bytes(known, signer) for each in self.parts[2].parts]
            return hashlib.blake2b(
                join_labelled(label, *parts), key=known["pair"], person=person, digest_size=32
            ).digest()
        assert not self.name, f"the code knows nothing of {self}"
        return b"".join(each.bytes(known, signer) for each in self.parts)


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while (found := _TOKEN.match(text, place)) is not None:
        yield found[1]
        place = found.end()


def model(file: str, process: str) -> str:
    """The text of one process or function of a model."""
    text = (FORMAL / file).read_text("ascii")
    found = re.search(rf"^let(?:fun)? {process}\(.*?(?=^let|^process|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{file} has no {process}"
    return found[0]


def term(text: str, begin: str) -> Term:
    """The one term of a process that stands behind `begin`."""
    _, found, rest = text.partition(begin)
    assert found, begin
    return Term.read(rest)


def holds(condition: str, **values: object) -> bool:
    """A condition of a model, for these values of its variables."""
    text = condition.replace("&&", " and ").replace("||", " or ").replace("not(", "not (").replace("\n", " ")
    return bool(eval(re.sub(r"=", "==", text), {}, values))
