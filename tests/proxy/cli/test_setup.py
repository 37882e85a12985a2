"""`confide setup`: shows what would change, writes it when told to, names what git would share, and takes it away again."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.programs.command import Ended, confide
from tests.support.programs.processes import Machine

from confide_proxy.cli import console, doctor, setup
from confide_proxy.clients import hooks
from confide_proxy.clients.known_clients import CLIENTS
from confide_proxy.clients.own_notes import OwnNotes


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One that nobody has set up, with a home of its own, and no client but those whose files a test makes."""
    machine = Machine(tmp_path, "machine", is_set_up=False)
    machine.env |= {"HOME": str(tmp_path / "home"), "PATH": str(hooks.PLUGIN)}
    (tmp_path / "home").mkdir()
    return machine


@pytest.fixture
def terminal() -> Iterator[list[str]]:
    """Somebody who says yes at a terminal, and what they were asked."""
    asked: list[str] = []

    def yes(question: str, **_options: object) -> bool:
        asked.append(question)
        return "VS Code" not in question

    with patch.object(setup, "can_ask", lambda: True), patch.object(setup, "ask_yes_no", yes):
        yield asked


def files(machine: Machine) -> set[str]:
    place = machine.project.parent
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() and "machine/" not in str(path)}


def test_a_pipe_changes_nothing_and_a_terminal_is_asked(machine: Machine, terminal: list[str]) -> None:
    """Without a client's name: each one that is here is shown with all that it would get, and asked about by itself."""
    home = Path(machine.env["HOME"])
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text('model = "x"\n')
    (home / ".claude.json").write_text("{}")
    (home / ".config/Code/User").mkdir(parents=True)
    (home / ".config/Code/User/mcp.json").write_text("{ // mine\n}")
    before = files(machine)
    with patch.object(setup, "can_ask", lambda: False):
        ended = confide(machine, "setup")
    assert (ended.code, files(machine), terminal) == (0, before, [])
    assert [line for line in ended.out.splitlines() if line.endswith("would get:")] == [
        *("Claude Code would get:", "Codex would get:", "VS Code would get:")
    ]
    assert "nothing was changed" in ended.err
    ended = confide(machine, "setup")
    writing = [question.partition("write this for ")[2] for question in terminal if question != "show them?"]
    assert writing == ["Claude Code?", "Codex?", "VS Code?"]
    assert "now trust the hooks: type /hooks in Codex" in ended.out
    assert json.loads((machine.project / ".mcp.json").read_text())["mcpServers"]["confide"]["args"] == ["mcp"]
    assert "exec" in (home / ".codex/hooks.json").read_text()
    assert (home / ".config/Code/User/mcp.json").read_text() == "{ // mine\n}"
    again = confide(machine, "setup")
    assert "Claude Code is set up\nCodex is set up\n" in again.out


def test_a_broken_file_of_one_client_hides_no_other(machine: Machine) -> None:
    """It is named and left, and the others are shown."""
    home = Path(machine.env["HOME"])
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text("{")
    (home / ".claude.json").write_text("{}")
    ended = confide(machine, "setup")
    assert ended.code == 0
    assert "Claude Code would get:" in ended.out
    assert "Gemini CLI is left as it is" in ended.err
    assert f"{home / '.gemini/settings.json'} is not readable as JSON" in ended.err
    ended = confide(machine, "setup", "gemini", "--write", "--user")
    assert (ended.code, ended.err.count("hint: ")) == (7, 1)


def test_no_client_at_all(machine: Machine) -> None:
    ended = confide(machine, "setup")
    assert (ended.code, ended.out) == (0, "no client that Confide knows is installed here\n")
    assert all(client in ended.err for client in CLIENTS)


