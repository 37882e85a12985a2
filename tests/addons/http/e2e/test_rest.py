"""REST by a program: each route does what its tool does, in HTTP's words."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.programs.gateway import Gateway


def note(gateway: Gateway, token: str, content: str, **fields: Any) -> dict[str, Any]:
    answer = gateway.request("POST", "/api/memories", {"content": content, **fields}, token=token)
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.json
    return found


def test_a_note_from_its_first_word_to_its_last(gateway: Gateway, writer: str, reader: str) -> None:
    stored = note(gateway, writer, "Kakapos cannot fly.", title="Kakapos", tags=["birds"], importance="high")
    assert (stored["importance"], stored["category"], stored["revision"]) == (0.75, "facts", 1)
    path = f"/api/memories/{stored['id']}"
    got = gateway.request("GET", path, token=reader)
    assert (got.json["title"], got.json["class"], got.headers["etag"]) == ("Kakapos", "untrusted", '"1"')

    old = gateway.request("PATCH", path, {"content": "Kakapos climb."}, token=writer, headers={"If-Match": '"7"'})
    assert (old.status, old.code) == (412, "stale")
    changed = gateway.request(
        "PATCH", path, {"content": "Kakapos climb."}, token=writer, headers={"If-Match": got.headers["etag"]}
    )
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    revisions = gateway.request("GET", f"{path}/history?limit=1", token=reader).json["revisions"]
    assert [one["revision"] for one in revisions] == [2]

    other = note(gateway, writer, "Kiwis cannot fly either.", title="Kiwis")
    linked = gateway.request("POST", f"{path}/links", {"relatedId": other["id"], "relation": "see_also"}, token=writer)
    assert linked.json["changed"] is True
    assert gateway.request("DELETE", path, token=writer, headers={"If-Match": "1"}).status == 412
    gone = gateway.request("DELETE", path, token=writer)
    assert (gone.json["deleted"], gone.json["preview"]) == (True, "Kakapos climb.")
    missing = gateway.request("GET", path, token=reader)
    assert (missing.status, missing.code) == (404, "not_found")
    assert missing.json["error"]["hint"]


def test_a_list_has_filters_and_pages(gateway: Gateway, writer: str) -> None:
    for number in range(3):
        note(gateway, writer, f"Number {number} of the tapirs.", category="tapirs", tags=["zoo", "hoofed"])
    first = gateway.request(
        "GET", "/api/memories?category=tapirs&tags=zoo,hoofed&limit=2&sort=created", token=writer
    ).json
    assert (len(first["memories"]), first["total"]) == (2, 3)
    assert first["memories"][0]["tags"] == "zoo,hoofed"
    assert first["memories"][0]["content"].endswith("of the tapirs.")
    last = gateway.request("GET", "/api/memories?category=tapirs&limit=2&offset=2&sort=created", token=writer).json
    assert len(last["memories"]) == 1
    wrong = gateway.request("GET", "/api/memories?limit=many", token=writer)
    assert (wrong.status, wrong.code) == (400, "invalid")
    assert gateway.request("GET", "/api/memories?colour=red", token=writer).status == 400


def test_what_is_sent_twice_is_done_once(gateway: Gateway, writer: str) -> None:
    """By its Idempotency-Key, which is each token's own; with other words under it nothing is done."""
    key = {"Idempotency-Key": secrets.token_hex(8)}
    body = {"content": "Axolotls regrow their legs.", "title": "Axolotls"}
    first, again = (gateway.request("POST", "/api/memories", body, token=writer, headers=key) for _ in range(2))
    assert first.json["id"] == again.json["id"]
    total = gateway.request("GET", f"/api/memories?path={first.json['path']}", token=writer).json["total"]
    assert total == 1
    other = gateway.request("POST", "/api/memories", {**body, "content": "Newts do too."}, token=writer, headers=key)
    assert (other.status, other.code) == (409, "conflict")
    trusted = gateway.token("trusted", "--scope", "write", "--trusted")
    own = gateway.request("POST", "/api/memories", {"content": "Salamanders do."}, token=trusted, headers=key)
    assert own.status == 201
    assert gateway.request("POST", "/api/memories", body, token=writer, headers={"Idempotency-Key": ""}).status == 400


