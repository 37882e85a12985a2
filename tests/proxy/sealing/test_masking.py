"""Values are masked in a stream, whatever form they have and however it is cut."""

from __future__ import annotations

import base64
import html
import json
import random
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide_proxy.sealing.masking import SHOWN, Mask, SecretForms, is_maskable

SECRET = b"hunter2-is/not \"a\" <pass+word>=&'x'%"
PLAIN = b"hunter2-is-not-a-password"
OTHER = b"ghp_a1B2c3D4e5F6g7H8i9J0"


def mask(*values: bytes) -> Mask:
    return Mask(SecretForms(dict.fromkeys(values, SHOWN)))


@given(
    st.lists(st.sampled_from([PLAIN, b"hunter2", b"x", b"\n", b"-is-", PLAIN[:9], PLAIN[9:]]), max_size=12),
    st.integers(1, 40),
)
@settings(max_examples=150, deadline=None)
def test_a_value_is_masked_however_it_is_cut(parts: list[bytes], width: int) -> None:
    """In one piece, or a few bytes at a time: the same comes out, without the value."""
    text = b"".join(parts)
    one = mask(PLAIN)
    shown = b"".join(one.feed(text[at : at + width]) for at in range(0, len(text), width)) + one.end()
    assert shown == mask(PLAIN).whole(text)
    assert PLAIN not in shown.translate(None, b"\n")


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "itself": lambda value: value,
    "base64": base64.b64encode,
    "base64, one byte before": lambda value: base64.b64encode(b"a" + value),
    "base64, user and colon before": lambda value: base64.b64encode(b"user:" + value + b"\n"),
    "base64 of addresses": lambda value: base64.urlsafe_b64encode(b"u:" + value),
    "base64 in lines": lambda value: base64.encodebytes(b"-" * 50 + value),
    "hex": lambda value: value.hex().encode(),
    "HEX": lambda value: value.hex().upper().encode(),
    "hex in groups": lambda value: value.hex(" ", 2).encode(),
    "an address": lambda value: quote(value, safe="").encode(),
    "a path": lambda value: quote(value).encode(),
    "a form": lambda value: quote_plus(value).encode(),
    "JavaScript": lambda value: quote(value, safe="!'()*").encode(),
    "JSON": lambda value: json.dumps(value.decode()).encode(),
    "JSON in JSON": lambda value: json.dumps(json.dumps(value.decode())).encode(),
    "JSON of Go": lambda value: (
        json.dumps(value.decode()).translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&"}).encode()
    ),
    "JSON of PHP": lambda value: json.dumps(value.decode()).replace("/", "\\/").encode(),
    "repr": lambda value: repr(value.decode()).encode(),
    "a shell's quotes": lambda value: shlex.quote(value.decode()).encode(),
    "HTML": lambda value: html.escape(value.decode()).encode(),
    "lines": lambda value: b"\r\n    ".join(value[at : at + 9] for at in range(0, len(value), 9)),
    "UTF-16": lambda value: value.decode().encode("utf-16-le"),
}


@pytest.mark.parametrize("width", [1, 7, 4096])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_usual_form_is_masked_in_one_piece_and_in_many(form: Callable[[bytes], bytes], width: int) -> None:
    """Nothing of the form is left but what the text around it decides."""
    for value in (SECRET, OTHER, b"short1"):
        text = b"before " + form(value) + b" after"
        one = mask(value)
        shown = b"".join(one.feed(text[at : at + width]) for at in range(0, len(text), width)) + one.end()
        assert SHOWN in shown
        left = shown.replace(SHOWN, b"")
        for part in (value[at : at + 5] for at in range(len(value) - 4)):
            assert part not in left
            assert base64.b64encode(part)[:-2] not in left
            assert part.hex().encode() not in left.lower().replace(b" ", b"")
        assert left.startswith(b"before ")
        assert left.endswith((b" after", b"\0 after"))


COLOURS: dict[str, Callable[[bytes], bytes]] = {
    "what grep found": lambda value: value[:11] + b"\x1b[01;31m\x1b[K" + value[11:13] + b"\x1b[m\x1b[K" + value[13:],
    "each letter": lambda value: b"".join(b"\x1b[38:2::1:2:3m%c\x1b(B\x1b[0m" % byte for byte in value),
    "in lines": lambda value: value[:9] + b"\x1b[0m\n\x1b[2K" + value[9:],
    "base64": lambda value: base64.b64encode(value)[:9] + b"\x1b[1m" + base64.b64encode(value)[9:],
    "a bracket before it": lambda value: b"\x1b[" + value,
    "an escape in it": lambda value: value[:9] + b"\x1b" + value[9:],
}