def test_what_git_would_share_is_said(machine: Machine) -> None:
    """A file of the project with this machine's paths, unless git leaves it out; and doctor says so once it is in the repository."""
    subprocess.run(["git", "init", "-q", machine.project], check=True)
    machine.env["PATH"] = os.environ["PATH"]
    ended = confide(machine, "setup", "claude-code", "--write", "--hooks")
    assert (
        "git would share .mcp.json and .claude/settings.local.json with everyone who clones this repository"
        in ended.err
    )
    assert "hint: don't commit it: run again with --user, or add it to .git/info/exclude" in ended.err
    subprocess.run(["git", "-C", machine.project, "add", ".mcp.json"], check=True)
    told = [each for each in json.loads(confide(machine, "doctor", "--json").out) if each["check"] == "claude-code"]
    assert ["with hooks" in told[0]["detail"], "is in the repository" in told[1]["detail"]] == [True, True]
    assert told[1]["hint"] == "confide setup claude-code --remove, then confide setup claude-code --write --user"
    confide(machine, "setup", "claude-code", "--remove")
    subprocess.run(["git", "-C", machine.project, "rm", "-q", "--cached", ".mcp.json"], check=True)
    (machine.project / ".git/info/exclude").write_text(".mcp.json\n.claude/\n")
    assert "git would" not in confide(machine, "setup", "claude-code", "--write", "--hooks").err


def test_nobody_is_told_to_do_what_he_did(machine: Machine) -> None:
    """The directory of Claude Code's own notes is set for this folder, with `--user` too: the way out is another one then."""
    subprocess.run(["git", "init", "-q", machine.project], check=True)
    machine.env["PATH"] = os.environ["PATH"]
    told = confide(machine, "setup", "claude-code", "--write", "--auto-memory", "--user").err
    assert "git would share .claude/settings.local.json" in told
    assert "hint: don't commit it: add it to .git/info/exclude\n" in told


def test_parts_come_and_go_by_themselves(machine: Machine) -> None:
    """`--remove --hooks` takes the hooks, and leaves the server and the rules; without an option it takes all."""
    confide(machine, "setup", "gemini", "--write", "--hooks", "--allow")
    settings = machine.project / ".gemini/settings.json"
    policy = Path(machine.env["HOME"]) / ".gemini/policies/confide.toml"
    assert json.loads(settings.read_text()).keys() == {"mcpServers", "hooks"}
    assert confide(machine, "setup", "gemini", "--remove", "--hooks").out.endswith(f"removed confide from {settings}\n")
    assert (json.loads(settings.read_text()).keys(), policy.exists()) == ({"mcpServers"}, True)
    confide(machine, "setup", "gemini", "--remove", "--allow")
    assert not policy.exists()
    confide(machine, "setup", "gemini", "--remove")
    assert not settings.exists()
    assert confide(machine, "setup", "gemini", "--remove").out == f"confide is not in {settings}\n"


def test_what_a_client_cannot_have_is_said(machine: Machine) -> None:
    """And what it can is written all the same."""
    assert "Zed has no hooks" in confide(machine, "setup", "zed", "--write", "--hooks").err
    assert "Cursor asks once for each tool" in confide(machine, "setup", "cursor", "--write", "--allow").err
    assert (machine.project / ".zed/settings.json").exists()


def test_hooks_are_not_written_beside_the_plugin(machine: Machine) -> None:
    """They would fire twice."""
    settings = Path(machine.env["HOME"]) / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"enabledPlugins": {"confide@confide": true}}')
    ended = confide(machine, "setup", "claude-code", "--write", "--hooks", "--allow", "--user")
    assert "has the plugin" in ended.err
    assert json.loads(settings.read_text()).keys() == {"enabledPlugins", "permissions"}
    assert not (Path(machine.env["HOME"]) / ".claude.json").exists()


def test_without_write_nothing_is_written(machine: Machine) -> None:
    """Hooks and rules are shown as differences, the entry as it may be pasted."""
    for client in CLIENTS:
        ended = confide(machine, "setup", client, "--hooks", "--allow")
        assert (ended.code, "nothing was changed" in ended.err) == (0, True)
        assert confide(machine, "setup", client).code == 0
    assert confide(machine, "setup", "plugin").out == f"{hooks.PLUGIN}\n"
    assert not files(machine)


def test_the_doctor_mends_hooks_as_well(machine: Machine) -> None:
    """Once the program has moved, `--fix` points entry and hooks to where it is."""
    confide(machine, "setup", "claude-code", "--write", "--hooks")
    for name in (".mcp.json", ".claude/settings.local.json"):
        file = machine.project / name
        file.write_text(file.read_text().replace(str(setup.program()), "/gone/bin/confide"))
    assert "/gone/bin/confide, which is not there" in told(confide(machine, "doctor"))
    assert "fixed" in told(confide(machine, "doctor", "--fix"))
    assert "/gone" not in (machine.project / ".claude/settings.local.json").read_text()
    assert doctor.CLIENTS is CLIENTS


