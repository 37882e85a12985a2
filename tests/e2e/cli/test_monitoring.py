"""What an operator is shown of a running daemon, and that none of it names or quotes what people have stored or asked."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import tomllib
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.deadline import DEADLINE_S
from tests.support.network.ports import free_port
from tests.support.programs.confided import Confided
from tests.support.programs.processes import CONFIDED, wait_until

from confide_crypto.keys.identity import Identity, format_public_key
from confide_daemon.datadir import control_client

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/operating.md").read_text("utf-8")
PLANTED = {
    "space": "heronspace",
    "machine": "heronlaptop",
    "project": "heronproject",
    "path": "heronpath",
    "text": "herontext",
    "question": "heronquestion",
    "title": "herontitle",
    "secret": "ghp_" + "Hn4rQ8" * 6,
}
"""Each stands at one place, and so tells where it was let out."""


@pytest.fixture
def confided(tmp_path: Path) -> Any:
    program = Confided(tmp_path / "home")
    program.run("init")
    yield program
    program.end()


def shown(program: Confided) -> dict[str, str]:
    """All that an operator can look at."""
    metrics = control_client.ask(program.data / "daemon.sock", "metrics")["text"]
    return {
        "metrics": metrics,
        "top": program.run("status", "--watch").stdout,
        "top --once": program.run("status", "--watch", "--once").stdout,
        "top --json": program.run("status", "--watch", "--json").stdout,
        "log": program.log,
    }


async def test_nothing_that_an_operator_is_shown_names_or_quotes_anything(confided: Confided) -> None:
    """Metrics, `top` and the log for programs, of a machine that stores, searches, fails, is refused, and is revoked while connected."""
    config = (confided.home / "daemon.toml").read_text()
    (confided.home / "daemon.toml").write_text(f"{config}[metrics]\nper_space = true\n")
    identity = Identity.generate()
    confided.enroll(PLANTED["space"])  # makes a space of that name
    line = format_public_key(identity.public_key, PLANTED["machine"])
    confided.run("device", "add", line, "--space", PLANTED["space"])
    confided.serve("--listen", "127.0.0.1:0", "--log-format", "json", "--verbose")
    async with await confided.connect(identity) as laptop:
        await laptop.attach(PLANTED["project"])
        await laptop.put(
            f"memory/{PLANTED['path']}.md", f"{PLANTED['text']} {PLANTED['secret']}\n", project=PLANTED["project"]
        )
        async with laptop.mcp() as agent:
            await agent.call_tool("memory_store", {"content": f"{PLANTED['text']} at dawn", "title": PLANTED["title"]})
            await agent.call_tool("memory_search", {"query": PLANTED["question"]})
            await agent.call_tool("memory_read", {"path": f"memory/{PLANTED['path']}-none.md"})
            with suppress(Exception):
                await agent.call_tool(PLANTED["text"], {})
        confided.run("space", "reindex")
        confided.run("device", "rm", PLANTED["machine"], "--yes")
        await laptop.ended_within(DEADLINE_S)
    looked = shown(confided)
    confided.run("stop")
    looked["log"] = confided.log
    for what, text in looked.items():
        assert not [name for name, planted in PLANTED.items() if planted in text], (what, text)
    # They do tell of all that.
    events = [json.loads(line) for line in looked["log"].splitlines()]
    (space_id,) = {each["space"] for each in events if "space" in each}
    assert f'confided_space_bytes{{space="{space_id}"}}' in looked["metrics"]
    told = json.loads(looked["top --json"])
    assert told["tools"]["memory_search"]["count"] == 1
    assert told["errors"] == {"memory_read": 1}
    assert told["jobs"] == {"done": 1}
    assert all({"time", "level", "logger", "event"} <= each.keys() for each in events)
    assert all(each.keys() <= {"time", "level", "logger", "event", "session", "space", "duration"} for each in events)
    (ended,) = [each for each in events if each["event"] == "session ended"]
    assert ended["session"]
    assert ended["duration"] > 0
    assert [each["event"] for each in events if "shut out" in each["event"]] == ["session shut out: revoked"]


def test_top_draws_anew_at_a_terminal_until_it_is_interrupted(confided: Confided) -> None:
    """The whole screen, with rates; Ctrl-C ends it, and so does the end of the daemon, with a sentence."""
    assert "it is not running" in confided.run("status", "--watch", code=5).stderr
    confided.serve()
    for is_stopped in (False, True):
        master, slave = pty.openpty()
        try:
            process = subprocess.Popen(
                [CONFIDED, "top", "--interval", "0.5"],
                env={**confided.env, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=_take_terminal,
            )
            os.close(slave)
            seen = b""
            while seen.count(b"wait for the writer") < 2 or b"cpu 1" not in re.sub(rb"cpu \d+ %", b"cpu 1", seen):
                seen += os.read(master, 65536)
            if is_stopped:
                confided.run("stop")
            else:
                os.write(master, b"\x03")
            with suppress(OSError):
                while data := os.read(master, 65536):
                    seen += data
            assert process.wait(DEADLINE_S) == (5 if is_stopped else 130)
            assert (b"it is not running" in seen) is is_stopped
            assert b"Traceback" not in seen
        finally:
            os.close(master)


def _take_terminal() -> None:
    import fcntl
    import signal
    import termios

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a suite that runs in the background has it ignored
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def block(language: str) -> str:
    """The first one in the section about Prometheus that is of this language."""
    section = PAGE[PAGE.index("## Prometheus") :]
    return str(re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0])


def test_the_page_gets_prometheus_its_figures_step_by_step(confided: Confided) -> None:
    """Its token, its section of daemon.toml and its curl, with a free port; its prometheus.yml, where promtool is installed."""
    make, curl = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    port = str(free_port())
    subprocess.run(["/bin/sh", "-c", make], cwd=confided.home, check=True, timeout=DEADLINE_S)
    token = confided.home / "metrics.token"
    assert tomllib.loads(block("toml"))["metrics"].keys() == {"listen", "token_file"}
    section = block("toml").replace("9733", port).replace("/etc/confided/metrics.token", str(token))
    usual = (confided.home / "daemon.toml").read_text()
    (confided.home / "daemon.toml").write_text(usual + section)
    confided.serve()
    asked = curl.replace("9733", port)
    if shutil.which("curl"):
        done = subprocess.run(
            ["/bin/sh", "-c", asked], cwd=confided.home, capture_output=True, text=True, check=True, timeout=DEADLINE_S
        )
        text = done.stdout
    else:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        request.add_header("Authorization", f"Bearer {token.read_text().strip()}")
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
    assert "confided_sessions 0.0" in text
    config = block("yaml")
    assert yaml.safe_load(config)["scrape_configs"][0]["job_name"] == "confided"
    if shutil.which("promtool"):
        for name in ("prometheus.yml", "alerts.yml", "confided.token"):
            (confided.home / name).write_text(config.replace("/etc/prometheus", str(confided.home)))
        shutil.copy(ROOT / "configs/alerts.yml", confided.home)
        command = ["promtool", "check", "config", str(confided.home / "prometheus.yml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_system_unit_exposes_little_and_starts_what_there_is(confided: Confided) -> None:
    """1.5 at most by systemd's own measure, where that is installed; its command line is one that `confided serve` takes."""
    unit = ROOT / "configs/confided-system.service"
    (command,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    arguments = command.split()[1:]
    process = confided.start(*(re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", each) for each in arguments))
    wait_until("the daemon to listen", lambda: confided.address)
    assert process.poll() is None
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    analyze = ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=15", str(unit)]
    done = subprocess.run(analyze, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if "Unknown" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is older than 250")
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
