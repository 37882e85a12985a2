"""`confide secrets scan`: it finds what would be sent, says what would become of it, and never shows a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents.closed_folders import closed
from tests.support.documents.transcripts import SESSION
from tests.support.programs.command import confide
from tests.support.programs.forked import run
from tests.support.programs.processes import COMMAND_DEADLINE_S, CONFIDE, Machine

FOUND = 9
NOT_SEARCHED = 7
TOKEN = "gh" + "p_" + "Zk81LqWm4TxC0bVn7RsD2yHf9GpJ3eUa5KiQ"
PASSWORD = "Canary7!kestrel"
PLANTED = (TOKEN[4:], PASSWORD, "Canary7", "Zk81Lq")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A project whose memory holds a token, a password, a lone random string, and a file that is no text."""
    machine = Machine(tmp_path, "laptop")
    machine.write("MEMORY.md", "# Facts\n\nThe API listens on port 8010.\n")
    machine.write("memory/deploy.md", f"# Deploy\n\nGITHUB_TOKEN={TOKEN}\n\n- the password is {PASSWORD}\n")
    machine.write("memory/ids.md", "the run was a8Kd02LmQx71Pz94VbTw55Rn\n")
    (machine.project / "memory" / "odd.md").write_bytes(b"\xff\xfe\0")
    return machine


def scanned(machine: Machine, *arguments: str, code: int = FOUND) -> dict[str, Any]:
    """What `confide secrets scan --json` prints; nothing that is planted is in it."""
    done = run(
        [CONFIDE, "scan", "--json", *arguments], cwd=machine.project, env=machine.env, timeout=COMMAND_DEADLINE_S
    )
    assert done.returncode == code, done.stderr
    assert not any(each in done.stdout + done.stderr for each in PLANTED)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def places(answer: dict[str, Any]) -> list[tuple[str, int, str, str]]:
    return [(each["path"], each["line"], each["kind"], each["action"]) for each in answer["findings"]]


def test_what_would_be_sent_is_shown_without_its_values(machine: Machine) -> None:
    """For people and for programs: file, line, kind, how sure, what the policy says, the public prefix and the length."""
    said = machine.run("scan", code=FOUND)
    assert not any(each in said for each in PLANTED)
    assert "memory/deploy.md:3  github-token  0.95  seal  ghp_… (40 characters)  " in said
    assert "memory/deploy.md:5  password  0.75  seal  … (15 characters)  " in said
    assert "skipped memory/odd.md: " in said
    assert "2 credentials in 3 texts; 1 more is let through (--all shows it)" in said
    answer = scanned(machine)
    assert places(answer) == [
        ("memory/deploy.md", 3, "github-token", "seal"),
        ("memory/deploy.md", 5, "password", "seal"),
    ]
    assert (answer["texts"], answer["letThrough"], [each["path"] for each in answer["skipped"]]) == (
        3,
        1,
        ["memory/odd.md"],
    )
    everything = scanned(machine, "--all")
    assert ("memory/ids.md", 1, "high-entropy", "allow") in places(everything)


def test_a_named_folder_that_may_not_be_read_is_skipped_aloud(machine: Machine) -> None:
    """What was not looked at holds no "no credentials"."""
    (machine.project / "memory" / "deep").mkdir()
    machine.write("memory/deep/a.md", f"GITHUB_TOKEN={TOKEN}\n")
    for mode, path in ((0o000, "memory/deep"), (0o600, "memory/deep/a.md")):
        with closed(machine.project / "memory" / "deep", mode):
            skipped = json.loads(confide(machine, "secrets", "scan", "--json", "memory/deep").out)["skipped"]
        assert [each["path"] for each in skipped] == [path]


def test_what_could_not_be_searched_is_no_success(machine: Machine, tmp_path: Path) -> None:
    """The exit code tells a script that a file was not searched. An image in a folder does not count as one."""
    machine.write("memory/deploy.md", "# Deploy\n")
    answer = scanned(machine, code=NOT_SEARCHED)
    assert [each["path"] for each in answer["skipped"]] == ["memory/odd.md"]
    assert "no credentials in 3 texts" in (said := machine.run("scan", code=NOT_SEARCHED))
    assert "1 path not searched" in said
    (machine.project / "memory" / "odd.md").unlink()
    assert scanned(machine, code=0)["skipped"] == []
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "image.png").write_bytes(b"\x89PNG\0\0")
    assert scanned(machine, str(folder), code=0)["texts"] == 0
    scanned(machine, str(folder / "image.png"), code=NOT_SEARCHED)
    (folder / "windows.txt").write_bytes(f"token={TOKEN}".encode("utf-16"))
    scanned(machine, str(folder), code=NOT_SEARCHED)
    machine.write(".confide.toml", "exclude = [\n")
    assert "1 path not searched" in machine.run("scan", code=NOT_SEARCHED)
    machine.write(".confide.toml", 'exclude = ["/memory"]\n')
    scanned(machine, code=0)


