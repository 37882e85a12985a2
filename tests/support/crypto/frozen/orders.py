"""Orders of tasks and approvals of them (PROTOCOL.md 11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from tests.support.crypto.frozen.fixed import Case
from tests.support.sealing.rosters import DESKTOP, LAPTOP, NOW, PHONE, SPACE, STRANGER, device, encoded, founded

from confide_night.order.order import Order, approve_order, sign_order

_OTHER_SPACE = bytes(16)
_ROSTER = "laptop and desktop, without the phone"


def orders() -> Iterator[Case]:
    """Laptop and desktop are on the roster, the phone was removed from it, the stranger never was on it."""
    roster, keys = founded()
    roster = roster.add(LAPTOP, device(DESKTOP, "desktop"), keys, now=NOW)
    roster = roster.add(LAPTOP, device(PHONE, "phone"), keys, now=NOW)
    roster, keys = roster.remove(LAPTOP, PHONE.public_key, keys, now=NOW)
    chain = [entry.hex() for entry in encoded(roster)]
    known: Case = {"section": "11", "reads": "order", "known": _ROSTER, "now": NOW}
    # HPKE draws its own randomness, so the chain is frozen with the first case.
    yield {
        "name": _ROSTER,
        "section": "10.6",
        "reads": "roster",
        "chain": chain,
        "devices": [[key.hex(), one.name, False] for key, one in roster.devices.items()],
        "removed": {PHONE.public_key.hex(): 1},
        "head": roster.head.hex(),
        "words": roster.words,
        "pin": roster.pin.to_line(),
        "seed": LAPTOP.seed.hex(),
        "keys": [key.hex() for key in keys.epochs],
        "error": None,
    }
    once = Order(
        id="00112233445566ff",
        project="shop",
        recipe="review",
        description='Look at "src/pay.py".\nÜber alles: ',
        signer=LAPTOP.public_key.hex(),
        added=NOW,
        expires=NOW + 86_400,
        zone="UTC",
        at=NOW + 3_600,
    )
    nightly = replace(
        once,
        id="8000000000000001",
        signer=DESKTOP.public_key.hex(),
        recipe="fix",
        type="refactor",
        schedule="30 2 * * 1-5",
        zone="Europe/Berlin",
        at=None,
        expires=NOW + 400 * 86_400,
        repo="git@git.example.org:shop.git",
        context='{"branch": "main"}',
        missed="all",
        overlap="queue",
        priority=9,
        timeout_ms=60_000,
        max_microusd=1_500_000,
        retries=0,
    )
    good = once.encode()
    signature = sign_order(LAPTOP, SPACE, good)
    approval = approve_order(DESKTOP, SPACE, good)
    for name, whole, signer, approvals in (
        ("once", once, LAPTOP, []),
        ("every weekday", nightly, DESKTOP, []),
        ("approved", once, LAPTOP, [approval]),
        ("a text of the most characters", replace(once, description="x" * 8_000), LAPTOP, []),
        ("control characters", replace(once, description='\t\x1b\x7f\b\f\r\n\\"/\u2028'), LAPTOP, []),
    ):
        data = whole.encode()
        yield {
            "name": name,
            **known,
            "order": data.hex(),
            "signature": sign_order(signer, SPACE, data).hex(),
            "approvals": [[one.key.hex(), one.signature.hex()] for one in approvals],
            "seed": signer.seed.hex(),
            "is": {"id": whole.id, "description": whole.description, "schedule": whole.schedule},
            "times": list(islice(whole.times(after=NOW), 5)),
            "error": None,
        }

    def refused(
        name: str, error: str, data: bytes = good, by: bytes = signature, approvals: Case | None = None
    ) -> Case:
        listed = [approvals] if approvals else []
        return {"name": name, **known, "order": data.hex(), "signature": by.hex(), "approvals": listed, "error": error}

    yield refused("of another space", "OrderSignatureError", by=sign_order(LAPTOP, _OTHER_SPACE, good))
    yield refused("signed by another device", "OrderSignatureError", by=sign_order(DESKTOP, SPACE, good))
    yield refused(
        "an approval in place of the signature", "OrderSignatureError", by=approve_order(LAPTOP, SPACE, good).signature
    )
    yield refused("a signature cut short", "OrderSignatureError", by=signature[:-1])
    yield refused("another text", "OrderSignatureError", replace(once, priority=6).encode())
    for name, who in (("removed", PHONE), ("never there", STRANGER)):
        data = replace(once, signer=who.public_key.hex()).encode()
        yield refused(f"of a device that was {name}", "OrderSignerError", data, sign_order(who, SPACE, data))
    for name, error, who, space in (
        ("of the device that gave it", "OrderSignerError", LAPTOP, SPACE),
        ("of a device that was removed", "OrderSignerError", PHONE, SPACE),
        ("for another space", "OrderSignatureError", DESKTOP, _OTHER_SPACE),
    ):
        one = approve_order(who, space, good)
        yield refused(f"an approval {name}", error, approvals=[one.key.hex(), one.signature.hex()])
    other = approve_order(DESKTOP, SPACE, nightly.encode())
    yield refused(
        "an approval of another order", "OrderSignatureError", approvals=[other.key.hex(), other.signature.hex()]
    )

    said = json.loads(good)
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    for name, data in (
        ("with blanks", json.dumps(said, ensure_ascii=False, sort_keys=True).encode()),
        ("in another order of names", json.dumps(dict(reversed(said.items())), **compact).encode()),
        ("with letters escaped", json.dumps(said, sort_keys=True, separators=(",", ":")).encode()),
        ("with a line end", good + b"\n"),
        ("with a name twice", good[:-1] + b',"zone":"UTC"}'),
        ("with a name more", json.dumps({**said, "zzz": 1}, **compact).encode()),
        ("without a name", json.dumps({key: said[key] for key in said if key != "zone"}, **compact).encode()),
        ("of version 2", good.replace(b'"version":1', b'"version":2')),
        ("with true for a number", good.replace(b'"retries":2', b'"retries":true')),
        ("with a fraction", good.replace(b'"priority":5', b'"priority":5.0')),
        ("due never", good.replace(b'"at":1800003600', b'"at":null')),
        ("due twice", good.replace(b'"schedule":null', b'"schedule":"0 2 * * *"')),
        ("with an option for a repository", good.replace(b'"repo":""', b'"repo":"--upload-pack=sh"')),
        ("with a program for a repository", good.replace(b'"repo":""', b'"repo":"ext::sh"')),
        ("with a context that is none", good.replace(b'"context":""', b'"context":"[]"')),
        ("with priority 11", good.replace(b'"priority":5', b'"priority":11')),
        ("that expired before it was given", good.replace(b'"expires":1800086400', b'"expires":1700086400')),
        ("no JSON", b"order"),
        ("no object", b"[]"),
        ("no UTF-8", good.replace(b"src", b"\xff\xff\xff")),
        ("half a character", good.replace(b"src", b"\\ud800")),
    ):
        assert data != good, name
        yield refused(f"an order {name}", "OrderError", data, sign_order(LAPTOP, SPACE, data))
    past = replace(once, added=NOW - 100, expires=NOW).encode()
    yield refused("an order that has expired", "OrderError", past, sign_order(LAPTOP, SPACE, past))
