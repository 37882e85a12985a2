"""What this machine has sealed or opened is found again, however it is said, by every process of it, and by nobody who reads its disk."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.draws import draws
from tests.support.sealing.known_forms import FORMS, said_again, value
from tests.support.sealing.sealers import PRINTS

from confide_crypto.sealing.placeholder import STANDIN
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_proxy.config import Policy
from confide_proxy.errors import UnsealableError
from confide_proxy.sealing import sealed_calls
from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.known_values import KnownValues, is_recognizable, merge_findings
from confide_proxy.sealing.sealer import Sealer

KEYS = SpaceKeys.generate()
PASSWORD = "xK7mQ2vR9tL"
Know = Callable[..., KnownValues]


@pytest.fixture
def know(tmp_path: Path) -> Know:
    """What a process of a machine knows of a space; each that is made is another process."""

    def made(keys: SpaceKeys | None = KEYS, machine: str = "laptop") -> KnownValues:
        return KnownValues(tmp_path / machine, lambda: keys)

    return made


def sealer(known: KnownValues, keys: SpaceKeys | None = KEYS, **policy: object) -> Sealer:
    return Sealer(Policy(**policy), lambda: keys, lambda: PRINTS, known)  # type: ignore[arg-type]


def test_a_value_is_found_that_was_looked_for_before_it_was_known(know: Know) -> None:
    """By this process, and after another one has sealed it."""
    known, other = know(), know()
    for secret in ("xK7mQ2vR9tL", "xK7-mQ2vR9tL/x"):
        text = f"it = {secret}"
        known.remember([("token", secret[::-1].encode())])  # of the same look
        assert known.find(text) == []
        other.remember([("password", secret.encode())])
        assert [text[each.start : each.end] for each in known.find(text)] == [secret]


@pytest.mark.parametrize("form", FORMS)
def test_a_known_value_is_found_in_every_form(know: Know, form: str) -> None:
    """Each of many in another text, by a process that has never seen them, and nothing of it stays."""
    chance = random.Random(7)
    values = [value(chance) for _ in range(draws(200, 80))]
    know().remember(("password", one.encode()) for one in values)
    another = sealer(know())
    for one, text in said_again(form, values, 7):
        sealed = another.seal(text, "files")
        assert STANDIN.search(sealed.text), (one, text)
        assert one not in sealed.text
        assert another.restore(sealed.text, sealed.values, "files") == text


@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_is_known_alone_is_found_in_every_form(know: Know, form: str) -> None:
    """Words that are shorter than all known values are passed over, and no form of a value is."""
    chance = random.Random(9)
    for number in range(draws(40, 12)):
        one = value(chance)
        know(machine=f"of-{number}").remember([("password", one.encode())])
        another = sealer(know(machine=f"of-{number}"))
        for _, text in said_again(form, [one], number):
            assert one not in another.seal(text, "files").text
            assert STANDIN.search(another.seal(text, "files").text), text


def test_a_long_value_that_is_known_alone_is_found_in_lines_of_base64(know: Know) -> None:
    one = "".join(random.Random(1).choices("abcXYZ019-", k=240))
    know().remember([("password", one.encode())])
    lines = base64.encodebytes(one.encode()).decode()
    assert lines.splitlines()[0] not in sealer(know()).seal(f"It is\n{lines}\nas mail has it.", "files").text


@pytest.mark.parametrize(
    "between",
    [
        *(
            "\u034f",
            "\u061c",
            "\u115f",
            "\u180e",
            "\u200e",
            "\u202e",
            "\u2061",
            "\u2066",
            "\u3164",
            "\ufe0f",
            "\uffa0",
            "\U000e0041",
        ),
        *("**", "*", "~~", "<b></b>", "</i>", "<!-- -->"),
    ],
)
def test_what_nobody_sees_inside_hides_no_known_value(know: Know, between: str) -> None:
    """All that Unicode has ignored, and marks of emphasis or comments that are gone once the text is shown."""
    know().remember([("password", PASSWORD.encode())])
    (found,) = know().find(text := f"with {PASSWORD[:5]}{between}{PASSWORD[5:]} on friday")
    assert text[found.start : found.end] == f"{PASSWORD[:5]}{between}{PASSWORD[5:]}"


def test_a_known_value_in_letters_of_full_width_is_found(know: Know) -> None:
    know().remember([("password", PASSWORD.encode())])
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in PASSWORD)
    (found,) = know().find(text := f"with {wide} on friday")
    assert text[found.start : found.end] == wide


def test_what_was_sealed_is_known_from_then_on(know: Know) -> None:
    """In the text itself, in the next one and in another process, under the placeholder that it has already; not in another space."""
    first = sealer(know())
    sealed = first.seal(f"nginx wants {PASSWORD.lower()}-8 too.\nThe password is {PASSWORD.lower()}-8", "tools")
    assert PASSWORD.lower() not in sealed.text
    assert len(sealed.values) == 1
    (placeholder,) = sealed.values
    for again in (first, sealer(know())):
        assert again.seal(f"with {PASSWORD.lower()}-8 on friday", "tools").text == f"with {placeholder} on friday"
        assert again.seal(f"with {PASSWORD.lower()}-8 on friday", "tools").secrets == sealed.secrets
    other = SpaceKeys.generate()
    assert not sealer(know(other), other).seal(f"with {PASSWORD.lower()}-8 on friday", "tools").values


def test_the_disk_tells_nothing_without_the_keys(know: Know, tmp_path: Path) -> None:
    """No value, no length, nothing that a guess could be tried against without the space's key; and only its owner reads it."""
    long, short = "a1" + "Q7w" * 40, "Tr0ub4dor"
    know().remember([("password", long.encode()), ("token", short.encode())])
    (file,) = (tmp_path / "laptop").iterdir()
    lines = file.read_bytes().splitlines()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(lines) == 2
    assert all(len(line.split(b" ")[0] + line.split(b" ")[1]) == 38 for line in lines)
    other = SpaceKeys(KEYS.space, SpaceKeys.generate().epochs)
    assert not know(other).find(f"{long} {short}")
    assert len(know(KEYS.next_epoch()).find(f"{long} {short}")) == 2


