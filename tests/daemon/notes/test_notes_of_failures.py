"""A note that says which command fails, and how, gets the fields `command` and `error` by itself."""

from __future__ import annotations

from typing import Any

import yaml
from tests.support.daemon.loopback import Machine
from tests.support.documents.notes import Agent

SAID: dict[str, dict[str, Any]] = {
    "`npm ci` fails with ERESOLVE for react-dates: use `npm ci --legacy-peer-deps`.": {
        "command": "npm ci",
        "error": "ERESOLVE",
    },
    "Never run `prisma migrate reset` against staging: it drops the data.": {"command": "prisma migrate reset"},
    "Exit code 137 of `npm run test:web` means that it was killed; run it with --runInBand.": {
        "command": "npm run test:web"
    },
    'Run `pnpm -r build` first, otherwise `pnpm dev` fails with "Rollup failed to resolve import".': {
        "command": "pnpm dev",
        "error": "rollup failed to resolve import",
    },
    "Fixed the error ERR_PNPM_OUTDATED_LOCKFILE by running `pnpm install --no-frozen-lockfile`.": {
        "error": "ERR_PNPM_OUTDATED_LOCKFILE"
    },
    "```\nError: P1001: Can't reach database server at localhost\n```\nStart compose first.": {"error": "P1001"},
    # Nothing fails here, or nothing says what.
    "We use `npm test` for unit tests, RTX4090 cards in the ML box, and ISO8601 dates.": {},
    "The build failed yesterday because of the network; Nadia restarted it.": {},
    "`make deploy` needs the VPN.": {},
    'Ann said "no such thing", and we moved on to `src/auth.py`.': {},
}


def fields(laptop: Machine, path: str) -> dict[str, Any]:
    head = yaml.safe_load(laptop.files["proj", path].split("---\n")[1])
    return {name: head[name] for name in ("command", "error") if name in head}


async def test_a_note_gets_what_its_text_says(agent: Agent, laptop: Machine) -> None:
    for text, said in SAID.items():
        stored = await agent.call("memory_store", content=text, title="Note", type="pitfall")
        assert fields(laptop, stored["path"]) == said, text


async def test_what_its_author_wrote_stays(agent: Agent, laptop: Machine) -> None:
    first, second = list(SAID)[:2]
    stored = await agent.call("memory_store", content=first, title="Note")
    path = stored["path"]
    await agent.call("memory_update", id=stored["id"], content=second)
    assert fields(laptop, path) == SAID[second]
    own = laptop.files["proj", path].replace("command: prisma migrate reset", "command: prisma db push")
    await laptop.put(path, own, base=2)
    await agent.call("memory_update", id=stored["id"], content=first)
    assert fields(laptop, path) == {"command": "prisma db push", "error": "ERESOLVE"}


async def test_a_note_that_becomes_sensitive_loses_both(agent: Agent, laptop: Machine) -> None:
    """Its front matter is in clear, and they repeat its text."""
    stored = await agent.call("memory_store", content=next(iter(SAID)), title="Note")
    sealed = f"(sealed:note:{'4f2a' * 8})"
    await agent.call("memory_update", id=stored["id"], sensitive=True, content=sealed)
    assert fields(laptop, stored["path"]) == {}
