"""Run the HTTPS proxy of a `confide run` in a process of its own, which ends with the run."""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from confide_proxy.errors import RunRefusedError
from confide_proxy.run.egress import roots, run_certificate
from confide_proxy.run.egress.header_secrets import Destination, HeaderSecrets
from confide_proxy.run.egress.proxy_environment import USER, ProxyEnvironment, is_listed

if TYPE_CHECKING:
    from confide_proxy.sealing.masking import SecretForms

_PROXIES: Final = ("HTTPS_PROXY", "https_proxy")
_BYPASSES: Final = ("NO_PROXY", "no_proxy")
_BUNDLES: Final = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "NPM_CONFIG_CAFILE", "PIP_CERT"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "NODE_EXTRA_CA_CERTS"),
)
"""Variables with a file of the root certificates that a program trusts."""


@contextlib.contextmanager
def running(
    secrets_by_host: HeaderSecrets, forms: Callable[[], SecretForms], ca_file: str
) -> Iterator[ProxyEnvironment]:
    """Run the proxy beside a command, and yield the environment variables for the command. This
    process forks, so it must have no other thread.

    The new process loads the proxy's libraries while the command starts; a connection waits for
    them.

    Args:
        secrets_by_host: the secrets for headers of hosts.
        forms: returns the secret values that are masked in responses; called in the new process.
        ca_file: file of further root certificates that verify hosts; "" for none.

    Raises RunRefusedError if there are no root certificates, `ca_file` is wrong, or the proxy
    cannot be started.
    """
    trusted = roots.trusted(ca_file)
    credential = secrets.token_urlsafe(32)
    try:
        certificate = run_certificate.make([each.host for each in secrets_by_host.destinations])
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            port = listener.getsockname()[1]
            alive, held = os.pipe()
            if (pid := os.fork()) == 0:
                os.close(held)
                _serve(lambda: (secrets_by_host, forms(), credential, certificate.context), trusted, listener, alive)
    except OSError as error:
        raise RunRefusedError(
            f"the proxy that --http needs cannot be started: {error.strerror}",
            hint="it takes a port of 127.0.0.1, and some KiB of the folder for temporary files",
        ) from error
    os.close(alive)
    address = f"http://{USER}:{credential}@127.0.0.1:{port}".encode()
    try:
        yield _environment(address, secrets_by_host.destinations, trusted, certificate.authority)
    finally:
        os.close(held)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(
    terms: Callable[[], tuple[HeaderSecrets, SecretForms, str, ssl.SSLContext]],
    trusted: bytes,
    listener: socket.socket,
    alive: int,
) -> NoReturn:
    """Be the proxy until the pipe `alive` ends, away from the terminal and its signals. `terms`
    returns the first arguments of `LocalProxy`.
    """
    try:
        os.setsid()
        outer = roots.verifying(trusted)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        local_proxy = importlib.import_module("confide_proxy.run.egress.local_proxy")
        local_proxy.LocalProxy(*terms(), outer).run(listener, alive)
    except RunRefusedError as error:
        os.write(2, f"confide: {error.with_hint}\n".encode(errors="replace"))
    finally:
        os._exit(0)


def _environment(
    address: bytes, destinations: tuple[Destination, ...], trusted: bytes, authority: bytes
) -> ProxyEnvironment:
    variables = dict.fromkeys(_PROXIES, address) | {"NODE_USE_ENV_PROXY": b"1"}
    for name in _BYPASSES:
        if (given := os.environ.get(name)) is not None:
            variables[name] = _without(given, destinations).encode()
    files: dict[str, bytes] = {}
    for name in _BUNDLES:
        own = b"" if name == "NODE_EXTRA_CA_CERTS" else trusted
        if given := os.environ.get(name):
            with contextlib.suppress(OSError):
                own = Path(given).read_bytes()
        files[name] = own + b"\n" + authority
    return ProxyEnvironment(variables, files)


def _without(bypass: str, destinations: tuple[Destination, ...]) -> str:
    """Return a list of hosts that are reached without a proxy, less those that need this one."""
    entries = bypass.split(",")
    return ",".join(entry for entry in entries if not any(is_listed(each.host, entry) for each in destinations))
