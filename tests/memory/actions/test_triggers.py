"""What an entry of a memory concerns: the files, commands and errors that it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.actions.triggers import COMMAND, ERROR, PATH, entries, is_path, path_key


def found(text: str) -> list[tuple[int, list[tuple[str, str]]]]:
    return [(entry.line, [tuple(one) for one in entry.triggers]) for entry in entries(text)]


def keys(text: str, kind: str) -> list[str]:
    return [one.key for entry in entries(text) for one in entry.triggers if one.kind == kind]


@pytest.mark.parametrize(
    ("line", "kind", "key"),
    [
        ("never run `prisma migrate reset` against staging, it drops the data", COMMAND, "prisma migrate reset"),
        ("never run `echo reset-staging`: it drops the data", COMMAND, "echo reset-staging"),
        ("`npx prisma migrate dev` needs the shadow database", COMMAND, "prisma migrate dev"),
        ("always `uv run pytest -n 4` here, since one process takes an hour", COMMAND, "pytest -n 4"),
        ("src/auth.py: login() must not call the cache before the session is stored", PATH, "src/auth.py"),
        ("don't edit `web/src/generated/`, the schema is the source", PATH, "web/src/generated"),
        ("`api/openapi.yaml#components` is generated, never edit it by hand", PATH, "api/openapi.yaml"),
        ("the `Makefile` must keep tabs", PATH, "Makefile"),
        ("fixed ERR_PNPM_OUTDATED_LOCKFILE with a fresh lockfile", ERROR, "ERR_PNPM_OUTDATED_LOCKFILE"),
        ("TS2742 came from two copies of react-query", ERROR, "TS2742"),
        (
            "fixed \"ModuleNotFoundError: No module named 'psycopg2'\": pip install psycopg2-binary",
            ERROR,
            "modulenotfounderror: no module named psycopg2",
        ),
        (
            "`error: failed to push some refs to 'github.com:x/y.git'` means that somebody pushed first",
            ERROR,
            "error: failed to push some refs to",
        ),
    ],
)
def test_an_entry_concerns_what_it_names(line: str, kind: str, key: str) -> None:
    assert key in keys(f"# Log\n\n- {line}\n", kind)


@pytest.mark.parametrize(
    "line",
    [
        "edited src/auth.py today",
        "ran `npm test`, all green",
        "the build failed again with `exit code 1`",
        "got an `Error` from the server and a `TypeError` of the page",
        "We never use the word `foo` in names",
        "always think first",
    ],
)
def test_what_says_nothing_to_mind_or_is_said_of_everything_concerns_nothing(line: str) -> None:
    assert found(f"- {line}\n") == []


def test_the_fields_of_a_note_state_what_it_is_about() -> None:
    note = """---
id: mem_lock_20261120_ab12
title: The lockfile
about: [package.json#dependencies.next, src/db.py:10-40, "git:main"]
command: pnpm install
error: "ELIFECYCLE  Command failed with exit code 1 in /home/a/x.js:10"
---

Pin next to 14.
"""
    (entry,) = entries(note)
    assert entry.line == 9
    assert entry.text == "Pin next to 14."
    stated = [tuple(one) for one in entry.triggers]
    assert (PATH, "package.json") in stated
    assert (PATH, "src/db.py") in stated
    assert (COMMAND, "pnpm install") in stated
    assert (ERROR, "ELIFECYCLE") in stated
    assert not any("main" in key for _, key in stated)


def test_a_quoted_message_is_known_by_its_lines_and_the_entry_by_its_first_line() -> None:
    text = """# Trouble

Start docker compose first:

```
Error: P1001: Can't reach database server at `localhost:5432`
```
"""
    assert found(text) == [(3, [(ERROR, "error: p1001: can't reach database server at"), (ERROR, "P1001")])]


@pytest.mark.parametrize("path", ["", "/etc/passwd", "~/x", "../x", "a/../../b", "https://example.org/a.py", "x" * 500])
def test_what_is_no_path_of_the_project_is_none(path: str) -> None:
    assert path_key(path) == ""


@pytest.mark.parametrize(
    ("key", "edited", "is_it"),
    [
        ("src/auth.py", "src/auth.py", True),
        ("src/auth.py", "lib/src/auth.py", False),
        ("auth.py", "src/auth.py", True),
        ("src", "src/auth.py", True),
        ("src/generated", "src/generated/a/b.ts", True),
        ("src/gen", "src/generated/a.ts", False),
        ("auth", "src/auth", False),
        ("uth.py", "src/auth.py", False),
    ],
)
def test_a_file_is_the_one_of_a_note_or_lies_in_its_folder(key: str, edited: str, is_it: bool) -> None:
    assert is_path(key, edited) is is_it


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    for entry in entries(text):
        assert entry.triggers
        assert 1 <= entry.line <= text.count("\n") + 1


def test_a_long_text_is_read_in_a_moment() -> None:
    """Nothing here backtracks: each text has 200,000 characters."""
    for text in (
        "`" * 200_000,
        "a/" * 100_000,
        "never `a b" * 20_000,
        "'" * 200_000,
        "Error: " * 30_000,
        "- x\n" * 50_000,
    ):
        entries(text)
