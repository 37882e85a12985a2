"""The configuration: defaults, the example file, and what a mistake in it is told."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib
from pathlib import Path

import pytest

from confide_daemon import config
from confide_daemon.config import ChunkSettings
from confide_daemon.datadir import paths
from confide_daemon.errors import ConfigError
from confide_daemon.retrieval.search.ranking import ORIGINAL, RANKINGS, Weights
from confide_daemon.spaces import models
from confide_daemon.spaces.models import IndexSettings

EXAMPLE = Path(__file__).parents[2] / "configs" / "daemon.toml"


def written(folder: Path, text: str) -> Path:
    path = folder / "daemon.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert config.load(tmp_path / "absent.toml") == config.DaemonConfig()


def test_a_byte_order_mark_is_none_of_the_options(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    assert config.load(written(tmp_path, "\ufeff[server]\nidle_exit_s = 12\n")).server.idle_exit_s == 12


def test_a_file_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist") as caught:
        config.load(tmp_path / "absent.toml", must_exist=True)
    assert caught.value.exit_code == 3


@pytest.mark.addons
def test_the_example_shows_every_option_at_its_default(tmp_path: Path) -> None:
    of_addons = {name: table() for name, table in config.addon_tables().items()}
    defaults = dataclasses.asdict(config.DaemonConfig(tables=of_addons))
    defaults |= defaults.pop("tables")
    # A provider's options are a section beside those of [embedding] itself.
    defaults["embedding"] |= defaults["embedding"].pop("sections")
    shown = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    assert shown == json.loads(json.dumps(defaults))
    # A copy, since a clone may be in anybody's folder.
    assert config.load(Path(shutil.copy(EXAMPLE, tmp_path))) == config.DaemonConfig(tables=of_addons)


def test_the_defaults_are_those_of_the_index() -> None:
    assert models.index_settings(config.DaemonConfig()) == IndexSettings()


@pytest.mark.parametrize(("text", "size", "overlap"), [("original", 400, 80), ("small", 48, 0), ("300/60", 300, 60)])
def test_chunks_are_chosen_by_name_or_by_numbers(tmp_path: Path, text: str, size: int, overlap: int) -> None:
    loaded = config.load(written(tmp_path, f"[index]\nchunks = '{text}'\n"))
    assert models.index_settings(loaded).chunks == ChunkSettings(size, overlap)


def test_rankings_are_chosen_by_name_and_their_names_are_those_of_the_search(tmp_path: Path) -> None:
    """The original plan's weights come with its name, whatever the others say."""
    assert config.RANKINGS == RANKINGS
    chosen = config.load(written(tmp_path, '[search]\nranking = "original"\nvector_weight = 0.5\n'))
    assert models.index_settings(chosen).weights == ORIGINAL
    assert models.index_settings(config.DaemonConfig()).weights == Weights()


def test_a_daemon_that_was_started_on_demand_keeps_the_keys_itself_unless_told(tmp_path: Path) -> None:
    """Its machine is its only caller, so the key would lie on the same disk."""
    untold = config.DaemonConfig().at_rest
    assert untold.keeper(on_demand=True) == "server"
    assert untold.keeper(on_demand=False) == config.SHARED_CUSTODY
    told = config.load(written(tmp_path, "[at_rest]\ncustody = 'caller'\n")).at_rest
    assert [told.keeper(on_demand=how) for how in (True, False)] == ["caller", "caller"]