def test_what_reads_like_a_word_or_a_number_is_not_looked_for(know: Know) -> None:
    """A password that is a word would black out every text that has the word; a note is no credential."""
    for plain in (
        "production",
        "Monday",
        "MONDAYS",
        "hunter2",
        "2026-11-23",
        "10.0.0.1:5432",
        "a b c d1 e f",
        "x" * 300,
    ):
        assert not is_recognizable(plain), plain
    for telling in ("hunter22", "production-db-7", "p@ss:w0rd/9", "Sommer2024!", "zqxjkvbpwmzqxjkv"):
        assert is_recognizable(telling), telling
    known = know()
    known.remember([("note", b"walrus-key-7"), ("url-password", b"production"), ("password", b"\xff\xfe12345678")])
    assert known.count == 0


def test_a_torn_or_foreign_file_costs_only_what_was_in_it(know: Know, tmp_path: Path) -> None:
    """A crash in the middle of a line, a line of something else, a folder that cannot be written."""
    know().remember([("password", PASSWORD.encode())])
    (file,) = (tmp_path / "laptop").iterdir()
    with file.open("ab") as out:
        out.write(b"zz 00 password\nnothing\n" + b"0" * 20)
    process = know()
    assert len(process.find(PASSWORD)) == 1
    process.remember([("password", b"another-7-one")])
    assert len(know().find(f"{PASSWORD} another-7-one")) == 2
    (tmp_path / "desk").write_text("a file where the folder should be")
    full = know(machine="desk")
    full.remember([("password", PASSWORD.encode())])
    assert len(full.find(PASSWORD)) == 1


def test_two_processes_learn_from_each_other(know: Know) -> None:
    """What one has sealed a moment ago the other does not let out."""
    one, other = know(), know()
    assert not other.find(PASSWORD)
    one.remember([("password", PASSWORD.encode())])
    assert [found.kind for found in other.find(PASSWORD)] == ["password"]