@pytest.mark.parametrize("width", [1, 2, 7, 4096])
@pytest.mark.parametrize("colour", COLOURS.values(), ids=COLOURS)
def test_colours_hide_no_value(colour: Callable[[bytes], bytes], width: int) -> None:
    """Of a known value, and of one that its word tells; what is coloured beside it stays as it is."""
    value = PLAIN[:9] + b"\x1b" + PLAIN[9:] if colour is COLOURS["an escape in it"] else PLAIN

    def more(text: str) -> dict[bytes, bytes]:
        return {PLAIN: SHOWN} if PLAIN.decode() in text else {}

    for one in (mask(value), *([Mask(SecretForms({}), more)] if colour is COLOURS["what grep found"] else [])):
        text = b"\x1b[32mbefore\x1b[m " + colour(PLAIN) + b" after \x1b[1"
        shown = b"".join(one.feed(text[at : at + width]) for at in range(0, len(text), width)) + one.end()
        assert shown.count(SHOWN) == 1
        assert PLAIN[:5] not in shown.replace(b"\x1b[m", b"")
        assert shown.startswith(b"\x1b[32mbefore\x1b[m ")
        assert shown.endswith(b" after \x1b[1")
        assert len(shown) < 60


@pytest.mark.parametrize("width", [1, 7, 4096])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_no_letter_of_base64_that_has_bits_of_a_value_is_left(encode: Callable[[bytes], bytes], width: int) -> None:
    """Of Basic credentials, only those of the user's name are; whatever comes after them."""
    for user in (b"", b"a:", b"me:", b"you:"):
        for value in (OTHER, OTHER[:-1], OTHER[:-2]):
            for after in (b"", b"\n", b":more", b"\xff\xfe"):
                text = b"Basic " + encode(user + value + after) + b"\r\nnext"
                kept = b"Basic " + encode(user)[: len(user) * 8 // 6]
                one = mask(value)
                shown = b"".join(one.feed(text[at : at + width]) for at in range(0, len(text), width)) + one.end()
                assert shown.startswith(kept + SHOWN), (user, value, after)
                assert shown.endswith(b"\r\nnext")
                rest = shown.removeprefix(kept + SHOWN).removesuffix(b"\r\nnext")
                assert rest == encode(user + value + after)[-(-len(user + value) * 8 // 6) :].lstrip(b"="), (
                    user,
                    value,
                    after,
                )


def test_each_of_several_values_shows_its_own_name() -> None:
    forms = SecretForms({PLAIN: b"(one)", OTHER: b"(two)"})
    assert Mask(forms).whole(b"%s=%s" % (PLAIN, OTHER)) == b"(one)=(two)"


def test_each_line_of_a_value_is_masked_but_what_all_keys_have() -> None:
    key = (
        b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+D\nYWJjZGVmZ2hpamtsbW5vcHFy\n-----END PRIVATE KEY-----\n"
    )
    shown = mask(key).whole(b"-----BEGIN PRIVATE KEY-----\n and YWJjZGVmZ2hpamtsbW5vcHFy")
    assert shown == b"-----BEGIN PRIVATE KEY-----\n and (masked)"


def test_most_of_a_value_is_masked_as_the_whole() -> None:
    """A program cuts its output; the end of the stream comes within a value; a megabyte's first part."""
    token = b"a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert mask(token).whole(token[:30]) == SHOWN
    assert mask(token).whole(token[:30] + b"...") == SHOWN + b"..."
    assert mask(token).whole(token[:12] + b"...") == token[:12] + b"..."
    large = b"".join(b"%06x" % (number * 7919) for number in range(20_000))
    assert mask(large).whole(base64.b64encode(large[:3000])) == SHOWN


def test_overlapping_values_leave_no_part() -> None:
    assert mask(b"abcdefgh12", b"gh12ijklmn").whole(b"abcdefgh12ijklmn") == SHOWN
    ones = b"1a" * 500_000
    one = mask(b"1a1a1a1a1a1a")
    shown = b"".join(one.feed(ones[at : at + 65_536]) for at in range(0, len(ones), 65_536)) + one.end()
    assert b"1a1a1a1a1a1a" not in shown


def test_while_nothing_comes_only_the_beginning_of_a_value_is_held() -> None:
    """A prompt appears at once; a value that is written in two parts does not."""
    one = mask(PLAIN)
    assert one.feed(b"Password: ") + one.idle() == b"Password: "
    assert one.feed(b"it is " + PLAIN[:5]) + one.idle() == b"it is "
    assert one.feed(PLAIN[5:]) + one.idle() == SHOWN
    assert one.feed(b"no: hunt") + one.idle() == b"no: "
    assert one.feed(b"ing") + one.idle() == b"hunting"


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_a_value_that_comes_slowly_is_masked_but_for_its_first_bytes(width: int) -> None:
    one = mask(PLAIN)
    text = b"it is " + PLAIN + b", and " + PLAIN + b"."
    shown = b"".join(one.feed(text[at : at + width]) + one.idle() for at in range(0, len(text), width)) + one.end()
    assert shown.replace(b"h" + SHOWN, SHOWN).replace(b"hu" + SHOWN, SHOWN).replace(b"hun" + SHOWN, SHOWN) == (
        b"it is " + SHOWN + b", and " + SHOWN + b"."
    )


@pytest.mark.parametrize("value", [b"", b"abc", b"password", b"123456", b"2026-11-29", b"  \n ", b"Password"])
def test_what_texts_contain_anyway_is_not_masked(value: bytes) -> None:
    assert not is_maskable(value)
    text = b"a password of 2026-11-29 is abc 123456"
    assert mask(value).whole(text) == text


def test_further_values_are_found_by_their_words() -> None:
    """What another function recognises in a word is masked in all its forms from then on, also a word that comes in two parts."""
    asked: list[str] = []

    def more(text: str) -> dict[bytes, bytes]:
        asked.append(text)
        return {OTHER: b"(other)"} if OTHER.decode() in text else {}

    one = Mask(SecretForms({PLAIN: SHOWN}), more)
    shown = (
        one.feed(b"see " + OTHER[:9])
        + one.feed(OTHER[9:] + b" and " + PLAIN)
        + one.feed(b" " + OTHER.hex().encode())
        + one.end()
    )
    assert shown == b"see (other) and (masked) (other)"
    one.feed(b"see again and again and again\n")
    one.feed(bytes(range(200, 256)) + b"\n")  # no text, so nothing to ask about
    assert not any("\ufffd" in text for text in asked)
    count = len(asked)
    one.feed(b"see again and again and again\n")
    assert len(asked) == count


@pytest.mark.parametrize("others", [0, 400])
def test_a_value_of_any_length_is_found_wherever_it_begins(others: int) -> None:
    """Alone, and among so many others that the search has no table."""
    draw = random.Random(others)
    values = [
        "".join(draw.choices("abcXYZ0123456789", k=size)).encode() for size in (6, 7, 8, 11, 15, 16, 19, 20, 33, 64)
    ]
    values += [b"a1" * 9, b"ab1-" * 5, b"%" * 20]
    more = [draw.randbytes(20).hex().encode() for _ in range(others)]
    forms = SecretForms(dict.fromkeys([*values, *more], SHOWN))
    for value in values:
        for place in range(9):
            before, after = b"." * place, b"," * draw.randrange(70)
            assert Mask(forms).whole(before + value + after) == before + SHOWN + after
            one = Mask(forms)
            assert one.feed(before + value[:-2]) + one.feed(value[-2:] + after) + one.end() == before + SHOWN + after


def test_a_long_stream_is_masked_to_its_end() -> None:
    """Wherever blanks are."""
    one = mask(PLAIN, OTHER)
    filler = b"a line of a log, and hunter2-is-not\n" * 2000
    for number in range(50):
        text = filler + PLAIN + b" " * (number % 7) + b"\n" * (5000 * (number % 3)) + OTHER + b"\n"
        shown = one.feed(text) + one.idle()
        assert shown == text.replace(PLAIN, SHOWN).replace(OTHER, SHOWN)


def test_binary_values_and_streams() -> None:
    value = bytes(range(1, 256))
    stream = bytes(range(200, 256)) + value + bytes(range(100))
    assert mask(value).whole(stream) == bytes(range(200, 256)) + SHOWN + bytes(range(100))
