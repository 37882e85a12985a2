"""The list of uses of secrets."""

from __future__ import annotations

from pathlib import Path

from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.sealing.use_log import MOST_USES, UseLog

TOKEN = Placeholder("npm-token", bytes(range(16)))
OTHER = Placeholder("password", bytes(range(1, 17)))


def test_the_list_of_uses_is_bounded_and_has_no_value(tmp_path: Path) -> None:
    uses = UseLog(tmp_path / "uses.jsonl")
    assert uses.read() == []
    for number in range(MOST_USES // 2 + 3):
        uses.note((TOKEN, OTHER), f"/usr/bin/c{number}", "terminal")
    read = uses.read()
    assert len(read) == MOST_USES
    assert read[0] | {"at": ""} == {
        "at": "",
        "secret": str(OTHER),
        "by": f"/usr/bin/c{MOST_USES // 2 + 2}",
        "approved": "terminal",
    }
    assert (tmp_path / "uses.jsonl").stat().st_size < 2**20
    (tmp_path / "uses.jsonl").write_bytes(b'{"at": "cut')
    uses.note((TOKEN,), "/usr/bin/after", "terminal")
    assert [one["by"] for one in uses.read()] == ["/usr/bin/after"]
    (tmp_path / "uses.jsonl").write_bytes(b'{"at": 1}\nno json\n\xff\n')
    assert uses.read() == []
