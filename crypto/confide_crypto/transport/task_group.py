"""A task group whose tasks end together, and that never loses a cancellation behind an error.

Before Python 3.13, `asyncio.TaskGroup` mishandles the cancellation of its owner. If a task fails
while the owner is cancelled, the group raises the error and loses the cancellation: a caller that
handles that error runs on forever. And after a failure `Task.cancelling()` stays above zero, so
later code cannot detect a cancellation. This group is correct in all versions, and raises the error
itself instead of an exception group: the tasks of a connection fail for one reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from confide_crypto.errors import ConnectionLost

_Result = TypeVar("_Result")


class TaskGroup:
    """Tasks of one owner, as an async context manager; `create_task` works as in asyncio.

    The first task that fails cancels the other tasks and the `with` block. The exit waits for all
    tasks. It then raises CancelledError if the owner was cancelled meanwhile, else the error that
    explains the others: it prefers an error that a task raised by itself to one raised during
    cancellation, and any other error to a lost connection.
    """

    def __init__(self) -> None:
        self._owner: asyncio.Task[Any]
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors: list[BaseException] = []
        self._later_errors: list[BaseException] = []
        self._cut: set[asyncio.Task[Any]] = set()
        self._cancelling = 0
        self._is_open = self._is_ending = self._has_cut = False

    async def __aenter__(self) -> Self:
        owner = asyncio.current_task()
        assert owner is not None
        self._owner, self._cancelling, self._is_open = owner, owner.cancelling(), True
        return self

    def create_task(self, work: Coroutine[Any, Any, _Result], *, name: str | None = None) -> asyncio.Task[_Result]:
        """Start a task of the group. Raises RuntimeError if the group has ended, or ends since a
        task failed.
        """
        if self._is_ending or not (self._is_open or self._tasks):
            work.close()
            raise RuntimeError("the task group is ending")
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if self._has_cut:
            self._owner.uncancel()
        if error is not None:
            self._end()
        while self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError:  # counted by the owner; raised below when all tasks have ended
                self._end()
        is_cut = self._has_cut and isinstance(error, asyncio.CancelledError)
        if self._owner.cancelling() > self._cancelling:
            if not isinstance(error, asyncio.CancelledError):
                raise asyncio.CancelledError
            return
        if error is not None and not is_cut:
            (self._later_errors if self._has_cut else self._errors).append(error)
        if (errors := self._errors or self._later_errors) and (first := _first(errors)) is not error:
            try:
                raise first from None
            finally:
                errors.clear()  # breaks a reference cycle: each error holds this frame, which holds it

    def _end(self) -> None:
        if not self._is_ending:  # only once, so that their cleanup is not cut short
            self._is_ending = True
            self._cut = {task for task in self._tasks if task.cancel()}

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        (self._later_errors if task in self._cut else self._errors).append(error)
        if self._is_open and not self._is_ending:
            self._has_cut = True
            self._owner.cancel()
        self._end()


def raise_if_cancelled() -> None:
    """Raise CancelledError if the running task was cancelled.

    Call it in code that continues after an error: an awaited call may fail while it is cancelled,
    in a task of its own or in its cleanup, and then its error hides the cancellation.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _first(errors: list[BaseException]) -> BaseException:
    """Return the error that explains the others, unwrapped from the exception groups of libraries."""
    leaves = [leaf for error in errors for leaf in _leaves(error)]
    fatal = [leaf for leaf in leaves if isinstance(leaf, (KeyboardInterrupt, SystemExit))]
    faults = [leaf for leaf in leaves if not isinstance(leaf, (ConnectionLost, asyncio.CancelledError))]
    return next(iter(fatal or faults or leaves))


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]
