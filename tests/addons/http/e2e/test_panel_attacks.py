"""Whoever would get into the panel, or have it do something: pages of others, programs of this machine, and texts that were stored."""

from __future__ import annotations

import re
import socket
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway
from tests.support.programs.panel import FORM, Visit, link, text_of, words_of

MARKUP = "\"><script>alert(1)</script></text><svg onload=alert(2)>'{{7*7}}"


def raw(gateway: Gateway, head: str, body: bytes = b"") -> bytes:
    """What a connection gets for these bytes, until the other end closes it."""
    with socket.create_connection(("127.0.0.1", gateway.port), DEADLINE_S) as wire:
        wire.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        found = b""
        while part := wire.recv(65536):
            found += part
        return found


def test_of_many_that_use_a_link_at_once_one_is_let_in(gateway: Gateway) -> None:
    path = urllib.parse.urlsplit(link(gateway)).path
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: gateway.request("GET", path), range(16)))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 15
    assert sum("set-cookie" in answer.headers for answer in answers) == 1


def test_what_a_browser_fetches_ahead_uses_no_link_up(gateway: Gateway) -> None:
    """Of an address that somebody pastes, before it is opened."""
    path = urllib.parse.urlsplit(link(gateway)).path
    for headers in ({"Sec-Purpose": "prefetch"}, {"Sec-Purpose": "prefetch;prerender"}, {"Purpose": "prefetch"}):
        ahead = gateway.request("GET", path, headers=headers)
        assert ahead.status == 503
        assert "set-cookie" not in ahead.headers
    assert "set-cookie" in gateway.request("GET", path).headers


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "PROPFIND"])
def test_other_methods_do_nothing(gateway: Gateway, visit: Visit, method: str) -> None:
    """Nor does a header or a field that names another one."""
    for page in ("", "note/x", "delete", "leave"):
        answer = gateway.request(method, f"{visit.base}/{page}", headers={"Cookie": visit.cookie})
        assert answer.status in (400, 404, 405), (page, answer.status)
        assert "access-control-allow-origin" not in answer.headers
        assert visit.cookie not in answer.body.decode("latin-1")
    assert visit.get("").status == 200


def test_a_method_that_is_named_elsewhere_is_not_believed(gateway: Gateway, visit: Visit) -> None:
    for headers in ({"X-HTTP-Method-Override": "POST"}, {"X-Method-Override": "POST"}):
        answer = gateway.request("GET", f"{visit.base}/leave?_method=POST", headers={"Cookie": visit.cookie, **headers})
        assert answer.status in (404, 405)
    assert visit.get("").status == 200


def test_a_head_tells_no_more_than_a_page(gateway: Gateway, visit: Visit) -> None:
    for page in ("", "devices", "nothing"):
        assert gateway.request("HEAD", f"{visit.base}/{page}").status == 401
    assert gateway.request("HEAD", f"{visit.base}/", headers={"Cookie": visit.cookie}).body == b""


def test_of_two_cookies_the_right_one_alone_counts(gateway: Gateway, visit: Visit) -> None:
    """Another port of this machine may set one of that name; it lets nobody in."""
    other = Visit.begin(gateway)
    for cookies in ("confide-panel=x", f"confide-panel=x; {other.cookie}", f"{other.cookie}; confide-panel="):
        assert gateway.request("GET", f"{visit.base}/", headers={"Cookie": cookies}).status == 401


def test_headers_that_come_twice_hide_nothing(gateway: Gateway, visit: Visit) -> None:
    base = f"GET {visit.base}/ HTTP/1.1\nHost: 127.0.0.1:{gateway.port}\nCookie: {visit.cookie}\nConnection: close"
    assert raw(gateway, base).startswith(b"HTTP/1.1 200")
    for more, status in (
        ("Sec-Fetch-Site: same-origin\nSec-Fetch-Site: cross-site", b"403"),
        (
            "Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\nSec-Fetch-Dest: iframe",
            b"403",
        ),
        (f"Origin: {gateway.url}\nOrigin: https://evil.example", b"403"),
        ("Host: evil.example", b"4"),
        ("Content-Length: 0\nContent-Length: 5", b"400"),
        ("Content-Length: 5\nTransfer-Encoding: chunked", b""),
    ):
        found = raw(gateway, f"{base}\n{more}", b"0\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 " + status), (more, found[:60])
        assert found.count(b"HTTP/1.1 ") == 1, more  # nothing behind it was taken for a request
    assert raw(gateway, f"GET {visit.base}/ HTTP/1.0\nCookie: {visit.cookie}").startswith(b"HTTP/1.1 421")
    absolute = base.replace(f"GET {visit.base}", f"GET http://evil.example{visit.base}")
    assert not raw(gateway, absolute).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "path",
    [
        *("../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "panel.css/../panel.js", "panel.css%00.html"),
        *("static/panel.css", "templates/base.html", "room.py", "panel.css/", "/panel.css", "in/%00", "in/../in/x", "\\..\\x"),
    ],
)  # fmt: skip
def test_no_path_leads_to_another_file(gateway: Gateway, path: str) -> None:
    answer = gateway.request("GET", f"/panel/{path}")
    assert answer.status in (400, 401, 404), answer.status
    assert b"root:" not in answer.body
    assert b"{%" not in answer.body


