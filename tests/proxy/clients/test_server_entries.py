"""The entry of the server: which memory it leads to, what another transport excludes, and what of it a client really loads."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from confide_proxy.clients import client_files, hooks, known_clients, presence
from confide_proxy.clients.client_files import WriteReceipts
from confide_proxy.clients.known_clients import CLIENTS, KnownClient

PROGRAM = "/opt/confide/bin/confide"
URL = "https://memory.example.org:7734/mcp?key=hunter2"
REMOTE: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "http", "url": URL, "headers": {"Authorization": "Bearer x"}},
    "codex": {"url": URL, "bearer_token_env_var": "TOKEN"},
    "gemini": {"httpUrl": URL, "headers": {"Authorization": "Bearer x"}},
    "opencode": {"type": "remote", "url": URL, "enabled": True},
    "cursor": {"url": URL},
    "vscode": {"type": "http", "url": URL},
    "zed": {"url": URL, "headers": {}},
}
VARIABLES = ("CONFIDE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(client: KnownClient, file: Path, entry: dict[str, Any] | None = None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if client.is_toml:
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in (entry or {}).items()]
        file.write_text(f'model = "x"\n\n[mcp_servers.confide]\n{"".join(lines)}' if entry else 'model = "x"\n')
    else:
        file.write_text(json.dumps({"model": "x", client.group: {"confide": entry} if entry else {}}, indent=2))


def said(client: KnownClient, file: Path) -> Any:
    document = tomllib.loads(file.read_text()) if client.is_toml else json.loads(file.read_text())
    return document.get(client.group, {}).get("confide")


def put(client: KnownClient, file: Path, *, replaces: bool = False, receipts: WriteReceipts | None = None) -> bool:
    (change,) = client_files.changes_to_add([client.server(file, PROGRAM, replaces=replaces)])
    if change.is_one:
        change.write(receipts)
    return change.is_one


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_another_transport_is_replaced_whole_or_left(client: KnownClient, tmp_path: Path) -> None:
    """Never merged: Codex refuses a file with both, Claude Code and Gemini go on calling the address. What was there comes back."""
    file = client.file(tmp_path / "p", for_user=False)
    written(client, file, REMOTE[client.name])
    before = file.read_bytes()
    server = client.server(file, PROGRAM)
    host = "https://memory.example.org:7734"
    assert client_files.ask_entry(server, server.is_anothers) == f"calls {host}"
    assert not put(client, file)
    (removed,) = client_files.changes_to_remove([server], WriteReceipts(tmp_path / "receipts"))
    assert (removed.is_one, file.read_bytes()) == (False, before)
    had = presence.look(client, tmp_path / "p")
    assert [(each.command, each.address) for each in had.starts] == [("", host)]
    receipts = WriteReceipts(tmp_path / "receipts")
    assert put(client, file, replaces=True, receipts=receipts)
    assert said(client, file) == client.entry(PROGRAM)
    (removed,) = client_files.changes_to_remove([server], receipts)
    removed.write()
    assert file.read_bytes() == before


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_what_an_earlier_version_merged_is_parted(client: KnownClient, tmp_path: Path) -> None:
    """Its program stands beside the address: a new setup has the program alone, a removal leaves the address alone."""
    file = client.file(tmp_path / "p", for_user=False)
    mixed = {**REMOTE[client.name], **client.entry("/old/confide")}
    written(client, file, mixed)
    put(client, file)
    assert said(client, file) == client.entry(PROGRAM)
    written(client, file, mixed)
    (removed,) = client_files.changes_to_remove([client.server(file, PROGRAM)])
    removed.write()
    left = said(client, file)
    assert "/old/confide" not in json.dumps(left)
    assert URL in left.values()


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("words", [["ssh", "box", "confide", "mcp"], ["/usr/bin/docker", "run", "-i", "confide"]])
def test_an_entry_that_starts_another_program_is_left_or_replaced_whole(
    client: KnownClient, words: list[str], tmp_path: Path
) -> None:
    """It is the person's own way to a memory: no option of it stays under ours, and none of it is removed."""
    file = client.file(tmp_path / "p", for_user=False)
    entry: dict[str, Any] = {"command": words[0], "args": words[1:], "cwd": "/x"}
    if client.name == "opencode":
        entry = {"type": "local", "command": words, "enabled": True}
    written(client, file, entry)
    before = file.read_bytes()
    server = client.server(file, PROGRAM)
    assert client_files.ask_entry(server, server.is_anothers) == f"starts {words[0]}"
    assert not put(client, file)
    assert not any(each.is_one for each in client_files.changes_to_remove([server]))
    receipts = WriteReceipts(tmp_path / "receipts")
    assert put(client, file, replaces=True, receipts=receipts)
    assert said(client, file) == client.entry(PROGRAM)
    (removed,) = client_files.changes_to_remove([server], receipts)
    removed.write()
    assert file.read_bytes() == before


