"""The tool `memory_import`, which runs on this device, since the daemon cannot read its files. An
agent may import fewer files than a user in a terminal (see `allow_path`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confide_crypto.errors import ConfideError
from confide_memory.documents import RequestChannel
from confide_memory.tools.arguments import Parameters, check
from confide_memory.tools.call import NOTICE, ToolAnswer
from confide_proxy.config import ProxyConfig
from confide_proxy.errors import FolderError, UnreadableError
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.project import Project
from confide_transfer.local.import_delivery import ImportOutcome, deliver
from confide_transfer.local.import_files import SHOWN_FOLDERS
from confide_transfer.local.plan import ImportPlan, Survey, stores_at
from confide_transfer.local.readers import readers

TOOL: Final[dict[str, object]] = {
    "name": "memory_import",
    "inputSchema": {
        "type": "object",
        "properties": {
            "paths": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 4096}, "maxItems": 32},
            "confirm": {"type": "boolean", "default": False},
        },
        "required": ["paths"],
    },
}
"""The tool's schema as in the daemon's list; a test keeps them equal."""
DEADLINE_S = 3000.0
"""Below the hour that a long job may take."""
_HINT = "a person can import it in a terminal: confide import PATH"


async def answer(
    given: Any,
    project: Project,
    config: ProxyConfig,
    link: RequestChannel,
    sealing: SessionSealing,
    *,
    progress: Callable[[int, int], None],
    is_wanted: Callable[[], bool],
) -> ToolAnswer:
    """Answer a call of the tool `memory_import`: with a preview, or with `confirm` with the results
    of the import. Errors are answers too.

    Args:
        given: the call's arguments, unchecked.
        link: the connection to the session's daemon; `sealing` seals the notes for it.
        progress: called with (notes done, notes in all).
        is_wanted: returns False once the client has cancelled the call.
    """
    try:
        arguments = check(Parameters.of_catalogue(TOOL), given)
        async with asyncio.timeout(DEADLINE_S):
            plan = await asyncio.to_thread(_plan, arguments["paths"], project, config)
            is_dry = not arguments["confirm"]
            outcome = await deliver(plan, link, sealing, is_dry=is_dry, progress=progress, is_wanted=is_wanted)
    except TimeoutError:
        return ToolAnswer("the import did not end in time; call it again: what was stored is not stored twice")
    except ConfideError as error:
        return ToolAnswer(error.with_hint)
    structured = {"project": project.name, "confirmed": not is_dry, **outcome.to_json(plan)}
    return ToolAnswer(_text(plan, outcome, is_dry=is_dry), structured)


async def import_file(
    file: Path, project: Project, config: ProxyConfig, link: RequestChannel, sealing: SessionSealing, *, is_dry: bool
) -> dict[str, object]:
    """Import the memories in a file, or preview that, and return the results.

    Raise UnreadableError if the file has none, and TimeoutError if the import takes too long.
    """
    try:
        plan = await asyncio.to_thread(_survey, [file], project, config)
    except ConfideError as error:
        problem = error.problem if isinstance(error, UnreadableError) else "cannot be read"
        raise UnreadableError(file, problem, hint=error.hint) from None
    async with asyncio.timeout(DEADLINE_S):
        return (await deliver(plan, link, sealing, is_dry=is_dry)).to_json(plan)


def _plan(paths: list[str], project: Project, config: ProxyConfig) -> ImportPlan:
    here = Path.cwd()
    base = here if project.root in (here, *here.parents) else project.root
    named = [allow_path(path, base, project, Path.home()) for path in paths]
    return _survey(list(dict.fromkeys(named)), project, config)


def _survey(paths: list[Path], project: Project, config: ProxyConfig) -> ImportPlan:
    """Survey the stores at these paths. Raise ConfideError if no reader recognises one, or nothing
    can be read.
    """
    plan = ImportPlan(stores_at(paths, None), project, config)
    failures = [survey.failure for survey in plan.survey() if survey.failure]
    if failures and not plan.notes:
        raise failures[0]
    return plan


def _text(plan: ImportPlan, outcome: ImportOutcome, *, is_dry: bool) -> str:
    where = {"known": outcome.known_in_others}
    counts = (
        ", ".join(f"{count} {state}{where.get(state, '')}" for state, count in outcome.counts().items() if count)
        or "nothing"
    )
    head = f"Imported: {counts}." if not is_dry else f"Preview, nothing is stored yet: {counts}."
    lines = [f"{head} {NOTICE}" if plan.surveys else head, *(_line(survey) for survey in plan.surveys)]
    if outcome.sealed:
        lines.append(f"credentials {'sealed' if not is_dry else 'that would be sealed'}: {outcome.sealed}")
    lines += [f"refused {one.origin}: {one.reason}" for one in outcome.refused[:5]]
    lines += [f"the same as {other or 'another of these'}: {origin}" for origin, other in outcome.twins[:5]]
    if is_dry and outcome.states["new"]:
        lines.append("To store them, call memory_import again with the same paths and confirm: true.")
    return "\n".join(lines)


def _line(survey: Survey) -> str:
    parts = [f"{survey.store.label} ({survey.store.reader.name}): {survey.notes} notes"]
    counted = {
        "projects": survey.projects,
        "categories": survey.categories,
        "importance": survey.levels,
        "tags": survey.tags,
    }
    for name, counter in counted.items():
        if counter:
            parts.append(f"{name} " + ", ".join(f"{value} {count}" for value, count in counter.most_common(4)))
    return "; ".join([*parts, *survey.remarks])


def allow_path(text: str, base: Path, project: Project, home: Path) -> Path:
    """Return the path that an agent has named, relative to `base` unless it is absolute.

    Raise FolderError if it is outside the project and the home folder, is the whole home folder,
    leads through a symlink, does not exist, or is hidden and not a known store.
    """
    if "\0" in text:
        raise FolderError("the path", "holds NUL characters")
    try:
        named = Path(os.path.normpath(base / Path(text).expanduser()))
    except RuntimeError:
        raise FolderError(text, "is in no user's home folder") from None
    for root in (project.root, home):
        for spelling in dict.fromkeys((root, root.resolve())):
            if named == spelling and root == home and project.root != home:
                raise FolderError(text, "is the whole home folder", hint="name a folder or a file in it")
            if named == spelling or spelling in named.parents:
                return _plain(text, spelling, named, home)
    raise FolderError(text, "is neither below this project nor below the home folder", hint=_HINT)


def _plain(text: str, root: Path, named: Path, home: Path) -> Path:
    parts = named.relative_to(root).parts
    stores = (place for reader in readers().values() for place in reader.places(home))
    is_hidden = any(part.startswith(".") and part not in SHOWN_FOLDERS for part in parts)
    if is_hidden and not any(named == store or store in named.parents for store in stores):
        raise FolderError(text, "is hidden, and not where a known system keeps its memories", hint=_HINT)
    path = root
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise FolderError(text, "leads through a symlink", hint=_HINT)
    if not path.exists():
        raise FolderError(text, "is not there")
    return path
