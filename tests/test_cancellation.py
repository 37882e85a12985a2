"""No place of the product loses a cancellation where an error meets it.

What asyncio has for that is not right in all versions, so the code keeps to a few forms that are, and this test reads it for the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.test_layout import PACKAGES, ROOT

HELPER = "crypto/confide_crypto/transport/task_group.py"
ASKS = "raise_if_cancelled()"
ENDS_HERE = {
    HELPER: "the exit of the group, which counts them and raises one at its end",
    "proxy/confide_proxy/sync/steps.py": "waits for its thread, however often it is cancelled, and raises then",
    "daemon/confide_daemon/spaces/maintenance.py": "its own child is cancelled where the space closes",
    "daemon/confide_daemon/server/operator/control_socket.py": "the last that its task does",
}
"""Where a cancellation is caught and not raised at once, and why it is not lost."""
SURVIVES = {(HELPER, "__aexit__"), ("proxy/confide_proxy/sync/steps.py", "through")}


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node in the same function."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from own(child)


def waits(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(each, ast.Await | ast.AsyncWith | ast.AsyncFor)
        for statement in body
        for each in (statement, *own(statement))
    )


def goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the task may go on behind it, whatever the error was. One that raises what it does not know has asked for what it knows."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise | ast.Return | ast.Break):
        return False
    return not any(isinstance(each, ast.Raise) for statement in handler.body for each in (statement, *own(statement)))


def names(handler: ast.ExceptHandler) -> set[str]:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    return {ast.unparse(each).rpartition(".")[2] for each in caught} or {"BaseException"}


def found(tree: ast.Module, file: str) -> Iterator[str]:
    """What is wrong in one module, a line for each."""
    for node in ast.walk(tree):
        for what in (*_of_asyncio(node), *(_caught(node, file) if isinstance(node, ast.ExceptHandler) else ())):
            yield f"{file}:{getattr(node, 'lineno', 0)}: {what}"
        if isinstance(node, ast.AsyncFunctionDef) and (file, node.name) not in SURVIVES:
            for loop in own(node):
                if isinstance(loop, ast.While):
                    yield from (
                        f"{file}:{line}: {node.name} goes on after {what}: {ASKS}" for line, what in _kept(loop)
                    )


def _of_asyncio(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(ast.Name("asyncio"), "TaskGroup" | "wait_for"):
            yield f"{ast.unparse(node)} loses a cancellation in old versions: TaskGroup, asyncio.timeout"
        case ast.TryStar():
            yield "except* goes on behind a cancellation: the errors of a TaskGroup come one by one"
        case ast.Call(ast.Name(called) | ast.Attribute(_, called), args) if called.endswith("suppress"):
            if "CancelledError" in {ast.unparse(each).rpartition(".")[2] for each in args}:
                yield "a cancellation that is suppressed may be one's own: asyncio.wait, or gather"


def _caught(handler: ast.ExceptHandler, file: str) -> Iterator[str]:
    if names(handler) & {"BaseExceptionGroup", "ExceptionGroup"}:
        yield "a group is caught: the errors of a TaskGroup come one by one"
    if "CancelledError" in names(handler) and not isinstance(handler.body[-1], ast.Raise) and file not in ENDS_HERE:
        yield "a cancellation ends here"


def _kept(loop: ast.While) -> Iterator[tuple[int, str]]:
    """Where a loop goes on after an error. A deadline's own TimeoutError is right about cancellation in all versions."""
    for node in own(loop):
        if isinstance(node, ast.Try) and waits(node.body):
            for handler in node.handlers:
                is_asked = any(ast.unparse(statement) == ASKS for statement in handler.body)
                if goes_on(handler) and not is_asked and names(handler) != {"TimeoutError"}:
                    yield handler.lineno, ", ".join(sorted(names(handler)))
        if isinstance(node, ast.With) and waits(node.body):
            for said in map(ast.unparse, node.items):
                if "suppress" in said and said.rpartition(".")[2] != "suppress(TimeoutError)":
                    yield node.lineno, said


def test_no_loop_goes_on_where_it_was_cancelled() -> None:
    """A loop that takes an error for the end of one round asks whether it was cancelled; and nothing of asyncio that hides it is used."""
    files = [file for package in PACKAGES.values() for file in sorted(package.rglob("*.py"))]
    assert len(files) > 300
    texts = ((file, file.read_text(encoding="utf-8")) for file in files)
    wrong = [
        line
        for file, text in texts
        if "async" in text or "Group" in text or "CancelledError" in text
        for line in found(ast.parse(text), file.relative_to(ROOT).as_posix())
    ]
    assert not wrong, "\n".join(wrong)


def test_the_reader_sees_what_it_is_there_for() -> None:
    seen = """
async def run(self):
    while True:
        try:
            await self.work()
        except OSError:
            log()
        with suppress(ConnectionLost):
            await self.work()
        await asyncio.wait_for(self.work(), 3)
async def once(self):
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
    except* ValueError:
        pass
    try:
        await work()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0]
    except asyncio.CancelledError:
        return
    with suppress(asyncio.CancelledError):
        await task
"""
    assert len(list(found(ast.parse(seen), "x.py"))) == 8
    right = """
async def run(self):
    while True:
        try:
            await self.work()
        except OSError:
            raise_if_cancelled()
        try:
            await self.work()
        except RequestError as error:
            if error.code != "busy":
                raise
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await event.wait()
"""
    assert not list(found(ast.parse(right), "x.py"))
