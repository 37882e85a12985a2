"""A multiple-choice question to the user, in the form in which an MCP client shows and answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

FIELD: Final = "answer"
"""The only field of a question's form."""
NOT_NOW: Final = "Not now"
MOST_CHARS: Final = 1200
"""Characters of a question's text."""
MOST_TITLE: Final = 80
MOST_CHOICES: Final = 8


class Choice(NamedTuple):
    """A possible answer to a question.

    Attributes:
        name: the value that identifies this choice in code.
        title: the text that the user reads, at most `MOST_TITLE` characters.
    """

    name: str
    title: str


class Question(NamedTuple):
    """A question to the user, with its choices. "Not now" is always added as the last choice.

    Attributes:
        text: what the user reads: who asks, and what for.
    """

    text: str
    choices: tuple[Choice, ...]

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters of an MCP `elicitation/create` request.

        The titles themselves are the values of a plain enum, which every client can show; separate
        titles have another form in each version of MCP.
        """
        titles = [*(choice.title[:MOST_TITLE] for choice in self.choices[:MOST_CHOICES]), NOT_NOW]
        field = {"type": "string", "title": "Answer", "enum": list(dict.fromkeys(titles))}
        schema = {"type": "object", "properties": {FIELD: field}, "required": [FIELD]}
        return {"message": self.text[:MOST_CHARS], "requestedSchema": schema}

    def choice_in(self, result: object) -> str | None:
        """Return the name of the choice that a client's answer contains; None if the user chose
        "Not now" or gave no answer.
        """
        if not isinstance(result, Mapping) or result.get("action") != "accept":
            return None
        content = result.get("content")
        said = content.get(FIELD) if isinstance(content, Mapping) else None
        return next((name for name, title in self.choices[:MOST_CHOICES] if said == title[:MOST_TITLE]), None)
