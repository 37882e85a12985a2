"""Whose word lets a command use a secret, and what is remembered of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.run import approvals
from confide_proxy.run.approvals import LASTS_S, MOST_APPROVALS, MOST_ASKED, Approvals, PlannedUse

TOKEN = Placeholder("npm-token", bytes(range(16)))
OTHER = Placeholder("password", bytes(range(1, 17)))


def use(*command: str, secrets: tuple[Placeholder, ...] = (TOKEN,), program: str = "") -> PlannedUse:
    return PlannedUse(program or f"/usr/bin/{command[0]}", command, secrets, {"npm": TOKEN, "registry": TOKEN})


def test_a_rule_names_a_secret_and_a_command() -> None:
    """By a name or a path, a placeholder or its digits; a path that was typed is no name; each secret needs its rule."""
    assert use("npm", "publish").is_ruled({"npm": ("npm",)})
    assert use("npm", "publish").is_ruled({"registry": ("npm",)})  # its other name
    assert use("npm", "publish").is_ruled({"npm": ("/usr/bin/npm",)})
    assert use("npm").is_ruled({str(TOKEN): ("npm",)})
    assert use("npm").is_ruled({TOKEN.secret_id.hex(): ("npm",)})
    assert not use("npm").is_ruled({"npm": ("yarn",), "other": ("npm",)})
    assert not use("./npm", program="./npm").is_ruled({"npm": ("npm",)})
    assert not use("npm", secrets=(TOKEN, OTHER)).is_ruled({"npm": ("npm",)})
    assert use("npm", secrets=(TOKEN, OTHER)).is_ruled({"npm": ("npm",), OTHER.secret_id.hex(): ("npm",)})
    assert not use("npm", secrets=(OTHER,)).is_ruled({"": ("npm",)})


def test_an_approval_holds_for_the_command_and_the_secret_in_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for another secret, program or session, nor for another line of what runs any line, nor for ever."""
    kept = Approvals(tmp_path / "approvals.json")
    assert not kept.has(use("npm", "publish"))
    kept.add(use("npm", "publish"))
    assert kept.has(use("npm", "view"))
    assert not kept.has(use("npm", secrets=(TOKEN, OTHER)))
    assert not kept.has(use("npm", program="/tmp/npm"))
    for shell in ("sh", "python3.12", "npx", "env"):
        kept.add(use(shell, "-c", "one"))
        assert kept.has(use(shell, "-c", "one"))
        assert not kept.has(use(shell, "-c", "two"))
    at_host = use("npm")._replace(headers={TOKEN: ("authorization of api.example.com",)})
    elsewhere = use("npm")._replace(headers={TOKEN: ("authorization of evil.example",)})
    assert not kept.has(at_host)
    assert (
        "npm (sealed:npm-token:000102030405060708090a0b0c0d0e0f) as authorization of api.example.com?"
        in at_host.question
    )
    kept = Approvals(tmp_path / "of-headers.json")
    kept.add(at_host)
    assert kept.has(at_host)
    assert not kept.has(elsewhere)
    assert not kept.has(use("npm"))
    kept = Approvals(tmp_path / "approvals.json")
    with monkeypatch.context() as at:
        at.setattr(approvals, "_session", lambda _: "another")
        assert not kept.has(use("npm"))
        at.setattr(approvals, "_session", lambda _: "")
        kept.add(use("nothing"))
        assert not kept.has(use("nothing"))
    with monkeypatch.context() as at:
        later = approvals.time.time() + LASTS_S + 1
        at.setattr(approvals.time, "time", lambda: later)
        assert not kept.has(use("npm"))
    for number in range(MOST_APPROVALS + 5):
        kept.add(use(f"command{number}"))
    assert len(json.loads((tmp_path / "approvals.json").read_text())) == MOST_APPROVALS
    (tmp_path / "approvals.json").write_text("[[1]]")
    assert not kept.has(use("npm"))


@pytest.mark.parametrize("line", [("./deploy",), ("bash", "-e", "deploy"), ("timeout", "60", "./deploy")])
def test_an_approval_ends_when_what_it_runs_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    """Also to the same size and times, or by another file in its place, or another folder."""
    for folder in ("here", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "deploy").write_text("one")
    monkeypatch.chdir(tmp_path / "here")
    kept, used = Approvals(tmp_path / "approvals.json"), use(*line, program=line[0] if "/" in line[0] else "")
    kept.add(used)
    assert kept.has(used)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert not kept.has(used)
    monkeypatch.chdir(tmp_path / "here")
    assert kept.has(used)
    before = Path("deploy").stat()
    Path("deploy").write_text("two")
    os.utime("deploy", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not kept.has(used)
    kept.add(used)
    Path("other").write_text("two")
    Path("other").replace("deploy")
    assert not kept.has(used)


def test_an_approval_of_a_build_tool_holds_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Approvals(tmp_path / "approvals.json")
    kept.add(use("make", "publish"))
    kept.add(use("npm", "publish"))
    monkeypatch.chdir(tmp_path)
    assert not kept.has(use("make", "publish"))
    assert kept.has(use("npm", "publish"))


@pytest.mark.parametrize(
    "name", ["perl5.36", "php8.2", "ruby3.1", "lua5.4", "nodejs", "pwsh", "stdbuf", "find", "script"]
)
def test_what_runs_any_line_is_asked_about_for_each(tmp_path: Path, name: str) -> None:
    """By each name that systems give it."""
    kept = Approvals(tmp_path / "approvals.json")
    kept.add(use(name, "one"))
    assert kept.has(use(name, "one"))
    assert not kept.has(use(name, "two"))


def test_a_question_shows_what_runs_and_no_control_character() -> None:
    asked = use("npm", "publish\x1b[2J", "x" * 1000).question
    assert "/usr/bin/npm" in asked
    assert f"npm {TOKEN}" in asked
    assert "\x1b" not in asked
    assert len(asked) < 600


def test_a_person_sees_all_that_an_approval_covers() -> None:
    """What stands behind a long harmless beginning is run as well; a line that no question can show is not asked about."""
    harmless = "echo " + "x" * 1000
    asked = use("bash", "-c", f"{harmless}; curl evil.example")
    assert asked.is_askable
    assert "curl evil.example" in asked.question
    assert not use("bash", "-c", "x" * MOST_ASKED).is_askable
    # An approval of another program is for the program: its arguments are shown as far as they help.
    assert use("npm", "x" * MOST_ASKED).is_askable
    assert len(use("npm", "x" * MOST_ASKED).question) < 500
