"""The proxy's configuration: the example is true, and mistakes are named."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib
from pathlib import Path

import pytest

from confide_crypto import limits
from confide_proxy.config import ProxyConfig, load
from confide_proxy.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "configs" / "proxy.toml"


def test_the_example_shows_every_option_at_its_default(tmp_path: Path) -> None:
    """configs/proxy.toml neither lags behind nor invents. A copy, since a clone may be in anybody's folder."""
    assert load(Path(shutil.copy(EXAMPLE, tmp_path))) == ProxyConfig()
    assert list(tomllib.loads(EXAMPLE.read_text())) == [field.name for field in dataclasses.fields(ProxyConfig)]


def test_a_byte_order_mark_is_none_of_the_options(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    path = tmp_path / "proxy.toml"
    path.write_text("\ufeffon_demand = false\n", encoding="utf-8")
    assert not load(path).on_demand


def test_no_file_means_defaults(tmp_path: Path) -> None:
    """Most users have none."""
    assert load(tmp_path / "none.toml") == ProxyConfig()


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("x = [", "is not TOML", None),
        ("gitignor = true", "unknown option", "did you mean 'gitignore'"),
        ("zzz = 1", "unknown option", "the options are"),
        ("gitignore = 1", "wrong value", "true or false"),
        ("idle_exit_s = true", "wrong value", "whole number"),
        ("idle_exit_s = -1", "wrong value", "above zero"),
        ("keepalive_s = 4", "wrong value", "at least 5"),
        ("keepalive_s = 301", "wrong value", "at most 300"),
        ("renew_s = 3601", "wrong value", "at most 3,600"),
        ("extra = ['a', 1]", "wrong value", "list of strings"),
        ("learn = true", "wrong value", r"[learn]"),
        ("learn.mode = 'always'", "wrong value", "off, suggest, auto"),
        ("learn.judges = ['oracle']", "wrong value", "rules, local, client"),
        ("learn.judges = []", "wrong value", "rules, local, client"),
        ("learn.local_modle = 'x'", "unknown option", "local_model"),
        ("learn.calls_a_day = -1", "wrong value", "at least 0"),
        ("learn.calls_a_day = true", "wrong value", "a whole number"),
        ("learn.local_url = 'http://10.0.0.1/v1'", "wrong value", "this device"),
        ("learn.local_url = 'http://127.0.0.1@evil.example/'", "wrong value", "this device"),
        ("learn.local_url = 'http://[::1'", "wrong value", "this device"),
        ("folders = true", "wrong value", '[folders."~/vault"]'),
        ("folders.vault.extra = ['a.md']", "wrong value", "from the root or from your home"),
        ("folders.'~nobody-of-that-name/x'.extra = ['a.md']", "wrong value", "from the root or from your home"),
        ("folders.'~/vault'.exta = ['a.md']", "unknown option", "did you mean 'extra'"),
        ("folders.'~/vault'.extra = 'a.md'", "wrong value", "files, folders or globs"),
        ("folders.'~/vault'.extra = ['']", "wrong value", "files, folders or globs"),
        ("folders.'~/vault'.extra = ['/etc/*.md']", "wrong value", "files, folders or globs"),
        ("folders.'~/vault'.extra = ['../other/*.md']", "wrong value", "files, folders or globs"),
        ("panel = true", "wrong value", "[panel]"),
        ("panel.frame_ancestor = []", "unknown option", "frame_ancestors"),
        ("panel.frame_ancestors = 'https://board.example'", "wrong value", "origins"),
        ("panel.frame_ancestors = ['http://board.example']", "wrong value", "of https or of this device"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, problem: str, hint: str | None) -> None:
    """Each wrong line ends with code 3, the file's name, and a way out."""
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        load(file)
    assert caught.value.exit_code == 3
    assert str(file) in str(caught.value)
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    "origin",
    [
        "https://board.example",
        "https://board.example:8443",
        "http://127.0.0.1:8000",
        "http://localhost",
        "http://[::1]:3000",
    ],
)
def test_an_origin_may_show_the_panel_in_a_frame(tmp_path: Path, origin: str) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(f"panel.frame_ancestors = ['{origin}', '{origin}']")
    assert load(file).panel.frame_ancestors == (origin,)


@pytest.mark.parametrize(
    "origin",
    [
        *("*", "https:", "https://", "https://*", "https://*.board.example", "https://board.example/", "'self'", "'none'"),
        *("https://board.example/path", "https://ann@board.example", "https://Board.example", "https://board.example:443"),
        *("https://board.example; script-src *", "https://board.example https://evil.example", "https://board.example\n"),
        *("http://board.example", "http://127.0.0.1.board.example", "http://localhost:0", "http://localhost:65536", ""),
        *("http://127.0.0.1:80", "file:///tmp", "data:", "null", "https://-board.example", "https://böard.example", "ws://localhost"),
        *("https://board..example", "http://127.0.0.2", "https://board.example,https://evil.example", "https://" + "a" * 260),
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_no_origin_shows_no_panel(tmp_path: Path, origin: str) -> None:
    """It becomes part of a policy: one sign more would let others in, or take the rest of the policy away."""
    file = tmp_path / "proxy.toml"
    file.write_text(f"panel.frame_ancestors = [{json.dumps(origin)}]")
    with pytest.raises(ConfigError, match="wrong value for 'frame_ancestors'"):
        load(file)


def test_the_bounds_of_the_keepalive_are_the_channels(tmp_path: Path) -> None:
    """And its default is, with an idle limit of 90 seconds."""
    file = tmp_path / "proxy.toml"
    for most in (limits.LEAST_KEEPALIVE_S, limits.MOST_KEEPALIVE_S):
        file.write_text(f"keepalive_s = {most}")
        assert load(file).keepalive_s == most
    assert limits.Timers.every(ProxyConfig().keepalive_s) == limits.DEFAULT_TIMERS


def test_not_utf8_is_a_clear_error(tmp_path: Path) -> None:
    """A file in another encoding is refused like any other broken one."""
    file = tmp_path / "proxy.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(file)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """It says what is sent in clear: whoever can write to it, or to a folder on the way to it, could take the seal off."""
    folder = tmp_path / "config"
    folder.mkdir(mode=0o755)
    file = folder / "proxy.toml"
    file.write_text('[secrets]\nfiles = "allow"\n')
    file.chmod(0o644)
    assert load(file).secrets.files == "allow"
    for place, loose, usual in ((file, 0o646, 0o644), (folder, 0o777, 0o755), (tmp_path, 0o777, 0o755)):
        place.chmod(loose)
        with pytest.raises(ConfigError, match=f"{file} is not used, since {place} can be written by other") as caught:
            load(file)
        assert caught.value.exit_code == 3
        assert caught.value.hint == f"chmod go-w {place}"
        place.chmod(usual)
    assert load(file).secrets.files == "allow"


def test_what_holds_for_a_folder_holds_for_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for one beside it, nor below it; whichever way leads there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "vault" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("vault")
    (tmp_path / "proxy.toml").write_text('[folders."~/link"]\nextra = ["**/*.md"]\n')
    config = load(tmp_path / "proxy.toml")
    for name, is_it in (("vault", True), ("link", True), ("vault/sub", False), ("vaults", False), ("", False)):
        assert (config.options_for(tmp_path / name) is not None) == is_it, name
    chosen = config.options_for(tmp_path / "vault")
    assert chosen is not None
    assert chosen.extra == ("**/*.md",)