def test_a_value_replaces_its_default_and_no_other(tmp_path: Path) -> None:
    loaded = config.load(written(tmp_path, '[server]\nlisten = "0.0.0.0:80"\n[search]\nmin_score = 0\n'))
    assert loaded.server.listen == "0.0.0.0:80"
    assert loaded.search.min_score == 0.0
    assert loaded.server.idle_exit_s == 900


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("lisen = 1", "unknown option 'lisen'", "options here are server, search, index, embedding"),
        ("[serve]\n", "unknown option 'serve'", "did you mean 'server'?"),
        ('[server]\nlisten_on = ""', "unknown option 'server.listen_on'", "did you mean 'server.listen'?"),
        ("server = 3", "wrong value for 'server'", "it is a section: [server]"),
        ("[server]\nidle_exit_s = '900'", "wrong value for 'server.idle_exit_s'", "a whole number"),
        ("[server]\nidle_exit_s = true", "wrong value for 'server.idle_exit_s'", "a whole number"),
        ("[server]\nidle_exit_s = 0", "wrong value for 'server.idle_exit_s'", "at least 1"),
        ("[server]\nkeepalive_s = 4", "wrong value for 'server.keepalive_s'", "at least 5 and at most 300"),
        ("[server]\nlisten = 'host:99999'", "wrong value for 'server.listen'", "'99999' is not a port"),
        ("[server]\nlisten = '::1'", "wrong value for 'server.listen'", "brackets"),
        ("[server]\npublic_url = 'https://x'", "wrong value for 'server.public_url'", "confide://"),
        ("[at_rest]\ncustody = 'nobody'", "wrong value for 'at_rest.custody'", "one of auto, server, caller"),
        ("[at_rest]\nlock_after_s = 0", "wrong value for 'at_rest.lock_after_s'", "at least 1"),
        ("[search]\nmin_score = nan", "wrong value for 'search.min_score'", "at least 0"),
        ('[search]\nranking = "best"', "wrong value for 'search.ranking'", "one of confide, original"),
        ("[search]\nvector_weight = 0\nkeyword_weight = 0", "'search.keyword_weight'", "above 0"),
        ("[index]\nchunks = 'large'", "wrong value for 'index.chunks'", "small or original"),
        ("[index]\nchunks = '48/40'", "wrong value for 'index.chunks'", "at most half"),
        ("[index]\nchunk_tokens = 400", "unknown option 'index.chunk_tokens'", "chunks"),
        (
            "[embedding]\nprovider = 'gpt'",
            "wrong value for 'embedding.provider'",
            "hashed, local, openai, voyage, none",
        ),
        ("[embedding]\nfallback = 'local'", "wrong value for 'embedding.fallback'", "a list of names"),
        ("[embedding]\nfallback = ['gpt']", "wrong value for 'embedding.fallback'", "openai, voyage"),
        ("[embedding]\nfallback = ['local', 'local']", "wrong value for 'embedding.fallback'", "a list of names"),
        ("[embedding]\nvoyage = 'x'", "wrong value for 'embedding.voyage'", "a section: [embedding.voyage]"),
        ("[embedding.voyage]\nmodle = 'x'", "unknown option 'embedding.voyage.modle'", "'embedding.voyage.model'"),
        ("[embedding.voyage]\ndimensions = 300", "'embedding.voyage.dimensions'", "256 or 512 or 1024 or 2048"),
        ("[embedding.openai]\ndimensions = 1537", "'embedding.openai.dimensions'", "1,536 at most"),
        ("[embedding.openai]\ntimeout_s = 0", "'embedding.openai.timeout_s'", "at least 0.05"),
        ("[embedding.openai]\nbase_url = 'http://x.org/v1'", "'embedding.openai.base_url'", "https://"),
        ("[embedding.openai]\nbase_url = 'https://me:pw@x.org'", "'embedding.openai.base_url'", "goes into key_file"),
        ("[embedding.openai]\nbase_url = 'ftp://x.org'", "'embedding.openai.base_url'", "https://api.openai.com/v1"),
        ("[embedding.compatible]\nmax_tokens = -1", "'embedding.compatible.max_tokens'", "at least 0"),
        ("[embedding.gguf]\nmax_tokens = -1", "'embedding.gguf.max_tokens'", "at least 0"),
        ("[vault]\nurl = 'http://vault.example.org:8200'", "'vault.url'", "begins with https://"),
        ("[vault]\nurl = 'vault.example.org'", "'vault.url'", "https://vault.example.org:8200"),
        ("[vault]\nmount = '../sys'", "'vault.mount'", "path of letters"),
        ("[vault]\nprefix = ''", "'vault.prefix'", "path of letters"),
        ("[vault]\nauth = 'ldap'", "'vault.auth'", "token, kubernetes"),
        ("[vault]\nurl = 'http://127.0.0.1:8200'\nauth = 'kubernetes'", "'vault.role'", "needs the name"),
        ("[vault]\ntimeout_s = 0", "'vault.timeout_s'", "at least 0.5"),
        ("[nowhere]\nlisten = 'x'", "unknown option 'nowhere'", "no add-on that is installed reads such a table"),
    ],
)
def test_a_mistake_names_the_option_and_the_way_out(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(written(tmp_path, text))
    assert problem in str(caught.value)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("place", ["api_key", "key", "token", "key_env", "key_file", "model", "base_url"])
def test_a_key_pasted_into_the_configuration_is_refused_and_not_repeated(tmp_path: Path, place: str) -> None:
    """Whoever does that is told where it belongs, and neither the error nor its hint shows it again."""
    key = "sk-proj-4f9aTESTKEYTESTKEYTESTKEYTESTKEY"
    value = f"https://{key}@api.openai.com/v1" if place == "base_url" else key
    with pytest.raises(ConfigError) as caught:
        config.load(written(tmp_path, f'[embedding.openai]\n{place} = "{value}"\n'))
    assert key not in f"{caught.value} {caught.value.hint} {caught.value!r}"
    assert "file" in (caught.value.hint or "") or "not" in (caught.value.hint or "")


@pytest.mark.parametrize("place", ["token", "vault_token", "token_file"])
def test_a_vault_s_token_pasted_into_the_configuration_is_refused_and_not_repeated(tmp_path: Path, place: str) -> None:
    token = "hvs.CAESITESTTOKENTESTTOKENTESTTOKEN"
    with pytest.raises(ConfigError) as caught:
        config.load(written(tmp_path, f'[vault]\n{place} = "{token}"\n'))
    assert token not in f"{caught.value} {caught.value.hint} {caught.value!r}"
    assert "file" in (caught.value.hint or "")


def test_plain_http_is_for_this_machine_private_networks_and_who_says_so(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:11434/v1", "http://localhost/v1", "http://[::1]:8080", "http://192.168.1.7/v1"):
        loaded = config.load(written(tmp_path, f'[embedding.compatible]\nbase_url = "{url}"\n'))
        assert loaded.embedding.section("compatible").base_url == url
    text = '[embedding.compatible]\nbase_url = "http://ollama.lan/v1"\nallow_plain_http = true\n'
    assert config.load(written(tmp_path, text)).embedding.section("compatible").allow_plain_http


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("local",)),
        ('provider = "none"', ()),
        ('provider = "hashed"', ("hashed",)),
        ('provider = "local"\n[embedding.voyage]\nkey_file = "/v"', ("local",)),
        ('provider = "voyage"', ("voyage", "local")),
        ('provider = "voyage"\nfallback = []', ("voyage",)),
        ('provider = "voyage"\nfallback = ["openai", "local"]', ("voyage", "openai", "local")),
        ('provider = "voyage"\n[embedding.openai]\nkey_file = "/o"', ("voyage", "openai", "local")),
        ('provider = "openai"\n[embedding.voyage]\nkey_file = "/v"', ("openai", "voyage", "local")),
        ('provider = "local"\nfallback = ["hashed"]', ("local", "hashed")),
    ],
)
def test_the_order_of_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: tuple[str, ...]
) -> None:
    """Voyage, OpenAI, local as far as they are configured; a key that happens to be in the environment makes nobody a fallback."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-somebody")
    monkeypatch.setenv("VOYAGE_API_KEY", "pa-somebody")
    assert models.order(config.load(written(tmp_path, f"[embedding]\n{text}\n")).embedding) == expected


@pytest.mark.parametrize("data", [b"[server\n", b"\xff\xfe"])
def test_what_is_not_toml_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "daemon.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="is not"):
        config.load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("[::1]", ("::1", 7733)),
        ("box.local", ("box.local", 7733)),
    ],
)
def test_listen_addresses(text: str, expected: tuple[str, int]) -> None:
    assert config.parse_listen(text) == expected


@pytest.mark.parametrize("text", ["", ":80", "::1", "host:", "host:x", "host:-1", "[::g]:1"])
def test_what_is_no_listen_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        config.parse_listen(text)


def test_confide_home_holds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    found = paths.find()
    assert found.config == tmp_path / "daemon.toml"
    assert found.data.root == tmp_path / "daemon"


def test_arguments_go_before_confide_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFIDE_HOME", str(tmp_path))
    found = paths.find(config=Path("/a/b.toml"), data=Path("/a/data"))
    assert (found.config, found.data.root) == (Path("/a/b.toml"), Path("/a/data"))


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """It says where the vault's token goes, and what is listened on: nobody else may write it, or put another in its place."""
    folder = tmp_path / "config"
    folder.mkdir(mode=0o755)
    path = written(folder, "[server]\nlisten = '0.0.0.0:7733'\n")
    path.chmod(0o644)
    assert config.load(path).server.listen == "0.0.0.0:7733"
    for place, loose, usual in ((path, 0o646, 0o644), (folder, 0o777, 0o755), (tmp_path, 0o777, 0o755)):
        place.chmod(loose)
        with pytest.raises(ConfigError, match=f"{path} is not used, since {place} can be written by other") as caught:
            config.load(path)
        assert caught.value.exit_code == 3
        assert caught.value.hint == f"chmod go-w {place}"
        place.chmod(usual)
    assert config.load(path).server.listen == "0.0.0.0:7733"
