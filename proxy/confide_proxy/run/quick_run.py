"""A fast path of `confide run`, used while a session (`confide mcp`) runs on this device. The
session has a connection and keys, so this process loads neither, and starts the command at once.

It only handles runs that need no question and do not fail. In every other case it does nothing, and
the normal command (`cli.secret_run`) does the work and reports errors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from confide_crypto.errors import ConfideError
from confide_crypto.keys.identity_file import SEED_PREFIX, identity_line
from confide_crypto.keys.private_files import check_private_dir, read_private_file
from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.hooks import hook_paths
from confide_proxy.hooks.hook_process import CONNECT_S, answer_from, connect
from confide_proxy.link import session_values
from confide_proxy.link.session_values import SessionValues
from confide_proxy.run import child_process, run_request, run_rules
from confide_proxy.run.approvals import Approvals, PlannedUse, standing
from confide_proxy.run.opened_run import OpenedRun, load_masks
from confide_proxy.run.run_request import RunRequest
from confide_proxy.run.secret_names import SecretNames
from confide_proxy.sealing.secret_references import bare
from confide_proxy.sealing.use_log import UseLog

_SEED_BYTES: Final = 32


class _Place(NamedTuple):
    """The files of this device that a run needs (`paths.ProxyPaths`, whose import takes longer than
    all that is done here).
    """

    state: Path
    config: Path

    @property
    def identity(self) -> Path:
        return self.state / "identity.key"

    @property
    def names(self) -> Path:
        return self.state / "secret-names.json"

    @property
    def approvals(self) -> Path:
        return self.state / "approvals.json"

    @property
    def uses(self) -> Path:
        return self.state / "secret-uses.jsonl"

    @property
    def known(self) -> Path:
        return self.state / "known"


def run(arguments: Sequence[str]) -> None:
    """Run the command in these arguments, and exit with its exit code. Returns without effect if
    the run needs the normal command.
    """
    request = run_request.plain(arguments)
    if request is None:
        return
    child_process.protect()
    try:
        opened = _opened(request, _Place(*map(Path, hook_paths.find())))
    except (ConfideError, OSError, ValueError):
        return  # the command line meets the same, and says so
    if opened is None:
        return
    try:
        with opened.child_terms() as terms:
            code = child_process.run(terms)
    except ConfideError as error:
        os.write(2, f"confide: {error.with_hint}\n".encode(errors="replace"))
        code = error.exit_code
    child_process.end_by_signal(code)
    os._exit(code)


def _opened(request: RunRequest, here: _Place) -> OpenedRun | None:
    """Return the run with its secrets, their use noted; None if it gets nothing here.

    Raises ConfideError, OSError, ValueError: the command line meets the same.
    """
    names = SecretNames(here.names).read()
    program = child_process.program_of(request.command[0])
    if hook_paths.is_off(str(here.config), str(Path.cwd()), "run"):
        return None
    seed = _seed(here)
    found = _found([_meant(each, names) for each in request.references], here.state, seed) if seed else None
    if found is None:
        return None
    opened = dict(zip(found.secrets.values(), found.values, strict=True))
    secrets = {each: found.secrets[_meant(each, names)] for each in request.references}
    places = request.header_places(secrets)
    rules = run_rules.read(here.config)
    if rules is None or places.keys() & {secrets[each] for each in request.given}:
        return None
    use = PlannedUse(program, request.command, list(opened), names, places)
    approved = standing(use, rules.allow, Approvals(here.approvals))
    if not approved:
        return None
    values = {each: opened[secret] for each, secret in secrets.items()}

    pages = partial(all_values, here.state, seed)
    masks = cache(partial(load_masks, opened, here.known, found.space, found.first_key, pages))
    use.note(UseLog(here.uses), approved)
    for warning in use.warnings(opened):
        os.write(2, f"confide: {warning}\n".encode())
    return OpenedRun(request, program, secrets, values, masks, rules.ca_file)


def _meant(reference: str, names: Mapping[str, Placeholder]) -> str:
    """Return a reference as a session reads it, which knows no names. Raises NoSecretError."""
    text = bare(reference)
    return str(names.get(text, text))


def all_values(state: Path, seed: bytes) -> Iterator[SessionValues]:
    """Yield the values of all secrets from a running session, page by page. Yields nothing if no
    session runs, and stops early if the session ends.

    Args:
        state: the folder that contains the sessions' sockets.
        seed: the secret seed of this device's identity.
    """
    after: str | None = ""
    while after is not None:
        nonce = os.urandom(session_values.NONCE_BYTES)
        line = session_values.page_request(after, nonce, str(Path.cwd()))
        try:
            page = _answered(state, line, seed, nonce, session_values.PAGE_S)
        except OSError:
            return
        if page is None:
            return
        yield page
        after = page.following if page.following is not None and page.following > after else None


def _seed(here: _Place) -> bytes:
    """Return the seed of this device's identity; empty if it is in a keyring, or under a passphrase.

    Raises KeyFileError, OSError.
    """
    check_private_dir(here.state)
    prefix, seed = identity_line(here.identity, read_private_file(here.identity))
    return seed if prefix == SEED_PREFIX and len(seed) == _SEED_BYTES else b""


def _found(references: Sequence[str], state: Path, seed: bytes) -> SessionValues | None:
    """Return the values of these references from a running session; None without one. Raises OSError."""
    nonce = os.urandom(session_values.NONCE_BYTES)
    line = session_values.request(references, nonce, str(Path.cwd()))
    found = _answered(state, line, seed, nonce, session_values.ANSWER_S)
    return found if found is not None and list(found.secrets) == list(dict.fromkeys(references)) else None


def _answered(state: Path, line: bytes, seed: bytes, nonce: bytes, time_s: float) -> SessionValues | None:
    """Return a session's answer to a request; None without a session or an answer. Raises OSError."""
    connection = connect(os.fspath(state), CONNECT_S)
    if connection is None:
        return None
    with connection:
        connection.settimeout(time_s)
        connection.sendall(line)
        try:
            answer = answer_from(connection, end=time.monotonic() + time_s)
        except (OSError, ValueError, RecursionError):
            return None
    return session_values.open_values(answer, seed, nonce)
