"""What an export leaves on the disk when something is in its way, and what it never removes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.daemon.loopback import Machine, Serving
from tests.support.documents.notes import Agent

from confide_proxy.config import ProxyConfig
from confide_proxy.link.key_rotation import MachineKeys
from confide_proxy.paths import ProxyPaths
from confide_proxy.sealing.context import SessionSealing
from confide_proxy.sync.folder import Folder
from confide_transfer.errors import ExportError
from confide_transfer.local.export import export_manifest, tree
from confide_transfer.local.export.tree import ExportReport


async def export(
    laptop: Machine, into: Path, *projects: str, is_whole: bool = True, with_transcripts: bool = False
) -> ExportReport:
    return await tree.write(
        laptop.connection,
        list(projects) or ["proj"],
        into,
        is_whole=is_whole,
        with_transcripts=with_transcripts,
    )


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "tree"


def held(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def names(report: Iterable[dict[str, str]]) -> set[str]:
    return {one["path"] for one in report}


def unsealed(near: Path) -> SessionSealing:
    """Of a machine without keys; nothing here has to be sealed."""
    home = near.parent / "home"
    paths = ProxyPaths(home / "proxy.toml", home / "proxy", home / "global", home / "daemon")
    return SessionSealing(paths, ProxyConfig(), MachineKeys(paths))


async def lose_text(daemon: Serving, path: str) -> None:
    """What a damaged page does to the text of a document."""
    space = await daemon.daemon.spaces.get(daemon.state.registry.spaces()["laptop"])

    def work(store: object) -> None:
        sql = "UPDATE revision SET text = x'00' WHERE document = (SELECT id FROM document WHERE path = ?)"
        store.connection.execute(sql, (path,))

    await space.threads.write(work)


async def test_the_last_copy_of_what_the_daemon_lost_stays(laptop: Machine, daemon: Serving, into: Path) -> None:
    await laptop.put("memory/a.md", "the only copy\n")
    await laptop.put("memory/b.md", "another\n")
    await export(laptop, into)
    await lose_text(daemon, "memory/a.md")
    report = await export(laptop, into)
    assert names(report.skipped_files) == {"memory/a.md"}
    assert held(into)["proj/memory/a.md"] == "the only copy\n"
    # And the time after that.
    await export(laptop, into)
    assert held(into)["proj/memory/a.md"] == "the only copy\n"


async def test_one_project_alone_leaves_the_others(agent: Agent, laptop: Machine, into: Path) -> None:
    await agent.note("Of the project.")
    await agent.note("Of all.", scope="global")
    await export(laptop, into, "proj", "global")
    before = held(into)
    await export(laptop, into, "proj", is_whole=False)
    assert held(into) == before
    # One that is in memory no more is gone from a whole export.
    await export(laptop, into, "proj")
    assert not any(path.startswith("global/") for path in held(into))


async def test_an_export_that_was_cut_short_is_begun_again(
    laptop: Machine, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutError(Exception):
        """The end of the program, in the middle."""

    def cut(folder: Folder, path: str, document: dict[str, Any]) -> None:
        keep(folder, path, document)
        raise CutError

    keep = tree._keep

    into.mkdir()
    (into / ".confide.json.part").write_text("{")
    await laptop.put("memory/a.md", "one\n")
    await laptop.put("memory/b.md", "two\n")
    monkeypatch.setattr(tree, "_keep", cut)
    with pytest.raises(CutError):
        await export(laptop, into)
    monkeypatch.setattr(tree, "_keep", keep)
    report = await export(laptop, into)
    assert (report.files, report.skipped_files) == (2, [])


async def test_no_symlink_is_written_or_removed_through(laptop: Machine, into: Path) -> None:
    """A tree may come from somebody else's git."""
    mine = into.parent / "mine"
    mine.mkdir()
    (mine / "MEMORY.md").write_text("precious\n")
    (mine / "profile").write_text("precious\n")
    into.mkdir()
    projects = [{"name": "old", "folder": "old", "files": ["MEMORY.md"]}]
    (into / "confide.json").write_text(json.dumps({"format": 1, "projects": projects}))
    (into / "old").symlink_to(mine)
    (into / ".notes.jsonl.part").symlink_to(mine / "profile")
    (into / ".confide.json.part").symlink_to(mine / "profile")
    await laptop.put("memory/a.md", "one\n")
    await export(laptop, into)
    assert held(mine) == {"MEMORY.md": "precious\n", "profile": "precious\n"}
    assert "proj/memory/a.md" in held(into)


