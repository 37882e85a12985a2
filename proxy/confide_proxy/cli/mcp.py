"""The entry of `confide mcp` in the help; agents' clients start it by the shorter way in
`__main__`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from confide_proxy.cli.console import CommandContext, ProjectDir


def mcp(context: typer.Context, project: ProjectDir = Path()) -> None:
    """Serve an agent over MCP; the agent's program runs this.

    It reads requests on stdin and answers on stdout.
    """
    from confide_proxy.mcp import stdio

    here: CommandContext = context.obj
    sys.exit(stdio.run(["--project", str(project), "--config", str(here.paths.config)]))
