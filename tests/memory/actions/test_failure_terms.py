"""A note that tells of a failure in words of its own is met by that failure, and by hardly another one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confide_memory.actions.failure_terms import LEAST, OutputTerms, by_rarity, of_note
from confide_memory.actions.shell_commands import commands


def weight(note: str, command: str, output: str) -> float:
    terms = of_note(note)
    return OutputTerms(output, commands(command)).weight(terms) if terms is not None else 0.0


@pytest.mark.parametrize(
    ("note", "command", "output"),
    [
        (
            "The image build gets killed when Docker has less than 6 GB.",
            "docker build -t shop .",
            'ERROR: process "/bin/sh -c npm ci" did not complete successfully: exit code: 137',
        ),
        (
            "Link error for WebPDecodeRGBA: libwebp has to come after the objects.",
            "make app",
            "\x1b[31m/usr/bin/ld: main.o: undefined reference to `WebPDecodeRGBA'\x1b[0m\ncollect2: error: ld returned 1 exit status",
        ),
        (
            "pay step fails with ERR_CERT_AUTHORITY_INVALID: mkcert -install",
            "make e2e",
            "\r[1/3] login ok\r[2/3] pay FAILED\nnet::ERR_CERT_AUTHORITY_INVALID at https://localhost:3000",
        ),
        (
            "the lockfile would have been modified in CI: somebody ran yarn 1",
            "yarn install",
            "➤ YN0028: │ The lockfile would have been modified by this install, which is explicitly forbidden.",
        ),
        (
            "gcloud run deploy is denied with the default account; activate the deployer first",
            "gcloud run deploy api",
            "ERROR: (gcloud.run.deploy) PERMISSION_DENIED: Permission 'run.services.get' denied",
        ),
    ],
)
def test_a_failure_is_known_by_its_cause_its_names_its_words_and_its_tool(note: str, command: str, output: str) -> None:
    assert weight(note, command, output) >= LEAST
    assert weight(note, "ls", "ls: cannot access '/nope': No such file or directory") < LEAST


@pytest.mark.parametrize(
    ("note", "command", "output"),
    [
        ("the build of libvips fails without meson", "npm test", "Error: expected 2 to be 3"),
        ("never deploy on Fridays, the on-call is out", "bin/deploy", "error: connection timed out"),
        ("a certificate had expired", "curl https://x", "SSL certificate problem: certificate has expired"),
        ("`npm ci` fails because of react-dates", "cargo test", "thread 'main' panicked: react-dates"),
    ],
)
def test_a_cause_or_a_word_alone_is_no_failure_that_a_note_tells_of(note: str, command: str, output: str) -> None:
    assert weight(note, command, output) < LEAST


def test_words_of_many_entries_say_little() -> None:
    told = "the calculator breaks on empty totals: sort them"
    many = [of_note(f"the calculator breaks on empty totals again: ticket {number}") for number in range(50)]
    rare, *_ = by_rarity([of_note(told)])
    common, *_ = by_rarity([of_note(told), *many])
    assert rare is not None
    assert common is not None
    output = OutputTerms("error: empty totals of the calculator", [["bin/x"]])
    assert output.weight(rare) >= LEAST > output.weight(common)


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_is_read(note: str, output: str) -> None:
    terms = of_note(f"`x` fails: {note}")
    if terms is not None:
        OutputTerms(output, commands(note)).weight(terms)


def test_long_outputs_are_read_in_a_moment() -> None:
    for output in ("not " * 9000, "a-b/c.d:" * 5000, "could not " * 4000, "error: x y\n" * 9000, "'" * 32_768):
        began = time.process_time()
        OutputTerms(output, [["make"]])
        assert time.process_time() - began < 2
