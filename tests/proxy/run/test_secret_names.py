"""Names for secrets, and what a reference means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from confide_crypto.errors import KeyFileError
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.devices import roster_client
from confide_proxy.errors import InputError, NoSecretError
from confide_proxy.run.secret_names import SecretNames
from confide_proxy.sealing.open_secrets import resolve_references

ONE = Placeholder("github-token", bytes.fromhex("4f2a" + "00" * 14))
TWO = Placeholder("password", bytes.fromhex("4f2b" + "00" * 14))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []

    async def records(_link: object) -> Any:
        asked.append(1)
        yield [{"kind": one.kind, "id": one.secret_id.hex()} for one in (ONE, TWO)]

    monkeypatch.setattr(roster_client, "records", records)
    return asked


@pytest.mark.parametrize(
    "reference",
    [
        "secret:4f2a",
        "4F2A",
        "secret:github…",
        "github-token:4f2a",
        "secret:(sealed:github-token:4f2a…)",
        "secret:gi...",
        str(ONE),
    ],
)
async def test_a_reference_is_the_beginning_that_no_other_has(reference: str, listed: list[int]) -> None:
    assert await resolve_references(None, [reference], {}) == {reference: ONE}  # type: ignore[arg-type]


async def test_a_name_or_a_whole_placeholder_asks_the_daemon_nothing(listed: list[int]) -> None:
    found = await resolve_references(None, ["secret:npm", str(TWO)], {"npm": ONE})  # type: ignore[arg-type]
    assert found == {"secret:npm": ONE, str(TWO): TWO}
    assert listed == []


@pytest.mark.parametrize("reference", ["secret:", "…", "4f2", "4f2c", "x" * 200, "secret:nothing", "secret:(sealed:)"])
async def test_what_means_none_or_several_is_refused(reference: str, listed: list[int]) -> None:
    with pytest.raises(NoSecretError):
        await resolve_references(None, [reference], {})  # type: ignore[arg-type]


def test_names_are_given_and_taken_back(tmp_path: Path) -> None:
    names = SecretNames(tmp_path / "names.json")
    assert names.read() == {}
    names.give("npm-token", ONE)
    names.give("db", TWO)
    assert SecretNames(tmp_path / "names.json").read() == {"npm-token": ONE, "db": TWO}
    names.give("db", None)
    assert names.read() == {"npm-token": ONE}
    for unfit in ("", "Npm", "a b", "4f2a", "-x", "x" * 65):
        with pytest.raises(InputError):
            names.give(unfit, ONE)
    with pytest.raises(InputError):
        names.give("db", None)
    (tmp_path / "names.json").chmod(0o644)
    with pytest.raises(KeyFileError):
        names.read()
