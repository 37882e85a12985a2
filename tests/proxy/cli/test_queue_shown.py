"""`confide sync --queue --show`: calls are shown as the daemon will get them, without credentials in clear, also by a new device."""

from __future__ import annotations

import io
import json
import secrets
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.kills.journal_writer import call

from confide_crypto.keys.private_files import make_private_dir
from confide_proxy import paths
from confide_proxy.cli.console import CommandContext, print_output
from confide_proxy.cli.queue import list_calls
from confide_proxy.config import Policy, ProxyConfig
from confide_proxy.offline.journal import Journal

TOKEN = f"ghp_{secrets.token_hex(18)}"
PASSWORD = f"Zq7{secrets.token_hex(8)}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandContext:
    """A machine that has never met a daemon, with a call that waits."""
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    found = CommandContext(paths.find(), ProxyConfig())
    make_private_dir(found.paths.state)
    given = {"content": f"push with {TOKEN}\nto the mirror", "metadata": {"password": PASSWORD}}
    Journal(found.paths.journal).append(replace(call(0), tool="memory_store", arguments=given))
    return found


def shown(here: CommandContext, *, as_json: bool = False) -> str:
    with redirect_stdout(io.StringIO()) as out:
        print_output(list_calls(here, with_text=True), as_json=as_json)
    return out.getvalue()


@pytest.mark.parametrize("action", ["seal", "redact", "block"])
def test_no_credential_is_shown_in_clear(here: CommandContext, action: str) -> None:
    here = CommandContext(here.paths, ProxyConfig(secrets=Policy(tools=action)))
    for text in (shown(here), shown(here, as_json=True)):
        assert TOKEN not in text
        assert PASSWORD not in text
        assert "push with (redacted:github-token:" in text
        assert "to the mirror" in text


def test_what_the_user_lets_out_is_shown(here: CommandContext) -> None:
    assert TOKEN in shown(CommandContext(here.paths, ProxyConfig(secrets=Policy(tools="allow"))))


def test_nothing_is_shown_where_that_cannot_be_told(here: CommandContext) -> None:
    """The key of this machine's fingerprints is damaged."""
    here.paths.fingerprint_key.write_bytes(b"short")
    here.paths.fingerprint_key.chmod(0o600)
    assert "not shown: " in shown(here)
    (told,) = json.loads(shown(here, as_json=True))["calls"]
    assert list(told["arguments"]) == ["content"]
    assert "is damaged" in told["arguments"]["content"]
