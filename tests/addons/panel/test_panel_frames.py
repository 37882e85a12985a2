"""Which pages may show the panel in a frame, as the browser is told: none, or those of the origins that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from confide_http.local.gateway_app import GatewayShared, create
from confide_http.local.upstream import UpstreamSession
from confide_panel import panel_app
from confide_panel.links import Links
from confide_proxy.config import PanelConfig, ProxyConfig
from confide_proxy.paths import ProxyPaths
from confide_proxy.sync.project import Project

BOARD = "https://board.example"
PORT = 7734


def browser(folder: Path, *origins: str) -> httpx.AsyncClient:
    """Whoever asks a gateway with that configuration, whose links lie in `folder`."""
    paths = ProxyPaths(folder / "proxy.toml", folder / "proxy", folder / "global", folder / "daemon")
    config = ProxyConfig(panel=PanelConfig(origins))
    gateway = GatewayShared(
        paths, config, UpstreamSession(paths, config, Project("shop", folder, is_git=False)), port=PORT
    )
    transport = httpx.ASGITransport(create(gateway, [panel_app.routes]))
    return httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:{PORT}")


def link(folder: Path) -> str:
    return f"/panel/in/{Links(folder / 'proxy/gateway/links').make()}"


def framed(site: str, **more: str) -> Mapping[str, Any]:
    """What a browser says of a frame in a page of another origin."""
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe", **more}


@pytest.mark.parametrize("path", ["/panel", "/panel/in/x", "/panel/x/", "/panel/x/projects"])
async def test_every_page_names_who_may_show_it(tmp_path: Path, path: str) -> None:
    async with browser(tmp_path) as closed, browser(tmp_path, BOARD, "http://localhost:8000") as opened:
        assert "frame-ancestors 'none'" in (await closed.get(path)).headers["content-security-policy"]
        policy = (await opened.get(path)).headers["content-security-policy"]
        assert f"frame-ancestors {BOARD} http://localhost:8000;" in policy
        assert policy.replace(f"{BOARD} http://localhost:8000", "'none'") == panel_app.rendering.policy()


async def test_a_frame_of_another_site_has_a_cookie_of_its_own(tmp_path: Path) -> None:
    """A strict one would not come back from there. It goes to frames in that site's pages alone, and only below its visit's place."""
    async with browser(tmp_path, BOARD) as one:
        for site, dest, kept in (
            ("cross-site", "iframe", "; HttpOnly; Secure; SameSite=None; Partitioned"),
            ("same-site", "iframe", "; HttpOnly; SameSite=strict"),
            ("cross-site", "document", "; HttpOnly; SameSite=strict"),
        ):
            answer = await one.get(link(tmp_path), headers=framed(site) | {"Sec-Fetch-Dest": dest})
            cookie = answer.headers["set-cookie"]
            assert cookie.endswith(kept), (site, dest, cookie)
            assert "; Path=/panel/" in cookie


async def test_where_nobody_was_named_no_frame_uses_a_link_up(tmp_path: Path) -> None:
    address = link(tmp_path)
    async with browser(tmp_path) as one:
        for site in ("cross-site", "same-site"):
            refused = await one.get(address, headers=framed(site))
            assert refused.status_code == 403
            assert "set-cookie" not in refused.headers
        assert "set-cookie" in (await one.get(address)).headers


async def test_a_frame_is_let_in_by_a_link_and_by_nothing_else(tmp_path: Path) -> None:
    """Pages of a visit, forms and pictures that another site causes are refused as ever."""
    async with browser(tmp_path, BOARD) as one:
        for path, more in (
            ("/panel/x/", {}),
            ("/panel", {}),
            ("/panel/in/x", {"Sec-Fetch-Dest": "embed"}),
            ("/panel/in/x", {"Sec-Fetch-Mode": "no-cors"}),
        ):
            assert (await one.get(path, headers=framed("cross-site") | more)).status_code == 403, path
        assert (await one.post("/panel/in/x", headers=framed("cross-site"))).status_code == 403
