"""Declare what this add-on brings to `confided`: the page beside results, for clients of its gateway."""

from __future__ import annotations

from confide_daemon.addons import Addon
from confide_panel.views.memory_view import VIEW


class Panel(Addon):
    """The daemon's add-on for the page beside results."""

    views = (VIEW,)