@pytest.mark.parametrize("program", ["confide", "/old/venv/bin/confide", "C:\\py\\Scripts\\confide.exe"])
def test_an_entry_for_confide_itself_is_brought_up_to_date(program: str, tmp_path: Path) -> None:
    client = CLIENTS["cursor"]
    file = client.file(tmp_path / "p", for_user=False)
    written(client, file, {"command": program, "args": ["mcp"]})
    assert put(client, file)
    assert said(client, file) == client.entry(PROGRAM)


@pytest.mark.parametrize(("name", "off"), [("codex", {"enabled": False}), ("cursor", {"disabled": True})])
def test_a_switch_that_keeps_it_off_does_not_stay(name: str, off: dict[str, Any], tmp_path: Path) -> None:
    """Whoever runs setup wants it started; until then it is not taken for started."""
    client = CLIENTS[name]
    file = client.file(tmp_path / "p", for_user=False)
    written(client, file, {"command": PROGRAM, "args": ["mcp"], **off})
    assert presence.look(client, tmp_path / "p").starts[0].off == str(file)
    put(client, file)
    assert presence.look(client, tmp_path / "p").starts[0].off == ""


def test_arguments_and_variables_of_a_person_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path / "c"))
    for name in ("codex", "cursor"):
        client = CLIENTS[name]
        file = client.file(tmp_path / "p", for_user=False)
        written(client, file, {"command": "confide", "args": ["mcp", "--project", "/x"], "timeout": 9})
        put(client, file)
        assert said(client, file) == {
            "command": PROGRAM,
            "args": ["mcp", "--project", "/x"],
            "timeout": 9,
            "env": {"CONFIDE_HOME": str(tmp_path / "c")},
        }


