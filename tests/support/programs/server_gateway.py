"""The gateway of a real `confided serve`, and whoever speaks HTTP to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.programs.confided import Confided
from tests.support.programs.gateway import Door
from tests.support.programs.processes import NO_MODEL, SERVER_KEEPS

GATEWAY = '[gateway]\nlisten = "127.0.0.1:0"\n'


@dataclass
class ServerGateway(Door):
    """One that runs, of a daemon with the space `home`."""

    confided: Confided
    tokens: dict[str, str] = field(default_factory=dict)

    def token(self, name: str, *options: str) -> str:
        """A new token's text; one that was made before under that name is used again."""
        if name not in self.tokens:
            self.tokens[name] = self.made(name, *options)["token"]
        return self.tokens[name]

    def made(self, name: str, *options: str) -> Any:
        """What making one tells."""
        return self.confided.json("http", "allow", name, "--space", "home", *options)


def served(home: Path, *, more: str = "", gateway: str = GATEWAY) -> ServerGateway:
    """A daemon with a gateway on a port of its own, that listens."""
    confided = Confided(home)
    (home / "daemon.toml").write_text(NO_MODEL + (more or SERVER_KEEPS) + gateway)
    confided.run("init")
    confided.enroll("home")
    return ServerGateway(serve(confided), confided)


def serve(confided: Confided, listen: str = "127.0.0.1:0") -> int:
    """Start the daemon; the port of its gateway."""
    confided.serve("--listen", listen)
    return int(re.findall(r"the gateway listens on 127\.0\.0\.1 port (\d+)", confided.log)[-1])
