"""The providers of embedding models. Each file in this folder is one provider, under its name in
the configuration (`provider = "voyage"`).

Such a module defines

- `create(config) -> Embedder`, which returns the model, ready for calls. It gets the whole section
  `[embedding]`; its own options are `config.section(__name__)`. It may take long, and raises
  `EmbedderError` if the model cannot be loaded or reached.
- `Settings`, if it has options: a frozen dataclass whose fields are the options of
  `[embedding.<name>]` with their defaults, all strings, numbers or booleans. Its method `problem()`
  returns the first invalid option and a description of valid values, or None.

The modules are imported with the configuration, so anything large (numpy, a client, a model) is
imported within `create`. A new provider needs no change elsewhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Protocol, cast

from confide_daemon.embedding.embedder import Embedder
from confide_daemon.embedding.settings import EmbeddingSettings

# No provider: searches use keywords.
NONE = "none"


class Settings(Protocol):
    def problem(self) -> tuple[str, str] | None:
        """Return the name of the first invalid option and a description of valid values, or None if
        all are valid.
        """


class Provider(Protocol):
    """The functions and classes that a provider's module must define."""

    def create(self, config: EmbeddingSettings) -> Embedder:
        """Return a model with these options, ready for calls. May take long. Raises EmbedderError
        if it cannot be loaded or reached.
        """


@cache
def names() -> tuple[str, ...]:
    """Return the names of all providers, without `none`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def provider(name: str) -> Provider:
    """Return the module of the provider with this name, which is one of `names`."""
    return cast("Provider", importlib.import_module(f"{__name__}.{name}"))


def default_settings() -> dict[str, object]:
    """Return the default options of every provider that has options, by the provider's name."""
    modules = {name: provider(name) for name in names()}
    return {name: module.Settings() for name, module in modules.items() if hasattr(module, "Settings")}
