"""What becomes of credentials: the section [secrets] of proxy.toml, and fingerprints that tell nothing."""

from __future__ import annotations

import errno
import os
import tomllib
from pathlib import Path

import pytest

from confide_crypto.errors import KeyFileError
from confide_proxy.cli.scan import add
from confide_proxy.config import Policy, load
from confide_proxy.errors import ConfigError, StateError
from confide_proxy.sealing import sealer

FIRST, SECOND = "0123456789abcdef01234567", "fedcba9876543210fedcba98"


def test_each_source_has_its_own_action() -> None:
    """What is less sure than the limit, or allowed by its fingerprint, is let through."""
    policy = Policy(transcripts="redact", imports="block", min_confidence=0.7, allow=(FIRST,))
    assert [policy.action(source, 0.8) for source in ("tools", "files", "transcripts", "imports")] == [
        "seal",
        "seal",
        "redact",
        "block",
    ]
    assert policy.action("files", 0.65) == "allow"
    assert policy.action("files", 0.95, FIRST) == "allow"
    assert policy.action("files", 0.95, SECOND) == "seal"


@pytest.mark.parametrize(
    ("section", "problem", "hint"),
    [
        ("file = 'seal'", "unknown option 'file'", "did you mean 'files'"),
        ("files = 'sael'", "wrong value for 'files'", "seal, redact, block, allow"),
        ("tools = true", "wrong value for 'tools'", "one of"),
        ("min_confidence = 0", "wrong value for 'min_confidence'", "above 0 and at most 1"),
        ("min_confidence = '1'", "wrong value for 'min_confidence'", "a number"),
        ("allow = ['hunter22x']", "wrong value for 'allow'", "24 hex digits"),
        ("allow = 'x'", "wrong value for 'allow'", "fingerprints"),
        ("local = 'drop'", "wrong value for 'local'", "keep or replace"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, section: str, problem: str, hint: str) -> None:
    """With a way out, and without what somebody may have pasted there by mistake."""
    file = tmp_path / "proxy.toml"
    file.write_text(f"[secrets]\n{section}\n")
    with pytest.raises(ConfigError, match=problem) as caught:
        load(file)
    assert hint in (caught.value.hint or "")
    assert "hunter22x" not in f"{caught.value}{caught.value.hint}"


def test_secrets_is_a_section(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text("secrets = 'seal'\n")
    with pytest.raises(ConfigError, match="'secrets'"):
        load(file)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gitignore = false",
        "# mine\ngitignore = false\n\n[secrets]  # what is found\nfiles = 'redact'\n",
        "[secrets]\nallow = []\n",
        "[secrets]\nallow = [ ]  # none yet\nfiles = 'block'\n",
        f'[secrets]\nallow = ["{SECOND}"]\n',
        f'[secrets]\nallow = [\n    # the demo\'s ] password\n    "{SECOND}",\n]\ntools = "allow"\n',
        f'[secrets]\nallow = [\n  "{SECOND}"\n]',
        "[secrets]",
    ],
)
def test_a_fingerprint_is_added_and_all_else_stays(tmp_path: Path, text: str) -> None:
    """Every line that a person wrote is there as it was, comments too; a second time nothing happens."""
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    before = tomllib.loads(text)
    assert add(file, FIRST)
    after = file.read_text()
    assert load(file).secrets.allow == (FIRST, *before.get("secrets", {}).get("allow", []))
    for line in text.splitlines():
        assert line.split("allow = [")[0] in after
    assert "# " not in text or text.count("#") == after.count("#")
    assert not add(file, FIRST)
    assert file.read_text() == after


def test_a_file_that_is_not_there_is_made_and_a_linked_one_stays_linked(tmp_path: Path) -> None:
    """Dotfiles live in repositories."""
    real, link = tmp_path / "dotfiles" / "proxy.toml", tmp_path / "proxy.toml"
    real.parent.mkdir()
    link.symlink_to(real)
    assert add(link, FIRST)
    assert link.is_symlink()
    assert load(real).secrets.allow == (FIRST,)


@pytest.mark.parametrize("text", ["secrets = { files = 'seal' }\n", "secrets.files = 'seal'\n", "x = [\n"])
def test_what_cannot_be_added_to_is_left_alone(tmp_path: Path, text: str) -> None:
    """With a hint to do it by hand."""
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    with pytest.raises(ConfigError):
        add(file, FIRST)
    assert file.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["proxy.toml"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Where it is read-only, not even the part file can be taken away again."""

    def refuse(*_given: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "proxy.toml"
    file.write_text("gitignore = false\n")
    monkeypatch.setattr(os, "fsync" if number == errno.ENOSPC else "open", refuse)
    if number == errno.EROFS:
        monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StateError, match=f"proxy.toml: {os.strerror(number)}") as caught:
        add(file, FIRST)
    assert caught.value.exit_code == 8
    assert file.read_text() == "gitignore = false\n"
    assert [each.name for each in tmp_path.iterdir()] == ["proxy.toml"]


def test_fingerprints_are_this_machines(tmp_path: Path) -> None:
    """The same value has the same one here, another of another kind, and on another machine; its key is private."""
    here, there = sealer.load_fingerprints(tmp_path / "a" / "key"), sealer.load_fingerprints(tmp_path / "b" / "key")
    value = "hunter22x"
    assert here.of("password", value) == sealer.load_fingerprints(tmp_path / "a" / "key").of("password", value)
    others = {here.of("password", value), here.of("token", value), here.of("password", value + "y")}
    assert len({*others, there.of("password", value)}) == 4
    assert (tmp_path / "a" / "key").stat().st_mode & 0o777 == 0o600


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    """A short key would name everything otherwise, and allow what nobody allowed."""
    key = tmp_path / "state" / "key"
    sealer.load_fingerprints(key)
    key.write_bytes(b"short")
    with pytest.raises(KeyFileError, match="damaged"):
        sealer.load_fingerprints(key)
    key.chmod(0o644)
    with pytest.raises(KeyFileError):
        sealer.load_fingerprints(key)
