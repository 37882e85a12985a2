"""A rescan as the policy wants it: what it seals beyond credentials of a known form, and what it tells of that it cannot seal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Serving, serving, text_hash
from tests.support.deadline import DEADLINE_S
from tests.support.sealing.devices import Device
from tests.support.sealing.sealers import NOTHING_KNOWN

from confide_crypto.sealing import placeholder as placeholders
from confide_crypto.transport.open_channel import Connection
from confide_proxy.config import Policy
from confide_proxy.devices.keyring import Keyring
from confide_proxy.sealing.context import Deposit
from confide_proxy.sealing.open_secrets import open_secret
from confide_proxy.sealing.rescan import Rescan, RescanOutcome, policy_of
from confide_proxy.sealing.sealer import Fingerprints, Sealer

TOKEN = "gh" + "p_" + "Zk81LqWm4TxC0bVn7RsD2yHf9GpJ3eUa5KiQ"
NOTE = "memory/notes/home-1a2b3c4d.md"
DIARY = "We met behind the old mill, and nobody is to know."


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


class Owner:
    """A machine with the space's keys."""

    def __init__(self, connection: Connection, keyring: Keyring) -> None:
        self.connection = connection
        self.keyring = keyring
        self.known_values = NOTHING_KNOWN

    async def put(self, path: str, text: str, base: int = 0) -> None:
        body = {"project": "p", "path": path, "text": text, "hash": text_hash(text), "base": base}
        await self.connection.request("put", body, timeout_s=DEADLINE_S)

    async def text(self, path: str, revision: int | None = None) -> str:
        body = {"project": "p", "path": path} | ({"revision": revision} if revision else {})
        return str((await self.connection.request("pull", body, timeout_s=DEADLINE_S))["text"])

    def rescan(self, policy: Policy | None = None) -> Rescan:
        sealer = Sealer(policy_of(policy or Policy()), lambda: self.keyring.keys, lambda: Fingerprints(bytes(32)))
        return Rescan(self.connection, sealer, Deposit(self.keyring), lambda _done, _total: None)

    async def run(self, policy: Policy | None = None) -> RescanOutcome:
        return await self.rescan(policy).run()

    async def opened(self, text: str) -> list[str]:
        """What the placeholders in a text stand for."""
        found = [str(placeholder) for _, _, placeholder in placeholders.find(text)]
        opened = [await open_secret(self.connection, self, one) for one in found]  # type: ignore[arg-type]
        return [one.value.decode() for one in opened]


@asynccontextmanager
async def owner_of(daemon: Serving, root: Path) -> AsyncIterator[Owner]:
    device = Device(root, daemon, "laptop")
    keyring = device.keyring()
    async with device.connected() as connection:
        await keyring.open(connection, await device.attach(connection))
        yield Owner(connection, keyring)


def note(body: str, *, is_sensitive: bool) -> str:
    marked = "sensitive: true\n" if is_sensitive else ""
    return f"---\ntitle: Home\n{marked}---\n{body}\n"


async def test_a_note_that_became_sensitive_is_sealed_from_its_first_revision_on(
    daemon: Serving, tmp_path: Path
) -> None:
    """Also those of its revisions that did not say so yet; what it says of itself stays, and its owner can open all of it."""
    async with owner_of(daemon, tmp_path) as owner:
        await owner.put(NOTE, note(DIARY, is_sensitive=False))
        await owner.put(NOTE, note(f"{DIARY} Not even her.", is_sensitive=True), base=1)
        await owner.put("memory/other.md", f"# Other\n\n{DIARY}\n")
        # One that is so no more is sealed only where it was.
        await owner.put("memory/notes/open-5e6f7a8b.md", note("The mill is for sale.", is_sensitive=True))
        await owner.put("memory/notes/open-5e6f7a8b.md", note("The mill was sold.", is_sensitive=False), base=1)
        look = await owner.rescan().look()
        assert (dict(look.found), [document.revisions for document in look.documents.values()]) == (
            {"note": 3},
            [[2, 1], [1]],
        )
        outcome = await owner.run()
        assert (dict(outcome.found), outcome.sealed, outcome.documents_to_rename) == ({"note": 3}, 3, [])
        first, second = await owner.text(NOTE, 1), await owner.text(NOTE)
        assert first.startswith("---\ntitle: Home\n---\n(sealed:note:")
        assert second.startswith("---\ntitle: Home\nsensitive: true\n---\n(sealed:note:")
        assert "mill" not in first + second
        assert await owner.opened(first + second) == [DIARY, f"{DIARY} Not even her."]
        assert DIARY in await owner.text("memory/other.md")
        assert "The mill was sold." in await owner.text("memory/notes/open-5e6f7a8b.md")
        assert (await owner.run()).found.total() == 0


