"""Two failures of one cause have one signature, whatever else is in their messages."""

from __future__ import annotations

import pytest

from confide_memory.actions.error_messages import MAX_OUTPUT, FailedOutput, codes, signature


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            'E   sqlalchemy.exc.OperationalError: (psycopg2) connection to server at "10.0.0.3", port 5432 failed',
            'sqlalchemy.exc.OperationalError: (psycopg2) connection to server at "db.internal", port 6543 failed',
        ),
        (
            "2026-11-20T10:22:01Z thread 'main' panicked at src/main.rs:10:5: index out of bounds",
            "2026-11-28T09:01:44Z thread 'main' panicked at crates/x/src/lib.rs:99:1: index out of bounds",
        ),
        (
            "\x1b[31mFATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory\x1b[0m",
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        ),
    ],
)
def test_paths_numbers_times_and_colours_do_not_count(one: str, other: str) -> None:
    assert signature(one)
    assert FailedOutput(other).has(signature(one))


@pytest.mark.parametrize(
    "message",
    [
        "exit code 1",
        "Error: command failed",
        "make: *** [test] Error 2",
        "npm ERR! code 1",
        "permission denied",
        "not found",
    ],
)
def test_what_many_failures_share_has_no_signature(message: str) -> None:
    assert signature(message) == ""


def test_another_module_is_another_failure() -> None:
    key = signature("ModuleNotFoundError: No module named 'psycopg2'")
    assert FailedOutput("Traceback:\nModuleNotFoundError: No module named 'psycopg2'").has(key)
    assert not FailedOutput("ModuleNotFoundError: No module named 'psycopg'").has(key)
    assert not FailedOutput("ModuleNotFoundError: No module named 'requests'").has(key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "undefined method `total' for nil:NilClass (NoMethodError)",
            "undefined method 'total' for nil:NilClass (NoMethodError)",
        ),
        (
            "make: *** No rule to make target `site', needed by `all'.  Stop.",
            "make: *** No rule to make target 'site', needed by 'all'.  Stop.",
        ),
    ],
)
def test_a_name_is_one_in_the_quotes_of_older_programs_too(old: str, new: str) -> None:
    """Ruby before 3.4, and GNU programs before 2012."""
    assert signature(old) == signature(new) != ""
    assert FailedOutput(old).has(signature(new))


def test_a_code_is_a_word() -> None:
    assert codes("error TS2742: the type of TS27 and ERR_SSL_WRONG_VERSION, ValueError") == [
        "TS2742",
        "ERR_SSL_WRONG_VERSION",
    ]
    assert FailedOutput("src/a.ts(3,1): error TS2742: The inferred type").has("TS2742")
    assert not FailedOutput("error TS27421: x").has("TS2742")


def test_the_end_of_a_long_output_counts() -> None:
    long = "compiling\n" * MAX_OUTPUT + "error TS2742: x\n"
    assert FailedOutput(long).has("TS2742")
    assert len(FailedOutput("x 1\n" * MAX_OUTPUT).text) <= 2 * MAX_OUTPUT
