"""What both ends say is wrong with a name, a text, the arguments of a tool or an answer.

    ConfideError                    (confide_crypto.errors: message, hint, code, exit_code)
    ├── AddonError                  an add-on that is installed cannot be loaded
    ├── NotFoundError               no document, revision or section of that name
    ├── InvalidPathError            a document path that is not allowed
    ├── InvalidTextError            a document text that is not text (NUL, broken Unicode)
    ├── TooLargeError               a document over the limit
    ├── ToolError                   a tool call that cannot be done as asked; the agent reads it
    ├── TaskStateError              a slot of a task to which this cannot happen any more
    ├── UnfitAnswerError            an answer that is not of the agreed form
    └── UnknownRequestError         a request that the daemon is too old to know (a RequestError)

None of them carries content, a query or a key.
"""

from __future__ import annotations

from confide_crypto.errors import EXIT_CONFIG, EXIT_INPUT, ConfideError, RequestError, printable


def with_extra(*extras: str) -> str:
    """The hint where a library of an optional extra is missing: the last of `extras`; the others are what it is used beside."""
    asked = ",".join(extras)
    return (
        f"install confide with its extra {extras[-1]} too, in the clone: uv tool install '.[{asked}]', "
        "or pip in a virtual environment"
    )


class AddonError(ConfideError):
    """An add-on that is installed cannot be loaded."""

    exit_code = EXIT_CONFIG

    def __init__(self, name: str, reason: Exception) -> None:
        said = f"{type(reason).__name__}: {reason}" if str(reason) else type(reason).__name__
        super().__init__(
            f"the add-on {printable(name)} cannot be loaded: {printable(said)}",
            hint="install it anew, or remove it",
        )


class NotFoundError(ConfideError):
    code = "not_found"
    exit_code = EXIT_INPUT


class InvalidPathError(ConfideError):
    code = "invalid"
    exit_code = EXIT_INPUT


class InvalidTextError(ConfideError):
    code = "invalid"
    exit_code = EXIT_INPUT


class TooLargeError(ConfideError):
    code = "too_large"
    exit_code = EXIT_INPUT


class ToolError(ConfideError):
    """A tool call that cannot be done as asked. The agent reads the sentence, so it says the way out."""

    code = "invalid"
    exit_code = EXIT_INPUT


class TaskStateError(ConfideError):
    """What a slot's state does not allow: whoever asks has been overtaken."""

    code = "conflict"

    def __init__(self, state: str, event: str) -> None:
        super().__init__(f"cannot {event} what is {state} already", hint="look at it again: confide task ls")
        self.state = state


class UnfitAnswerError(ConfideError):
    """An answer of the daemon's has not the form that it should."""

    def __init__(self) -> None:
        super().__init__(
            "the daemon's answer is not of the agreed form", hint="do the versions of confide and confided fit?"
        )


class UnknownRequestError(RequestError):
    """The daemon is older than a request, which `message` says in its words.

    `since`: the version that the request came with, where that is known.
    """

    def __init__(self, message: str, since: str | None) -> None:
        came = f", which came with version {since}" if since else ""
        hint = "it is older than confide on this device: upgrade confided there"
        super().__init__("unavailable", f"{message}{came}", hint)
