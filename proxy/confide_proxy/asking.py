"""Asking a person at the terminal, beside whatever else the command does."""

from __future__ import annotations

import asyncio
import sys

from confide_proxy.options import err


async def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes; the end of the input is a no.

    The connections of the command live on meanwhile, since somebody who compares words on another machine takes minutes, and Ctrl-C ends
    the wait at once: a thread that reads, or a read on the event loop, would hold up both.
    """
    while True:
        err.print(f"{question} [y/N]: ", end="", markup=False, highlight=False, soft_wrap=True)
        line = await _line()
        answer = line.strip().lower()
        if answer in ("y", "yes"):
            return True
        if answer in ("", "n", "no"):
            return False
        err.print("please say y or n", markup=False)


async def _line() -> str:
    loop = asyncio.get_running_loop()
    is_typed = asyncio.Event()
    try:
        loop.add_reader(sys.stdin, is_typed.set)
    except OSError:
        return sys.stdin.readline()  # a file, which never makes anybody wait
    try:
        # A terminal hands out whole lines.
        await is_typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
