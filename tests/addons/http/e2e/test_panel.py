"""The panel without a browser: who is let in, what every answer says to a browser, and what a person does with its forms."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import stat
import subprocess
import urllib.parse
from pathlib import Path

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.forked import Program
from tests.support.programs.gateway import Gateway, serving
from tests.support.programs.pair import joined
from tests.support.programs.panel import FORM, Visit, link, text_of, words_of
from tests.support.programs.processes import CONFIDE, Inside, Machine, running_daemon, wait_until

from confide_http.door import serving as door
from confide_http.local.running_gateway import PORT
from confide_night.order.wire import CLAIM, ClaimRequest, Offered
from confide_proxy import config, paths
from confide_proxy.mcp.client import CommandClient
from confide_proxy.sync import project

PAGES = (
    *("", "remember", "projects", "project", "entities", "graph", "timeline", "day?day=2026-11-25", "learned", "tasks"),
    "usage",
    *("devices", "health", "deleted", "file?path=MEMORY.md", "edit?path=MEMORY.md"),
)
MOST_BYTES = 60_000
EVIL = (
    "# <script>alert(1)</script>\n\n<img src=x onerror=alert(1)> [here](javascript:alert(1)) [there](data:text/html,x)\n\n"
    "![p](https://evil.example/p.png) \u202egnp.exe\u202c and \u200b\u2066hidden\u2069 `<b>` \x1b[2J\n\n"
    '```\n</code><script src="//evil.example"></script>\n```\n\n| a<script> |\n|:-:|\n| "onclick=1 |\n'
)
SECRET = "ghp_R4tZq8LmVx2Kc7WnYb5Jd9Hs3Fg6PaQe1TuX"


def note(gateway: Gateway, content: str, title: str, **fields: str) -> str:
    """A new note's short id."""
    options = [part for name, value in fields.items() for part in (f"--{name}", value)]
    stored = gateway.machine.json("store", content, "--title", title, *options)
    return str(stored["shortId"])


def test_a_link_is_good_once(gateway: Gateway) -> None:
    """It gives a cookie that no script sees, for addresses that nobody else knows; its file is gone with it, and names nothing of it."""
    address = link(gateway)
    path = urllib.parse.urlsplit(address).path
    code = path.rpartition("/")[2]
    (kept,) = (gateway.machine.home / "proxy/gateway/links").iterdir()
    assert code.encode() not in kept.read_bytes()
    assert code not in kept.name
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    first = gateway.request("GET", path)
    place = re.search(r"url=(/panel/[\w-]{22})/", text_of(first))
    assert place
    cookie = first.headers["set-cookie"]
    assert f"Path={place[1]}" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert not kept.exists()
    second = gateway.request("GET", path)
    assert second.status == 401
    assert "set-cookie" not in second.headers
    assert "used already" in words_of(second)


def test_a_link_that_is_old_or_none_lets_nobody_in(gateway: Gateway) -> None:
    path = urllib.parse.urlsplit(link(gateway)).path
    (kept,) = (gateway.machine.home / "proxy/gateway/links").iterdir()
    os.utime(kept, (1, 1))
    for wrong in (path, "/panel/in/x", f"/panel/in/{'A' * 43}", "/panel/in/..%2f..%2ftokens.json"):
        answer = gateway.request("GET", wrong)
        assert answer.status in (401, 404)
        assert "set-cookie" not in answer.headers


def test_a_look_at_a_link_does_not_use_it(gateway: Gateway) -> None:
    path = urllib.parse.urlsplit(link(gateway)).path
    assert gateway.request("HEAD", path).status == 200
    assert "set-cookie" in gateway.request("GET", path).headers


def test_without_the_cookie_there_is_the_sign_in_page_alone(gateway: Gateway, visit: Visit) -> None:
    """For every page, with another visit's cookie, and with a token that may do all."""
    other = Visit.begin(gateway)
    token = gateway.token("all", "--scope", "write", "--scope", "secrets")
    told = set()
    for page in (*PAGES, "nothing", "note/mem_1", "secret?id=x"):
        for headers in (
            {},
            {"Cookie": other.cookie},
            {"Cookie": "confide-panel=x"},
            {"Authorization": f"Bearer {token}"},
        ):
            answer = gateway.request("GET", f"{visit.base}/{page}", headers=headers)
            assert answer.status == 401
            told.add(answer.body)
    assert len(told) == 1
    assert b"confide panel" in told.pop()
    for path in ("/", "/panel"):
        assert gateway.request("GET", path).status == 200
    assert gateway.request("GET", f"{visit.base}/news").status == 401