async def test_what_must_not_go_up_is_sealed_where_it_is_up(daemon: Serving, tmp_path: Path) -> None:
    """`block` keeps texts on the machine: that is too late here. `redact` leaves nothing to open, and `allow` all of it."""
    async with owner_of(daemon, tmp_path) as owner:
        text = f"# Deploy\n\nIt runs with {TOKEN}.\n"
        await owner.put("memory/deploy.md", text)
        assert (await owner.run(Policy(files="allow"))).found.total() == 0
        assert await owner.text("memory/deploy.md") == text
        assert (await owner.run(Policy(files="block"))).redacted == 0
        assert await owner.opened(await owner.text("memory/deploy.md")) == [TOKEN]
        await owner.put("memory/deploy.md", text, base=1)
        outcome = await owner.run(Policy(files="redact"))
        assert (outcome.found.total(), outcome.redacted) == (1, 1)
        assert "It runs with (redacted:github-token:" in await owner.text("memory/deploy.md")


async def test_a_credential_in_a_name_is_told_of_and_not_shown(daemon: Serving, tmp_path: Path) -> None:
    """A note's file is named after its title, and only its owner can rename it."""
    async with owner_of(daemon, tmp_path) as owner:
        slug = TOKEN.lower().replace("_", "-")
        path = f"memory/notes/token-{slug}-1a2b3c4d.md"
        await owner.put(path, f"---\ntitle: token {TOKEN}\n---\nFor the pipeline.\n")
        named = "memory/notes/pipeline-5e6f7a8b.md"
        await owner.put(named, f"---\nid: mem_{slug.replace('-', '_')}_1763733600_5e6f7a8b\n---\nWith {TOKEN}.\n")
        outcome = await owner.run()
        assert [document.path for document in outcome.documents_to_rename] == [
            "memory/notes/token-…-1a2b3c4d.md",
            named,
        ]
        assert slug not in repr(outcome.documents.values())


async def test_texts_that_come_meanwhile_are_sealed_too(daemon: Serving, tmp_path: Path) -> None:
    """A machine with another policy stores while the rescan runs: what it stores is behind the others, and is met there."""
    async with owner_of(daemon, tmp_path) as owner:
        await owner.put("memory/deploy.md", f"# Deploy\n\nIt runs with {TOKEN}.\n")
        rescan = owner.rescan()
        link: Any = Storing(owner)
        rescan._link = link
        outcome = await rescan.run()
        assert link.has_stored
        assert outcome.sealed == 2
        assert "(sealed:github-token:" in await owner.text("memory/late.md")


class Storing:
    """The owner's link, over which another session stores something after the first page."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.has_stored = False

    async def request(self, op: str, body: dict[str, Any], *, timeout_s: float, bulk: bool = False) -> dict[str, Any]:
        answer: dict[str, Any] = await self._owner.connection.request(op, body, timeout_s=timeout_s, bulk=bulk)
        if op == "stored-texts" and not self.has_stored:
            self.has_stored = True
            await self._owner.put("memory/late.md", f"# Late\n\nIt runs with {TOKEN}.\n")
        return answer
