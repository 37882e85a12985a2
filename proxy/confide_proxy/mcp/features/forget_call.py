"""The tool `memory_forget`: an agent asks to remove notes, files or a text for good. The user in
front of its client sees what would be removed, and decides.

Nothing is removed without the user's yes, and no message of the daemon can cause it. Files on the
devices change only if the user chooses so; an agent cannot choose it.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confide_crypto.errors import ConfideError, ConnectionLost, RequestError, printable
from confide_memory.documents import to_nfc
from confide_memory.errors import ToolError
from confide_memory.globs import normal
from confide_memory.note_names import is_id
from confide_memory.tools.arguments import Parameters, check
from confide_memory.tools.call import ToolAnswer
from confide_memory.wire.forgotten import ForgetDocument, ForgetPlanned
from confide_memory.wire.revisions import DOCUMENTS
from confide_memory.wire.session import LOOKUP, LookupRequest
from confide_proxy.hooks.server.forgetting.forget_everywhere import (
    DEADLINE_S,
    ForgetPlace,
    ForgetTargets,
    KeptReceipt,
    Removal,
    digest_of,
    parts_of,
    plan_forgetting,
    receipt_for,
    run_forgetting,
)
from confide_proxy.hooks.server.question_form import MOST_CHARS, Choice, Question
from confide_proxy.hooks.server.session_asks import PersonQuestions
from confide_proxy.mcp import catalogue
from confide_proxy.mcp.features.person_approval import PersonApproval
from confide_proxy.mcp.jsonrpc import PendingCall
from confide_proxy.sync.project import Project

_SHOWN: Final = 6
"""Documents that a question names."""
_MOST_PATH: Final = 64
_MOST_TITLE: Final = 48
_MOST_TOLD: Final = 20
_FORGET: Final = "forget"
_WITH_FILES: Final = "files"
_CHOICES: Final = (
    Choice(_FORGET, "Forget it; the files on my devices stay as they are"),
    Choice(_WITH_FILES, "Forget it, and remove it from the files on my devices too"),
)
_NOTHING: Final = "so nothing was removed"


class ForgetCalls:
    """Answers the calls of `memory_forget` in one session."""

    def __init__(self, place: ForgetPlace, project: Project, approval: PersonApproval) -> None:
        self._place = place
        self._project = project
        self._approval = approval

    async def answer(self, call: PendingCall, questions: PersonQuestions | None) -> ToolAnswer | None:
        """Ask the user about a call, carry out the user's choice, and return the answer for the
        agent. Errors are answers too. Return None if the client cancelled the call before anything
        was done.

        Args:
            questions: asks the user of this session; None where no user can be asked.
        """
        try:
            parameters = Parameters.of_catalogue(catalogue.packaged_catalogue().tools["memory_forget"])
            given = check(parameters, call.params.get("arguments"))
            names, text = list(dict.fromkeys(given.get("names", ()))), str(given.get("text", "")).strip()
            if bool(names) == bool(text) or not all(map(normal, names)):
                raise ToolError("name either 'names' or a 'text'", hint="names are paths, folders or ids of notes")
            if text and given.get("project"):
                raise ToolError("a text is forgotten in all projects", hint="leave 'project' out")
            by_hand = _command(names, str(given.get("project", "")))
            if questions is None or not questions.can_ask:
                return ToolAnswer(f"this client cannot ask the user, {_NOTHING}; the user can run: {by_hand}")
            return await self._ask_person(call, questions, names, text, str(given.get("project", "")), by_hand)
        except TimeoutError:
            return ToolAnswer("the daemon did not answer in time; confide status shows how it is")
        except ConnectionLost:
            return ToolAnswer("the link to the daemon broke; what was begun goes on with the next connection")
        except ConfideError as error:
            return ToolAnswer(error.with_hint)

    async def _ask_person(
        self,
        call: PendingCall,
        questions: PersonQuestions,
        names: Sequence[str],
        text: str,
        project: str,
        by_hand: str,
    ) -> ToolAnswer | None:
        targets = await self._targets(names, text, project)
        plan = await plan_forgetting(self._place, targets)
        if not plan["total"]:
            return ToolAnswer(f"the memory has no file with this text, {_NOTHING}")
        digest = digest_of(plan)
        question = Question(_question_text(plan, await self._titles(plan), targets.project, text), _CHOICES)
        if len(question.text) > MOST_CHARS:  # a user must not approve what was cut off
            return ToolAnswer(f"the question would be too long, {_NOTHING}; the user can run: {by_hand}")
        answer = await self._approval.ask(questions, call, f"forget {digest}", question)
        if answer.is_later:
            return ToolAnswer("the user is asked with your next memory_search; call memory_forget again after that")
        if answer.choice is None:
            return ToolAnswer(f"the user has not said yes, {_NOTHING}")
        if call.is_settled:
            return None
        if digest_of(await plan_forgetting(self._place, targets)) != digest:
            return ToolAnswer(f"what would go has changed since the user was asked, {_NOTHING}; ask again")
        done = await run_forgetting(self._place, targets, plan, with_files=answer.choice == _WITH_FILES)
        return _result_text(plan, done, await receipt_for(self._place, done.signed))

    async def _targets(self, names: Sequence[str], text: str, project: str) -> ForgetTargets:
        if text:
            return ForgetTargets("", [], await parts_of(self._place, text))
        found = [await self._locate(name, project or self._project.name) for name in names]
        projects = {project for project, _ in found}
        if len(projects) > 1:
            raise ToolError("these are of several projects", hint="name those of one project in each call")
        return ForgetTargets(projects.pop(), [path for _, path in found], [])

    async def _locate(self, name: str, project: str) -> tuple[str, str]:
        """Return project and path of what a name means: the id of a note in any project, or a path."""
        if is_id(name):
            asked: LookupRequest = {
                "project": project,
                "tool": "memory_history",
                "arguments": {"id": name, "limit": 1},
            }
            found = (await LOOKUP.ask(self._place.link, asked, timeout_s=DEADLINE_S))["result"]
            of, at = found.get("project"), found.get("path")
            if not isinstance(of, str) or not isinstance(at, str):
                raise RequestError("not_found", f"there is no note {name}")
            return of, at
        path = Path(to_nfc(name))
        if path.is_absolute():
            try:
                path = path.relative_to(self._project.root)
            except ValueError:
                raise ToolError(f"{name} is not in the project's folder", hint="paths are relative to it") from None
        return project, normal(path.as_posix())

    async def _titles(self, plan: ForgetPlanned) -> list[str]:
        """Return the titles of the documents that a question names; "" for one without."""

        async def title(one: ForgetDocument) -> str:
            try:
                page = await DOCUMENTS.ask(
                    self._place.link, {"project": one["project"], "path": one["path"], "limit": 1}, timeout_s=DEADLINE_S
                )
            except RequestError:
                return ""
            return next((each["title"] for each in page["documents"] if each["path"] == one["path"]), "")

        return list(await asyncio.gather(*map(title, plan["documents"][:_SHOWN])))


def _question_text(plan: ForgetPlanned, titles: Sequence[str], project: str, text: str) -> str:
    """Return the text of the question: what goes, how much, and where."""
    files = _count_noun(plan["total"])
    if text:
        lines = [f"Your agent asks to forget this text for good, in {files}:", f"“{_printable_lines(text)}”"]
    else:
        lines = [f"Your agent asks to forget {files} of {printable(project)[:_MOST_PATH]} for good:"]
    for one, title in zip(plan["documents"], titles, strict=False):
        path = printable(one["path"] if project else f"{one['project']}: {one['path']}")
        path = path if len(path) <= _MOST_PATH else f"…{path[1 - _MOST_PATH :]}"
        shown = printable(title)
        lines.append(path + (f" ({shown[:_MOST_TITLE]})" if shown and not text else ""))
    if plan["total"] > len(titles):
        lines.append(f"and {plan['total'] - len(titles):,} more")
    lines.append(
        "All revisions go, on the server and in what your devices keep besides their files. You cannot restore it."
    )
    return "\n".join(lines)


def _result_text(plan: ForgetPlanned, done: Removal, receipt: KeptReceipt) -> ToolAnswer:
    shared = [f"{each['project']}: {each['path']}" for each in plan["shared"][:_MOST_TOLD]]
    waiting = receipt.names(level="gone when it connects")
    snapshots = len(receipt.names(place="snapshot"))
    lines = [f"{_count_noun(plan['total'])} forgotten. The receipt: {receipt.file}", *done.warnings]
    if shared:
        lines.append(f"The same words stay in {', '.join(shared)}.")
    if waiting:
        lines.append(f"Gone on {', '.join(waiting)} when it next connects.")
    if snapshots:
        lines.append(f"it is still in {_count_noun(snapshots, 'snapshot')} of the server: confide forget --backups")
    structured: dict[str, object] = {
        "forgotten": not done.warnings,
        "total": plan["total"],
        "documents": [each["path"] for each in plan["documents"][:_MOST_TOLD]],
        "shared": shared,
        "waiting": waiting,
        "snapshots": snapshots,
        "receipt": str(receipt.file),
    }
    return ToolAnswer("\n".join(lines), structured)


def _command(names: Sequence[str], project: str) -> str:
    """Return the command with which a user forgets the same."""
    of = ["--project", project] if project else []
    return shlex.join(["confide", "forget", *(of if names else ["--text", "-"]), *(["--", *names] if names else [])])


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def _count_noun(number: int, noun: str = "file") -> str:
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
