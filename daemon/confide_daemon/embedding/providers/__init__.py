"""The providers of embedding models: each file in this folder is one, under its name in the configuration (`provider = "voyage"`).

Such a module has

- `open(config) -> Embedder`: the model, ready to be asked. Gets the whole `[embedding]` section; its own options are
  `config.section(__name__)`. May take long and raises `EmbedderError`.
- `Settings`, where it has options: a frozen dataclass whose fields are the options of `[embedding.<name>]` with their defaults, all
  strings, numbers or booleans, with a method `problem()` that gives the first option with a wrong value and what it takes, or None.

The modules are imported with the configuration, so what is heavy (numpy, a client, a model) is imported in `open`. Nothing else needs
to know of a new provider.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Protocol, cast

from confide_daemon.embedding.embedder import Embedder
from confide_daemon.embedding.settings import EmbeddingSettings

# No provider at all: searches go by keywords.
NONE = "none"


class Settings(Protocol):
    def problem(self) -> tuple[str, str] | None:
        """The first option with a value that cannot be and what it takes, None when all is well."""


class Provider(Protocol):
    """What a module of this folder is."""

    def create(self, config: EmbeddingSettings) -> Embedder:
        """The model. Raises EmbedderError."""


@cache
def names() -> tuple[str, ...]:
    """The providers there are, without `none`."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def provider(name: str) -> Provider:
    """The module of a provider that `names` has."""
    return cast("Provider", importlib.import_module(f"{__name__}.{name}"))


def default_settings() -> dict[str, object]:
    """By name, the settings of every provider that has some, all at their defaults."""
    modules = {name: provider(name) for name in names()}
    return {name: module.Settings() for name, module in modules.items() if hasattr(module, "Settings")}