def test_every_page_says_to_the_browser_what_it_may(visit: Visit) -> None:
    """Nothing inline, nothing from elsewhere, nothing kept, no frame; and no page is large."""
    for page in PAGES:
        answer = visit.get(page)
        assert answer.status == 200, words_of(answer)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert len(answer.body) <= MOST_BYTES
        text = text_of(answer)
        assert not re.search(r"<[^>]+\s(on\w+|style)\s*=", text)
        assert not re.search(r"<script(?! src=\"/panel/panel.js\" defer></script>)", text)
        assert not re.search(r'(src|href|action)="(?!/panel|#|https://example\.org)', text)


def test_a_form_of_another_page_changes_nothing(gateway: Gateway, visit: Visit) -> None:
    """Without this visit's token, with another's, or as something that a form of a foreign page can send."""
    other = Visit.begin(gateway)
    for form in ("", "x", other.token, visit.token[:-1]):
        answer = visit.post("remember", text="A forged thylacine.", form=form)
        assert answer.status == 403
    body = urllib.parse.urlencode({"form": visit.token, "text": "A forged thylacine."}).encode()
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ):
        sent = {"Cookie": visit.cookie, "Content-Type": FORM, **headers}
        assert gateway.request("POST", f"{visit.base}/remember", body, headers=sent).status == status
    assert "thylacine" not in gateway.machine.run("search", "forged thylacine")


def test_a_link_may_be_followed_from_a_file_and_nothing_else(gateway: Gateway, visit: Visit) -> None:
    """`confide panel` opens its link by a file, which a browser counts as another site."""
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    path = urllib.parse.urlsplit(link(gateway)).path
    for site in ("cross-site", "same-site"):
        picture = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        assert gateway.request("GET", path, headers=picture).status == 403
    assert gateway.request("GET", f"{visit.base}/", headers={"Cookie": visit.cookie, **followed}).status == 403
    assert gateway.request("POST", path, b"", headers=followed).status == 403
    assert gateway.request("GET", path, headers=followed).status == 200


def test_a_hostile_note_does_nothing(gateway: Gateway, visit: Visit) -> None:
    """In its page, its file, its changes, its form and what a search finds: markup is text, and what hides is seen."""
    short = note(gateway, EVIL, "<script>alert(2)</script>", type="<b>evil</b>")
    path = next(each["path"] for each in gateway.machine.json("ls")["documents"] if "alert" in each["title"])
    named = urllib.parse.urlencode({"path": path})
    found = visit.follow(visit.post("find", q="alert hidden evil"))
    assert "2 hits" in words_of(found) or "1 hit" in words_of(found)
    for answer in (
        visit.get(f"note/{short}"),
        visit.get(f"file?{named}"),
        visit.get(f"changes?{named}&to=1"),
        visit.get(f"edit?id={short}"),
        visit.get("project"),
        found,
    ):
        assert answer.status == 200
        page = text_of(answer)
        assert page.count("<script") == 1  # ours
        assert not re.search(r"<(?:img(?! src=\"/panel/icon.svg\")|b>evil|a [^>]*href=\"(?:javascript|data))", page)
        assert not re.search(r"<[^>]+\son\w+\s*=", page)
        if "<textarea" not in page:
            assert not set("\u202e\u2066\u200b\x1b") & set(page)
    shown = words_of(visit.get(f"note/{short}"))
    assert "⟨U+202E⟩gnp.exe" in shown
    assert "<script>alert(1)</script>" in shown


def test_what_was_searched_for_is_in_no_address(visit: Visit) -> None:
    """A browser keeps addresses, and its maker gets them; the answer's has a number, and a reload shows the same."""
    answer = visit.post("find", q="where is the elixir")
    assert "elixir" not in answer.headers["location"]
    found = visit.follow(answer)
    assert "MEMORY.md:1" in words_of(found)
    assert "Why: score" in words_of(found)
    assert "elixir" not in re.findall(r"<title>(.*?)</title>", text_of(found))[0]
    again = visit.follow(answer)
    # How long it took, and that the hit has been shown since, may differ.
    of_its_time = re.compile(r"\d+ ms|usage \S+")
    assert of_its_time.sub("", words_of(again)) == of_its_time.sub("", words_of(found))


