"""`memory_import`, answered on this machine: it alone may read the files."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confide_crypto.errors import ConfideError
from confide_proxy.absence import Answer
from confide_proxy.config import ProxyConfig
from confide_proxy.importing.delivery import Outcome, deliver
from confide_proxy.importing.permission import allowed
from confide_proxy.importing.plan import Plan, Survey, stores_at
from confide_proxy.projects import Project
from confide_proxy.tool_arguments import checked

if TYPE_CHECKING:
    from confide_proxy.sealing.deposit import Requests
    from confide_proxy.sealing.file_sealer import Seals

TOOL: Final[dict[str, Any]] = {
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
"""As the daemon lists it; a test keeps the two equal."""
DEADLINE_S = 3000.0
"""Within the hour that a long job has."""


@dataclass(frozen=True, slots=True)
class Import:
    """The tool for one session; `link` leads to its daemon, and `sealing` seals what goes there."""

    project: Project
    config: ProxyConfig
    link: Requests
    sealing: Seals

    async def answer(self, given: Any, progress: Callable[[int, int], None], is_wanted: Callable[[], bool]) -> Answer:
        """A preview, or with `confirm` what became of the notes; what goes wrong is an answer too.

        Args:
            given: the call's arguments, as they came.
            progress: told (notes gone through, notes in all).
            is_wanted: no more once the client has cancelled the call.
        """
        try:
            arguments = checked(TOOL, given)
            async with asyncio.timeout(DEADLINE_S):
                plan = await asyncio.to_thread(self._plan, arguments["paths"])
                is_dry = not arguments["confirm"]
                outcome = await deliver(
                    plan, self.link, self.sealing, is_dry=is_dry, progress=progress, is_wanted=is_wanted
                )
        except TimeoutError:
            return Answer("the import did not end in time; call it again: what was stored is not stored twice")
        except ConfideError as error:
            return Answer(f"{error}\nhint: {error.hint}" if error.hint else str(error))
        structured = {
            "project": self.project.name,
            "confirmed": not is_dry,
            "stores": [survey.as_json() for survey in plan.surveys],
            "results": outcome.as_json(),
            "refused": [{"origin": one.origin, "reason": one.reason} for one in outcome.refused],
            "sealed": outcome.sealed,
        }
        return Answer(_text(plan, outcome, is_dry=is_dry), structured)

    def _plan(self, paths: list[str]) -> Plan:
        here = Path.cwd()
        root = self.project.root
        base = here if root in (here, *here.parents) else root
        named = [allowed(path, base, self.project, Path.home()) for path in paths]
        plan = Plan(stores_at(list(dict.fromkeys(named)), None), self.project, self.config)
        failures = [survey.failure for survey in plan.survey() if survey.failure]
        if failures and not plan.notes:
            raise failures[0]
        return plan


def _text(plan: Plan, outcome: Outcome, *, is_dry: bool) -> str:
    where = {"known": outcome.known_elsewhere}
    told = (
        ", ".join(f"{count} {state}{where.get(state, '')}" for state, count in outcome.as_json().items() if count)
        or "nothing"
    )
    head = f"Imported: {told}." if not is_dry else f"Preview, nothing is stored yet: {told}."
    lines = [head, *(_line(survey) for survey in plan.surveys)]
    if outcome.sealed:
        lines.append(f"credentials {'sealed' if not is_dry else 'that would be sealed'}: {outcome.sealed}")
    lines += [f"refused {one.origin}: {one.reason}" for one in outcome.refused[:5]]
    if is_dry and outcome.states["new"]:
        lines.append("To store them, call memory_import again with the same paths and confirm: true.")
    return "\n".join(lines)


def _line(survey: Survey) -> str:
    parts = [f"{survey.store.shown} ({survey.store.reader.name}): {survey.notes} notes"]
    parts += [
        f"{name} {_named(counter)}"
        for name, counter in (
            ("projects", survey.projects),
            ("categories", survey.categories),
            ("importance", survey.levels),
            ("tags", survey.tags),
        )
        if counter
    ]
    if survey.losses.count:
        parts.append(f"{survey.losses.count} skipped")
    if survey.problem:
        parts.append(survey.problem)
    return "; ".join(parts)


def _named(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counter.most_common(4))
