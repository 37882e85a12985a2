"""A person forgets a note or a file in the panel: what would go, a confirmation, and a receipt that others can check."""

from __future__ import annotations

import re

from tests.support.programs.gateway import Gateway
from tests.support.programs.panel import Visit, text_of, words_of

from confide_memory.forgetting import receipt_of


def fields_of(visit: Visit, page: str) -> dict[str, str]:
    """The hidden fields of the form on a page."""
    shown = text_of(visit.get(page)).partition("<main")[2].partition("</main")[0]
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', shown))


def is_found(gateway: Gateway, words: str) -> bool:
    return words in gateway.machine.run("search", words, "--min-score", "0")


def test_a_note_is_forgotten_after_a_look_and_its_receipt_is_given_out(gateway: Gateway, visit: Visit) -> None:
    """Not by another page's form, nor with what was not shown; the file stays, and the receipt is checked by the command."""
    stored = gateway.machine.json("store", "The zanzibar house has a green door.", "--title", "Zanzibar")
    identity, path = stored["shortId"], stored["path"]
    found = re.search(r'href="[^"]*/(forget\?[^"]*)"', text_of(visit.get(f"note/{identity}")))
    assert found
    page = found[1].replace("&amp;", "&")
    assert "1 file with all revisions" in words_of(visit.get(page))
    fields = fields_of(visit, page)
    assert fields["path"] == path
    assert visit.post("forget", **{**fields, "form": "another"}).status == 403
    for digest in ("", "0" * 32):
        refused = visit.post("forget", **{**fields, "digest": digest})
        assert refused.status == 409
        assert "It has changed since you saw this page, and nothing was removed" in words_of(refused)
    assert visit.get(page).status == 200
    assert is_found(gateway, "zanzibar")
    answer = visit.post("forget", **fields)
    shown = visit.follow(answer)
    assert "both signatures are good" in words_of(shown)
    assert "Forgotten." in words_of(shown)
    assert not is_found(gateway, "zanzibar")
    assert "zanzibar" in (gateway.machine.project / path).read_text()
    assert visit.post("forget", **fields).status == 404  # sent twice
    link = re.search(r'href="[^"]*/(receipt\?[^"]*)"', text_of(shown))
    assert link
    given = visit.get(link[1])
    assert "attachment" in given.headers["content-disposition"]
    assert receipt_of(given.body)["places"]
    file = gateway.machine.project / "receipt.json"
    file.write_bytes(given.body)
    assert "both signatures are good" in gateway.machine.run("forget", "--verify", str(file))


def test_a_deleted_file_is_forgotten_and_the_files_go_if_the_person_says_so(gateway: Gateway, visit: Visit) -> None:
    gateway.machine.run("store", "Osprey plans, first.", "--path", "memory/osprey.md")
    gateway.machine.run("store", "Ibis plans, second.", "--path", "memory/ibis.md")
    gateway.machine.run("rm", "memory/osprey.md", "--yes")
    listed = re.findall(r'href="[^"]*/(forget\?[^"]*osprey.md)"', text_of(visit.get("deleted")))
    visit.follow(visit.post("forget", **fields_of(visit, listed[0].replace("&amp;", "&"))))
    assert "memory/osprey.md" not in words_of(visit.get("deleted"))
    visit.follow(visit.post("forget", files="yes", **fields_of(visit, "forget?path=memory/ibis.md")))
    gateway.machine.run("sync")
    assert not (gateway.machine.project / "memory/ibis.md").exists()


def test_what_names_nothing_is_refused_with_a_page(visit: Visit) -> None:
    """No path is no project, and no id is a file of this device."""
    for page, status in (("forget", 400), ("forget?path=./", 400), ("forget?path=memory/never.md", 404)):
        assert visit.get(page).status == status, page
    assert visit.post("forget", path="").status == 400
    for identity in ("", "../../identity.key", "0" * 31, "0" * 32):
        for page in ("forgotten", "receipt"):
            assert visit.get(f"{page}?id={identity}").status == 404


def test_a_receipt_that_was_changed_is_not_shown(gateway: Gateway, visit: Visit) -> None:
    gateway.machine.run("store", "Plover counts of May.", "--path", "memory/plover.md")
    answer = visit.post("forget", **fields_of(visit, "forget?path=memory/plover.md"))
    identity = answer.headers["location"].partition("id=")[2]
    visit.follow(answer)
    file = gateway.machine.home / f"proxy/forget-receipts/{identity}.json"
    file.write_bytes(file.read_bytes().replace(b'"gone"', b'"kept"', 1))
    assert visit.get(f"receipt?id={identity}").status == 409
    assert "both signatures are good" in words_of(
        visit.get(f"forgotten?id={identity}")
    )  # a new one of the present state
    assert visit.get(f"receipt?id={identity}").status == 200
