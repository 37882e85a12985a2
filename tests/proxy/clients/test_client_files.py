"""Clients' files are other people's: what is put in can be taken out to the byte, and a file that is no good is left alone."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.clients import client_files, hooks, known_clients, presence, rules
from confide_proxy.clients.client_files import WriteReceipts
from confide_proxy.clients.config_entries import ConfigEntry
from confide_proxy.clients.known_clients import CLIENTS, KnownClient
from confide_proxy.errors import SetupError, SetupStorageError

CLAUDE = CLIENTS["claude-code"]
PROGRAM = "/opt/confide/bin/confide"
ENTRY = {"command": PROGRAM, "args": ["mcp"]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own: some clients have files for the user alone."""
    for name in (
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CONFIDE_HOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def server(client: KnownClient, file: Path) -> list[ConfigEntry]:
    return [client.server(file, PROGRAM)]


def add(client: KnownClient, file: Path, program: str = PROGRAM) -> bool:
    """Whether anything changed."""
    (change,) = client_files.changes_to_add([client.server(file, program)])
    if change.is_one:
        change.write()
    return change.is_one


def everything(client: KnownClient, project: Path, program: str = PROGRAM) -> list[ConfigEntry]:
    return [
        client.server(client.file(project, for_user=False), program),
        *hooks.hooks(client, project, program, for_user=False),
        *rules.rules(client, project, for_user=False),
    ]


def tree(folder: Path) -> dict[str, bytes | None]:
    found = (path for path in folder.rglob("*") if path.name != "receipts.json")
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("form", ["absent", "of others", "empty"])
def test_all_that_was_put_in_comes_out_to_the_byte(client: KnownClient, form: str, tmp_path: Path) -> None:
    """Server, hooks and rules, in files that were not there, were empty, or held others'; a second time changes nothing."""
    project, receipts = tmp_path / "project", tmp_path / "receipts.json"
    project.mkdir()
    if form != "absent":
        for file in {entry.file for entry in everything(client, project)} - {rules_file(client)}:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"" if form == "empty" else others(client, file).encode())
    before = tree(tmp_path)
    for change in client_files.changes_to_add(everything(client, project)):
        change.write(WriteReceipts(receipts))
    assert not any(change.is_one for change in client_files.changes_to_add(everything(client, project)))
    had = presence.look(client, project)
    assert had.starts == (presence.Start(client.file(project, for_user=False), PROGRAM, ("mcp",)),)
    assert had.has_hooks == (client.name != "zed")
    assert not had.has_plugin
    for change in client_files.changes_to_remove(everything(client, project), WriteReceipts(receipts)):
        change.write()
    assert tree(tmp_path) == before


def rules_file(client: KnownClient) -> Path | None:
    """A file that is ours alone."""
    return Path.home() / ".gemini/policies/confide.toml" if client.name == "gemini" else None


def others(client: KnownClient, file: Path) -> str:
    if file.suffix == ".toml":
        return '# mine\nmodel = "x"\n\n[mcp_servers]\n\n[mcp_servers.other] # good\ncommand = "y"\n\n# the end\n'
    comment = "" if client.name == "claude-code" else " // mine\n"
    hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}], "stop": [{"command": "beep"}]}}
    said: dict[str, Any] = {"model": "x", client.group: {}, "permissions": {"allow": ["Bash(ls)"]}, **hook}
    return f"{{{comment}{json.dumps(said, indent=4)[1:]}"


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_without_receipts_what_is_ours_is_cut_out(client: KnownClient, tmp_path: Path) -> None:
    """As on another machine, or where somebody changed the file since; an entry of an older program counts as ours."""
    for entry in everything(client, tmp_path):
        if entry.file.suffix != ".toml" or client.name == "codex":
            entry.file.parent.mkdir(parents=True, exist_ok=True)
            entry.file.write_text(others(client, entry.file))
    for program in ("/old/confide", PROGRAM):
        for change in client_files.changes_to_add(everything(client, tmp_path, program)):
            change.write()
    said = "".join(path.read_text() for path in {entry.file for entry in everything(client, tmp_path)})
    assert "/old/confide" not in said
    for change in client_files.changes_to_remove(everything(client, tmp_path)):
        change.write()
    for file in {entry.file for entry in everything(client, tmp_path)} - {rules_file(client)}:
        text = file.read_text()
        assert "confide" not in text
        assert "mine" in text or client.name == "claude-code"
        if file.suffix == ".json" and client.name == "claude-code":
            assert json.loads(text)["hooks"] == json.loads(others(client, file))["hooks"]
    assert rules_file(client) is None or not rules_file(client).exists()  # type: ignore[union-attr]


