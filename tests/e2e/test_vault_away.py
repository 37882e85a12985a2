"""What a person at `confide` is told while the vault that keeps the sealed records is away."""

from __future__ import annotations

from pathlib import Path

from tests.support.fronts import free_port
from tests.support.programs import NO_MODEL, Machine, running_daemon
from tests.support.sealed_files import TOKEN


def test_sync_says_why_files_had_to_stay_and_ends_with_5(tmp_path: Path) -> None:
    token = tmp_path / "vault.token"
    token.write_text("s.nobody-asks-for-it")
    token.chmod(0o600)
    home = tmp_path / "server-home"
    home.mkdir()
    vault = f'[vault]\nurl = "http://127.0.0.1:{free_port()}"\ntoken_file = "{token}"\ntimeout_s = 1\n'
    (home / "daemon.toml").write_text(NO_MODEL + vault)
    with running_daemon(tmp_path) as daemon:
        machine = Machine(tmp_path, "laptop")
        machine.run("join", daemon.invite("laptop"))
        machine.write("MEMORY.md", f"the deploy token is {TOKEN}\n")
        said = machine.run("sync", code=5)
        assert "could not all be compared: the vault" in said
        assert "hint: " in said
        machine.run("sync", "--json", code=5)
        machine.write("MEMORY.md", "no secret any more\n")
        machine.run("sync")