def test_a_file_is_written_whole(gateway: Gateway, writer: str) -> None:
    path = "/api/documents/project/memory/plans%20of%20ann.md"
    made = gateway.request("PUT", path, b"# Plan\n\nOne.\n", token=writer, headers={"Content-Type": "text/markdown"})
    assert made.status == 201, made.body
    assert (gateway.machine.project / "memory/plans of ann.md").read_text() == "# Plan\n\nOne.\n"
    got = gateway.request("GET", path, token=writer)
    assert (got.json["content"], got.headers["etag"]) == ("# Plan\n\nOne.", '"1"')
    raw = gateway.request("GET", path, token=writer, headers={"Accept": "text/markdown"})
    assert raw.body == b"# Plan\n\nOne."
    put = {"content": "# Plan\n\nTwo.\n"}
    assert gateway.request("PUT", path, put, token=writer, headers={"If-None-Match": "*"}).status == 412
    assert gateway.request("PUT", path, put, token=writer, headers={"If-None-Match": '"1"'}).status == 400
    assert gateway.request("PUT", path, put, token=writer, headers={"If-Match": '"5"'}).status == 412
    changed = gateway.request("PUT", path, put, token=writer, headers={"If-Match": '"1"'})
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    lines = gateway.request("GET", f"{path}?fromLine=3&lines=1", token=writer).json
    assert lines["content"] == "Two."
    for wrong in ("project/../../etc/passwd", "project/%2e%2e/x.md", "project/x.exe", "project/memory/x%ff.md"):
        answer = gateway.request("PUT", f"/api/documents/{wrong}", put, token=writer)
        assert answer.status in (400, 404), wrong


def test_other_projects_are_written_to_and_read(gateway: Gateway, writer: str) -> None:
    """Also one whose name has slashes, and of which no folder is on this machine."""
    name = quote("git.example.org/ann/aviary", safe="")
    made = gateway.request("PUT", f"/api/documents/{name}/memory/a.md", {"content": "Hoatzins smell.\n"}, token=writer)
    assert (made.status, made.json["project"]) == (201, "git.example.org/ann/aviary")
    assert (
        gateway.request("GET", f"/api/documents/{name}/memory/a.md", token=writer).json["content"] == "Hoatzins smell."
    )
    listed = gateway.request("GET", "/api/projects", token=writer).json
    assert {"git.example.org/ann/aviary", "project"} <= {each["name"] for each in listed["projects"]}


def test_a_token_of_one_project_reaches_no_other(gateway: Gateway, writer: str) -> None:
    """By whatever it names it; and it cannot tell whether there is one."""
    secret = note(gateway, writer, "Okapis are shy.", title="Okapis")
    token = gateway.token("aviary", "--scope", "write", "--project", "aviary")
    own = gateway.request("PUT", "/api/documents/aviary/memory/b.md", {"content": "Hornbills nest.\n"}, token=token)
    assert own.status == 201, own.body
    stored = note(gateway, token, "Motmots dig.", title="Motmots")
    assert stored["project"] == "aviary"
    found = gateway.request(
        "POST", "/api/memories/recall", {"query": "okapis hornbills motmots elixir", "minScore": 0}, token=token
    )
    assert {hit["project"] for hit in found.json["results"]} == {"aviary"}
    assert {each["project"] for each in gateway.request("GET", "/api/memories", token=token).json["memories"]} == {
        "aviary"
    }
    assert [each["name"] for each in gateway.request("GET", "/api/projects", token=token).json["projects"]] == [
        "aviary"
    ]
    refused = [
        gateway.request("GET", f"/api/memories/{secret['id']}", token=token),
        gateway.request("PATCH", f"/api/memories/{secret['id']}", {"content": "x"}, token=token),
        gateway.request("DELETE", f"/api/memories/{secret['id']}", token=token),
        gateway.request("GET", f"/api/memories/{secret['id']}/history", token=token),
        gateway.request("GET", "/api/documents/project/MEMORY.md", token=token),
        gateway.request("PUT", "/api/documents/project/memory/x.md", {"content": "x"}, token=token),
        gateway.request("PUT", "/api/documents/nobody/memory/x.md", {"content": "x"}, token=token),
        gateway.request("GET", "/api/memories/sync?project=project", token=token),
        gateway.request("GET", "/api/memories?project=project", token=token),
        gateway.request("POST", "/api/memories", {"content": "x", "project": "global"}, token=token),
        gateway.request("POST", "/api/memories/import?confirm=true", [{"content": "x"}], token=token),
    ]
    assert [answer.status for answer in refused if answer.status not in (403, 404)] == []
    assert not [answer for answer in refused if b"Okapi" in answer.body]
    assert gateway.request("GET", f"/api/memories/{secret['id']}", token=writer).json["revision"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/memories", {"content": "x"}),
        ("PATCH", "/api/memories/mem_x", {"content": "x"}),
        ("DELETE", "/api/memories/mem_x", None),
        ("POST", "/api/memories/mem_x/links", {"relatedId": "mem_y", "relation": "see_also"}),
        ("PUT", "/api/documents/project/memory/x.md", {"content": "x"}),
        ("POST", "/api/memories/import?confirm=true", []),
        ("POST", "/api/memories/mem_x/secret", None),
        ("POST", "/api/memories/migrate-secrets", None),
    ],
)
def test_a_reader_is_told_the_scope_that_it_lacks(
    gateway: Gateway, reader: str, method: str, path: str, body: Any
) -> None:
    answer = gateway.request(method, path, body, token=reader)
    assert (answer.status, answer.code) == (403, "denied")
    assert "insufficient_scope" in answer.headers["www-authenticate"]
    assert gateway.request(method, path, body).status == 401


