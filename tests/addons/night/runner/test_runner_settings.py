"""`runner.toml`: what it says, and what is refused with a way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from confide_crypto.errors import ConfideError
from confide_night.errors import RunnerError
from confide_night.runner import agents
from confide_night.runner.settings.recipes import ModelSettings, Recipe, RunLimits, RunnerSettings, read
from confide_proxy.errors import ConfigError

PLACEHOLDER = "(sealed:api-token:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f)"
Reads = Callable[[str], RunnerSettings]


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    path = tmp_path / "runner.toml"

    def work(text: str) -> RunnerSettings:
        path.write_text(text)
        path.chmod(0o600)
        return read(path)

    return work


def test_what_init_writes_is_every_option_at_its_default(reads: Reads) -> None:
    text = resources.files("confide_night.runner.settings").joinpath("runner.toml").read_text("utf-8")
    found = reads(text)
    assert found.limits == RunLimits()
    assert found.model == ModelSettings()
    assert found.recipes == {kind: Recipe(kind, kind) for kind in ("review", "fix", "ask")}
    named = {*RunLimits.__slots__, *ModelSettings.__slots__, *RunnerSettings.__slots__, *Recipe.__slots__}
    assert [name for name in sorted(named - {"path"}) if name not in text] == []
    # What stands there as a comment is an example that works.
    shown = reads(
        re.sub(r"(?m)^# (\[recipes[.]licences.*|(?:kind|command|header|secret|form|registry) = .*)$", r"\1", text)
    )
    licences = shown.recipes["licences"]
    assert (licences.approval, licences.hosts) == ("device", ("registry.example.org",))
    assert licences.secrets == {"registry"}


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("monthly = 3", "unknown option 'monthly'", "monthly_usd"),
        ('approvers = ["one-two"]', "wrong value for approvers", "six words"),
        (
            'approvers = ["abandon abandon abandon abandon abandon nosuchword"]',
            "wrong value for approvers",
            "six words",
        ),
        ('approvers = "abandon"', "wrong value for approvers", "list of strings"),
        ("monthly_usd = 0", "wrong value for monthly_usd", "above 0"),
        ("monthly_usd = true", "wrong value for monthly_usd", "above 0"),
        ("[limits]\ndisk_mb = 3", "unknown option 'disk_mb' in [limits]", "disk_mib"),
        ("[limits]\ndisk_mib = -1", "disk_mib in [limits]", "whole number"),
        ('[model]\napi = "other"', "api in [model]", "anthropic or openai"),
        ('[model]\nurl = "http://example.org"', "url in [model]", "https://"),
        ('[model]\nkey = "sk-ant-real"', "key in [model]", "key_file"),
        ('[repositories]\n"A" = "/srv/a"', "a name in [repositories]", "small letters"),
        ('[repositories]\na = "ext::sh -c x"', "'a' in [repositories]", "a URL"),
        ('[secrets]\na = "hunter2-secret"', "'a' in [secrets]", "confide secrets ls"),
        ("[recipes.other]", "kind in [recipes.other]", "review, fix, ask, command"),
        ("[recipes.review]\nmodle = 'x'", "'modle' in [recipes.review]", "model"),
        ('[recipes.review]\nmodel = "nobody-knows"', "a model without a price", "say what it costs"),
        ('[recipes.review]\nagent = "other"', "agent in [recipes.review]", "claude or codex"),
        ("[recipes.review]\npush = true", "push in [recipes.review]", "a fix or a command"),
        ('[recipes.fix]\npush = true\napproval = "none"', "approval in [recipes.fix]", "takes device"),
        ('[recipes.fix]\nhosts = ["10.0.0.1"]', "hosts in [recipes.fix]", "a name"),
        ('[recipes.fix]\nhosts = ["evil.example/path"]', "hosts in [recipes.fix]", "a name"),
        ('[recipes.fix]\ncheck = "make test"', "check in [recipes.fix]", "a list of strings"),
        ('[recipes.fix]\nrepositories = ["other"]', "'other' in repositories of [recipes.fix]", "there is none"),
        ('[recipes.fix]\nreadable = ["/"]', "readable in [recipes.fix]", "and not the root"),
        ('[recipes.fix.files]\ntoken = "npm"', "'npm' among the secrets of [recipes.fix]", "there is none"),
        ('[recipes.fix.files]\n".." = "npm"', "a name in [recipes.fix.files]", "small letters"),
        ('[recipes.x]\nkind = "command"', "command in [recipes.x]", '["make", "nightly"]'),
        ('[recipes.ask]\ncommand = ["true"]', "command in [recipes.ask]", "kind command"),
        ("[[recipes]]", "'recipes'", "it is a section"),
        ('[prices."m"]\ninput = 3', 'prices."m"', "input and output"),
        ("x = [", "is not TOML", "--print"),
    ],
)
def test_what_is_wrong_is_told_with_a_way_out(reads: Reads, text: str, problem: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        reads(text)
    assert problem in str(raised.value)
    assert hint in (raised.value.hint or "")
    assert "hunter2" not in str(raised.value)
    assert "sk-ant-real" not in str(raised.value)


def test_a_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "runner.toml"
    with pytest.raises(ConfigError, match="is not there"):
        read(path)
    path.write_text("")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="is open to other users"):
        read(path)


def test_an_order_means_one_of_our_repositories_or_none(reads: Reads) -> None:
    found = reads('[repositories]\napp = "https://example.org/app.git"\nsite = "/srv/site"')
    assert found.repository("app", "") == found.repository("https://example.org/app.git", "x") == "app"
    assert found.repository("", "site") == "site"
    assert found.repository("https://example.org/other.git", "app") == ""
    assert found.repository("", "other") == ""


def test_a_recipe_with_lasting_effects_takes_an_approval_by_itself(reads: Reads) -> None:
    secret = f'[secrets]\nnpm = "{PLACEHOLDER}"\n'
    for more in ("push = true", 'hosts = ["example.org"]', 'files = { token = "npm" }'):
        assert reads(f"{secret}[recipes.fix]\n{more}").recipes["fix"].approval == "device"
    assert reads("[recipes.fix]").recipes["fix"].approval == "none"


def test_nothing_that_is_asked_is_an_argument(reads: Reads, tmp_path: Path) -> None:
    """Of an agent's command; and of a key it gets a placeholder."""
    program = tmp_path / "claude"
    program.write_text("")
    program.chmod(0o755)
    recipe = reads(f'[recipes.fix]\nprogram = "{program}"').recipes["fix"]
    found = agents.program_of(recipe, "anthropic")
    assert found.environment["ANTHROPIC_API_KEY"] == "placeholder"
    assert found.readable == (program,)
    with pytest.raises(RunnerError, match="does not speak"):
        agents.program_of(recipe, "openai")
    with pytest.raises(RunnerError, match="is not on this device"):
        agents.program_of(reads('[recipes.fix]\nprogram = "/nowhere/claude"').recipes["fix"], "anthropic")


