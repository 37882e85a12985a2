"""What `confide mcp` does without, since one runs for every agent on a machine, all day. `bench/start.py` shows what that is worth.

Modules that a library imports and seldom uses are put in place as stand-ins, which become the real ones when anything is asked of them.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

_M_ARENA_MAX = -8  # malloc.h
_OWN_HASHES = (
    "_blake2",
    "_md5",
    "_sha1",
    "_sha3",
    *(("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")),
)
"""All that `hashlib` promises everywhere."""


def all_of_the_network() -> None:
    """All of the below that is about connections; before asyncio is imported."""
    openssl_hashes()
    tls()
    package_metadata()
    url_openers()


def arenas() -> None:
    """Has all threads allocate from one arena of glibc's: each of a dozen idle threads would keep one of its own (0.7 MB here)."""
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except AttributeError:
        return  # not glibc


def package_metadata() -> None:
    """Spares `websockets` the import of `importlib.metadata`, with `email`, `zipfile` and `csv` behind it (36 ms, 1 MB here).

    A released `websockets` imports it and uses it only for its own version, which nothing here reads.
    """
    name = "websockets.version"
    if name not in sys.modules:
        stand_in = types.ModuleType(name)
        stand_in.__dict__.update(tag="", version="", commit="")
        sys.modules[name] = stand_in


def inspection() -> None:
    """Spares `dataclasses` the import of `inspect`, with `ast`, `dis` and `tokenize` behind it, until it is asked for anything (a sixth of
    the time to the first answer). A dataclass asks for the signature of a class without a docstring, and for nothing else."""
    if "inspect" not in sys.modules:
        _stand_in("inspect")


def openssl_hashes() -> None:
    """Spares `hashlib` and `hmac` OpenSSL's hashes, of which Python has its own (libcrypto, 3 MB); before either is imported.

    Texts are hashed with BLAKE2, which Python never takes from OpenSSL, and the channel has its ciphers from elsewhere.
    """
    if "_hashlib" in sys.modules or "hashlib" in sys.modules:
        return
    try:
        for name in _OWN_HASHES:
            __import__(name)
    except ImportError:
        return  # a Python that was built without: then OpenSSL's are all it has
    sys.modules["_hashlib"] = None  # type: ignore[assignment] # what an import takes for "is not there"


def tls() -> None:
    """Spares asyncio and `websockets` the import of `ssl`, until somebody asks for anything of it: a daemon on this machine is reached
    without TLS (2 MB here, 5 with the hashes). Imports asyncio, which does without `ssl` where Python has none."""
    if "ssl" in sys.modules or "asyncio" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
    _stand_in("ssl", then=_have_asyncio_know)


def url_openers() -> None:
    """Spares `websockets` the import of `urllib.request`, with `http.client` and `email` behind it (1.4 MB here), until it asks which
    proxy an address is reached by: one on this machine is by none."""
    if "urllib.request" in sys.modules:
        return
    stand_in = _stand_in("urllib.request")

    def asked(name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            import ssl

            _ = ssl.SSLContext  # the way to a proxy may have TLS, which asyncio is not asked for before it needs it
            return getattr(_real(stand_in), name)(*arguments)

        return ask

    # Taken by their names, and called later.
    stand_in.__dict__.update(getproxies=asked("getproxies"), proxy_bypass=asked("proxy_bypass"))


def _stand_in(name: str, then: Callable[[types.ModuleType], None] | None = None) -> types.ModuleType:
    """A module in the place of one that is not imported yet. `then` is called with the real one, once that is there."""
    stand_in = types.ModuleType(name)

    def found(wanted: str) -> Any:
        if wanted.startswith("__"):  # what the import system looks for
            raise AttributeError(wanted)
        is_new = sys.modules.get(name) is stand_in
        real = _real(stand_in)
        if is_new and then is not None:
            then(real)
        return getattr(real, wanted)

    stand_in.__dict__["__getattr__"] = found
    sys.modules[name] = stand_in
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(__import__(parent), child, stand_in)
    return stand_in


def _real(stand_in: types.ModuleType) -> types.ModuleType:
    import importlib

    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    return importlib.import_module(name)


def _have_asyncio_know(ssl: types.ModuleType) -> None:
    """asyncio was imported as if there were no TLS; what of it depends on that is made good."""
    import importlib
    from asyncio import base_events, selector_events, sslproto

    for module in (base_events, selector_events):
        module.__dict__["ssl"] = ssl
    importlib.reload(sslproto)