def test_a_sealed_secret_opens_for_its_scope_alone(gateway: Gateway, writer: str) -> None:
    """What looks like a credential goes up sealed, and a writer gets the placeholder back."""
    key = "ghp_" + "".join(
        secrets.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(36)
    )
    stored = note(gateway, writer, f"The deploy token is {key} for now.", title="Deploy")
    got = gateway.request("GET", f"/api/memories/{stored['id']}", token=writer)
    assert key not in got.body.decode()
    assert "(sealed:" in got.json["content"]
    assert gateway.request("POST", f"/api/memories/{stored['id']}/secret", token=writer).status == 403
    opener = gateway.token("opener", "--scope", "secrets")
    opened = gateway.request("POST", f"/api/memories/{stored['id']}/secret", token=opener)
    assert (opened.json["content"], opened.json["source"]) == (f"The deploy token is {key} for now.", "sealed")
    placeholder = got.json["content"].partition("(sealed:")[2].partition(")")[0]
    one = gateway.request("POST", f"/api/memories/{placeholder.rpartition(':')[2]}/secret", token=opener)
    assert one.json["value"] == key
    assert gateway.request("POST", f"/api/memories/{'0' * 32}/secret", token=opener).status in (400, 404)
    both = gateway.token("both", "--scope", "secrets", "--scope", "write")
    looked = gateway.request("POST", "/api/memories/migrate-secrets?dryRun=true", token=both)
    assert looked.json == {"migrated": 0, "found": 0, "dryRun": True}
    assert gateway.request("POST", "/api/memories/migrate-secrets", token=both).json["migrated"] == 0


def test_a_note_that_becomes_sensitive_has_earlier_revisions_sealed_when_asked(gateway: Gateway, writer: str) -> None:
    """It is told that they are in clear, and found; after that nothing is."""
    both = gateway.token("both", "--scope", "secrets", "--scope", "write")
    stored = note(gateway, writer, "The alarm is set at ten.", title="Alarm")
    change = {"sensitive": True, "content": "The alarm is set at eleven."}
    changed = gateway.request("PATCH", f"/api/memories/{stored['id']}", change, token=writer)
    assert "confide secrets scan --stored" in str(changed.json["warnings"])
    for told in (
        {"migrated": 0, "found": 1, "dryRun": True},
        {"migrated": 1, "found": 1, "dryRun": False},
        {"migrated": 0, "found": 0, "dryRun": True},
    ):
        query = "?dryRun=true" if told["dryRun"] else ""
        assert gateway.request("POST", f"/api/memories/migrate-secrets{query}", token=both).json == told


def test_an_import_is_shown_and_then_made(gateway: Gateway, writer: str) -> None:
    """And what was in the body stays in no file."""
    text = b"# Loris\n\nLorises are slow.\n\n# Potto\n\nPottos are too.\n"
    headers = {"Content-Type": "text/markdown"}
    shown = gateway.request("POST", "/api/memories/import", text, token=writer, headers=headers).json
    assert (shown["confirmed"], shown["results"]["new"]) == (False, 2)
    assert gateway.request("GET", "/api/memories?category=x&limit=1", token=writer).status == 200
    made = gateway.request("POST", "/api/memories/import?confirm=true", text, token=writer, headers=headers).json
    assert (made["confirmed"], made["results"]["new"]) == (True, 2)
    again = gateway.request("POST", "/api/memories/import?confirm=true", text, token=writer, headers=headers).json
    assert again["results"]["new"] == 0
    assert not list((gateway.machine.home / "proxy/gateway").glob("importing-*"))
    for body, kind in ((b"\xff", "text/markdown"), (b"{", "application/json"), (b"x", "application/zip")):
        answer = gateway.request(
            "POST", "/api/memories/import?confirm=true", body, token=writer, headers={"Content-Type": kind}
        )
        assert answer.status in (400, 415), answer.body
        assert "importing-" not in answer.body.decode()


