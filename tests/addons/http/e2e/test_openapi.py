"""The OpenAPI document tells the truth: it is that of the tools' schemas, and whatever it lets a client send is answered as it says."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.support.draws import draws
from tests.support.programs.gateway import Gateway

from confide_http.local.rest import openapi, route_table
from confide_proxy.mcp import catalogue as catalogues

DOCUMENT = openapi.document(catalogues.packaged_catalogue())
OPERATIONS = [(each.method, each.path) for each in route_table.OPERATIONS]
NOT_DRAWN = {"/api/memories/migrate-secrets", "/api/memories/import"}
"""Which read or change all that there is; they have tests of their own."""
ROUNDS = 2
"""Through all routes: each meets what others have left."""
WORDS = st.text("abcXYZ 09-_.äß漢\u202e\n\0<>&\"'", min_size=1, max_size=24)
KNOWN: list[str] = []
"""The id of a note that there is."""
OTHER_FORMS = {
    "path",
    "heading",
    "mode",
    "scope",
    "taskId",
    "relatedTo",
    "relation",
    "importance",
    "restoreRevision",
    "expectedRevision",
}
"""Parameters that exclude others, or name what must be there: few draws of all of them together would be taken."""
ANY = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), WORDS, st.lists(WORDS, max_size=2), st.just({}))


def test_each_tool_is_as_it_is_listed() -> None:
    """Parameters in query or body, and what is answered, are the tool's own; and each tool that a program may call has a route."""
    catalogue = catalogues.packaged_catalogue()
    routed = set()
    for each in route_table.OPERATIONS:
        found = DOCUMENT["paths"][each.path][each.method.lower()]
        assert found["security"] == [{"token": [each.scope]}]
        if not each.tool:
            continue
        routed.add(each.tool)
        taken = {one["name"]: one["schema"] for one in found["parameters"] if one["in"] != "header"}
        if "requestBody" in found:
            taken |= found["requestBody"]["content"]["application/json"]["schema"].get("properties", {})
        own = catalogue.tools[each.tool]["inputSchema"]["properties"]
        if each.takes != "none":
            assert {name: schema for name, schema in taken.items() if name in own and name != "tags"} == {
                name: schema for name, schema in own.items() if name != "tags"
            }
        for status in each.statuses:
            told = found["responses"][str(status)]["content"]["application/json"]["schema"]
            output = catalogue.outputs[each.tool]
            if each.gives is route_table._NOTHING:
                assert told == output
    # A search among entities is the list's with `q`. The others: an agent's ways to what has a route, files of this machine, a signature.
    of_agents = {
        "entity_search",
        "memory_sync",
        "memory_dedupe",
        "project_summary",
        "context_info",
        "memory_import",
        "memory_forget",
        "secret_get",
        *("task_add", "task_cancel"),
    }
    assert routed == catalogue.tools.keys() - of_agents


def test_it_is_given_to_everybody(gateway: Gateway) -> None:
    assert gateway.request("GET", "/openapi.json").json == json.loads(json.dumps(DOCUMENT))