def test_merges_beside_other_servers(tmp_path: Path) -> None:
    """Other entries, other keys, the indent and the file's mode stay, whatever this process would give a new file."""
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"other": {"command": "x"}}, "theme": "därk"}, indent=4))
    file.chmod(0o666)
    was = os.umask(0o077)
    try:
        add(CLAUDE, file)
    finally:
        os.umask(was)
    assert json.loads(file.read_text()) == {
        "mcpServers": {"other": {"command": "x"}, "confide": ENTRY},
        "theme": "därk",
    }
    assert '\n    "theme"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o666


def test_what_somebody_added_to_the_entry_stays(tmp_path: Path) -> None:
    """An entry of an earlier version gets the program's path, and keeps its environment; a removal takes it all the same."""
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"confide": {"command": "confide", "args": ["mcp"], "env": {"A": "b"}}}}))
    receipts = tmp_path / "receipts.json"
    for change in client_files.changes_to_add(server(CLAUDE, file)):
        change.write(WriteReceipts(receipts))
    assert json.loads(file.read_text())["mcpServers"]["confide"] == {**ENTRY, "env": {"A": "b"}}
    assert "/opt" not in receipts.read_text()
    (change,) = client_files.changes_to_remove(server(CLAUDE, file), WriteReceipts(receipts))
    assert change.after == "{}"


BAD = {
    "half": b"{",
    "a list": b"[]",
    "a list of servers": b'{"mcpServers": []}',
    "a nul": b"\x00",
    "a comment that its client does not read": b"{} // a comment",
    "latin-1": b'{"a": "caf\xe9"}',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_cannot_be_merged_is_left_alone(tmp_path: Path, data: bytes) -> None:
    """A broken file is named and not touched."""
    file = tmp_path / ".mcp.json"
    file.write_bytes(data)
    with pytest.raises(SetupError, match=r"\.mcp\.json") as told:
        add(CLAUDE, file)
    assert told.value.hint
    assert file.read_bytes() == data


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """A folder, a pipe (which would be waited on for ever), links in a circle, a file that is too large, one that may not be read."""
    folder, pipe, circle, large = (tmp_path / name for name in ("folder", "pipe", "circle", "large"))
    folder.mkdir()
    os.mkfifo(pipe)
    circle.symlink_to(circle)
    with large.open("wb") as file:
        file.truncate(16 * 2**20 + 1)
    for path, told in (
        (folder, "is not a file"),
        (pipe, "is not a file"),
        (circle, "cannot be read"),
        (large, "16 MiB"),
    ):
        with pytest.raises(SetupError, match=told):
            add(CLAUDE, path)


def test_links_and_odd_text_come_through(tmp_path: Path) -> None:
    """A linked configuration stays a link, also one that leads to nothing yet; half a surrogate pair of somebody else's survives."""
    (tmp_path / "dotfiles").mkdir()
    file = tmp_path / "dotfiles" / "claude.json"
    file.write_text('{"odd": "\\ud83d"}')
    link, dangling = tmp_path / ".claude.json", tmp_path / "dangling.json"
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "dotfiles/later/x.json")
    add(CLAUDE, link)
    add(CLAUDE, dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert json.loads(file.read_text())["odd"] == "\ud83d"
    assert json.loads((tmp_path / "dotfiles/later/x.json").read_text())["mcpServers"]["confide"] == ENTRY
    assert sorted(path.name for path in file.parent.iterdir()) == ["claude.json", "later"]


def test_a_disk_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the file's own name, and the exit code is that of the disk; half a file is left nowhere."""
    file = tmp_path / ".mcp.json"
    file.write_text("{}")
    (change,) = client_files.changes_to_add(server(CLAUDE, file))

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SetupStorageError) as told:
        change.write(WriteReceipts(tmp_path / "state" / "receipts.json"))
    assert str(told.value) == f"{file} cannot be written: No space left on device"
    assert told.value.exit_code == 8
    assert file.read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [".mcp.json"]


