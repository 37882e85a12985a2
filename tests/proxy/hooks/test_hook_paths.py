"""What a hook reads by itself: where its files are, what switches it off, the briefing of the folder it is in, and what it counts."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from confide_proxy import paths
from confide_proxy.hooks import briefings, counts, hook_paths


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"CONFIDE_HOME": "~/memory"},
        {"CONFIDE_HOME": "relative"},
        {"XDG_DATA_HOME": "/data", "XDG_CONFIG_HOME": "/settings"},
        {"XDG_DATA_HOME": " ", "XDG_CONFIG_HOME": ""},
    ],
)
def test_a_hook_finds_what_all_commands_find(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same state folder and configuration, without what it costs to load all that they load."""
    for name in ("CONFIDE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = paths.find()
    state, config = hook_paths.find()
    assert (Path(state), Path(config)) == (found.state, found.config)


def test_a_socket_whose_path_is_too_long_is_in_a_runtime_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is this user's alone; its name is of the state folder, and it can be bound."""
    short = tmp_path / "s"
    short.mkdir()
    if len(os.fsencode(short)) < 80:
        assert hook_paths.addresses(str(short)) == [str(short / "hooks.sock")]
    deep = tmp_path / ("d" * 100) / "proxy"
    deep.mkdir(parents=True)
    runtime = Path(f"/tmp/confide-test-{os.getpid()}")
    runtime.mkdir(mode=0o700)
    try:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        address = hook_paths.addresses(str(deep))[0]
        assert Path(address).parent == runtime
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(address)
        runtime.chmod(0o777)
        assert runtime not in [Path(each).parent for each in hook_paths.addresses(str(deep))]
    finally:
        for left in runtime.iterdir():
            left.unlink()
        runtime.rmdir()


def test_what_switches_hooks_off(tmp_path: Path) -> None:
    """`hooks = false` of this machine, or of a project above the folder; whatever else stands there, and what is no file, does not."""
    config, project = tmp_path / "proxy.toml", tmp_path / "project"
    below = project / "src/deep"
    below.mkdir(parents=True)

    def off(said: str | None, of_project: str | None = None) -> bool:
        for file, text in ((config, said), (project / ".confide.toml", of_project)):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
        return hook_paths.is_off(str(config), str(below))

    assert not off(None)
    assert not off("")
    assert not off("hooks = true\n")
    assert off("hooks = false # for now\n")
    assert off('"hooks"=false\n[learn]\nmode = "auto"\n')
    assert not off("[other]\nhooks = false\n")
    assert off("hooks = \n")  # whatever it was meant to say
    assert off(None, "hooks = false\n")
    assert not off("\ufeffhooks = true\n")
    assert off(None, "\ufeffhooks = false\n")
    assert not off(None, "hooks = true\n")
    assert off("hooks = true\n", "hooks = false\n")
    assert off("hooks = false\n", "hooks = true\n")
    assert not off(None)
    os.mkfifo(project / ".confide.toml")
    assert not hook_paths.is_off(str(config), str(below))
    config.symlink_to(project / "elsewhere.toml")
    (project / "elsewhere.toml").write_text("hooks = false\n")
    assert hook_paths.is_off(str(config), "")


def test_a_briefing_is_that_of_the_project_around_the_folder(tmp_path: Path) -> None:
    """With its age; none beyond the edge of another repository, and none that is damaged."""
    state, project = str(tmp_path / "state"), tmp_path / "project"
    vendored = project / "vendored/lib"
    (vendored / ".git").mkdir(parents=True)
    briefings.save(state, str(project), "a1", ["- one"], now=1000.0)
    text = briefings.read(state, str(project / "vendored"), now=1000.0 + 7_200)
    assert "as they were 2 hours ago" in text
    assert "- one" in text
    assert briefings.read(state, str(vendored)) == ""
    assert briefings.read(state, str(tmp_path)) == ""
    assert briefings.read(state, "") == ""
    briefings.save(state, str(project), "a1", [], now=1000.0)
    assert briefings.read(state, str(project)) == ""
    for damaged in (b"", b"[]", b"{", b'{"lines": 7, "written": 1}', b'{"lines": ["x"], "written": "x"}'):
        (tmp_path / "state/briefing/a1.json").write_bytes(damaged)
        assert briefings.read(state, str(project)) == ""
    for number in range(briefings.MOST_FOLDERS + 3):
        briefings.save(state, f"/p{number}", f"b{number}", ["- x"])
    kept = {each.name for each in (tmp_path / "state/briefing").iterdir()}
    assert len(kept) == briefings.MOST_FOLDERS + 1
    assert "b0.json" not in kept


def test_counts_are_bounded_and_have_no_text(tmp_path: Path) -> None:
    """What is counted is one word; the older half goes when there is too much."""
    state = str(tmp_path)
    counts.note(state, event="Stop it\n now", client="x", outcome=counts.FAILED, ms=3, why="no json/€")
    assert [each[1:] for each in counts.read(state)] == [("Stopitnow", "failed", 3, "nojson")]
    for _ in range(4 * counts.MOST_BYTES // 60):
        counts.note(state, event="UserPromptSubmit" * 4, client="claude-code", outcome=counts.ANSWERED, ms=12)
    sizes = {each.name: each.stat().st_size for each in (tmp_path / "hooks").iterdir()}
    assert sizes.keys() == {"events", "events.1"}
    assert max(sizes.values()) <= counts.MOST_BYTES + 100
    assert len(counts.read(state)) > 500
    (tmp_path / "hooks/events").write_bytes(b"\xff\xfe junk\n1 2 3\nx y z 1 -\n")
    assert all(each[2] == "answered" for each in counts.read(state))
