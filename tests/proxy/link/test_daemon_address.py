"""Where this machine's own daemon says it can be reached, and by which key it is known (PROTOCOL.md 2.6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from confide_crypto.errors import EXIT_KEYS, KeyFileError
from confide_crypto.keys.identity import Identity, format_daemon_key
from confide_proxy.link.daemon import ADDRESS_FILE, KnownDaemon, read_address

HOST = Identity(bytes(range(32)))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a daemon that runs."""
    data = tmp_path / "daemon"
    data.mkdir(mode=0o700)
    said = {"url": "confide://127.0.0.1:7733", "key": format_daemon_key(HOST.static_key), "pid": 1, "version": "0"}
    file = data / ADDRESS_FILE
    file.write_text(json.dumps(said))
    file.chmod(0o600)
    return data


def refused(data: Path, problem: str) -> str:
    with pytest.raises(KeyFileError, match=problem) as caught:
        read_address(data)
    assert caught.value.exit_code == EXIT_KEYS
    return caught.value.hint or ""


def test_a_private_file_in_a_private_folder_is_believed(data: Path) -> None:
    assert read_address(data) == KnownDaemon("confide://127.0.0.1:7733", HOST.static_key)


@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666, 0o644])
def test_a_file_that_others_can_touch_is_refused(data: Path, mode: int) -> None:
    """It names the key that is believed without anything else: whoever can write it is the daemon."""
    (data / ADDRESS_FILE).chmod(mode)
    assert "chmod 600" in refused(data, "open to other users")


@pytest.mark.parametrize("mode", [0o750, 0o777, 0o1777])
def test_a_folder_that_others_can_enter_is_refused(data: Path, mode: int) -> None:
    data.chmod(mode)
    assert "chmod 700" in refused(data, "open to other users")


def test_a_link_is_refused(data: Path) -> None:
    (data / ADDRESS_FILE).rename(data / "elsewhere")
    (data / ADDRESS_FILE).symlink_to("elsewhere")
    refused(data, "is a link")


def test_what_is_not_there_or_damaged_is_no_address(data: Path, tmp_path: Path) -> None:
    """A daemon that ends takes its file away at any moment; it is started again."""
    (data / ADDRESS_FILE).write_text("{")
    assert read_address(data) is None
    (data / ADDRESS_FILE).unlink()
    assert read_address(data) is None
    assert read_address(tmp_path / "none") is None
