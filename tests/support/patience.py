"""Deadlines after which the product gives less: hits by words alone, no note beside a prompt, no look at files that are on their way.

A busy machine reaches them in tests that are about something else. So they are out of reach in every test but those that set
their own, and in the programs that tests start with `IS_PATIENT` in their environment (`programs/forked.py`), as `Machine` has it.
"""

from __future__ import annotations

import sys
from typing import Final

IS_PATIENT: Final = "PYTEST_PATIENT"
PATIENT_S: Final = 20.0
DEADLINES: Final = {
    "confide_daemon.embedding.model": ("QUERY_DEADLINE_S", "WAKE_S"),
    "confide_daemon.notes.duplicates": ("DEADLINE_S",),
    "confide_daemon.retrieval.search.scoring": ("MEASURED_WITHIN_S",),
    "confide_panel.use_questions": ("CONNECT_S",),
    "confide_proxy.cli.search": ("HERE_S",),
    "confide_proxy.freshness.late_ties": ("UNASKED_S",),
    "confide_proxy.freshness.tied_notes": ("BUDGET_S",),
    "confide_proxy.hooks.hook_process": ("CONNECT_S",),
    "confide_proxy.hooks.server.prompt_listener": ("READ_S",),
    "confide_proxy.hooks.server.recall": ("ANSWER_S", "DAEMON_S", "FIRST_S"),
    "confide_proxy.hooks.server.session_asks": ("CONNECT_S",),
    "confide_proxy.offline.completing": ("HERE_S", "LINKED_S"),
    "confide_proxy.run.quick_run": ("CONNECT_S",),
    "confide_proxy.sync.project": ("_GIT_DEADLINE_S",),
}
"""By module, also where a name was imported from another one."""
OF_A_HOOK: Final = {"confide_proxy.hooks.hook_process": ("ACTION_S", "DEADLINE_S", "FIRST_S")}
"""The whole time of a hook's process."""
SLEEP: Final = ("confide_crypto.transport.connection", "SLEPT_S")
"""The delay that counts as a sleep, which ends a connection that a test then has no way to open again. Programs reconnect, and keep it."""
NO_DELAY_S: Final = 3000.0


def be_patient(*, is_program: bool = False) -> None:
    """Set the deadlines of the modules that are loaded. A test's own `monkeypatch` comes after, and puts this back."""
    for module, names in (*DEADLINES.items(), *(OF_A_HOOK.items() if is_program else ())):
        if (loaded := sys.modules.get(module)) is not None:
            for name in names:
                assert hasattr(loaded, name), f"{module} has no {name}"
                setattr(loaded, name, PATIENT_S)
    if not is_program and (loaded := sys.modules.get(SLEEP[0])) is not None:
        setattr(loaded, SLEEP[1], NO_DELAY_S)
