"""Tasks that end together, and a cancellation that no error hides.

`asyncio.TaskGroup` is not right about its owner's cancellation before Python 3.13. Where a task fails while the owner is cancelled, the
group raises the error, and the cancellation is lost: whoever takes that error for done goes on for ever. And after a failure
`Task.cancelling()` stays above zero, so that nobody can tell afterwards. This one is right in all versions, and it raises the error itself
instead of a group: the tasks of a connection fail for one reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from confide_crypto.errors import ConnectionLost

_Result = TypeVar("_Result")


class TaskGroup:
    """Tasks of one owner, as an async context manager; `create_task` is that of asyncio's.

    The first task that fails cancels the others and the block. The exit waits for all of them, and then raises CancelledError if the owner
    was cancelled meanwhile, else the error that explains the others: what failed by itself before what fails as it is cancelled, and a
    fault before a lost connection.
    """

    def __init__(self) -> None:
        self._owner: asyncio.Task[Any]
        self._tasks: set[asyncio.Task[Any]] = set()
        self._errors: list[BaseException] = []
        self._followed: list[BaseException] = []
        self._cut: set[asyncio.Task[Any]] = set()
        self._cancelling = 0
        self._is_open = self._is_ending = self._has_cut = False

    async def __aenter__(self) -> Self:
        owner = asyncio.current_task()
        assert owner is not None
        self._owner, self._cancelling, self._is_open = owner, owner.cancelling(), True
        return self

    def create_task(self, work: Coroutine[Any, Any, _Result], *, name: str | None = None) -> asyncio.Task[_Result]:
        """Start a task of the group. Raises RuntimeError: the group has ended, or is ending since one of its tasks failed."""
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
            except asyncio.CancelledError:  # counted by the owner, and raised below once nothing runs any more
                self._end()
        is_cut = self._has_cut and isinstance(error, asyncio.CancelledError)
        if self._owner.cancelling() > self._cancelling:
            if not isinstance(error, asyncio.CancelledError):
                raise asyncio.CancelledError
            return
        if error is not None and not is_cut:
            (self._followed if self._has_cut else self._errors).append(error)
        if (errors := self._errors or self._followed) and (first := _first(errors)) is not error:
            try:
                raise first from None
            finally:
                errors.clear()  # each holds this frame, and this frame held it

    def _end(self) -> None:
        if not self._is_ending:  # once: what they do at their end is not to be cut short
            self._is_ending = True
            self._cut = {task for task in self._tasks if task.cancel()}

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        (self._followed if task in self._cut else self._errors).append(error)
        if self._is_open and not self._is_ending:
            self._has_cut = True
            self._owner.cancel()
        self._end()


def raise_if_cancelled() -> None:
    """Raise CancelledError where the running task was cancelled. For whoever goes on after an error: what is awaited may fail while it is
    cancelled, in a task of its own or in what it does at its end, and the error that comes then stands where the cancellation was."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _first(errors: list[BaseException]) -> BaseException:
    """The one that explains the others, out of whatever groups of a library it is in."""
    leaves = [leaf for error in errors for leaf in _leaves(error)]
    fatal = [leaf for leaf in leaves if isinstance(leaf, (KeyboardInterrupt, SystemExit))]
    faults = [leaf for leaf in leaves if not isinstance(leaf, (ConnectionLost, asyncio.CancelledError))]
    return next(iter(fatal or faults or leaves))


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]