def test_what_would_be_put_before_an_agent(visit: Visit) -> None:
    asked = visit.follow(visit.post("find", prompt="Which language is the shop written in, is it Elixir?"))
    shown = words_of(asked)
    assert "<confide-memory>" in shown
    assert re.search(r"MEMORY\.md:1 0\.\d\d of 0\.40 yes", shown)
    missed = words_of(visit.follow(visit.post("find", prompt="Which wine goes well with a roasted duck tonight?")))
    assert re.search(r"No note would be added\. Best match: \S+, 0\.[0-3]\d \(needs 0\.40\)\.", missed)
    nothing = visit.follow(visit.post("find", prompt="thanks, go on"))
    assert "asks nothing that a memory could answer" in words_of(nothing)


def test_an_edit_is_saved_over_what_was_seen_and_nothing_else(gateway: Gateway, visit: Visit) -> None:
    """A newer revision is not lost: the form comes back with both texts. Then the change is on the disk, and can be taken back."""
    short = note(gateway, "Quolls sleep by day.", "Quolls")
    page = text_of(visit.get(f"edit?id={short}"))
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
    assert fields["revision"] == "1"
    gateway.machine.run("store", "x", "--title", "Other")
    said = {"title": "Quolls", "tags": "marsupial", "level": "high", "type": "", "category": "", "status": ""}
    saved = visit.post("edit", id=short, revision="1", text="Quolls sleep by day.\r\nAnd hunt by night.\r\n", **said)
    shown = words_of(visit.follow(saved))
    assert "Saved as revision 2" in shown
    assert "And hunt by night." in shown
    assert "marsupial" in shown
    late = visit.post("edit", id=short, revision="1", text="Quolls never sleep.", **said)
    assert late.status == 409
    assert "nothing was saved" in words_of(late)
    assert "<ins>Quolls never sleep.</ins>" in text_of(late)
    assert 'name="revision" value="2"' in text_of(late)
    path = next(each["path"] for each in gateway.machine.json("ls")["documents"] if each["title"] == "Quolls")
    assert "hunt by night" in (gateway.machine.project / path).read_text()
    changed = words_of(visit.get(f"changes?{urllib.parse.urlencode({'path': path, 'to': '2'})}"))
    assert "added And hunt by night." in changed
    restored = visit.follow(visit.post("restore", path=path, revision="1"))
    assert "Restored, as revision 3" in words_of(restored)
    wait_until("the file as it was", lambda: "hunt" not in (gateway.machine.project / path).read_text())


def test_a_file_is_edited_and_deleted_and_comes_back(gateway: Gateway, visit: Visit) -> None:
    gateway.machine.run("store", "The dam is old.", "--path", "memory/dam.md")
    file = gateway.machine.project / "memory/dam.md"
    page = text_of(visit.get("edit?path=memory/dam.md"))
    revision = re.findall(r'name="revision" value="(\d+)"', page)[0]
    saved = visit.post("edit", path="memory/dam.md", revision=revision, text="The dam is new.\n")
    assert "The dam is new." in words_of(visit.follow(saved))
    assert file.read_text() == "The dam is new.\n"
    assert visit.post("edit", path="memory/dam.md", revision=revision, text="Old again.").status == 409
    assert "Keep it" in words_of(visit.get("delete?path=memory/dam.md"))
    assert file.exists()
    gone = visit.follow(visit.post("delete", path="memory/dam.md"))
    assert "memory/dam.md" in words_of(gone)
    assert not file.exists()
    visit.post("restore", path="memory/dam.md")
    wait_until("the file", file.exists)


def test_what_is_sealed_is_shown_on_being_asked(gateway: Gateway, visit: Visit) -> None:
    """It is marked before it is sent; its page has a placeholder; the value is on a page of its own, that closes by itself."""
    text = f"The token of staging is {SECRET} and rotates."
    preview = visit.post("remember", text=text, title="Staging")
    assert preview.status == 200
    assert f"<mark>{SECRET}" in text_of(preview)
    assert "github-token" in words_of(preview)
    stored = visit.follow(visit.post("remember", text=text, title="Staging", sure="yes"))
    page = text_of(stored)
    assert SECRET not in page
    assert 'class="class owner"' in page  # a person said it
    address = re.findall(r'class="sealed" href="([^"]+)"', page)[0].replace("&amp;", "&")
    asked = gateway.request("GET", address, headers={"Cookie": visit.cookie})
    assert SECRET not in text_of(asked)
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text_of(asked)))
    shown = visit.post("secret", id=fields["id"], back=fields["back"])
    assert SECRET in words_of(shown)
    assert shown.headers["refresh"] == f"30; url={fields['back']}"
    assert SECRET not in re.findall(r"<title>(.*?)</title>", text_of(shown))[0]
    for back in ("https://evil.example/", "//evil.example", f"{visit.base}/;x", "/panel"):
        assert visit.post("secret", id=fields["id"], back=back).headers["refresh"] == f"30; url={visit.base}/"
    other = Visit.begin(gateway)
    assert visit.post("secret", id=fields["id"], form=other.token).status == 403


