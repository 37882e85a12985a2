"""The page on providers, whose configurations are read, and the example of CONTRIBUTING.md, which is a provider."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.providers.provider_server import KEY, ProviderServer, expected

from confide_daemon import config
from confide_daemon.embedding import providers
from confide_daemon.errors import ConfigError
from confide_daemon.spaces import models

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CONFIGURATIONS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_the_configurations_are_ones(text: str, tmp_path: Path) -> None:
    (tmp_path / "daemon.toml").write_text(text)
    assert models.order(config.load(tmp_path / "daemon.toml").embedding)


def test_the_order_of_the_first_example(tmp_path: Path) -> None:
    (tmp_path / "daemon.toml").write_text(CONFIGURATIONS[0])
    embedding = config.load(tmp_path / "daemon.toml").embedding
    assert models.order(embedding) == ("voyage", "openai", "local")
    assert embedding.section("voyage").monthly_tokens == 20_000_000


def test_every_provider_is_on_the_page() -> None:
    for name in (*providers.names(), providers.NONE):
        assert f"\n| `{name}`" in PAGE


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's file beside the providers there are."""
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "acme.py").write_text(EXAMPLE)
    monkeypatch.setattr(providers, "__path__", [*providers.__path__, str(tmp_path / "providers")])
    providers.names.cache_clear()
    yield
    sys.modules.pop("confide_daemon.embedding.providers.acme", None)
    providers.names.cache_clear()


@pytest.mark.usefixtures("acme")
def test_one_file_is_a_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name, its options and its key are known to the configuration, and its model embeds, with nothing else changed."""
    monkeypatch.setenv("ACME_API_KEY", KEY)
    with ProviderServer("plain") as server:
        text = f'[embedding]\nprovider = "acme"\n[embedding.acme]\nbase_url = "{server.url}"\nmodel = "all-minilm"\n'
        (tmp_path / "daemon.toml").write_text(text)
        loaded = config.load(tmp_path / "daemon.toml")
        assert models.order(loaded.embedding) == ("acme", "local")
        embedder = models.load(loaded.embedding)
        assert np.allclose(embedder.embed_documents(["a text"]), expected(["a text"], 384), atol=1e-6)
        embedder.embed_query("a question")
        assert [body.get("kind") for body in server.asked[1:]] == ["document", "query"]
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        embedder.close()  # type: ignore[attr-defined]
    (tmp_path / "daemon.toml").write_text("[embedding.acme]\nmodle = 'x'\n")
    with pytest.raises(ConfigError, match=r"unknown option 'embedding\.acme\.modle'"):
        config.load(tmp_path / "daemon.toml")
