"""`[gateway]` of daemon.toml: a mistake names the option and the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from confide_daemon import config
from confide_daemon.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("[gateway]\nlisten = '127.0.0.1'", "'gateway.listen'", "a port of its own"),
        ("[gateway]\nlisten = '127.0.0.1:7733'", "'gateway.listen'", "the port of the channel"),
        ("[gateway]\nlisten = '127.0.0.1:http'", "'gateway.listen'", "not a port number"),
        ("[gateway]\nlisten = '0.0.0.0:7735'", "'gateway.listen'", "it needs TLS"),
        ("[gateway]\nlisten = ':7735'", "'gateway.listen'", "the host is missing"),
        ("[gateway]\nhosts = ['memory.example.org']", "'gateway.listen'", "need it"),
        ("[gateway]\nlisten = '127.0.0.1:7735'\ncert = 'c.pem'", "'gateway.key'", "go together"),
        ("[gateway]\nlisten = '127.0.0.1:7735'\nkey = 'k.pem'", "'gateway.cert'", "go together"),
        (
            "[gateway]\nlisten = '127.0.0.1:7735'\npublic_url = 'http://memory.example.org'",
            "'gateway.public_url'",
            "begins with https://",
        ),
        (
            "[gateway]\nlisten = '127.0.0.1:7735'\npublic_url = 'https://memory.example.org/mcp'",
            "'gateway.public_url'",
            "without a path",
        ),
        ("[gateway]\nlisten = '127.0.0.1:7735'\nhosts = ['https://x.org']", "'gateway.hosts'", "as they stand in Host"),
        (
            "[gateway]\nlisten = '127.0.0.1:7735'\nclient_hosts = ['*.x.org']\nclient_space = 'a'",
            "'gateway.client_hosts'",
            "hosts",
        ),
        ("[gateway]\nlisten = '127.0.0.1:7735'\nclient_hosts = ['x.org']", "'gateway.client_space'", "go together"),
        ("[gateway]\nlisten = '127.0.0.1:7735'\nhosts = ['*']", "'gateway.hosts'", "as they stand in Host"),
        ("[gateway]\nlisten = '127.0.0.1:7735'\nhost = ['x.org']", "unknown option 'gateway.host'", "'gateway.hosts'"),
    ],
)
def test_a_mistake_names_the_option_and_the_way_out(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert problem in str(caught.value)
    assert hint in (caught.value.hint or "")
