"""A program that signs in by OAuth at a server's gateway, and the browser that it opens, as far as they matter."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.programs.gateway import Answer, Door

REDIRECT = "http://127.0.0.1:3118/callback"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NAVIGATION = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@dataclass
class Program:
    """One, with its id, and what it keeps while a person signs it in."""

    gateway: Door
    identifier: str
    redirect: str = REDIRECT
    secret: str | None = None
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def authorize(self, **said: str | None) -> Answer:
        """What the browser gets that the program opens; `said`: in the place of what is right; None leaves it out."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()
        asked: Mapping[str, str | None] = {
            "response_type": "code",
            "client_id": self.identifier,
            "redirect_uri": self.redirect,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "of-the-program",
            "scope": "memory:read memory:write",
            "resource": f"{self.gateway.url}/mcp",
            **said,
        }
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return self.gateway.request("GET", f"/authorize?{query}", headers=NAVIGATION)

    def page(self, **said: str | None) -> str:
        """The path of the page that it is sent to."""
        answer = self.authorize(**said)
        assert answer.status == 302, answer.body
        return answer.headers["location"]

    def words(self, page: str) -> str:
        """As a person reads them there."""
        answer = self.gateway.request("GET", page, headers=NAVIGATION)
        assert answer.status == 200, answer.body
        found = re.search(r"confide http approve ([a-z-]+)", answer.body.decode())
        assert found is not None
        return found[1]

    def code(self, page: str) -> str:
        """Once the words are approved."""
        said = returned(self.gateway.request("GET", page))
        assert (said["state"], said["iss"]) == ("of-the-program", self.gateway.url)
        return said["code"]

    def form(self, **said: str | None) -> bytes:
        """The body of a request at the token endpoint."""
        asked = {"client_id": self.identifier, "client_secret": self.secret, **said}
        return urlencode({name: value for name, value in asked.items() if value is not None}).encode()

    def form_of_code(self, code: str, **said: str | None) -> bytes:
        asked = {"redirect_uri": self.redirect, "code_verifier": self.verifier, **said}
        return self.form(grant_type="authorization_code", code=code, **asked)

    def form_of_refresh(self, token: str, **said: str | None) -> bytes:
        return self.form(grant_type="refresh_token", refresh_token=token, **said)

    def exchange(self, code: str, **said: str | None) -> Answer:
        return self.gateway.request("POST", "/token", self.form_of_code(code, **said), headers=FORM)

    def refresh(self, token: str, **said: str | None) -> Answer:
        return self.gateway.request("POST", "/token", self.form_of_refresh(token, **said), headers=FORM)


def returned(answer: Answer) -> dict[str, str]:
    """What a browser brings back to the program."""
    assert answer.status == 302, (answer.status, answer.body)
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


def error_of(answer: Answer) -> tuple[int, Any]:
    return answer.status, answer.json.get("error")