@pytest.mark.parametrize(
    "form", ["env = { A = 'b' }\n", "\n[mcp_servers.confide.env]\nA = 'b'\n"], ids=["inline", "own"]
)
def test_codex_takes_variables_in_either_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", '/data "x"\\é')
    file = tmp_path / "config.toml"
    file.write_text(f'[mcp_servers.confide]\ncommand = "confide"\n{form}')
    put(CLIENTS["codex"], file)
    assert said(CLIENTS["codex"], file)["env"] == {"A": "b", "XDG_DATA_HOME": '/data "x"\\é'}
    assert not put(CLIENTS["codex"], file)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_an_entry_leads_to_the_memory_of_whoever_wrote_it(
    client: KnownClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients pass few variables on: what decides which memory it is stands in the entry and in the hooks, and goes with them."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "my data"))
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/own.pem")
    project = tmp_path / "p"
    entries = [
        client.server(client.file(project, for_user=False), PROGRAM),
        *hooks.hooks(client, project, PROGRAM, for_user=False),
    ]
    receipts = WriteReceipts(tmp_path / "receipts")
    for change in client_files.changes_to_add(entries):
        change.write(receipts)
    (start,) = presence.look(client, project).starts
    assert start.environment == {"XDG_DATA_HOME": str(tmp_path / "my data"), "SSL_CERT_FILE": "/etc/own.pem"}
    hooked = hooks.file(client, project, for_user=False)
    if hooked is not None:
        text = hooked.read_text()
        assert text.count("my data") >= 1
        assert "own.pem" not in text or hooked == start.file
    monkeypatch.delenv("XDG_DATA_HOME")
    (change, *_) = client_files.changes_to_add([entries[0]])
    assert not change.is_one
    for change in client_files.changes_to_remove(entries):
        change.write()
    for each in {entry.file for entry in entries}:
        assert not each.exists() or "my data" not in each.read_text()


@pytest.mark.parametrize(
    ("environment", "decides"),
    [
        ({}, {}),
        ({"CONFIDE_HOME": ""}, {}),
        ({"CONFIDE_HOME": "/c", "XDG_DATA_HOME": "/d"}, {"CONFIDE_HOME": "/c"}),
        ({"CONFIDE_HOME": "~/c"}, {"CONFIDE_HOME": "HOME/c"}),
        ({"XDG_DATA_HOME": "HOME/.local/share", "XDG_CONFIG_HOME": "HOME/.config/"}, {}),
        ({"XDG_DATA_HOME": " ", "XDG_CONFIG_HOME": "/s"}, {"XDG_CONFIG_HOME": "/s"}),
        ({"XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/k"}, {}),
    ],
)
def test_what_decides_which_memory_it_is(environment: dict[str, str], decides: dict[str, str], home: Path) -> None:
    """What is set and is not the usual: of `paths.find`."""
    at_home = {name: value.replace("HOME", str(home)) for name, value in environment.items()}
    assert known_clients.which_memory(at_home) == {
        name: value.replace("HOME", str(home)) for name, value in decides.items()
    }


def test_hooks_with_variables_are_ours_and_no_others() -> None:
    line = "[ -x /x/confide ] && exec env {}/x/confide hook; exit 0"
    for value in ("CONFIDE_HOME=/c ", "XDG_DATA_HOME='/my data' XDG_CONFIG_HOME=/c ", "CONFIDE_HOME='/it'\"'\"'s' "):
        assert hooks.is_ours({"command": line.format(value)})
    for value in ("A=b; beep; ", "A=$(beep) ", "A=b beep ", "A='b' && beep "):
        assert not hooks.is_ours({"command": line.format(value)})


def test_claude_codes_own_scope_is_seen_first(tmp_path: Path) -> None:
    """`claude mcp add` writes there where nobody names a scope, in a repository for its top, and Claude Code takes it before all others."""
    client, project = CLIENTS["claude-code"], tmp_path / "shop" / "sub"
    project.mkdir(parents=True)
    (tmp_path / "shop/.git").mkdir()
    entry = {"type": "stdio", "command": "confide", "args": ["mcp"], "env": {}}
    for key in (tmp_path / "shop", project):
        (tmp_path / ".claude.json").write_text(json.dumps({"projects": {str(key): {"mcpServers": {"confide": entry}}}}))
        (start,) = presence.look(client, project).starts
        assert (start.command, start.below) == ("confide", ("projects", str(key)))


@pytest.mark.parametrize(
    ("name", "files_there", "off"),
    [
        ("claude-code", {"p/.claude/settings.local.json": {"disabledMcpjsonServers": ["confide"]}}, "p/.claude/settings.local.json"),
        ("claude-code", {".claude.json": {"projects": {"P": {"disabledMcpServers": ["confide"]}}}}, ".claude.json"),
        ("gemini", {".gemini/settings.json": {"mcp": {"excluded": ["confide"]}}}, ".gemini/settings.json"),
        ("gemini", {".gemini/settings.json": {"mcp": {"allowed": ["other"]}}}, ".gemini/settings.json"),
    ],
)  # fmt: skip
def test_what_is_switched_off_elsewhere_is_seen(
    name: str, files_there: dict[str, Any], off: str, tmp_path: Path
) -> None:
    project = tmp_path / "p"
    client = CLIENTS[name]
    written(client, client.file(project, for_user=False), client.entry(PROGRAM))
    for file, content in files_there.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(json.dumps(content).replace('"P"', json.dumps(str(project))))
    assert presence.look(client, project).starts[0].off == str(tmp_path / off)


def test_hooks_that_are_all_off_do_not_count(tmp_path: Path) -> None:
    project = tmp_path / "p"
    for name, key in (("claude-code", "disableAllHooks"), ("gemini", "hooksConfig")):
        client = CLIENTS[name]
        for change in client_files.changes_to_add(hooks.hooks(client, project, PROGRAM, for_user=False)):
            change.write()
        file = hooks.file(client, project, for_user=False)
        assert file is not None
        assert presence.look(client, project).has_hooks
        text = json.loads(file.read_text())
        file.write_text(json.dumps({**text, key: True if key == "disableAllHooks" else {"enabled": False}}))
        had = presence.look(client, project)
        assert (had.has_hooks, had.hooks_off, had.hooked) == (False, str(file), (file,))


def test_a_plugin_whose_folder_is_gone_is_no_plugin(tmp_path: Path) -> None:
    """As after another Python or another environment: Claude Code and Gemini load nothing of it, and say nothing in a session."""
    gone = tmp_path / "lib/python3.11/plugin"
    plugins, extension = tmp_path / ".claude/plugins", tmp_path / ".gemini/extensions/confide"
    plugins.mkdir(parents=True)
    extension.mkdir(parents=True)
    (tmp_path / ".claude/settings.json").write_text('{"enabledPlugins": {"confide@mine": true}}')
    source = {"source": {"source": "directory", "path": str(gone)}}
    (plugins / "known_marketplaces.json").write_text(json.dumps({"mine": source}))
    (plugins / "installed_plugins.json").write_text(json.dumps({"plugins": {"confide@mine": [{"installPath": "/x"}]}}))
    (extension / ".gemini-extension-install.json").write_text(json.dumps({"type": "link", "source": str(gone)}))
    for there in (False, True):
        if there:
            gone.mkdir(parents=True)
        for name in ("claude-code", "gemini"):
            had = presence.look(CLIENTS[name], tmp_path / "p")
            assert (had.has_plugin, had.is_set_up, had.has_hooks) == (there, there, there), name
            assert had.lost_plugin == (() if there else (gone,))


def test_an_opencode_script_that_is_gone_is_no_hook(tmp_path: Path) -> None:
    client, project = CLIENTS["opencode"], tmp_path / "p"
    written(client, project / "opencode.json")
    text = json.loads((project / "opencode.json").read_text())
    script = tmp_path / "my env/plugin/opencode/confide.js"
    text["plugin"] = [[script.as_uri(), {"program": PROGRAM}]]
    (project / "opencode.json").write_text(json.dumps(text))
    had = presence.look(client, project)
    assert (had.has_hooks, had.lost_hooks) == (False, (script,))
    script.parent.mkdir(parents=True)
    script.write_text("")
    assert presence.look(client, project).has_hooks
