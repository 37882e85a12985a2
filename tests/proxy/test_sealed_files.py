"""Files of memory leave their machine sealed, and keep their plaintext there: two machines, their folders, and a real daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.sealed_files import TOKEN, SealedMachine, approve
from tests.support.serving import Serving, serving

FILE = "memory/deploy.md"
TEXT = f"# Deploy\n\nexport GITHUB_TOKEN={TOKEN}\n\nThen wait.\n"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "daemon") as running:
        yield running


async def test_the_daemon_and_other_machines_have_a_placeholder_and_the_file_stays(
    daemon: Serving, tmp_path: Path
) -> None:
    ann, bob = SealedMachine(tmp_path, daemon, "ann"), SealedMachine(tmp_path, daemon, "bob")
    ann.write(FILE, TEXT)
    before = (ann.root / FILE).stat()
    async with ann.running() as laptop:
        assert (await laptop.sync()).sent == 1
        document = (await laptop.documents())[FILE]
        assert TOKEN not in document
        assert document.count("(sealed:github-token:") == 1
        assert [one["kind"] for one in await laptop.records()] == ["github-token"]
        assert (await laptop.sync(force=True)).sent == 0
    await approve(ann, bob)
    async with bob.running() as desk:
        await desk.sync()
        assert bob.read(FILE) == document
        bob.write(FILE, document.replace("Then wait.", "Then wait for it."))
        assert (await desk.sync()).sent == 1
    async with ann.running() as laptop:
        assert (ann.root / FILE).stat() == before
        assert (await laptop.sync()).pulled == 1
        assert ann.read(FILE) == TEXT.replace("Then wait.", "Then wait for it.")
        assert (await laptop.sync(force=True)).sent == 0