def told(ended: Ended) -> str:
    """What it says of Claude Code."""
    return next(line for line in ended.out.splitlines() if "claude-code" in line)


def test_help_has_one_description(machine: Machine) -> None:
    said = confide(machine, "setup", "--help").out
    assert said.count("to start Confide") == 1


def test_claude_codes_own_notes_are_put_into_memory_and_taken_out(machine: Machine) -> None:
    """Into a person's own settings of the project; a directory that they have chosen themselves stays; no other client has such notes."""
    settings = machine.project / ".claude/settings.local.json"
    shown = confide(machine, "setup", "claude-code", "--auto-memory")
    assert (shown.code, settings.exists()) == (0, False)
    assert "autoMemoryDirectory" in shown.out
    ended = confide(machine, "setup", "claude-code", "--write", "--auto-memory", "--user")
    assert "own notes go to memory/claude" in ended.out
    assert json.loads(settings.read_text()) == {"autoMemoryDirectory": str(machine.project / "memory/claude")}
    notes = OwnNotes(machine.project)
    assert notes.is_index("memory/Claude/MEMORY.md")
    assert notes.has("memory/claude/deep/x.md")
    assert not any(
        map(notes.is_index, ("MEMORY.md", "memory/MEMORY.md", "memory/claude/deep/MEMORY.md", "memory/claude/x.md"))
    )
    confide(machine, "setup", "claude-code", "--remove", "--auto-memory")
    assert "autoMemoryDirectory" not in settings.read_text()
    assert not notes.has("memory/claude/x.md")
    settings.write_text('{"autoMemoryDirectory": "~/notes"}')
    refused = confide(machine, "setup", "claude-code", "--write", "--auto-memory")
    assert (refused.code, "another autoMemoryDirectory" in refused.err) == (7, True)
    confide(machine, "setup", "claude-code", "--remove")
    assert json.loads(settings.read_text()) == {"autoMemoryDirectory": "~/notes"}
    assert confide(machine, "setup", "codex", "--write", "--auto-memory").code == 2


def claude_notes(machine: Machine, name: str | None = None) -> Path:
    """Claude Code's own folder of the project, with an index and a note."""
    slug = name or "".join(each if each.isascii() and each.isalnum() else "-" for each in str(machine.project))
    folder = Path(machine.env["HOME"]) / ".claude/projects" / slug / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("- [deploys](deploys.md)\n")
    (folder / "deploys.md").write_text("Deploys run at nine.\n")
    return folder


def test_claude_codes_notes_go_along_and_come_back(machine: Machine) -> None:
    """It reads the new folder alone, so what it noted before is there too; and afterwards what it noted since is where it was."""
    before, after = claude_notes(machine), machine.project / "memory/claude"
    ended = confide(machine, "setup", "claude-code", "--write", "--auto-memory")
    assert f"took along 2 notes of Claude Code's own: {after}" in ended.out
    assert (after / "deploys.md").read_text() == "Deploys run at nine.\n"
    assert {each.name for each in before.iterdir()} == {"MEMORY.md", "deploys.md"}
    (after / "deploys.md").write_text("Deploys run at ten.\n")
    (after / "new.md").write_text("New.\n")
    (after / "MEMORY.md").write_text("- [deploys](deploys.md)\n- [new](new.md)\n")
    assert "took along" not in confide(machine, "setup", "claude-code", "--write", "--auto-memory").out
    assert (after / "deploys.md").read_text() == "Deploys run at ten.\n"
    assert "put back 3 notes" in confide(machine, "setup", "claude-code", "--remove").out
    assert {each.name: each.read_text() for each in before.iterdir()} == {
        "MEMORY.md": "- [deploys](deploys.md)\n- [new](new.md)\n",
        "deploys.md": "Deploys run at ten.\n",
        "new.md": "New.\n",
    }
    assert not (after / "MEMORY.md").exists()
    assert (after / "new.md").exists()


