"""The entry of `confide hook` in the help; clients start it by the shorter way in `__main__`."""

from __future__ import annotations

from confide_proxy.hooks import hook_process


def hook() -> None:
    """Answer one event of your agent's program; that program runs this.

    It reads the event on stdin and answers on stdout, or says nothing. It always ends with 0.
    """
    hook_process.main()
