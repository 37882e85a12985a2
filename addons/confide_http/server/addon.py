"""The daemon's part of the HTTP add-on: the gateway, the requests of devices about it, and the
checks of `confided doctor`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from confide_crypto.errors import printable
from confide_daemon import config as configuration
from confide_daemon.access.registry import open_state
from confide_daemon.addons import Addon, Check, DaemonHost, Service, SessionHost, SessionPart
from confide_daemon.config import DaemonConfig
from confide_daemon.datadir.paths import DaemonPaths
from confide_http.door.certificates import SOON_S, CertificateError, Validity, validity_of
from confide_http.server.process_share import MOST_FILES
from confide_http.server.requests import SignInRequests
from confide_http.settings import GatewayConfig


class Http(Addon):
    """The daemon's add-on for programs that use a space over HTTP, with the rights that its devices
    grant them.
    """

    def session(self, session: SessionHost) -> Iterable[SessionPart]:
        """Return the handler of the requests by which a device decides which programs may use its
        space.
        """
        return (SignInRequests(session),)

    def service(self, daemon: DaemonHost) -> Service | None:
        """Return the gateway, or None unless `[gateway]` sets an address."""
        if not daemon.config.table(GatewayConfig).listen or daemon.is_on_demand:
            return None
        # The web server and the SDK take 31 MB, which a daemon without a gateway never loads.
        from confide_http.server.gateway_service import GatewayService

        return GatewayService(daemon.config.table(GatewayConfig), daemon)

    def files(self, config: DaemonConfig) -> int:
        """Return the highest number of file descriptors that HTTP clients can occupy at once."""
        return MOST_FILES if config.table(GatewayConfig).listen else 0

    def checks(self, paths: DaemonPaths, follow: Callable[[str], None]) -> Iterable[Check]:
        """Check the certificate files and the public names in `[gateway]`."""
        return _gateway(paths)


_NAMED = "clients refuse it; public_url of [gateway] is the address that they have"


def _valid(validity: Validity, what: str, hint: str) -> Check:
    """Check when the certificate is valid."""
    left_s = validity.ends - time.time()
    days = f"{abs(left_s) / 86_400:.0f} days"
    if validity.begins > time.time():
        return Check(what, "it is not valid yet", "is the clock of this device right?")
    if left_s < SOON_S:
        return Check(what, f"it is over since {days}" if left_s < 0 else f"it ends in {days}", hint)
    return Check(what, detail=f"good for {days}")


def _gateway(found: DaemonPaths) -> Iterator[Check]:
    """Check `[gateway]`: the certificate, and the space for programs that describe themselves."""
    said = configuration.load(found.config).table(GatewayConfig)
    if said.cert:
        what, hint = (
            "certificate of the gateway",
            "is it renewed? the daemon reads new files by itself, as its own user",
        )
        try:
            validity = validity_of(Path(said.cert).expanduser(), Path(said.key).expanduser())
        except CertificateError as error:
            yield Check(what, f"it cannot be used: {error}", hint)
        else:
            yield _valid(validity, what, hint)
            host = urlsplit(said.public_url).hostname
            if host and not validity.is_for(host):
                names = ", ".join(map(printable, validity.names)) or "no name"
                yield Check("name of the gateway", f"its certificate is for {names}, and not for {host}", _NAMED)
    with closing(open_state(found.data)) as state:
        known = state.registry.spaces()
    if said.client_space and said.client_space not in known:
        problem = f"client_space is '{said.client_space}', and there is no space of that name"
        yield Check("programs that describe themselves", problem, f"the spaces are: {', '.join(known) or 'none yet'}")