def test_changes_are_followed_in_pages(gateway: Gateway, writer: str) -> None:
    """Each note as it stands, deleted ones too; and from the last place on there is nothing."""
    project = "tracked"
    ids = [note(gateway, writer, f"Track {number}.", project=project)["id"] for number in range(3)]
    gateway.request("DELETE", f"/api/memories/{ids[0]}", token=writer)
    seen, since = {}, ""
    while True:
        page = gateway.request("GET", f"/api/memories/sync?project={project}&limit=2&since={since}", token=writer).json
        seen |= {each["id"]: each for each in page["memories"]}
        since = page["next"]
        if page["complete"]:
            break
    assert seen.keys() == set(ids)
    assert [bool(seen[each]["deleted_at"]) for each in ids] == [True, False, False]
    assert seen[ids[1]]["content"] == "Track 1."
    after = gateway.request("GET", f"/api/memories/sync?project={project}&since={since}", token=writer).json
    assert (after["memories"], after["next"]) == ([], since)
    time = page["server_time"].replace("+", " ")  # as a plus in an address reads
    assert (
        gateway.request("GET", f"/api/memories/sync?project={project}&since={quote(time)}", token=writer).status == 200
    )
    put_back = f"{since.partition('.')[0]}.9"
    assert gateway.request("GET", f"/api/memories/sync?project={project}&since={put_back}", token=writer).status == 410
    for wrong in ("yesterday", "-1.0", "2026-13-45", "1e9"):
        assert gateway.request("GET", f"/api/memories/sync?since={wrong}", token=writer).status == 400


def test_what_is_blank_counts_as_left_out(gateway: Gateway, writer: str, reader: str) -> None:
    """In a query and in a body, as forms send it; of a token of one project too."""
    blank = dict.fromkeys(("title", "path", "project", "importance", "taskId", "tags"), "")
    stored = gateway.request("POST", "/api/memories", {"content": "Numbats eat termites.", **blank}, token=writer)
    assert (stored.status, stored.json["category"]) == (201, "facts"), stored.body
    lists = "project=&category=&tags=&limit=&sort="
    assert gateway.request("GET", f"/api/memories?{lists}", token=reader).status == 200
    asked = {"context": "numbats", "query": "", "type": [""], "category": "", "since": "", "project": ""}
    assert gateway.request("POST", "/api/memories/recall", asked, token=reader).json["memories"]
    assert gateway.request("GET", "/api/memories/sync?project=&since=&limit=", token=reader).status == 200
    assert gateway.request("GET", "/api/entities?q=", token=reader).json["entities"] is not None


def test_entities_and_status(gateway: Gateway, writer: str, reader: str) -> None:
    note(gateway, writer, "Ada keeps the aviary.", entity="Ada Lovelace")
    assert "Ada Lovelace" in str(gateway.request("GET", "/api/entities", token=reader).json["entities"])
    assert "Ada Lovelace" in str(gateway.request("GET", "/api/entities?q=ada%20lovelase", token=reader).json["matches"])
    assert gateway.request("GET", "/api/status", token=reader).json["health"]["state"] == "ok"
    told = gateway.request("GET", "/api/auth-check", token=reader).json
    assert (told["name"], told["scopes"], told["projects"]) == ("reader", ["memory:read"], None)
    assert told["expires"]


def test_health_tells_more_to_whoever_may_read(gateway: Gateway, reader: str) -> None:
    told = gateway.request("GET", "/health", token=reader).json
    assert told["link"]["state"] == "up"
    assert told["index"]["legs"] == {"keyword": "up", "vector": "up"}
    assert {
        "uptimeS",
        "memoryBytes",
        "sessions",
        "streams",
        "requests",
        "database",
        "models",
        "queue",
        "custody",
    } <= told.keys()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'"x"', b"\xff", b'{"content": "\\ud800"}', b"[" * 100_000])
def test_a_body_that_is_none_is_refused(gateway: Gateway, writer: str, body: bytes) -> None:
    answer = gateway.request("POST", "/api/memories", body, token=writer)
    assert (answer.status, answer.code) == (400, "invalid")
    form = gateway.request("POST", "/api/memories", body, token=writer, headers={"Content-Type": "text/plain"})
    assert form.status == 415
