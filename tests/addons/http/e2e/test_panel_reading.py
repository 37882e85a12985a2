"""What a person reads in the panel: lists to their end, links, pictures, neighbours, conflicts, secrets, and empty pages."""

from __future__ import annotations

import re
import struct
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.programs.gateway import Answer, Gateway, serving
from tests.support.programs.panel import Visit, text_of, words_of
from tests.support.programs.processes import Inside, wait_until

from confide_memory.documents import marked_clash
from confide_panel.document_links import MOST_PICTURES

SECRET = "ghp_R4tZq8LmVx2Kc7WnYb5Jd9Hs3Fg6PaQe1TuX"
PAGES = 120
FOLDERS = ("birds", "fish", "trees/old")


def picture() -> bytes:
    """A PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0\0\0")) + chunk(b"IEND", b"")


ROOF = """# The roof

See [[wall|the wall]], [[Nowhere]] and [the cellar](../cellar.md).

> [!warning] Slippery
> After rain.

![[plan.png]] ![stranger](https://evil.example/p.png) ![x](../../outside.png)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A memory with folders, links, a picture, a conflict and a secret."""
    machine = Inside(tmp_path_factory.mktemp("house"), "ann")
    for n in range(PAGES):
        machine.write(f"memory/{FOLDERS[n % 3]}/page-{n:03}.md", f"# Page {n}\n\nThe heron counts {n} of them.\n")
    machine.write("memory/house/roof.md", ROOF)
    machine.write("memory/house/wall.md", "# The wall\n\nIt carries the [[roof]].\n")
    machine.write("memory/ports.md", "".join(["# Ports\n\n", *marked_clash(["4000\n"], ["4001\n"], ("ann", "bob"))]))
    (machine.project / "memory/house/plan.png").write_bytes(picture())
    (machine.project / "memory/house/fake.png").write_text("<script>alert(1)</script>")
    (machine.project / ".hidden").mkdir()
    (machine.project / ".hidden/plan.png").write_bytes(picture())
    (machine.project.parent / "outside.png").write_bytes(picture())
    (machine.project / "memory/house/leads.png").symlink_to(machine.project.parent / "outside.png")
    try:
        with serving(machine) as found:
            wait_until("all files", lambda: machine.json("ls")["total"] == PAGES + 3)
            yield found
    finally:
        machine.stop_local_daemon()


@pytest.fixture
def reader(house: Gateway) -> Visit:
    return Visit.begin(house)


def paths_in(answer: Answer) -> list[str]:
    """The paths that a list shows, in order."""
    return re.findall(r'<p class="line path quiet small">([^\s<]+)', text_of(answer))


def linked(visit: Visit, answer: Answer, text: str) -> str:
    """The address of a link by its text, below the visit's place."""
    (found,) = re.findall(rf'<a [^>]*href="{visit.base}/([^"]*)"[^>]*>(?:<span[^<]*</span> )?{text}', text_of(answer))
    return str(found).replace("&amp;", "&")


def test_a_list_goes_on_to_its_end(house: Gateway, reader: Visit) -> None:
    """Page by page, in each order; each document has a line of its text."""
    total = house.machine.json("ls")["total"]
    for sort in ("", "path", "size"):
        page = reader.get(f"project?sort={sort}")
        seen = paths_in(page)
        while 'rel="next"' in text_of(page):
            page = reader.get(linked(reader, page, "Next"))
            seen += paths_in(page)
        assert len(seen) == len(set(seen)) == total
        assert "Next" not in words_of(page)
        if sort == "path":
            assert seen == sorted(seen)
    assert "The heron counts 7 of them." in words_of(reader.get("project?sort=path&folder=memory/fish"))
    beyond = words_of(reader.get("project?offset=500"))
    assert "The list ends before this page." in beyond


def test_a_list_has_folders_and_a_way_back(reader: Visit) -> None:
    page = reader.get("project")
    for name, count in (("birds", 40), ("fish", 40), ("trees", 40), ("house", 2)):
        assert re.search(rf"{name}\s*{count}\s*documents", words_of(page))
    trees = reader.get(linked(reader, page, "trees"))
    old = reader.get(linked(reader, trees, "old"))
    assert set(paths_in(old)) <= {f"memory/trees/old/page-{n:03}.md" for n in range(PAGES)}
    assert "All documents / memory / trees / old" in words_of(old)
    assert reader.get(linked(reader, old, "memory")).status == 200
    for wrong in ("folder=../x", "folder=" + "x" * 600, "sort=colour", "offset=-1", "offset=" + "9" * 400, "offset=x"):
        assert reader.get(f"project?{wrong}").status in (200, 400)


def test_a_document_leads_to_its_neighbours(reader: Visit) -> None:
    """Those before and after it in its folder, by name; at either end there is one."""
    first = reader.get("file?path=memory/fish/page-001.md")
    assert 'rel="prev"' not in text_of(first)
    second = reader.get(linked(reader, first, "Page 4"))
    assert "The heron counts 4" in words_of(second)
    assert "page-001" in linked(reader, second, "Page 1")
    last = reader.get("file?path=memory/fish/page-118.md")
    assert 'rel="next"' not in text_of(last)


def test_links_and_pictures_of_a_text_work_and_ask_nobody_else(house: Gateway, reader: Visit) -> None:
    page = reader.get("file?path=memory/house/roof.md")
    text = text_of(page)
    assert "It carries the" in words_of(reader.get(linked(reader, page, "the wall")))
    assert "path=memory%2Fcellar.md" in linked(reader, page, "the cellar")
    assert '<span class="missing">Nowhere</span>' in text
    assert 'class="callout warn"' in text
    pictures = re.findall(r'<img src="([^"]+)"', text.partition("<main")[2])
    assert [each.partition("?")[0] for each in pictures] == [f"{reader.base}/picture"]
    assert "picture: x" in words_of(page)
    shown = house.request("GET", pictures[0].replace("&amp;", "&"), headers={"Cookie": reader.cookie})
    assert (shown.status, shown.headers["content-type"]) == (200, "image/png")
    assert shown.headers["cross-origin-resource-policy"] == "same-origin"
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    assert "Linked from" in words_of(reader.get("file?path=memory/house/wall.md"))


def test_a_document_shows_so_many_pictures(house: Gateway, reader: Visit) -> None:
    """Each costs looks at the disk. Those beyond are named."""
    house.machine.run("store", "![[house/plan.png]]\n" * (MOST_PICTURES + 5), "--path", "memory/gallery.md")
    shown = text_of(reader.get("file?path=memory/gallery.md")).partition("<main")[2]
    assert shown.count("<img ") == MOST_PICTURES
    assert shown.count("picture: house/plan.png") == 5


@pytest.mark.parametrize(
    "path",
    [
        "../outside.png",
        "memory/../../outside.png",
        "/etc/hostname",
        "memory/house/leads.png",
        "memory/house/fake.png",
        ".hidden/plan.png",
        "memory/house/roof.md",
        "memory/house/plan.png\0",
        "",
    ],
)
def test_a_picture_is_a_picture_of_the_project(reader: Visit, path: str) -> None:
    assert reader.get(f"picture?{urllib.parse.urlencode({'path': path})}").status == 404


def test_a_picture_of_another_project_is_not_read(house: Gateway, reader: Visit) -> None:
    assert reader.get("picture?project=other&path=memory/house/plan.png").status == 404
    stranger = house.request("GET", f"{reader.base}/picture?path=memory/house/plan.png")
    assert stranger.status == 401


def test_the_graph_reads_wiki_links(reader: Visit) -> None:
    """Of a project, and of one file."""
    for page in ("graph", "graph?path=memory/house/roof.md"):
        shown = reader.get(page)
        assert "roof links to wall" in words_of(shown)
        assert "wall links to roof" in words_of(shown)
        assert '<a href="' in text_of(shown).partition("<svg")[2].partition("</svg>")[0]


def test_the_words_of_a_query_are_marked(reader: Visit) -> None:
    found = text_of(reader.follow(reader.post("find", q="which wall carries what")))
    assert "<mark>wall</mark>" in found
    assert "<mark>carries</mark>" in found


def test_conflicts_have_a_page(reader: Visit) -> None:
    """With both versions, and a way to the form."""
    page = reader.get("conflicts")
    assert "memory/ports.md" in words_of(page)
    assert re.search(r"confide: ann.* 4000 .*confide: bob.* 4001 ", words_of(page))
    assert reader.get(linked(reader, page, "Edit")).status == 200
    health = words_of(reader.get("health"))
    assert "Secrets" in health


def test_secrets_have_a_page_without_a_value(house: Gateway, reader: Visit) -> None:
    """Their kinds and places; no link of it opens one."""
    assert "confide secrets scan --stored" in words_of(reader.get("secrets"))
    house.machine.run("store", f"One.\n\nThe token of the lock is {SECRET}.", "--path", "memory/lock.md")
    page = reader.get("secrets")
    assert "github-token memory/lock.md:3" in words_of(page)
    assert SECRET not in text_of(page)
    assert "/secret?" not in text_of(page)
    assert "The token of the lock" in words_of(reader.get(linked(reader, page, "memory/lock.md:3")))


def test_an_invite_can_be_copied_and_photographed(reader: Visit) -> None:
    """The button is for scripts, and hidden without one; the text can be selected by a click, and a camera reads the drawing."""
    text = text_of(reader.post("devices/invite", name="phone", ttl="an hour", scope="write", url=""))
    (invite,) = re.findall(r'<code class="whole" id="invite-text">([^<]+)</code>', text)
    assert invite.startswith("confide://")
    assert re.search(r'<button type="button"[^>]* data-copies="invite-text" hidden>', text)
    assert '<svg class="qr"' in text


def test_outdated_notes_are_listed_and_confirmed(house: Gateway, reader: Visit) -> None:
    """With what has changed; the note's own page says so too, and a search."""
    machine = house.machine
    assert "No note of this project names a file of it." in words_of(reader.get("stale"))
    source = machine.project / "heron.py"
    source.write_text("def count(n):\n    return n\n")
    stored = machine.json("store", "`count()` in heron.py counts the herons of the roof", "--title", "Herons")
    assert "Nothing has changed: 1 note checked." in words_of(reader.get("stale"))
    source.write_text("def count(n):\n    return n + 1\n")
    page = reader.get("stale")
    assert "heron.py#count" in words_of(page)
    for text in ("Edit", "Delete"):
        assert reader.get(linked(reader, page, text)).status == 200
    assert "may no longer be true" in words_of(reader.get(f"note/{stored['id']}"))
    assert "heron.py#count" in words_of(reader.follow(reader.post("find", q="count the herons of the roof")))
    assert "is confirmed" in words_of(reader.follow(reader.post("stale", path=stored["path"])))
    assert "Nothing has changed" in words_of(reader.get("stale"))


def test_tasks_warn_where_no_runner_has_ever_been(house: Gateway, reader: Visit) -> None:
    assert "confide task add" in words_of(reader.get("tasks"))
    house.machine.run("task", "add", "Count the herons.")
    shown = words_of(reader.get("tasks"))
    assert shown.count("Warning: no runner") == shown.count("no runner") == 1
    assert "needs a runner" in shown


def test_empty_pages_name_a_command(tmp_path: Path) -> None:
    machine = Inside(tmp_path, "ann")
    try:
        with serving(machine) as gateway:
            wait_until("the daemon", lambda: machine.json("status"))
            visit = Visit.begin(gateway)
            for page, command in {
                "": "confide setup",
                "projects": "confide store",
                "timeline": "confide store",
                "tasks": "confide task add",
                "devices": "confide http token new",
                "deleted": "confide rm",
                "conflicts": "confide status",
                "stale": "confide stale",
                "secrets": "confide secrets scan --stored",
                "entities": "confide store",
                "graph": "memory_link",
            }.items():
                assert command in words_of(visit.get(page)), page
    finally:
        machine.stop_local_daemon()
