"""Errors of both ends about names, texts, tool arguments and answers.

    ConfideError                    (confide_crypto.errors: message, hint, code, exit_code)
    ├── AddonError                  an installed add-on cannot be loaded
    ├── NotFoundError               no document, revision or section of that name
    ├── InvalidPathError            a document path that is not allowed
    ├── InvalidTextError            a document text that is not text (NUL, broken Unicode)
    ├── TooLargeError               a document over the limit
    ├── ToolError                   a tool call that cannot be done; the agent reads the message
    ├── ReceiptError                a receipt of forgetting that was changed
    ├── UnfitAnswerError            an answer that is not of the agreed form
    └── UnknownRequestError         a request that the daemon is too old to know (a RequestError)

None of them carries content, a query or a key.
"""

from __future__ import annotations

from confide_crypto.errors import EXIT_CONFIG, EXIT_INPUT, ConfideError, RequestError, printable


def with_extra(*extras: str) -> str:
    """Return the hint to install the optional extra `extras[-1]`, which contains a missing library.
    The other extras are already installed.
    """
    asked = ",".join(extras)
    return (
        f"install confide with its extra {extras[-1]} too, in the clone: uv tool install '.[{asked}]', "
        "or pip in a virtual environment"
    )


class AddonError(ConfideError):
    """An installed add-on that cannot be loaded."""

    exit_code = EXIT_CONFIG

    def __init__(self, name: str, reason: Exception) -> None:
        said = f"{type(reason).__name__}: {reason}" if str(reason) else type(reason).__name__
        super().__init__(
            f"the add-on {printable(name)} cannot be loaded: {printable(said)}",
            hint="install it again, or remove it",
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
    """A tool call that cannot be carried out. The agent reads the message, so it says what to do
    instead.
    """

    code = "invalid"
    exit_code = EXIT_INPUT


class ReceiptError(ConfideError):
    """A receipt of forgetting that was changed, or a file that is no such receipt."""

    exit_code = EXIT_INPUT

    def __init__(self) -> None:
        hint = "use the file as confide forget wrote it"
        super().__init__("this is no receipt of confide forget, or it was changed", hint=hint)


class UnfitAnswerError(ConfideError):
    """An answer of the daemon that does not have the agreed form."""

    def __init__(self) -> None:
        super().__init__(
            "the daemon's answer is not of the agreed form", hint="do the versions of confide and confided fit?"
        )


class UnknownRequestError(RequestError):
    """A request that the daemon does not know because it is too old. `message` is the daemon's.

    `since`: the version that introduced the request, or None if unknown.
    """

    def __init__(self, message: str, since: str | None) -> None:
        came = f", which came with version {since}" if since else ""
        hint = "it is older than confide on this device: upgrade confided there"
        super().__init__("unavailable", f"{message}{came}", hint)
