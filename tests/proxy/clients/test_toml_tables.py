"""Tables of a TOML file come and go; other lines, and every comment, stay."""

from __future__ import annotations

import pytest

from confide_proxy.clients import toml_tables
from confide_proxy.clients.toml_tables import TomlError

TOP = ("mcp_servers", "confide")
ENTRY = {TOP: {"command": "/opt/x", "args": ["mcp"]}}
OURS = '[mcp_servers.confide]\ncommand = "/opt/x"\nargs = ["mcp"]\n'


@pytest.mark.parametrize(
    "before",
    [
        "",
        'model = "x"\n',
        '# mine\nmodel = "x" # good\n\n[mcp_servers.other]\ncommand = "y"\n\n# the end\n',
        'a = """\n[mcp_servers.confide]\n"""\n',
        '[mcp_servers]\n[mcp_servers."a b"]\ncommand = "y"\r\n',
        '[[profiles]]\nname = "a"\n\n[[profiles]]\nname = "b"\n',
    ],
)
def test_a_table_is_added_at_the_end_and_taken_away_again(before: str) -> None:
    """A second time changes nothing."""
    after = toml_tables.put(before, ENTRY)
    assert after.startswith(before)
    assert toml_tables.read(after)["mcp_servers"]["confide"] == ENTRY[TOP]
    assert toml_tables.put(after, ENTRY) == after
    assert toml_tables.drop(after, TOP) == before


def test_a_table_that_is_there_keeps_what_else_it_says() -> None:
    """Its environment, its comments and its place; tables below it stand behind it, and what follows is left where it is."""
    before = (
        '[mcp_servers.confide]\n# by hand\ncommand = "/old/x" \nenv = { A = "b" }\n\n'
        '# of the other\n[mcp_servers.z]\ncommand = "z"\n'
    )
    after = toml_tables.put(before, {**ENTRY, (*TOP, "tools", "memory_store"): {"approval_mode": "approve"}})
    assert after == (
        '[mcp_servers.confide]\nargs = ["mcp"]\n# by hand\ncommand = "/opt/x"\nenv = { A = "b" }\n\n'
        '[mcp_servers.confide.tools.memory_store]\napproval_mode = "approve"\n\n'
        '# of the other\n[mcp_servers.z]\ncommand = "z"\n'
    )
    assert toml_tables.drop(after, TOP) == '\n# of the other\n[mcp_servers.z]\ncommand = "z"\n'
    assert toml_tables.drop(after, (*TOP, "tools")) == (
        '[mcp_servers.confide]\nargs = ["mcp"]\n# by hand\ncommand = "/opt/x"\nenv = { A = "b" }\n\n'
        '# of the other\n[mcp_servers.z]\ncommand = "z"\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { other = { command = "y" } }\n',
        'mcp_servers = { confide = { command = "y" } }\n',
        'mcp_servers.confide.command = "y"\n',
        "mcp_servers = 7\n",
    ],
)
def test_what_cannot_be_changed_safely_is_left_alone(text: str) -> None:
    """A table that is closed where it stands takes no more servers."""
    with pytest.raises(TomlError, match=r"cannot be changed safely|does not hold a table"):
        toml_tables.put(text, ENTRY)


def test_what_is_no_toml_is_refused() -> None:
    for text in ("[", "a = ", "\x00", "a = 1\na = 2\n", "a = " + "[" * 5000):
        with pytest.raises(TomlError, match="is not readable as TOML"):
            toml_tables.put(text, ENTRY)
