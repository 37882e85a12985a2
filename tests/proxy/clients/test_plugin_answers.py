"""What a person has answered when Claude Code asked about the plugin: it decides where their own configuration does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from confide_proxy import config
from confide_proxy.clients import known_clients, plugin_answers
from confide_proxy.hooks import learning_queue

PLUGIN = json.loads(
    (Path(plugin_answers.__file__).parents[1] / "plugin/.claude-plugin/plugin.json").read_text(encoding="utf-8")
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".claude").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    # What a project's settings could say.
    monkeypatch.setenv("CLAUDE_PLUGIN_OPTION_LEARN", "auto")
    return tmp_path


def answered(home: Path, mode: Any, *, name: str = "confide@confide", is_on: Any = True) -> Path:
    file = home / ".claude/settings.json"
    told = {"enabledPlugins": {name: is_on}, "pluginConfigs": {name: {"options": {"learn": mode}}}}
    file.write_text(json.dumps(told), encoding="utf-8")
    file.chmod(0o600)
    return file


def learning(home: Path, said: str | None = None) -> tuple[str, bool]:
    """What sessions and what hooks make of it, beside this `proxy.toml`."""
    file = home / "proxy.toml"
    if said is not None:
        file.write_text(said, encoding="utf-8")
        file.chmod(0o600)
    return config.load(file).learn.mode, learning_queue.learns(file)


def test_the_plugin_asks_for_what_is_understood() -> None:
    (name,) = PLUGIN["userConfig"]
    asked = PLUGIN["userConfig"][name]
    assert (name, asked["type"], asked["default"]) == ("learn", "string", "off")
    assert all(mode in asked["description"] for mode in config.MODES)
    assert plugin_answers.MODES == config.MODES


def test_the_answer_is_heard_where_the_settings_are_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CLAUDE_CONFIG_DIR` moves all that Claude Code keeps. A project can set it for hooks, so one in a project is not believed."""
    for place, is_heard in (("elsewhere", True), ("repository/.settings", False), ("here/deep/x", False)):
        (home / place / ".claude").mkdir(parents=True)
        answered(home / place, "suggest").rename(home / place / "settings.json")
        (home / "repository/.git").mkdir(parents=True, exist_ok=True)
        (home / "here").mkdir(exist_ok=True)
        monkeypatch.chdir(home / "here")
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / place))
        assert plugin_answers.learning() == ("suggest" if is_heard else "")
    assert known_clients.claude_folder() == home / "here/deep/x"
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    assert known_clients.claude_folder() == home / ".claude"


@pytest.mark.parametrize("mode", ["suggest", "auto", " Suggest "])
def test_a_yes_is_one_for_sessions_and_hooks(home: Path, mode: str) -> None:
    answered(home, mode, name="confide@team")
    meant = mode.strip().lower()
    assert learning(home) == (meant, True)
    assert learning(home, "debounce_ms = 200\n") == (meant, True)
    assert learning(home, '[learn]\njudges = ["rules"]\n') == (meant, True)


@pytest.mark.parametrize("said", ["off", "suggest"])
def test_what_the_configuration_says_holds(home: Path, said: str) -> None:
    answered(home, "auto")
    assert learning(home, f'[learn]\nmode = "{said}"\n') == (said, said != "off")


@pytest.mark.parametrize("mode", ["off", "", "always", None, 7, ["auto"]])
def test_all_else_is_no(home: Path, mode: Any) -> None:
    """And so is an environment: a project's settings can fill it."""
    assert learning(home) == ("off", False)
    answered(home, mode)
    assert learning(home) == ("off", False)


def test_of_a_plugin_that_is_off_or_not_ours_no_answer_counts(home: Path) -> None:
    for more in ({"is_on": False}, {"is_on": "true"}, {"name": "confident@confide"}, {"name": "other@confide"}):
        answered(home, "auto", **more)
        assert learning(home) == ("off", False), more


def test_what_others_could_have_written_is_no_answer(home: Path) -> None:
    file = answered(home, "auto")
    file.chmod(0o606)
    assert learning(home) == ("off", False)
    for broken in ("{", "[]", '{"pluginConfigs": []}', '{"pluginConfigs": {"confide@confide": 7}}', "[" * 100_000):
        file.unlink()
        file.write_text(broken, encoding="utf-8")
        assert learning(home) == ("off", False), broken[:40]