def test_what_is_sealed_or_redacted_already_is_no_finding(machine: Machine) -> None:
    """A hook that runs it would refuse every memory in which an agent has ever sealed something."""
    (machine.project / "memory" / "odd.md").unlink()
    (machine.project / "memory/deploy.md").write_text(
        f"token=(sealed:token:{'7c' * 16})\npassword: (redacted:password:{'a1' * 12})\n"
    )
    assert scanned(machine, code=0)["findings"] == []


def test_no_daemon_is_asked_and_nothing_is_written_to_the_project(machine: Machine) -> None:
    """It is a look, for somebody who has not joined anything yet."""
    before = {path: path.stat().st_mtime_ns for path in machine.project.rglob("*")}
    kept = {each.name for each in (machine.home / "proxy").iterdir()}
    machine.run("scan", code=FOUND)
    assert {path: path.stat().st_mtime_ns for path in machine.project.rglob("*")} == before
    assert machine.local_daemon is None
    assert {each.name for each in (machine.home / "proxy").iterdir()} == {*kept, "fingerprint.key"}


def test_what_is_allowed_is_let_through(machine: Machine) -> None:
    """By its fingerprint, which is the same wherever the value stands; with none left the command ends with 0."""
    (machine.project / "memory" / "odd.md").unlink()
    for finding in scanned(machine)["findings"]:
        machine.run("scan", "--allow", finding["fingerprint"])
    machine.write("memory/again.md", f"password: {PASSWORD}\n")
    assert scanned(machine, code=0)["findings"] == []
    assert {action for *_, action in places(scanned(machine, "--all", code=0))} == {"allow"}
    settings = (machine.home / "proxy.toml").read_text()
    assert not any(each in settings for each in PLANTED)
    # A value in place of a fingerprint is refused, and not repeated.
    assert PASSWORD not in machine.run("scan", "--allow", PASSWORD, code=2)
    assert "allowed already" in machine.run("scan", "--allow", settings.split('"')[1])


def test_the_policy_of_each_source_is_what_it_says(machine: Machine, tmp_path: Path) -> None:
    """Files and transcripts; these are read only where they are sent, and what the project keeps back is not read either."""
    folder = tmp_path / "claude"
    (machine.home / "proxy.toml").write_text(
        f'transcripts = ["claude-code"]\nclaude_code_folder = "{folder}"\n[folders."{machine.project}"]\nextra = ["docs/*.md"]\n'
        '[secrets]\nfiles = "redact"\ntranscripts = "block"\nmin_confidence = 0.9\n'
    )
    record = {"type": "user", "sessionId": SESSION, "cwd": str(machine.project), "timestamp": "2026-11-20T14:03:00Z"}
    lines = [
        {"role": "user", "content": "hello"},
        {"role": "user", "content": f"use {TOKEN}\nplease"},
        # Where long messages are cut off, which they are behind the sealing.
        {"role": "user", "content": f"{'x' * (64 * 1024 - 20)} {TOKEN}"},
    ]
    session = folder / "-project" / f"{SESSION}.jsonl"
    session.parent.mkdir(parents=True)
    session.write_text("".join(json.dumps(record | {"message": message}) + "\n" for message in lines))
    machine.write("docs/setup.md", f"\n{TOKEN}\n")
    assert sorted(places(scanned(machine))) == sorted(
        [
            ("docs/setup.md", 2, "github-token", "redact"),
            ("memory/deploy.md", 3, "github-token", "redact"),
            (str(session), 2, "github-token", "block"),
            (str(session), 3, "github-token", "block"),
        ]
    )
    machine.write(".confide.toml", 'exclude = ["sessions", "docs"]\n')
    assert places(scanned(machine)) == [("memory/deploy.md", 3, "github-token", "redact")]


def test_files_that_are_named_are_scanned_whatever_they_are(machine: Machine, tmp_path: Path) -> None:
    """Before they become memory; hidden folders and links inside of a folder are passed over."""
    machine.write("service/.env", f"DB_PASSWORD={PASSWORD}\n")
    machine.write("service/.git/config", f"password={PASSWORD}\n")
    (machine.project / "service" / "link").symlink_to(machine.project / "memory" / "deploy.md")
    (machine.project / "service" / "image.png").write_bytes(b"\x89PNG\0\0")
    answer = scanned(machine, "service", "MEMORY.md")
    assert places(answer) == [("service/.env", 1, "password", "seal")]
    assert answer["skipped"] == [{"path": "service/image.png", "reason": "is not text"}]
    assert "is not there" in machine.run("scan", "nowhere.md", code=7)
    assert scanned(machine, "MEMORY.md", code=0)["texts"] == 1