def test_what_changed_while_somebody_was_asked_is_not_lost(tmp_path: Path) -> None:
    """Clients write these files themselves, all the time."""
    file = tmp_path / ".claude.json"
    file.write_text("{}")
    (change,) = client_files.changes_to_add(server(CLAUDE, file))
    file.write_text('{"numStartups": 7}')
    with pytest.raises(SetupError, match="changed meanwhile"):
        change.write()
    assert file.read_text() == '{"numStartups": 7}'


def test_damaged_receipts_cost_nothing(tmp_path: Path) -> None:
    """What is ours is cut out as without them."""
    file, receipts = tmp_path / ".mcp.json", tmp_path / "receipts.json"
    for damage in ("{", "[]", "7", json.dumps({str(file): {"sha256": 7, "undo": "x"}}), json.dumps({str(file): []})):
        file.unlink(missing_ok=True)
        add(CLAUDE, file)
        receipts.write_text(damage)
        (change,) = client_files.changes_to_remove(server(CLAUDE, file), WriteReceipts(receipts))
        assert change.after == "{}\n"
        WriteReceipts(receipts).note(change)


def test_rules_let_reading_and_storing_pass_and_ask_for_the_rest(home: Path) -> None:
    """No rule of any client lets through what opens a secret, deletes or merges; where a client allows by itself, it is told to ask."""
    project = home / "p"
    never = set(rules.ASKED)
    allowed = {}
    for client in CLIENTS.values():
        for change in client_files.changes_to_add(rules.rules(client, project, for_user=False)):
            assert change.after is not None
            allowed[client.name] = change.after
    claude = json.loads(allowed["claude-code"])["permissions"]["allow"]
    assert len(claude) == 2 * len(rules.UNASKED)
    assert {rule.split("__")[1] for rule in claude} == {"confide", "plugin_confide_confide"}
    assert not {rule.split("__")[2] for rule in claude} & never
    codex = tomllib.loads(allowed["codex"])["mcp_servers"]["confide"]["tools"]
    assert {tool for tool, said in codex.items() if said["approval_mode"] == "approve"} == set(rules.UNASKED)
    assert {tool for tool, said in codex.items() if said["approval_mode"] == "prompt"} == never
    gemini = {rule["decision"]: set(rule["toolName"]) for rule in tomllib.loads(allowed["gemini"])["rule"]}
    assert gemini == {"allow": set(rules.UNASKED), "ask_user": never}
    opencode = json.loads(allowed["opencode"])["permission"]
    assert {tool for tool, said in opencode.items() if said == "ask"} == {f"confide_{tool}" for tool in never}
    zed = json.loads(allowed["zed"])["agent"]["tool_permissions"]["tools"]
    assert {tool for tool, said in zed.items() if said == {"default": "confirm"}} == {
        f"mcp:confide:{tool}" for tool in never
    }
    assert allowed.keys() | rules.NOT_POSSIBLE.keys() == CLIENTS.keys()