async def test_a_file_that_is_in_the_way_costs_only_itself(laptop: Machine, into: Path) -> None:
    await laptop.put("memory/a.md", "one\n")
    await laptop.put("memory/b.md", "two\n")
    await export(laptop, into)
    (into / "proj" / "memory" / "a.md").write_bytes(b"\xff\xfe")
    await laptop.request("remove", {"project": "proj", "path": "memory/b.md", "base": 1})
    report = await export(laptop, into)
    assert names(report.skipped_files) == {"memory/a.md"}
    assert not (into / "proj" / "memory" / "b.md").exists()


@pytest.mark.parametrize(
    "name", ["notes.jsonl", "confide.json", ".git", "..", "記憶" * 60, "a" * 256, "x/../y", "CON.", "% 41"]
)
async def test_any_name_of_a_project_has_a_folder_of_its_own(laptop: Machine, into: Path, name: str) -> None:
    await laptop.attach(name)
    await laptop.put("memory/a.md", "one\n", project=name)
    report = await export(laptop, into, name)
    assert (report.files, report.skipped_files) == (1, [])
    (folder,) = [path for path in into.iterdir() if path.is_dir()]
    assert not folder.name.startswith(".")
    assert held(folder) == {"memory/a.md": "one\n"}
    filled = await tree.fill(laptop.connection, unsealed(into), into, is_dry=True)
    assert filled.counts == {"same": 1}


async def test_projects_that_differ_by_case_alone_never_share_a_folder(laptop: Machine, into: Path) -> None:
    """Some disks do not tell upper from lower case."""
    await laptop.attach("Shop")
    await laptop.attach("shop")
    await laptop.put("memory/a.md", "upper\n", project="Shop")
    await laptop.put("memory/a.md", "lower\n", project="shop")
    await export(laptop, into, "Shop", "shop")
    folders = {path.name.casefold() for path in into.iterdir() if path.is_dir()}
    assert len(folders) == 2
    before = held(into)
    await export(laptop, into, "shop", is_whole=False)
    assert held(into) == before
    filled = await tree.fill(laptop.connection, unsealed(into), into, is_dry=True)
    assert filled.counts == {"same": 2}


async def test_a_file_that_fits_no_message_costs_only_itself(laptop: Machine, into: Path) -> None:
    """JSON writes a control character in six bytes."""
    await laptop.put("memory/small.md", "small\n")
    await export(laptop, into)
    (into / "proj" / "memory" / "odd.md").write_text("\x01" * 3_000_000)
    filled = await tree.fill(laptop.connection, unsealed(into), into, is_dry=False)
    assert filled.counts == {"same": 1, "refused": 1}
    assert names(filled.skipped_files) == {"memory/odd.md"}


async def test_a_broken_tree_is_no_folder_of_markdown(into: Path) -> None:
    into.mkdir()
    (into / "confide.json").write_text('{"format": 2, "projects": []}')
    assert export_manifest.is_tree(into)
    with pytest.raises(ExportError, match="another format"):
        await tree.fill(None, unsealed(into), into, is_dry=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 8), (errno.EROFS, 8), (errno.EACCES, 7)])
def test_a_full_disk_is_not_the_fault_of_the_folder(
    into: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    into.mkdir()

    def refuse(_fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ExportError, match=os.strerror(number)) as caught:
        export_manifest.begin(into)
    assert caught.value.exit_code == code
    assert not (into / "confide.json").exists()
