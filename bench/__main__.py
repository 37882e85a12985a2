"""`python -m bench [NAME ...]` runs the benches named, or all of them."""

from __future__ import annotations

import importlib
import platform
import sys

BENCHES = (
    "start",
    "commands",
    "ends",
    "house",
    "modules_entered",
    "echo",
    "bulk",
    "growth",
    "handshake",
    "search",
    "result_tokens",
    "vector_leg",
    "hybrid",
    "search_while_indexing",
    "notes_listing",
    "tasks",
    "nights",
    "at_rest",
    "rekey",
    "entities",
    "index_size",
    "saved",
    "note_store",
    "nodes",
    "scale",
    "transcript_append",
    "transcript_load",
    "two_machines",
    "reconnect",
    "resync",
    "indexing",
    "vault",
    "removal",
    "initial_load",
    "idle_watcher",
    "upload",
    "hostile",
    "idle_callers",
    "metrics",
    "backup",
    "forget",
    "capacity",
    "daemon_memory",
    "secrets",
    "hooks",
    "hook_prompts",
    "quiet.fit",
    "action.judge",
    "stale.judge",
    "gateway",
    "gateway_attacks",
    "panel",
    "learning.rules",
)


def main() -> None:
    """Run what the command line names."""
    print(f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}")
    names = sys.argv[1:] or list(BENCHES)
    sys.argv[1:] = []  # the benches have options of their own, for when they are run alone
    for name in names:
        if name not in BENCHES:
            sys.exit(f"bench: there is no '{name}'; there are {', '.join(BENCHES)}")
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