def values(schema: dict[str, Any]) -> SearchStrategy[Any]:
    """Values of a schema, in as much of JSON Schema as ours use."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values(one) for one in schema["anyOf"]])
    kinds = schema.get("type", "string")
    if isinstance(kinds, list):
        return st.one_of([values({**schema, "type": kind}) for kind in kinds])
    match kinds:
        case "integer":
            return st.integers(schema.get("minimum", -5), min(schema.get("maximum", 50), 2**53))
        case "number":
            return st.floats(schema.get("minimum", -1), schema.get("maximum", 2), allow_nan=False)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(schema.get("items", {})), min_size=0, max_size=min(schema.get("maxItems", 3), 3))
        case "object":
            properties = schema.get("properties", {})
            required = {name: values(properties[name]) for name in schema.get("required", ())}
            optional = {name: values(inner) for name, inner in properties.items() if name not in required}
            return st.fixed_dictionaries(required, optional=optional)
        case "null":
            return st.none()
        case _:
            return WORDS.map(lambda text: text[: schema.get("maxLength", 99)])


@st.composite
def requests(draw: st.DrawFn, method: str, path: str) -> tuple[str, str, str, Any]:
    """Method, route, address and body of a request that the document allows, or nearly: one value in some is of another kind.

    What is drawn first, of the smallest numbers, is a usual one.
    """
    told = DOCUMENT["paths"][path][method.lower()]
    is_odd = draw(st.integers(0, 4)) == 4
    address, query = path, {}
    for each in told["parameters"]:
        name = each["name"]
        if each["in"] == "path":
            usual = {"project": "drawn", "path": "memory/drawn.md", "id": KNOWN[-1]}[name]
            value = draw(values(each["schema"])) if is_odd else usual
            address = address.replace(f"{{{name}}}", quote(value, safe="/" if name == "path" else ""))
        elif each["in"] == "query" and draw(st.integers(0, 3)) == 3:
            value = draw(ANY if is_odd else values(each["schema"]))
            query[name] = value if isinstance(value, list) else str(value)
    body = None
    if "requestBody" in told:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        body = draw(ANY if is_odd else values(schema))
        if isinstance(body, dict) and draw(st.integers(0, 3)):
            body = {name: value for name, value in body.items() if name not in OTHER_FORMS}
        if isinstance(body, dict) and path == "/api/memories":
            body["project"] = "drawn"
        if isinstance(body, dict) and "relatedId" in body:
            body |= {"relatedId": KNOWN[0], "relation": "see_also"}
    if query:
        address += f"?{urlencode(query, doseq=True)}"
    return method, path, address, body


def test_every_route_does_what_it_says(gateway: Gateway) -> None:
    """Each once, with what it takes, in an order in which there is something to do: what it answers is of its own shape."""
    token = gateway.token("every", "--scope", "write", "--scope", "secrets")
    ids = [
        gateway.request("POST", "/api/memories", {"content": f"The {word} one.", "project": "drawn"}, token=token).json[
            "id"
        ]
        for word in ("first", "second")
    ]
    note, file = f"/api/memories/{ids[0]}", "/api/documents/drawn/memory/routed.md"
    asked: dict[tuple[str, str], tuple[str, Any]] = {
        ("GET", "/api/auth-check"): ("/api/auth-check", None),
        ("POST", "/api/memories"): ("/api/memories", {"content": "A third one.", "project": "drawn"}),
        ("GET", "/api/memories"): ("/api/memories?project=drawn&limit=2", None),
        ("POST", "/api/memories/recall"): ("/api/memories/recall", {"query": "third one", "project": "drawn"}),
        ("GET", "/api/memories/sync"): ("/api/memories/sync?project=drawn&limit=2", None),
        ("POST", "/api/memories/import"): ("/api/memories/import?confirm=true", [{"content": "A fourth one."}]),
        ("POST", "/api/memories/migrate-secrets"): ("/api/memories/migrate-secrets?dryRun=true", None),
        ("GET", "/api/memories/{id}"): (note, None),
        ("PATCH", "/api/memories/{id}"): (note, {"content": "The first one, changed."}),
        ("GET", "/api/memories/{id}/history"): (f"{note}/history", None),
        ("POST", "/api/memories/{id}/links"): (f"{note}/links", {"relatedId": ids[1], "relation": "see_also"}),
        ("POST", "/api/memories/{id}/secret"): (f"{note}/secret", None),
        ("PUT", "/api/documents/{project}/{path}"): (file, {"content": "Text.\n"}),
        ("GET", "/api/documents/{project}/{path}"): (file, None),
        ("GET", "/api/status"): ("/api/status", None),
        ("GET", "/api/projects"): ("/api/projects", None),
        ("GET", "/api/entities"): ("/api/entities?q=one", None),
        ("GET", "/api/tasks"): ("/api/tasks?limit=1", None),
        ("GET", "/api/tasks/results"): ("/api/tasks/results", None),
        ("DELETE", "/api/memories/{id}"): (note, None),
    }
    assert asked.keys() == set(OPERATIONS)
    for (method, path), (address, body) in asked.items():
        answer = gateway.request(method, address, body, token=token)
        told = DOCUMENT["paths"][path][method.lower()]["responses"]
        assert str(answer.status) in told, (method, address, answer.status, answer.body)
        jsonschema.validate(answer.json, told[str(answer.status)]["content"]["application/json"]["schema"])


@pytest.mark.long
def test_whatever_it_allows_is_answered_as_it_says(gateway: Gateway) -> None:
    """In its own shape, or with an error that has a code and a sentence: never with a fault of ours."""
    token = gateway.token("drawing", "--scope", "write", "--scope", "secrets")
    KNOWN[:] = [
        gateway.request("POST", "/api/memories", {"content": word, "project": "drawn"}, token=token).json["id"]
        for word in ("A first one.", "A second one.")
    ]
    tried = [each for each in OPERATIONS if each[1] not in NOT_DRAWN]
    done = set()
    error = jsonschema.Draft202012Validator(DOCUMENT["components"]["schemas"]["Error"])

    def check(drawn: tuple[str, str, str, Any]) -> None:
        method, path, address, body = drawn
        answer = gateway.request(method, address, body, token=token)
        told = DOCUMENT["paths"][path][method.lower()]["responses"]
        where = (method, address, body, answer.status, answer.body[:400])
        assert answer.status < 500 or answer.status == 503, where
        assert answer.headers["cache-control"] == "no-store", where
        if str(answer.status) in told:
            schema = told[str(answer.status)]["content"]["application/json"]["schema"]
            problems = [one.message for one in jsonschema.Draft202012Validator(schema).iter_errors(answer.json)]
            assert not problems, (where, problems)
            done.add((method, path))
            if path == "/api/memories" and method == "POST":
                KNOWN.append(answer.json["id"] or KNOWN[0])
        else:
            assert 400 <= answer.status <= 503, where
            error.validate(answer.json)

    # In turn: of those that are drawn by chance now and then hardly any would do something.
    few = settings(
        max_examples=draws(480) // (ROUNDS * len(tried)), deadline=None, suppress_health_check=list(HealthCheck)
    )
    for method, path in tried * ROUNDS:
        few(given(requests(method, path))(check))()
    # A note that was made sensitive has earlier revisions in clear; others count what stands so in this space.
    assert gateway.request("POST", "/api/memories/migrate-secrets", token=token).status == 200
    left = gateway.request("POST", "/api/memories/migrate-secrets?dryRun=true", token=token)
    assert left.json["found"] == 0
    assert len(done) > len(OPERATIONS) / 3  # many routes have done something, and not only refused
