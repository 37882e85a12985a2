"""A run that is approved and has its secrets' values: what its command gets, and the HTTPS proxy
beside it if a header of a host gets a secret.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from confide_crypto.sealing.placeholder import Placeholder
from confide_proxy.link.session_values import SessionValues
from confide_proxy.run.egress.proxy_environment import ProxyEnvironment
from confide_proxy.run.run_request import ChildTerms, RunRequest

if TYPE_CHECKING:
    from confide_proxy.run.run_masks import RunMasks


class OpenedRun(NamedTuple):
    """An approved command, with all that it gets. Its repr does not show values.

    Attributes:
        request: the command, with references to secrets.
        program: path of the program.
        secrets, values: the secret and the value of each reference.
        masks: returns the masks for the output. The first call takes time, so it is made when there
            is something to mask.
        ca_file: file of further root certificates for the hosts that get a secret; "" for none.
    """

    request: RunRequest
    program: str
    secrets: Mapping[str, Placeholder]
    values: Mapping[str, bytes]
    masks: Callable[[], RunMasks]
    ca_file: str

    def __repr__(self) -> str:
        return f"OpenedRun({self.program})"

    @contextlib.contextmanager
    def child_terms(self) -> Iterator[ChildTerms]:
        """Yield what the command gets, and run the HTTPS proxy in the block if it needs one. This
        process forks for it, so it must have no other thread.

        Raises RunRefusedError if a value cannot be where it is to go, or the proxy cannot be
        started.
        """
        terms = self.request.terms(self.program, self.values, lambda: self.masks().make())
        with self._header_proxy() as proxy:
            yield terms._replace(variables={**terms.variables, **proxy.variables}, files={**terms.files, **proxy.files})

    def _header_proxy(self) -> contextlib.AbstractContextManager[ProxyEnvironment]:
        if not self.request.headers:
            return contextlib.nullcontext(ProxyEnvironment({}, {}))
        # Its libraries take longer to load than the rest of a run.
        proxy_process = importlib.import_module("confide_proxy.run.egress.proxy_process")
        secrets_by_host = self.request.header_secrets(self.secrets, self.values)
        running: contextlib.AbstractContextManager[ProxyEnvironment] = proxy_process.running(
            secrets_by_host, lambda: self.masks().forms, self.ca_file
        )
        return running


def load_masks(
    values: Mapping[Placeholder, bytes],
    known: Path,
    space: bytes,
    first_key: bytes,
    pages: Callable[[], Iterator[SessionValues]],
) -> RunMasks:
    """Load the module of the masks, and return those with these arguments of `RunMasks`."""
    run_masks = importlib.import_module("confide_proxy.run.run_masks")
    made: RunMasks = run_masks.RunMasks(values, known, space, first_key, pages)
    return made