def test_notes_of_both_folders_are_kept(machine: Machine) -> None:
    """Neither a worktree's session nor a folder that was in use before loses a line."""
    before, after = claude_notes(machine), machine.project / "memory/claude"
    after.mkdir(parents=True)
    (after / "deploys.md").write_text("Another.\n")
    (after / "MEMORY.md").write_text("- [old](old.md)\n")
    confide(machine, "setup", "claude-code", "--write", "--auto-memory")
    assert (after / "MEMORY.md").read_text() == "- [old](old.md)\n- [deploys](deploys.md)\n"
    assert [(after / f"deploys{n}.md").read_text() for n in ("", "-2")] == ["Another.\n", "Deploys run at nine.\n"]
    (before / "deploys.md").write_text("Changed in a worktree.\n")
    confide(machine, "setup", "claude-code", "--remove", "--auto-memory")
    assert (before / "deploys.md").read_text() == "Changed in a worktree.\n"
    assert "Another.\n" in {each.read_text() for each in before.iterdir()}


def test_whoever_says_no_keeps_notes_and_setting(machine: Machine) -> None:
    claude_notes(machine)
    with patch.object(setup, "can_ask", lambda: True), patch.object(setup, "ask_yes_no", lambda *_, **__: False):
        ended = confide(machine, "setup", "claude-code", "--write", "--auto-memory")
    assert "they stay where Claude Code reads them" in ended.err
    assert not (machine.project / ".claude/settings.local.json").exists()
    assert not (machine.project / "memory/claude").exists()


def test_notes_that_cannot_be_taken_along_are_not_hidden(machine: Machine, tmp_path: Path) -> None:
    """A link of a repository's own leads elsewhere, or the person's own setting does: the setting is as before."""
    claude_notes(machine)
    (tmp_path / "elsewhere").mkdir()
    (machine.project / "memory/claude").symlink_to(tmp_path / "elsewhere")
    ended = confide(machine, "setup", "claude-code", "--write", "--auto-memory")
    assert (ended.code, "leads out of" in ended.err) == (7, True)
    assert not (machine.project / ".claude/settings.local.json").exists()
    assert not list((tmp_path / "elsewhere").iterdir())
    (machine.project / "memory/claude").unlink()
    own = Path(machine.env["HOME"]) / ".claude/settings.json"
    own.write_text('{"autoMemoryDirectory": "~/notes"}')
    ended = confide(machine, "setup", "claude-code", "--write", "--auto-memory")
    assert (ended.code, f"{own} leads Claude Code's notes of all projects elsewhere" in ended.err) == (7, True)


def test_notes_of_a_long_path_and_of_another_configuration_folder(machine: Machine, tmp_path: Path) -> None:
    """Claude Code cuts long names and hashes the rest; `CLAUDE_CONFIG_DIR` moves all of it."""
    machine.project = machine.project / ("x" * 120) / ("\U0001f600" * 30)
    machine.project.mkdir(parents=True)
    slug = "".join(
        "--" if ord(each) > 0xFFFF else each if each.isascii() and each.isalnum() else "-"
        for each in str(machine.project)
    )
    claude_notes(machine, f"{slug[:200]}-1a2b3c")
    (Path(machine.env["HOME"]) / ".claude").rename(tmp_path / "elsewhere")
    machine.env["CLAUDE_CONFIG_DIR"] = str(tmp_path / "elsewhere")
    assert "took along 2 notes" in confide(machine, "setup", "claude-code", "--write", "--auto-memory").out


def codex_by_http(machine: Machine) -> Path:
    """Codex as docs/http-server.md sets it up for a server's gateway."""
    config = Path(machine.env["HOME"]) / ".codex/config.toml"
    config.parent.mkdir()
    config.write_text(
        '[mcp_servers.confide]\nurl = "https://memory.example.org:7734/mcp"\nbearer_token_env_var = "CONFIDE_TOKEN"\n'
    )
    return config