def test_an_address_that_is_odd_is_a_page_that_is_not_there(gateway: Gateway, visit: Visit) -> None:
    """Ids that look like routes, other encodings, numbers without an end: an answer, and never a fault of ours."""
    for page in (
        *("note/..", "note/%2e%2e%2fdevices", "note/devices", "note/%00", "note/%ff", "note/" + "x" * 4000, "note/%0d%0aX:1"),
        *("file?path=..%2f..%2fetc%2fpasswd", "file?path=%ff%fe", "file?path=/etc/passwd", "file?project=%00&path=a.md", "file"),
        *("changes?path=MEMORY.md&to=" + "9" * 5000, "changes?path=MEMORY.md&to=-1", "day?day=9999-99-99", "day?day=0001-01-01"),
        *("graph?id=%3Cscript%3E", "graph?project=" + "p" * 300, "entity?name=", "entity?name=%F0%9F%A6%8A", "secret?id=x"),
        *("edit?path=..%2fx.md", "delete?id=mem_x", "?s=99", "?s=%00", "deleted?project=nothing", "project?folder=..%2f.."),
        "?" + "&".join(f"a{n}=1" for n in range(900)),
    ):  # fmt: skip
        answer = visit.get(page)
        assert answer.status < 500 or answer.status == 503, (page[:80], answer.status)
        assert "root:" not in text_of(answer)
        assert not {"x", "x:1"} & set(answer.headers)


def test_a_form_that_is_odd_is_refused(gateway: Gateway, visit: Visit) -> None:
    headers = {"Cookie": visit.cookie, "Content-Type": FORM, "Origin": gateway.url}

    def sent(page: str, body: bytes, **more: str) -> int:
        return gateway.request("POST", f"{visit.base}/{page}", body, headers=headers | more).status

    token = f"form={visit.token}&".encode()
    said = "\n".join(f"{name}: {value}" for name, value in headers.items())
    head = f"POST {visit.base}/remember HTTP/1.1\nHost: 127.0.0.1:{gateway.port}\n{said}\nContent-Length: {10 * 2**20}"
    assert raw(gateway, head).startswith(b"HTTP/1.1 413")  # before it has come
    assert sent("remember", token + b"text=%ED%A0%80") == 400
    assert sent("remember", token + b"&".join(b"f%d=1" % n for n in range(65))) == 400
    assert sent("remember", token, **{"Content-Type": "multipart/form-data; boundary=x"}) == 415
    assert sent("remember", b"form=" + visit.token.encode() + b"x&text=y") == 403
    # Of two tokens the last one counts, so one in front of another page's does not help.
    assert sent("remember", token + b"form=x&text=y") == 403
    for page in ("edit", "restore", "delete"):
        body = urllib.parse.urlencode(
            {"form": visit.token, "path": "memory/odd.md", "revision": "9" * 5000, "text": "x"}
        ).encode()
        assert sent(page, body) in (400, 404, 409), page
    for page in ("health/retry", "learned/accept", "tokens/remove", "devices/approve", "devices/remove"):
        assert 400 <= sent(page, token + b"id=..%2f..%2fx&name=..%2fx&words=%00") < 500 or page == "health/retry", page


def test_names_are_text_wherever_they_are_drawn(gateway: Gateway, visit: Visit) -> None:
    """In plots, graphs, tables, options and headings: of projects, entities, types, tags, tokens."""
    writer = gateway.token("draws", "--scope", "write", "--trusted")
    body = {"title": MARKUP, "type": MARKUP[:90], "tags": [MARKUP[:90]], "entity": MARKUP[:90], "project": MARKUP[:90]}
    ids = []
    for n in range(2):
        stored = gateway.request("POST", "/api/memories", {**body, "content": f"Drawn {n}. {MARKUP}"}, token=writer)
        assert stored.status == 201, stored.body
        ids.append(stored.json["id"])
    link_body = {"relatedId": ids[1], "relation": "supports"}
    assert gateway.request("POST", f"/api/memories/{ids[0]}/links", link_body, token=writer).status == 200
    named = urllib.parse.urlencode({"project": MARKUP[:90]})
    pages = (
        *("projects", f"project?{named}", f"graph?{named}", f"graph?id={ids[0]}", "entities", "timeline", f"note/{ids[0]}"),
        *(f"deleted?{named}", f"edit?id={ids[0]}", "", f"entity?{urllib.parse.urlencode({'name': MARKUP[:90]})}"),
    )  # fmt: skip
    for page in pages:
        answer = visit.get(page)
        assert answer.status == 200, (page, words_of(answer)[:200])
        found = text_of(answer)
        assert found.count("<script") == 1, page
        assert not re.search(r"<[a-z][^>]*\son\w+=", re.sub('"[^"]*"', "", found)), page
        assert "49" not in re.findall(r"\{\{.*?\}\}|'49", found), page
    assert "<script>alert(1)</script>" in words_of(visit.get(f"note/{ids[0]}"))


def test_what_is_told_of_a_form_steers_no_header(visit: Visit) -> None:
    """A title with line ends, and one that looks like another answer, is in the page and nowhere else."""
    stored = visit.post("remember", text="A line.", title="x\r\nSet-Cookie: confide-panel=y", tags="", type="")
    assert stored.status in (303, 400)
    assert "set-cookie" not in stored.headers
    if stored.status == 303:
        assert re.fullmatch(rf"{visit.base}/note/[\w%-]+", stored.headers["location"])
        assert "set-cookie" not in visit.follow(stored).headers


def test_nothing_of_a_visit_is_shown_behind_it(gateway: Gateway, visit: Visit) -> None:
    """Pages are kept by no cache, the cookie is gone, and what the visit has kept is another's no more."""
    found = visit.post("find", q="elixir")
    assert visit.follow(found).headers["cache-control"] == "no-store"
    left = visit.post("leave")
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert gateway.request("GET", found.headers["location"], headers={"Cookie": visit.cookie}).status == 401
    other = Visit.begin(gateway)
    assert "elixir" not in words_of(other.get(found.headers["location"].rpartition("/")[2]))
