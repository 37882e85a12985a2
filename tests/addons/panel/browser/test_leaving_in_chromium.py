"""What is left in a browser of a visit that was left."""

from __future__ import annotations

import re
from typing import Any

from tests.addons.panel.browser.test_panel_in_chromium import touring
from tests.support.programs.gateway import Gateway


def test_going_back_shows_nothing_of_a_visit_that_was_left(chromium: Any, gateway: Gateway) -> None:
    """Neither from a cache nor from the pages that a browser keeps alive for its button."""
    with touring(chromium, gateway) as tour:
        tour.go("file?path=MEMORY.md")
        assert "Elixir" in tour.page.inner_text("main")
        with tour.page.expect_navigation():
            tour.page.click("text=Leave the panel")
        assert re.search(r"/panel$", tour.page.url)
        tour.page.go_back()
        assert "Elixir" not in tour.page.content()
        tour.page.goto(f"{tour.base}/file?path=MEMORY.md")
        assert "Elixir" not in tour.page.content()
