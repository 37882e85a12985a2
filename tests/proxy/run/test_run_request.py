"""Command lines of `confide run` that are read without the library for them, and the user's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from confide_proxy import config
from confide_proxy.run import run_rules
from confide_proxy.run.run_request import HeaderUse, RunRequest, plain


def test_a_plain_line_is_read_and_any_other_is_left_to_the_library() -> None:
    line = ["--env", "A=secret:a=", "-e", "B=b", "--file=F=f", "--stdin", "in", "--", "npm", "--", "publish"]
    assert plain(line) == RunRequest(["npm", "--", "publish"], {"A": "secret:a=", "B": "b"}, {"F": "f"}, "in")
    line = ["--http", "API.example.com:8443:Authorization=secret:a", "--http=b.example:x-key=b", "--", "curl"]
    uses = (HeaderUse("api.example.com:8443", "authorization", "secret:a"), HeaderUse("b.example", "x-key", "b"))
    assert plain(line) == RunRequest(["curl"], {}, {}, None, uses)
    for other in (
        [],
        ["--http", "api.example.com=secret:a", "--", "curl"],
        ["--http", "127.0.0.1:x-key=secret:a", "--", "curl"],
        ["--http", "api.example.com:host=secret:a", "--", "curl"],
        ["--help"],
        ["--env", "A=a", "npm"],
        ["--env", "A=a", "--"],
        ["--", "npm"],
        ["--env", "--", "npm"],
        ["--env", "A", "--", "npm"],
        ["--env", "1A=a", "--", "npm"],
        ["-e", "A=a", "-e", "A=b", "--", "npm"],
        ["-e", "A=a", "-f", "A=b", "--", "npm"],
        ["--stdin", "a", "--stdin", "b", "--", "npm"],
        ["-eA=a", "--", "npm"],
        ["--verbose", "-e", "A=a", "--", "npm"],
    ):
        assert plain(other) is None, other


@pytest.mark.parametrize(
    "text",
    ["", "gitignore = true\n", '[run]\nallow = { db = ["psql", "/bin/sh"] }\n', "[run]\nca_file = '/etc/own.pem'\n"],
)
def test_the_rules_are_those_of_the_configuration(tmp_path: Path, text: str) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(text)
    read, expected = run_rules.read(file), config.load(file).run
    assert read is not None
    assert {name: tuple(commands) for name, commands in read.allow.items()} == dict(expected.allow)
    assert read.ca_file == expected.ca_file


def test_rules_that_need_a_word_to_the_user_are_none(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    assert run_rules.read(file) == ({}, "")
    for text in (
        "[run\n",
        "run = false\n",
        '[run]\nallow = ["npm"]\n',
        "[run]\nallow = { a = 1 }\n",
        "[run]\nask = 1\n",
        "[run]\nca_file = 1\n",
        "[run]\nca_file = 'own.pem'\n",
    ):
        file.write_text(text)
        assert run_rules.read(file) is None
    file.write_text('[run]\nallow = { db = ["psql"] }\n')
    file.chmod(0o666)
    assert run_rules.read(file) is None