def test_an_entry_that_calls_a_server_is_left_or_replaced_whole(machine: Machine, terminal: list[str]) -> None:
    """In a pipe it is named and stays, hooks are written all the same; at a terminal a yes replaces it, and a removal brings it back."""
    config = codex_by_http(machine)
    before = config.read_text()
    with patch.object(setup, "can_ask", lambda: False):
        ended = confide(machine, "setup", "codex", "--write", "--hooks")
    assert "has an entry confide that calls https://memory.example.org:7734: it is left as it is" in ended.err
    assert f"already in {config}" not in ended.out
    assert (config.read_text(), (config.parent / "hooks.json").exists()) == (before, True)
    assert "Codex calls https://memory.example.org:7734, and starts nothing here" in confide(machine, "doctor").out
    removed = confide(machine, "setup", "codex", "--remove")
    assert "it is yours, and stays" in removed.err
    assert "confide is not in" not in removed.out
    assert config.read_text() == before
    confide(machine, "setup", "codex", "--write")
    assert "replace it by one that starts confide here?" in terminal[-1]
    assert "url" not in config.read_text()
    assert f"CONFIDE_HOME = {json.dumps(machine.env['CONFIDE_HOME'])}" in config.read_text()
    confide(machine, "setup", "codex", "--remove")
    assert config.read_text() == before


@pytest.mark.parametrize("name", ["cursor", "opencode"])
def test_an_entry_of_confide_for_another_memory_or_project_is_named(machine: Machine, name: str) -> None:
    """It stays, as whoever wrote it may want it so; how to replace it is said too."""
    del machine.env["CONFIDE_HOME"]
    machine.env |= {"XDG_DATA_HOME": str(machine.home)}
    client, other = CLIENTS[name], str(machine.home / "other")
    confide(machine, "setup", name, "--write")
    config = machine.project / client.file(Path(), for_user=False)
    plain = config.read_text()
    assert "that stays" not in confide(machine, "setup", name, "--write").err
    entry = json.loads(plain)[client.group]["confide"]
    entry["command" if name == "opencode" else "args"] += ["--project", "/my shop"]
    entry[client.environment_key]["CONFIDE_HOME"] = other
    config.write_text(json.dumps({client.group: {"confide": entry}}))
    ended = confide(machine, "setup", name, "--write")
    assert f"starts confide with CONFIDE_HOME={other} --project '/my shop': that stays" in ended.err
    assert json.loads(config.read_text())[client.group]["confide"] == entry
    assert f"confide setup {name} --remove" in ended.err
    confide(machine, "setup", name, "--remove")
    confide(machine, "setup", name, "--write")
    assert json.loads(config.read_text()) == json.loads(plain)


def test_a_file_of_a_client_that_is_mounted_alone_is_told_of(machine: Machine, tmp_path: Path) -> None:
    """As in a container: it cannot be replaced as a whole, and stays as it is."""
    file, other = machine.project / ".mcp.json", tmp_path / "other.json"
    for each in (file, other):
        each.write_text("{}")
    if subprocess.run(["mount", "--bind", str(other), str(file)], capture_output=True, check=False).returncode:
        pytest.skip("mounting a file needs root")
    try:
        ended = confide(machine, "setup", "claude-code", "--write")
    finally:
        subprocess.run(["umount", "-l", str(file)], check=True)
    assert ended.code == 8
    assert "the file alone is mounted: mount its folder instead" in ended.err
    assert other.read_text() == "{}"


def test_the_doctor_sees_which_memory_an_entry_leads_to(machine: Machine) -> None:
    """A client that passes few variables on has only what stands in the entry."""
    confide(machine, "setup", "codex", "--write")
    assert "Codex starts" in confide(machine, "doctor").out
    config = Path(machine.env["HOME"]) / ".codex/config.toml"
    whole = config.read_text()
    config.write_text("".join(line for line in whole.splitlines(keepends=True) if "CONFIDE_HOME" not in line))
    ended = confide(machine, "doctor")
    assert ended.code == 1
    assert "leads to another memory than this command uses: CONFIDE_HOME" in " ".join(ended.out.split())
    confide(machine, "setup", "codex", "--write")
    assert "leads to another memory" not in confide(machine, "doctor").out