def test_without_the_right_to_seal_it_is_not_let_out_either(know: Know) -> None:
    """A daemon that shows a roster that is not to be believed takes the keys away; what is known stays known: files wait, tools refuse."""
    know().remember([("password", PASSWORD.encode())])
    locked = sealer(know(), None)
    assert locked.seal(f"with {PASSWORD}", "files").text.startswith("with (redacted:password:")
    with pytest.raises(UnsealableError):
        locked.seal(f"with {PASSWORD}", "tools")


def test_the_policy_counts_for_them_too(know: Know) -> None:
    known = know()
    known.remember([("password", PASSWORD.encode())])
    assert sealer(known, tools="allow").seal(f"with {PASSWORD}", "tools").text == f"with {PASSWORD}"
    allowed = sealer(known, allow=(PRINTS.of("password", PASSWORD),))
    assert allowed.seal(f"with {PASSWORD}", "tools").text == f"with {PASSWORD}"


def test_a_rule_keeps_its_word_and_nothing_of_a_known_value_stays(know: Know) -> None:
    """A text that a rule seals seals as it did before the value was known; where a rule sees only a part, the whole goes."""
    rule = SecretFinding("api-key", 4, 20, 0.8, "assignment")
    assert merge_findings([rule], [SecretFinding("password", 4, 20, 0.95, "known")]) == [rule]
    assert merge_findings([rule], [SecretFinding("password", 6, 12, 0.95, "known")]) == [rule]
    whole = merge_findings(
        [rule], [SecretFinding("password", 10, 30, 0.95, "known"), SecretFinding("token", 40, 50, 0.95, "known")]
    )
    assert [(found.kind, found.start, found.end) for found in whole] == [("password", 4, 30), ("token", 40, 50)]
    two = merge_findings(
        [rule, SecretFinding("token", 22, 30, 0.8, "token")], [SecretFinding("password", 18, 24, 0.95, "known")]
    )
    assert [(found.start, found.end) for found in two] == [(4, 30)]


def test_the_kind_does_not_depend_on_who_came_first(know: Know) -> None:
    """Two machines that know one value by two names agree on one as soon as both know both."""
    kinds = [("token", PASSWORD.encode()), ("api-key", PASSWORD.encode())]
    one, other = know(), know(machine="desk")
    one.remember(kinds)
    other.remember(reversed(kinds))
    assert one.find(PASSWORD) == other.find(PASSWORD)


def test_a_look_in_the_event_loop_is_short(know: Know) -> None:
    """What would take long to look through is said to need a closer look; what is not read yet, too."""
    know().remember([("password", PASSWORD.encode())])
    known = know()
    assert known.are_in({"content": "nothing"}, 100)
    known.find("nothing of it")
    assert not known.are_in({"content": "nothing", "tags": ["of it"]}, 100)
    assert known.are_in({"content": "nothing", "tags": [f"of {PASSWORD}"]}, 100)
    assert known.are_in({"content": "n" * 200}, 100)
    assert not know(None).are_in({"content": PASSWORD}, 100)


def test_the_title_that_stands_before_the_text_is_sealed_too(know: Know) -> None:
    """The arguments of one call, in whatever order: the value is known when its first place is sealed for good."""
    plain = f"{PASSWORD.lower()}-8"
    sealed, secrets = sealed_calls.seal(
        {"title": f"{plain} again", "content": f"The password is {plain}"}, sealer(know())
    )
    assert plain not in str(sealed)
    assert len(secrets) == 1


def test_a_hostile_text_costs_no_more_than_its_length(know: Know) -> None:
    """Signs and letters in turn, runs that decode to nothing, words over many line ends: each a megabyte's tenth, all done at once."""
    known = know()
    chance = random.Random(3)
    known.remember(("password", value(chance).encode()) for _ in range(500))
    for part in ("a!", "!", "aB3-" * 30 + " ", "%41%", "\\u0041", "ab\n", "QUJD" * 20 + "/"):
        assert not known.find(part * (20_000 // len(part)))
