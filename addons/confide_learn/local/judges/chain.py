"""The judges in the order of the configuration: the next one if one cannot, and the rules behind all of them.

What a judge says is only ever a claim: `checks` looks for its quote in what was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from confide_learn.local.finding import CannotJudgeError
from confide_learn.local.judges import rules

if TYPE_CHECKING:
    from confide_learn.local.exchanges import Exchange
    from confide_learn.local.finding import Finding
    from confide_proxy.config import Learning


class Judge(Protocol):
    """One that may fail."""

    async def findings(self, window: Sequence[Exchange], client: str) -> list[Finding]:
        """What these exchanges of a client hold. Raises CannotJudgeError."""
        ...


@dataclass(slots=True)
class Chain:
    """Asks them.

    Attributes:
        problems: why a judge could not, by its name; the last reason of each.
    """

    judges: dict[str, Judge]
    problems: dict[str, str] = field(default_factory=dict)

    async def findings(self, window: Sequence[Exchange], client: str) -> tuple[str, list[Finding]]:
        """The name of the judge that could, and what it found."""
        for name, judge in self.judges.items():
            try:
                return name, await judge.findings(window, client)
            except CannotJudgeError as error:
                self.problems[name] = str(error)
        return "rules", await asyncio.to_thread(rules.judge, window)


class _Rules:
    async def findings(self, window: Sequence[Exchange], _client: str) -> list[Finding]:
        return await asyncio.to_thread(rules.judge, window)


def chain_of(config: Learning, folder: Path) -> Chain:
    """The judges that the configuration names; `folder` is the learner's, for what a day has cost."""
    judges: dict[str, Judge] = {}
    for name in config.judges:
        if name == "local":
            from confide_learn.local.judges.local import Local

            judges[name] = Local(config.local_url, config.local_model)
        elif name == "client":
            from confide_learn.local.judges.client import ClientCommand

            judges[name] = ClientCommand(config, folder)
        else:
            judges[name] = _Rules()
            break  # they always can
    return Chain(judges)
