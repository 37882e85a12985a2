"""A text as it leaves the machine, and how a file gets its values back: over the labelled corpus, and by hand where it is delicate."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from itertools import product

import pytest
from tests.support.growth import NEARLY_LINEAR, growth
from tests.support.sealing.secret_corpus import positives

from confide_crypto.sealing import placeholder as placeholders
from confide_crypto.sealing import placeholder as standins
from confide_crypto.sealing.space_keys import SpaceKeys
from confide_daemon.errors import ToolError
from confide_daemon.tools.note_fields import sealed_only
from confide_proxy.config import Policy
from confide_proxy.errors import BlockedError, UnsealableError
from confide_proxy.sealing.sealer import Fingerprints, Sealed, Sealer, Secret

KEYS = SpaceKeys.generate()
PRINTS = Fingerprints(b"k" * 32)
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
NOTE = "---\ntitle: Where the spare key is\nsensitive: true\n---\n\nUnder the third stone.\n\nSecond paragraph.\n"


def sealer(keys: SpaceKeys | None = KEYS, **policy: object) -> Sealer:
    return Sealer(Policy(**policy), lambda: keys, lambda: PRINTS)  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [KEYS, None], ids=["sealed", "redacted"])
def test_a_text_comes_back_whole_and_is_left_alone_where_it_is_sealed(keys: SpaceKeys | None) -> None:
    one_by_one = [sample.text for sample in positives(5, 8)]
    together = ["\n".join(one_by_one[at : at + 9]) for at in range(0, len(one_by_one), 9)]
    by_hand = sealer(keys)
    found = 0
    for text in one_by_one + together:
        sealed = by_hand.seal(text, "files")
        found += bool(sealed.values)
        assert all(value not in sealed.text for value in sealed.values.values() if len(value) >= 8)
        assert by_hand.seal(sealed.text, "files").text == sealed.text
        assert by_hand.restore(sealed.text, sealed.values, "files") == text
    assert found > 0.9 * len(one_by_one + together)


def test_a_placeholder_names_the_secret_that_goes_with_it() -> None:
    sealed = sealer().seal(f"export GITHUB_TOKEN={TOKEN}\nagain {TOKEN}\n", "tools")
    ids = {placeholder.secret_id for _, _, placeholder in placeholders.find(sealed.text)}
    assert sealed.secrets == (Secret("github-token", TOKEN.encode()),)
    assert ids == {KEYS.secret_id("github-token", TOKEN.encode())}
    assert sealed.text.count("(sealed:github-token:") == 2
    assert TOKEN not in repr(sealed)
    assert TOKEN not in repr(sealed.secrets)


def test_the_policy_decides_by_source() -> None:
    text = f"token {TOKEN}"
    mixed = sealer(tools="block", files="allow", transcripts="redact")
    with pytest.raises(BlockedError, match=r"line 1 .*github-token"):
        mixed.seal(text, "tools")
    assert mixed.seal(text, "files").text == text
    redacted = mixed.seal(text, "transcripts")
    assert not redacted.secrets
    assert redacted.text.startswith("token (redacted:github-token:")
    assert mixed.seal(text, "imports").secrets


def test_what_is_allowed_by_fingerprint_goes_as_it_is() -> None:
    allowed = sealer(allow=(PRINTS.of("github-token", TOKEN),))
    assert allowed.seal(f"token {TOKEN}", "files").text == f"token {TOKEN}"


@pytest.mark.parametrize("source", ["tools", "imports"])
def test_what_is_said_once_is_refused_rather_than_lost_without_keys(source: str) -> None:
    with pytest.raises(UnsealableError, match="github-token"):
        sealer(None).seal(f"token {TOKEN}", source)
    assert sealer(None).seal("nothing to hide", source).text == "nothing to hide"


def test_a_sensitive_note_keeps_its_front_matter_alone() -> None:
    sealed = sealer().seal(NOTE, "files")
    head, _, body = sealed.text.partition("---\n\n")
    assert head == NOTE.partition("---\n\n")[0]
    assert body.startswith("(sealed:note:")
    assert sealed.secrets == (Secret("note", b"Under the third stone.\n\nSecond paragraph."),)
    assert sealer().restore(sealed.text, sealed.values, "files") == NOTE
    assert sealer().seal(sealed.text, "files").text == sealed.text


@pytest.mark.parametrize(
    ("head", "is_sealed"),
    [
        ("sensitive: true", True),
        ("sensitive: True", True),
        ('"sensitive": true', True),
        ("{title: x, sensitive: true}", True),
        ("sensitive: true\nbroken: [", True),
        ("sensitive: true\nsensitive: false", True),
        ("sensitive: yes", True),
        ("Sensitive: 'true'", True),
        ("sensitive: !x true\nb: *unknown", True),
        ("metadata:\n  sensitive: true", False),
        ("sensitive: false", False),
        ("title: the sensitive: true question", False),
        ("tags: [sensitive]", False),
    ],
)
def test_what_the_front_matter_says_counts(head: str, is_sealed: bool) -> None:
    text = f"---\n{head}\n---\nbody of it\n"
    assert ("body of it" not in sealer().seal(text, "files").text) is is_sealed


@pytest.mark.parametrize(
    ("opening", "ends"),
    [("\ufeff---", "\n"), ("---\u00a0", "\n"), ("---", "\r\n"), (f"---\nlong: {'x' * 70_000}", "\n")],
)
def test_front_matter_is_found_however_an_editor_writes_it(opening: str, ends: str) -> None:
    """Notepad puts a byte order mark before a text: a note that says sensitive went out in clear with one."""
    note = f"{opening}\nsensitive: true\n---\nUnder the third stone.\n".replace("\n", ends)
    sealed = sealer().seal(note, "files")
    assert "stone" not in sealed.text
    assert sealer().restore(sealed.text, sealed.values, "files") == note


@pytest.mark.parametrize(
    "head",
    [
        *(
            "sensitive: true",
            "sensitive: yes",
            "sensitive: on",
            "sensitive: 'true'",
            '"sensitive": "Yes"',
            "Sensitive: TRUE",
        ),
        *(
            "title: a: b\nsensitive: true",
            "title: a: b\n'sensitive': true",
            "tags: [a\nsensitive: true",
            "sensitive: true,",
        ),
        *(
            "sensitive: false\nsensitive: true",
            "sensitive: !x true\nb: *z",
            "? sensitive\n: true",
            "sensitive:\n  true",
        ),
        *(
            "title: a: b\nsensitive: # so\n  true",
            "title: x\n  sensitive: true",
            "sensitive: true\n...",
            "sensitive: true\n----",
        ),
        *(
            "k: v\n" * 300 + "sensitive: true",
            f"k: {'v' * 70_000}\nsensitive: true",
            "sensitive: |\n  true",
            "---x\nsensitive: on",
        ),
        *(
            "x:\n  sensitive: true",
            "sensitive: false",
            "title: sensitive",
            "- sensitive",
            "sensitive: truer",
            "x: 'sensitive: true'",
        ),
    ],
)
def test_machine_and_daemon_agree_on_what_is_sensitive(head: str) -> None:
    """The daemon tells other machines, and refuses what comes in clear: what one sealed by itself, an agent added to in clear."""
    for mark, fence, ends in product(("", "\ufeff"), ("---", "---\u00a0"), ("\n", "\r\n")):
        note = f"{mark}{fence}\n{head}\n---\nstone\n".replace("\n", ends)
        is_sealed = "stone" not in sealer().seal(note, "files").text
        try:
            sealed_only(lambda text: text, "stone")(note)
        except ToolError:
            assert is_sealed
        else:
            assert not is_sealed


def test_a_hostile_front_matter_costs_no_time() -> None:
    """Sixty thousand blank lines, which another machine may send into a file, took half a minute at each look at it."""
    sealer = Sealer(Policy(), lambda: SpaceKeys.generate(), lambda: Fingerprints(bytes(32)))
    cost = growth(lambda lines: sealer.seal("---\nsensitive: [\n" + "\n" * lines + "---\nx\n", "files"), 60_000)
    assert cost < NEARLY_LINEAR


def test_a_text_of_blanks_takes_a_daemon_no_memory() -> None:
    tracemalloc.start()
    try:
        assert standins.only(" " * 1_000_000)
        assert not standins.only(" " * 1_000_000 + "x")
        assert standins.only(f" (sealed:note:{'0' * 32})\n\t(redacted:token:{'0' * 24}) ")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_a_file_of_many_credentials_gets_them_back_in_time() -> None:
    """Ten thousand of them took seconds, and thirty thousand half a minute: each was looked for in all of the text."""

    def sealed(count: int) -> tuple[str, Sealed]:
        text = "".join(f"password: {sha256(str(number).encode()).hexdigest()[:14]}\n" for number in range(count))
        return text, sealer().seal(text, "files")

    made = {count: sealed(count) for count in (4_000, 500)}

    def restore(count: int) -> None:
        text, sealed = made[count]
        assert sealer().restore(f"{sealed.text}more\n", sealed.values, "files") == f"{text}more\n"

    assert growth(restore, 4_000) < NEARLY_LINEAR


def test_an_agent_may_say_that_a_text_is_sensitive() -> None:
    sealed = sealer().seal("all of this", "tools", is_sensitive=True)
    assert sealed.text.startswith("(sealed:note:")
    assert sealer().seal(NOTE, "tools", is_sensitive=False).text == NOTE


def test_a_sensitive_note_that_another_machine_added_to_comes_back_with_both() -> None:
    sealed = sealer().seal(NOTE, "files")
    added = sealed.text + "- a line of another machine\n"
    assert sealer().restore(added, sealed.values, "files") == NOTE + "- a line of another machine\n"


def test_a_value_that_no_rule_would_find_in_its_new_place_stays_sealed() -> None:
    sealed = sealer().seal("db password: Xk29-vvQz1\n", "files")
    (standin,) = sealed.values
    moved = f"see {standin} for it\n"
    assert sealer().restore(moved, sealed.values, "files") == moved
    both = f"db password: {standin}\nexport GITHUB_TOKEN=x\n"
    assert sealer().restore(both, sealed.values, "files") == "db password: Xk29-vvQz1\nexport GITHUB_TOKEN=x\n"


def test_values_are_not_looked_into_for_stand_ins() -> None:
    inner = sealer().seal(f"token {TOKEN}", "files")
    note = f"---\nsensitive: true\n---\n{inner.text}\n"
    outer = sealer().seal(note, "files")
    assert TOKEN not in sealer().restore(outer.text, {**outer.values, **inner.values}, "files")


@pytest.mark.long
def test_a_text_made_of_stand_ins_costs_no_more_than_its_length() -> None:
    text = f"password={sealer().seal(f'token {TOKEN}', 'files').text[6:]}\n" * 4_000
    assert sealer().seal(text, "files").text == text


@pytest.mark.parametrize("keys", [KEYS, None], ids=["sealed", "redacted"])
def test_a_note_that_is_not_sensitive_any_more_elsewhere_is_not_put_back_in_parts(keys: SpaceKeys | None) -> None:
    """A daemon may say so to have it in clear: a token in it would still be sealed, and the rest would go up with the next edit."""
    note = f"---\nsensitive: true\n---\n\nUnder the third stone, with {TOKEN} in it.\n"
    sealed = sealer(keys).seal(note, "files")
    asked = sealed.text.replace("sensitive: true", "sensitive: false")
    assert sealer(keys).restore(asked, sealed.values, "files") == asked
