"""A visit of the panel without a browser: its cookie, its forms, and what its pages say."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from html import unescape

from tests.support.programs.gateway import Answer, Gateway

FORM = "application/x-www-form-urlencoded"


@dataclass
class Visit:
    """One that a link let in. `base` is what its addresses begin with."""

    gateway: Gateway
    base: str
    cookie: str
    token: str = ""

    @classmethod
    def begin(cls, gateway: Gateway, *command: str) -> Visit:
        """By the link that a command prints: `panel`, or `open` with its argument."""
        path = urllib.parse.urlsplit(link(gateway, *command)).path
        answer = gateway.request("GET", path)
        assert answer.status == 200, answer.body
        cookie = answer.headers["set-cookie"].partition(";")[0]
        found = re.search(r"url=(/panel/[\w-]+)", answer.body.decode())
        assert found, answer.body
        visit = cls(gateway, found[1], cookie)
        visit.token = re.findall(r'name="form" value="([^"]+)"', text_of(visit.get("")))[0]
        return visit

    def get(self, page: str) -> Answer:
        return self.gateway.request("GET", f"{self.base}/{page}", headers={"Cookie": self.cookie})

    def post(self, page: str, **fields: str) -> Answer:
        """A form of this visit's own, unless `form` says otherwise."""
        body = urllib.parse.urlencode({"form": self.token, **fields}).encode()
        headers = {"Cookie": self.cookie, "Content-Type": FORM, "Origin": self.gateway.url}
        return self.gateway.request("POST", f"{self.base}/{page}", body, headers=headers)

    def follow(self, answer: Answer) -> Answer:
        """The page that an answer leads to."""
        assert answer.status == 303, (answer.status, words_of(answer))
        return self.gateway.request("GET", answer.headers["location"], headers={"Cookie": self.cookie})


def link(gateway: Gateway, *command: str) -> str:
    """A new link of that gateway."""
    found = gateway.machine.json(*(command or ("panel",)), "--print")
    assert found["port"] == gateway.port
    assert not found["started"]
    return str(found["url"])


def text_of(answer: Answer) -> str:
    return answer.body.decode()


def words_of(answer: Answer) -> str:
    """What a page says, without its markup."""
    body = text_of(answer)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body[body.index("<main") :])).split())