def test_rules_follow_the_plugin(home: Path, tmp_path: Path) -> None:
    """Codex has the plugin's server in a table of its own; an entry's table without a command would be no server."""
    codex = CLIENTS["codex"]
    config = codex.of_user()
    config.parent.mkdir(parents=True)
    before = '# mine\n[plugins."confide@confide"]\nenabled = true\n\n[tui]\ntheme = "x"\n'
    config.write_text(before)
    (change,) = client_files.changes_to_add(rules.rules(codex, tmp_path, for_user=False, has_plugin=True))
    change.write()
    said = tomllib.loads(config.read_text())
    assert said.keys() == {"plugins", "tui"}
    tools = said["plugins"]["confide@confide"]["mcp_servers"]["confide"]["tools"]
    assert (tools["memory_store"], tools["secret_get"]) == ({"approval_mode": "approve"}, {"approval_mode": "prompt"})
    (change,) = client_files.changes_to_remove(rules.all_rules(codex, tmp_path, for_user=False))
    assert change.after == before


def test_reading_tools_are_those_that_say_so() -> None:
    """The catalogue knows which tools only read; a rule names no other."""
    catalogue = json.loads((Path(known_clients.__file__).parents[1] / "mcp/packaged/catalogue-all.json").read_bytes())
    tools = {tool["name"]: tool["annotations"]["readOnlyHint"] for tool in found_tools(catalogue)}
    assert {tool for tool, is_reading in tools.items() if is_reading} == set(rules.READING)
    assert {"memory_store", "memory_update", *rules.ASKED} <= tools.keys()


def found_tools(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value] if "inputSchema" in value else [tool for each in value.values() for tool in found_tools(each)]
    return [tool for each in value for tool in found_tools(each)] if isinstance(value, list) else []


def test_the_line_of_a_hook_survives_odd_paths() -> None:
    """Blanks, quotes and signs of the shell; hooks of others, also such as are wrapped around ours, are not ours."""
    for program in ("/opt/my tools/confide", "/opt/it's/confide", "/opt/$(x)/confide", "/opt/ü;rm/confide"):
        for line in (hooks.line(program), hooks.line(program, is_waited_for=False)):
            assert shlex.split(line.removesuffix("; exit 0")).count(program) == 2
            assert hooks.is_ours({"hooks": [{"type": "command", "command": line}]}), line
            assert hooks.is_ours({"command": line})
    for command in ("beep", "exec confide hook; exit 0 && beep", "echo confide hook", 7, None):
        assert not hooks.is_ours({"command": command})
    assert not hooks.is_ours({"hooks": [{"command": hooks.line("/x/confide")}, {"command": "beep"}]})
    assert not any(map(hooks.is_ours, ({}, [], "x", {"hooks": {}}, {"hooks": []})))


def test_the_plugin_counts_as_set_up(home: Path) -> None:
    """A client that has the plugin switched on needs neither entry nor hooks."""
    project = home / "p"
    (project / ".claude").mkdir(parents=True)
    (home / ".claude").mkdir()
    (home / ".codex").mkdir()
    (home / ".gemini/extensions/confide").mkdir(parents=True)
    (home / ".claude/settings.json").write_text('{"enabledPlugins": {"confide@confide": true, "x@y": true}}')
    (home / ".codex/config.toml").write_text('[plugins."confide@confide"]\nenabled = true\n')
    for name in ("claude-code", "codex", "gemini"):
        had = presence.look(CLIENTS[name], project)
        assert (had.has_plugin, had.is_set_up, had.has_hooks) == (True, True, True), name
    (project / ".claude/settings.local.json").write_text('{"enabledPlugins": {"confide@confide": false}}')
    (home / ".codex/config.toml").write_text('[plugins."confide@confide"]\nenabled = false\n')
    assert not presence.look(CLAUDE, project).has_plugin
    assert not presence.look(CLIENTS["codex"], project).has_plugin


def test_the_path_of_the_program_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lacks the shell's PATH can start it; a name on PATH that is another program is not taken."""
    stranger = tmp_path / "confide"
    stranger.write_text("#!/bin/sh\n")
    stranger.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    own = known_clients.program()
    assert Path(own).is_absolute()
    assert own != str(stranger)
    stranger.unlink()
    stranger.symlink_to(own)
    assert known_clients.program() == str(stranger), "the name that stays over updates"
