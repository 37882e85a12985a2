"""Errors of tasks and of their runner, with messages for users."""

from __future__ import annotations

from confide_crypto.errors import EXIT_CONFIG, EXIT_INPUT, ConfideError


class RunnerError(ConfideError):
    """`confide task runner` cannot work as asked, or not on this device."""

    exit_code = EXIT_INPUT


class SandboxError(RunnerError):
    """No sandbox is available, or one does not end."""

    exit_code = EXIT_CONFIG


class RepositoryError(RunnerError):
    """A repository that cannot be fetched, or a branch that cannot be stored."""


class TaskStateError(ConfideError):
    """An event that the current state of a task does not allow, because another event arrived
    first.
    """

    code = "conflict"

    def __init__(self, state: str, event: str) -> None:
        super().__init__(f"cannot {event} what is {state} already", hint="look at it again: confide task ls")
        self.state = state