def test_the_doctor_says_what_a_client_leaves_out(machine: Machine) -> None:
    """Switched off in the file, all hooks off, and a script that is not there, which `--fix` mends."""
    confide(machine, "setup", "claude-code", "--write", "--hooks")
    settings = machine.project / ".claude/settings.local.json"
    text = settings.read_text()
    settings.write_text(json.dumps({**json.loads(text), "disableAllHooks": True}))
    assert "its hooks are switched off" in " ".join(confide(machine, "doctor").out.split())
    settings.write_text(json.dumps({**json.loads(text), "disabledMcpjsonServers": ["confide"]}))
    assert "Claude Code has confide switched off" in " ".join(confide(machine, "doctor").out.split())
    confide(machine, "setup", "opencode", "--write", "--hooks")
    config = machine.project / "opencode.json"
    config.write_text(config.read_text().replace(hooks.PLUGIN.as_uri(), "file:///gone/plugin"))
    assert "it runs no hooks" in " ".join(confide(machine, "doctor").out.split())
    assert "fixed   opencode" in confide(machine, "doctor", "--fix").out
    assert hooks.PLUGIN.as_uri() in config.read_text()


@pytest.mark.parametrize("line", ["@MEMORY.md", "See @memory/rules.md.", "- @./memory/a/b.md", "@~/src/shop/memory.md"])
def test_the_doctor_finds_instructions_that_import_memory(machine: Machine, line: str) -> None:
    """Then an order that anybody stored is the person's own."""
    (machine.project / "CLAUDE.md").write_text(f"# Rules\n\n{line}\n")
    assert f"{machine.project}/CLAUDE.md imports @" in " ".join(confide(machine, "doctor").out.split())
    (machine.project / "CLAUDE.md").write_text("ann@memory.md, memory/x.md, @memoryless.md\n")
    assert "imports @" not in confide(machine, "doctor").out


def test_an_entry_of_claude_mcp_add_is_ours_to_set_up_and_to_remove(machine: Machine) -> None:
    """It is in Claude Code's own scope of this project, which overrules all others: so it is mended there, and goes with the rest."""
    own = Path(machine.env["HOME"]) / ".claude.json"
    entry = {"type": "stdio", "command": "/gone/confide", "args": ["mcp"], "env": {}}
    own.write_text(json.dumps({"projects": {str(machine.project): {"mcpServers": {"confide": entry}}}}))
    confide(machine, "setup", "claude-code", "--write")
    assert not (machine.project / ".mcp.json").exists()
    (kept,) = json.loads(own.read_text())["projects"].values()
    assert kept["mcpServers"]["confide"]["command"] == str(setup.program())
    confide(machine, "setup", "claude-code", "--remove")
    assert "/confide" not in own.read_text()


def test_a_long_difference_is_summed_up_at_a_terminal(machine: Machine) -> None:
    """And shown to whoever asks; in a pipe it is shown."""
    asked: list[str] = []
    with (
        patch.object(setup, "can_ask", lambda: True),
        patch.object(setup, "ask_yes_no", lambda question, **_: asked.append(question) or len(asked) > 1),
    ):
        ended = confide(machine, "setup", "claude-code", "--write", "--hooks", "--allow")
        assert "hooks at " in ended.out
        assert " rules for " in ended.out
        assert "+" not in ended.out
        confide(machine, "setup", "claude-code", "--remove")
        assert "mcp__confide" in confide(machine, "setup", "claude-code", "--write", "--hooks", "--allow").out
        confide(machine, "setup", "claude-code", "--remove")
        asked.clear()
        (Path(machine.env["HOME"]) / ".claude.json").write_text("{}")
        assert "hooks at " in confide(machine, "setup").out
    assert asked[:2] == ["show them?", "write this for Claude Code?"]


def test_a_folder_of_a_repository_is_told_that_it_is_one(machine: Machine) -> None:
    (machine.project / ".git").mkdir()
    sub = machine.project / "packages/api"
    sub.mkdir(parents=True)
    top, machine.project = machine.project, sub
    said = f"applies to sessions that start in {sub}, not in {top}"
    assert said in confide(machine, "setup", "claude-code", "--write").err
    assert said not in confide(machine, "setup", "claude-code", "--write", "--user").err
    machine.project = top
    assert "applies to sessions" not in confide(machine, "setup", "claude-code", "--write").err


def test_an_answer_that_is_none_is_asked_for_again(capsys: pytest.CaptureFixture[str]) -> None:
    for said, by_default, is_yes in (
        ("what\ny\n", False, True),
        ("\n", True, True),
        ("\n", False, False),
        ("", True, False),
    ):
        with patch("sys.stdin", io.StringIO(said)):
            assert console.ask_yes_no("sure?", by_default=by_default) == is_yes
    assert "please say y or n" in capsys.readouterr().err