def test_what_was_learned_waits_for_a_yes(gateway: Gateway, visit: Visit) -> None:
    machine = gateway.machine
    folder = machine.home / "proxy/learn"
    folder.mkdir(mode=0o700, exist_ok=True)
    rest = {"quote": "we said so", "kind": "fact", "project": "project", "folder": str(machine.project), "session": "s"}
    rest |= {"client": "claude-code", "judge": "rules"}
    kept = [
        {"id": "3f9a2c1b", "text": "Wombats dig at night.", "at": 1_790_000_000, **rest},
        {"id": "77aa2c1b", "text": "Nothing of note.", "at": 1_790_000_000, **rest},
    ]
    (folder / "suggestions.json").write_text(json.dumps(kept))
    assert "we said so" in words_of(visit.get("learned"))
    told = visit.post("learned/accept", id="3f9a2c1b", project="project", text="Wombats dig by night.")
    assert "Remembered in memory/notes/" in words_of(visit.follow(told))
    visit.post("learned/refuse", id="77aa2c1b", project="project")
    states = {each["id"]: each["state"] for each in json.loads((folder / "suggestions.json").read_text())}
    assert states == {"3f9a2c1b": "stored", "77aa2c1b": "refused"}
    assert "wombats dig by night" in machine.run("search", "wombats").lower()
    assert visit.post("learned/accept", id="77aa2c1b", project="project", text="x").status >= 400


def test_tokens_and_invites_are_made_and_taken_away(gateway: Gateway, visit: Visit) -> None:
    made = visit.post("tokens/new", name="lens", days="3", read="yes", write="yes")
    token = re.findall(r"cfd_[\w-]{43}", text_of(made))[0]
    assert gateway.request("GET", "/health", token=token).status == 200
    assert token not in text_of(visit.get("devices"))
    visit.post("tokens/remove", name="lens")
    assert gateway.request("GET", "/health", token=token).status == 401
    invited = visit.post("devices/invite", name="phone", ttl="15 minutes", scope="write", url="")
    assert "confide join" in words_of(invited)
    assert re.search(r"invite1", text_of(invited))
    words = gateway.machine.json("device", "ls")["devices"][0]["words"]
    assert words in words_of(visit.get("devices"))
    refused = visit.post("devices/remove", words=words, typed="x")
    assert refused.status >= 400
    assert len(gateway.machine.json("device", "ls")["devices"]) == 1


def test_an_open_page_is_told_that_something_is_new(gateway: Gateway, visit: Visit) -> None:
    """By a stream of events that has nothing in it, and ends with the visit."""
    connection = gateway.connection()
    connection.request("GET", f"{visit.base}/news", headers={"Cookie": visit.cookie})
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    assert answer.readline() == b"retry: 5000\n"
    gateway.machine.run("store", "The heron came.", "--path", "memory/heron.md")
    lines = [answer.readline() for _ in range(4)]
    assert b"event: changed\n" in lines
    visit.post("leave")
    assert visit.get("").status == 401
    while answer.readline():
        pass
    connection.close()


