"""A client of claude-memory-mcp's API is pointed here, and its calls run as they are: by what its client sends and reads.

Its client speaks `urllib`, sends `tags` and `expanded_keywords` as strings, keeps what `id` says, and passes `server_time` on as `since`.
"""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.support.deadline import DEADLINE_S
from tests.support.programs.gateway import Gateway
from tests.support.programs.processes import wait_until


class EarlierClient:
    """`_api_request` of its client, and the calls that are made with it."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body else None
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.loads(answer.read().decode())

    def store(self, content: str, *, category: str = "facts", tags: str = "", sensitive: bool = False) -> Any:
        return self.ask(
            "POST",
            "/api/memories",
            {
                "local_id": 7,
                "content": content,
                "category": category,
                "tags": tags,
                "expanded_keywords": "bird parrot night flightless zealand",
                "importance": 0.7,
                "force_sensitive": sensitive,
            },
        )


@pytest.fixture
def client(gateway: Gateway) -> EarlierClient:
    token = gateway.token("earlier", "--scope", "write", "--scope", "secrets")
    return EarlierClient(gateway.url, token)


def test_its_tools_say_what_they_said(client: EarlierClient) -> None:
    """The sentences that its server makes of the answers, in its own words."""
    stored = client.store("The kakapo is a night parrot.", category="decisions", tags="birds, parrots")
    line = (
        f"Stored memory #{stored['id']} in category '{stored['category']}' with importance {stored['importance']:.1f}"
    )
    assert line.endswith("in category 'decisions' with importance 0.7")

    asked = {"context": "night parrot", "expanded_query": "kakapo bird flightless nocturnal zealand", "category": None}
    rows = client.ask("POST", "/api/memories/recall", {**asked, "sort_by": "relevance", "limit": 10})["memories"]
    row = next(row for row in rows if row["id"] == stored["id"])
    told = (
        f"#{row['id']} [{row['category']}] (importance: {row['importance']:.1f}) {row['content']} {row['created_at']}"
    )
    assert "[decisions] (importance: 0.7)" in told
    assert "The kakapo is a night parrot." in told
    assert row["tags"] == "birds,parrots"

    rows = client.ask("GET", "/api/memories?limit=20&category=decisions")["memories"]
    assert [row["content"] for row in rows if row["id"] == stored["id"]] == ["The kakapo is a night parrot."]

    deleted = client.ask("DELETE", f"/api/memories/{stored['id']}")
    assert deleted["preview"] == "The kakapo is a night parrot."
    with pytest.raises(urllib.error.HTTPError, match="404"):
        client.ask("DELETE", f"/api/memories/{stored['id']}")


def test_it_keeps_its_copy_in_step(client: EarlierClient) -> None:
    """All at first; then what came since `server_time`, which it sends as it got it, and what was deleted."""
    kept: dict[Any, str] = {}
    since = ""

    def pull() -> None:
        nonlocal since
        while True:
            page = client.ask("GET", f"/api/memories/sync{f'?since={since}' if since else ''}")
            for each in page["memories"]:
                assert {
                    "content",
                    "category",
                    "tags",
                    "expanded_keywords",
                    "importance",
                    "is_sensitive",
                    "updated_at",
                } <= each.keys()
                if each.get("deleted_at"):
                    kept.pop(each["id"], None)
                else:
                    kept[each["id"]] = each["content"]
            since = page["server_time"]
            if page["complete"]:  # it knows no pages, and would come again a minute later
                return

    first = client.store("Sloths swim well.")
    pull()
    assert kept[first["id"]] == "Sloths swim well."
    second = client.store("Sloths sleep a lot.")
    client.ask("DELETE", f"/api/memories/{first['id']}")
    pull()
    assert first["id"] not in kept
    assert kept[second["id"]] == "Sloths sleep a lot."


def test_what_is_sensitive_is_opened_by_its_id(client: EarlierClient) -> None:
    word = secrets.token_hex(6)
    stored = client.store(f"The alarm code of the aviary is {word}.", sensitive=True)
    listed = client.ask("GET", "/api/memories?limit=100")["memories"]
    (row,) = [row for row in listed if row["id"] == stored["id"]]
    assert row["is_sensitive"] is True
    assert word not in json.dumps(row)
    opened = client.ask("POST", f"/api/memories/{stored['id']}/secret")
    assert word in opened["content"]
    assert opened["id"] == stored["id"]
    assert client.ask("POST", "/api/memories/migrate-secrets") == {"migrated": 0, "found": 0, "dryRun": False}


def test_its_list_is_imported_as_it_was(client: EarlierClient) -> None:
    """And it is told what became of each."""
    brought = [{"content": f"Import {number} of the tarsiers.", "category": "people"} for number in range(3)]
    found = client.ask("POST", "/api/memories/import", brought)
    assert [each["category"] for each in found] == ["people"] * 3
    rows = client.ask("GET", "/api/memories?category=people&limit=100")["memories"]
    assert {each["id"] for each in found} <= {row["id"] for row in rows}
    assert {row["class"] for row in rows} == {"untrusted"}


def test_its_key_is_checked(gateway: Gateway, client: EarlierClient) -> None:
    assert client.ask("GET", "/api/auth-check")["status"] == "ok"
    wait_until("the link of a gateway that has just begun", lambda: client.ask("GET", "/health")["status"] == "ok")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        EarlierClient(gateway.url, "no-such-key").ask("GET", "/api/auth-check")