def test_of_a_package_of_npms_an_agent_sees_those_beside_it_and_nothing_else(reads: Reads, tmp_path: Path) -> None:
    real = tmp_path / "node_modules/@maker/agent/bin/agent.js"
    real.parent.mkdir(parents=True)
    real.write_text("")
    real.chmod(0o755)
    link = tmp_path / "bin" / "claude"
    link.parent.mkdir()
    link.symlink_to(real)
    found = agents.locate(reads(f'[recipes.fix]\nprogram = "{link}"').recipes["fix"])
    assert found == (str(real), (tmp_path / "node_modules",))


def test_the_last_word_of_either_agent_is_read() -> None:
    claude = agents.AgentOutput("claude")
    claude.feed(
        b'noise\n[1]\n{"type":"result","subtype":"error_max_turns","is_error":true,"result":"x","total_cost_usd":0.5}\n'
    )
    assert (claude.is_done, claude.text, claude.reported_usd) == (True, "x", 0.5)
    assert "error_max_turns" in claude.problem
    codex = agents.AgentOutput("codex")
    codex.feed(b'{"type":"item.completed","item":{"type":"agent_message","text":"a"}}\n{"type":"turn.failed"}\n')
    assert (codex.is_done, codex.text, bool(codex.problem)) == (True, "a", True)
    plain = agents.AgentOutput("")
    for _ in range(100):
        plain.feed(b"x" * 65_536)
    assert len(plain.text) == agents.MOST_TEXT


def test_every_refusal_is_one_of_ours(reads: Reads) -> None:
    for text in (
        "model = 3",
        "limits = []",
        "secrets = 1",
        "prices = 1",
        "repositories = [1]",
        "recipes.fix = 1",
        "\0",
    ):
        with pytest.raises(ConfideError):
            reads(text)