def test_a_task_is_looked_at_whole_paused_and_ended(gateway: Gateway, visit: Visit) -> None:
    """What is done to it is done to the order that was shown, and to no other."""
    hostile = "Tidy the <b>aviary</b>.\n\nThen \u202eniaga."
    made = gateway.machine.json(
        "task", "add", hostile, "--repo", "https://git.example.org/aviary.git", "--max-usd", "2"
    )
    queued = words_of(visit.get("tasks"))
    assert "Tidy the <b>aviary</b>." in queued
    page = visit.get(f"task?id={made['id']}")
    shown = words_of(page)
    assert made["warnings"]
    for warning in made["warnings"]:
        assert warning in queued
        assert warning in shown
    assert "Then ⟨U+202E⟩niaga." in shown
    for said in ("https://git.example.org/aviary.git", "$2.00", "signed by", "30 min"):
        assert said in shown
    (seen,) = re.findall(r'name="seen" value="(\w{64})"', text_of(page))
    assert "Approve" not in shown  # this machine gave it
    for does, other in (("approve", seen), ("resume", seen), ("pause", "0" * 64), ("", seen)):
        assert visit.post("task", id=made["id"], seen=other, do=does).status == 409
    assert "It is paused now." in words_of(visit.follow(visit.post("task", id=made["id"], seen=seen, do="pause")))
    assert "Resume" in words_of(visit.get(f"task?id={made['id']}"))
    visit.post("task", id=made["id"], seen=seen, do="resume")
    gone = words_of(visit.follow(visit.post("task", id=made["id"], seen=seen, do="cancel")))
    assert "It is cancelled." in gone
    assert "Cancel it" not in gone
    assert visit.post("task", id=made["id"], seen=seen, do="resume").status == 409
    assert [one["status"] for one in gateway.machine.json("task", "ls")["tasks"] if one["id"] == made["id"]] == [
        "cancelled"
    ]
    for wrong in ("", "0" * 16, "../x", "x" * 40):
        assert 400 <= visit.get(f"task?id={wrong}").status < 500


def test_a_page_is_opened_by_path_or_id(gateway: Gateway) -> None:
    """The link does not say which: it lies in a terminal."""
    short = note(gateway, "Bilbies dig.", "Bilbies")
    for named, expected in (("MEMORY.md", "/file?project=project&path=MEMORY.md"), (short, f"/note/{short}")):
        address = link(gateway, "open", named)
        assert named.partition(".")[0] not in urllib.parse.urlsplit(address).path
        answer = gateway.request("GET", urllib.parse.urlsplit(address).path)
        assert expected.replace("&", "&amp;") in text_of(answer)


def test_nothing_of_a_visit_is_logged(gateway: Gateway, visit: Visit) -> None:
    visit.post("find", q="quetzal-canary")
    visit.post("remember", text="", title="quetzal-canary")
    log = gateway.machine.home / "proxy/gateway/serve.log"
    assert not log.exists()  # this one runs in a terminal
    for file in Path(gateway.machine.home / "proxy/gateway").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert b"quetzal" not in data
            assert visit.cookie.partition("=")[2].encode() not in data


def test_a_machine_is_let_in_by_its_words_and_removed_by_its_name(tmp_path: Path) -> None:
    """As the commands do it: words that differ, or another name, change nothing; then it opens what is sealed, and then no more."""
    with running_daemon(tmp_path) as daemon:
        ann, bob = joined(tmp_path, daemon, "ann", "bob")
        with serving(ann) as gateway:
            wait_until("the link", lambda: gateway.machine.json("device", "ls")["waiting"])
            visit = Visit.begin(gateway)
            words = bob.json("key", "show")["words"]
            page = visit.get("devices")
            assert "bob waits for approval" in words_of(page).replace(" .", ".")
            waits = words_of(page).partition("Waiting to be let in")[2].partition("Invite a machine")[0]
            assert words not in waits  # whoever only looks overlooks
            other = ann.json("key", "show")["words"]
            for wrong in (other, "", words.rpartition("-")[0]):
                assert visit.post("devices/approve", name=words, words=wrong).status >= 400
            assert bob.json("device", "ls")["canSeal"] is False
            told = words_of(visit.follow(visit.post("devices/approve", name=words, words=words.replace("-", " "))))
            assert "bob is a device now" in told
            head = ann.json("device", "ls")["space"]["headWords"]
            assert head in told
            bob.run("device", "confirm", "--words", head)
            assert bob.json("device", "ls")["canSeal"]
            assert_a_task_is_approved(ann, bob, visit)
            assert visit.post("devices/remove", words=words, typed="bobby").status >= 400
            gone = words_of(visit.follow(visit.post("devices/remove", words=words, typed="bob")))
            assert "bob is removed" in gone
            assert "confided device rm" not in gone
            assert "revoked" in bob.run("status", code=6)
            assert [each["name"] for each in ann.json("device", "ls")["devices"]] == ["ann"]


