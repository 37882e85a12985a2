"""Pages of the installed add-ons that a client shows beside results
(`confide_memory.tools.result_views`).

All tools of the pages are available: a decision that a page offers as a button is one that the
agent could make as well (`PendingDecision.is_open_to_agents`).

The client's first answer waits for this module to load; `view_calls` answers the calls.
"""

from __future__ import annotations

from functools import cache

from confide_memory.errors import AddonError
from confide_memory.tools.result_views import NONE, ResultViews
from confide_proxy import addons


@cache
def of_addons() -> ResultViews:
    """Return the pages of all installed add-ons; no pages if one of the add-ons cannot be loaded.
    The first call blocks.
    """
    try:
        return ResultViews([addon.view for addon in addons.installed() if addon.view is not None])
    except AddonError as error:
        import logging  # imported late: the client's first answer waits for this module

        logging.getLogger(__name__).warning("%s", error)
        return NONE
