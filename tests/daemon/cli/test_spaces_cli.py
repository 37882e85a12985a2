"""Spaces as their operator sees them: listed, and removed for good when no machine may enter any more."""

from __future__ import annotations

import pytest
from tests.support.programs.confided import Confided

from confide_crypto.keys.identity import Identity
from confide_daemon.access import space_removal
from confide_daemon.access.registry import RegistryState, open_state
from confide_daemon.datadir.paths import DataFolder


async def stored(program: Confided, identity: Identity, text: str) -> None:
    """A file of a machine in its space."""
    async with await program.connect(identity) as machine:
        await machine.attach("proj")
        await machine.put("MEMORY.md", text)


async def held(program: Confided, identity: Identity) -> list[str]:
    """The paths that its space has."""
    async with await program.connect(identity) as machine:
        await machine.attach("proj")
        answer = await machine.request("documents", {"project": "proj"})
        return [one["path"] for one in answer["documents"]]


def ids(program: Confided) -> dict[str, str]:
    state = open_state(DataFolder(program.data))
    try:
        return state.registry.spaces()
    finally:
        state.close()


async def test_a_space_goes_with_all_its_files_while_the_daemon_serves(ready: Confided) -> None:
    """Its machines have to be shut out first; other spaces stay; whoever is let in under the name again begins anew."""
    ready.serve()
    old, other = ready.enroll("old"), ready.enroll("other")
    await stored(ready, old, "The queue lives in postgres.\n")
    await stored(ready, other, "The parcel API listens on 8010.\n")
    listed = ready.run("space", "ls").stdout
    assert "old  " in listed
    assert "the server keeps the key  old" in listed

    refused = ready.run("space", "rm", "old", "--yes", code=7).stderr
    assert "devices may connect to it: old" in refused
    assert "confided device rm old" in refused
    assert "there is no space 'nosuch'" in ready.run("space", "rm", "nosuch", "--yes", code=7).stderr
    before = ids(ready)
    ready.run("device", "rm", "old", "--yes")
    assert "nothing was deleted" in ready.run("space", "rm", "old", code=7).stderr
    assert "removed: old" in ready.run("space", "rm", "old", "--yes").stdout
    assert not list((ready.data / "spaces").glob(f"{before['old']}*"))
    assert [one["space"] for one in ready.json("space", "ls")] == ["other"]
    assert "removed" in ready.run("audit").stdout

    again = ready.enroll("new", "--space", "old")
    assert await held(ready, again) == []
    assert await held(ready, other) == ["MEMORY.md"]
    ready.run("doctor")


@pytest.mark.parametrize("step", ["mark", "registry", "file"])
async def test_a_removal_that_is_cut_off_is_finished_or_was_never_begun(
    ready: Confided, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Between the mark, the registry and the files: the space is whole, or the next daemon removes what is left."""
    process = ready.serve()
    old = ready.enroll("old")
    await stored(ready, old, "The queue lives in postgres.\n")
    process.terminate()
    process.wait()
    ready.run("device", "rm", "old", "--yes")
    space_id = ids(ready)["old"]

    class Cut(BaseException):
        pass

    def cut(*_: object) -> None:
        raise Cut

    if step == "mark":
        monkeypatch.setattr(space_removal, "new_space_id", cut)
    elif step == "registry":
        monkeypatch.setattr(space_removal, "_finish", cut)
    else:
        monkeypatch.setattr(space_removal.atomic, "sync", _second(cut))
    state: RegistryState = open_state(DataFolder(ready.data))
    try:
        with pytest.raises(Cut):
            space_removal.remove(state, "old")
        monkeypatch.undo()
    finally:
        state.close()
    ready.serve()
    names = {path.name for path in (ready.data / "spaces").iterdir() if path.name.startswith(space_id)}
    assert not any(name.endswith(".removed") for name in names)
    if step == "mark":
        assert f"{space_id}.db" in names
        assert ids(ready)["old"] == space_id
    else:
        assert not names
        assert ids(ready)["old"] != space_id


def _second(cut: object) -> object:
    """The first call does nothing, the second one is cut off."""
    calls: list[object] = []

    def called(*_: object) -> None:
        calls.append(None)
        if len(calls) > 1:
            cut()  # type: ignore[operator]

    return called