def assert_a_task_is_approved(ann: Machine, bob: Machine, visit: Visit) -> None:
    """An order of another device's that takes two: after a look at all of it, by who did not give it."""
    asyncio.run(tell_of_a_runner(ann))
    made = {name: machine.json("task", "add", f"Sweep, says {name}.") for name, machine in (("ann", ann), ("bob", bob))}
    own, other = (visit.get(f"task?id={made[name]['id']}") for name in ("ann", "bob"))
    assert "Approve all of it" not in words_of(own)
    assert "Approve all of it" in words_of(other)
    assert "Sweep, says bob." in words_of(other)
    (seen,) = re.findall(r'name="seen" value="(\w{64})"', text_of(own))
    assert visit.post("task", id=made["bob"]["id"], seen=seen, do="approve").status == 409
    assert visit.post("task", id=made["ann"]["id"], seen=seen, do="approve").status == 409
    (seen,) = re.findall(r'name="seen" value="(\w{64})"', text_of(other))
    told = words_of(visit.follow(visit.post("task", id=made["bob"]["id"], seen=seen, do="approve")))
    assert "Approved: it is active now." in told
    assert "one has brought the other in" in told
    assert "1 other device" in told
    assert bob.json("task", "show", made["bob"]["id"])["state"] == "active"


async def tell_of_a_runner(machine: Machine) -> None:
    """One whose usual recipe asks for a second device."""
    place = paths.ProxyPaths(
        machine.home / "proxy.toml", machine.home / "proxy", machine.home / "global", machine.home / "daemon"
    )
    recipes: list[Offered] = [{"name": "ask", "maxMicrousd": 0, "approval": True}]
    async with CommandClient(place, config.load(place.config), project.identify(machine.project).grant()) as client:
        body: ClaimRequest = {"recipes": recipes, "busy": [], "leftMicrousd": 0}
        await CLAIM.ask(client.connection, body, timeout_s=DEADLINE_S)


def test_the_command_starts_what_serves_it_and_ends_it(tmp_path: Path) -> None:
    """It outlives the command; a second one finds it; what goes wrong in it is told."""
    machine = Inside(tmp_path, "ann")
    machine.write("MEMORY.md", "# Facts\n")
    try:
        first = machine.json("panel", "--print")
        assert first["started"]
        wait_until("the daemon that it starts", lambda: machine.local_daemon)  # so that it can be ended
        again = machine.json("open", "MEMORY.md", "--print")
        assert (again["pid"], again["port"], again["started"]) == (first["pid"], first["port"], False)
        with socket.create_connection(("127.0.0.1", first["port"]), DEADLINE_S) as wire:
            path = urllib.parse.urlsplit(again["url"]).path
            wire.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{first['port']}\r\n\r\n".encode())
            assert b"Set-Cookie" in wire.recv(4096).replace(b"set-cookie", b"Set-Cookie")
        assert stat.S_IMODE((machine.home / "proxy/gateway/serve.log").stat().st_mode) == 0o600
        assert "has ended" in machine.run("panel", "--stop")
        assert "the panel does not run" in machine.run("panel", "--stop")
        machine.env["CLAUDECODE"] = "1"
        for command in (("panel", "--print"), ("panel",), ("http", "token", "new", "x", "--scope", "secrets")):
            refused = machine.run(*command, code=7)  # the agent's transcript would have it
            assert "an agent's shell may not" in refused
            assert "http" not in refused
        assert machine.json("http", "token", "ls") == []
        stranger = Inside(tmp_path, "bob", is_set_up=False)
        assert "confide quickstart" in stranger.run("panel", "--print", code=7)
    finally:
        machine.run("panel", "--stop")
        machine.stop_local_daemon()


def taken(address: str, port: int) -> socket.socket | None:
    """Whoever listens there from now on; None if somebody does already."""
    try:
        return door.listen(address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        pytest.skip("this machine has no IPv6")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_usual_port_may_be_taken(address: str, tmp_path: Path) -> None:
    """By another user's panel, or by any program, at either address that a browser has for `localhost`."""
    machine = Inside(tmp_path, "ann")
    with wait_until("the port, which a panel of another test may have", lambda: taken(address, PORT)):
        try:
            assert machine.json("panel", "--print")["port"] != PORT
            wait_until("the daemon that it starts", lambda: machine.local_daemon)
        finally:
            machine.run("panel", "--stop")
            machine.stop_local_daemon()


def test_what_was_started_for_it_ends_when_nobody_uses_it(tmp_path: Path) -> None:
    """It is started by `confide panel` with half a day; nobody has to remember that it runs."""
    machine = Inside(tmp_path, "ann")
    try:
        served = Program(
            [CONFIDE, "serve", "--port", "0", "--idle-exit", "0.2"],
            cwd=machine.project,
            env=machine.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert served.wait(DEADLINE_S) == 0
    finally:
        machine.stop_local_daemon()
