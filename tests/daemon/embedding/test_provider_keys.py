"""Where a provider's key may be, when it is refused, and that it shows nowhere: not in a log, an error, a status or a process list."""

from __future__ import annotations

import http.client
import subprocess
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.confided import Confided
from tests.support.programs.processes import SERVER_KEEPS, wait_until
from tests.support.providers.provider_server import ProviderServer

from confide_daemon.datadir.credentials import SecretKey
from confide_daemon.errors import QuotaError

PLANTED = "sk-planted-7c1f0b5a99e24d"
SECRET_TEXT = "The launch codes are under the red lamp."


def key(file: Path | str = "", *, is_needed: bool = True) -> SecretKey:
    return SecretKey("OpenAI", str(file), "openai-key", "OPENAI_API_KEY", is_needed=is_needed)


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "VOYAGE_API_KEY", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def processes() -> str:
    """The command lines of everything that runs."""
    return subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    ).stdout


def written(path: Path, text: str = f"{PLANTED}\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_goes_before_a_credential_and_that_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd gives a service its credentials in a folder of its own (LoadCredential=openai-key:...)."""
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    assert key().read() == "from-the-environment"
    (tmp_path / "credentials").mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    assert key().read() == "from-the-environment"
    written(tmp_path / "credentials" / "openai-key", "from-systemd\n", 0o400)
    assert key().read() == "from-systemd"
    assert key(written(tmp_path / "key", "  from-the-file \n")).read() == "from-the-file"


def test_a_new_key_in_the_file_counts_at_once(tmp_path: Path) -> None:
    """No restart after one was replaced."""
    found = key(written(tmp_path / "key", "old"))
    assert found.read() == "old"
    written(tmp_path / "key", "new")
    assert found.read() == "new"


def test_no_key_says_where_it_belongs() -> None:
    with pytest.raises(QuotaError, match="no key for OpenAI") as caught:
        key().read()
    assert "key_file" in (caught.value.hint or "")
    assert "OPENAI_API_KEY" in (caught.value.hint or "")
    assert key(is_needed=False).read() is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    """As with ssh; the hint says what to type."""
    with pytest.raises(QuotaError, match="open to other users") as caught:
        key(written(tmp_path / "key", mode=mode)).read()
    assert "chmod 600" in (caught.value.hint or "")
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize("content", ["two words", "x" * 2000, "naïve", "line\nline", "\x00\x01"])
def test_what_is_no_key_is_not_sent(tmp_path: Path, content: str) -> None:
    """A wrong file, or one with a name before the key."""
    with pytest.raises(QuotaError, match="is not one") as caught:
        key(written(tmp_path / "key", content)).read()
    assert content not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(QuotaError, match="cannot use the key for OpenAI"):
        key(tmp_path / "absent").read()


async def test_the_key_shows_nowhere(ready: Confided) -> None:
    """A real daemon with -v that embeds, is then told that the key is wrong by a provider that repeats it, and says all it has to say."""
    with ProviderServer("openai", key=PLANTED) as server:
        key_file = written(ready.home / "openai.key")
        options = f'base_url = "{server.url}"\ndimensions = 64\nkey_file = "{key_file}"\n'
        (ready.home / "daemon.toml").write_text(
            f'[embedding]\nprovider = "openai"\nfallback = []\n[embedding.openai]\n{options}{SERVER_KEEPS}'
        )
        identity = ready.enroll()
        process = ready.serve("--listen", "127.0.0.1:0", "-v")
        told = []
        async with await ready.connect(identity) as laptop:
            await laptop.attach("proj")
            async with laptop.mcp() as client:
                arguments = {"content": SECRET_TEXT, "path": "MEMORY.md"}
                await client.call_tool("memory_store", arguments)
                wait_until("the text at the provider", lambda: any(SECRET_TEXT in str(body) for body in server.asked))
                told.append(await client.call_tool("memory_search", {"query": "where are the launch codes"}))
                server.key = "sk-another"  # from now on the key is wrong, and the answer repeats it
                await client.call_tool("memory_store", {"content": "One more line.", "path": "MEMORY.md"})
                wait_until("the refusal", lambda: len(server.asked) >= 3)
                told.append(await client.call_tool("memory_search", {"query": "where is the red lamp"}))
                told.append(await client.call_tool("memory_status", {}))
        assert ready.address is not None
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(ready.address["url"].rsplit(":", 1)[1]), timeout=DEADLINE_S
        )
        connection.request("GET", "/health")
        told.append(connection.getresponse().read())
        connection.close()
        told.append(ready.run("status").stdout)
        told.append(processes())
        doctor = ready.run("doctor", code=1)
        assert "refuses the key" in doctor.stdout + doctor.stderr
        told += [doctor.stdout, doctor.stderr, (ready.data / "daemon.address").read_text()]
        process.terminate()
        process.wait(DEADLINE_S)
        assert server.headers[0]["Authorization"] == f"Bearer {PLANTED}"
        assert any("found by keywords" in str(one) for one in told)
        log = ready.log
        assert log
        assert PLANTED not in str(told) + log
        assert "launch codes" not in log
