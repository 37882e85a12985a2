"""What a person at `confide` is told while the vault that keeps the sealed records is away, and an operator who leaves one."""

from __future__ import annotations

from pathlib import Path

from tests.support.daemon.openbao import openbao
from tests.support.network.ports import free_port
from tests.support.programs.processes import NO_MODEL, Inside, running_daemon
from tests.support.sealing.sealed_files import TOKEN


def test_sync_says_why_files_had_to_stay_and_ends_with_5(tmp_path: Path) -> None:
    token = tmp_path / "vault.token"
    token.write_text("s.nobody-asks-for-it")
    token.chmod(0o600)
    home = tmp_path / "server-home"
    home.mkdir()
    vault = f'[vault]\nurl = "http://127.0.0.1:{free_port()}"\ntoken_file = "{token}"\ntimeout_s = 1\n'
    (home / "daemon.toml").write_text(NO_MODEL + vault)
    with running_daemon(tmp_path) as daemon:
        machine = Inside(tmp_path, "laptop")
        machine.run("join", daemon.invite("laptop"))
        machine.write("MEMORY.md", f"the deploy token is {TOKEN}\n")
        said = machine.run("sync", code=5)
        assert "could not all be compared: the vault" in said
        assert "hint: " in said
        machine.run("sync", "--json", code=5)
        machine.write("MEMORY.md", "no secret any more\n")
        machine.run("sync")


def test_a_vault_is_left_while_a_machine_is_connected_and_doctor_tells_of_what_is_still_in_it(tmp_path: Path) -> None:
    """With the custody that is the default: without the daemon nobody here has the space's key."""
    folder = tmp_path / "bao"
    folder.mkdir()
    with openbao(folder) as bao:
        token = tmp_path / "vault.token"
        token.write_text(bao.token("confide"))
        token.chmod(0o600)
        home = tmp_path / "server-home"
        home.mkdir()
        with_vault = f'{NO_MODEL}[vault]\nurl = "{bao.url}"\ntoken_file = "{token}"\n'
        (home / "daemon.toml").write_text(with_vault)
        with running_daemon(tmp_path) as daemon:
            machine = Inside(tmp_path, "laptop")
            machine.run("join", daemon.invite("laptop"))
            machine.write("MEMORY.md", f"the deploy token is {TOKEN}\n")
            machine.run("sync")
            name = machine.run("secrets", "ls").split()[0]

            daemon.stop()
            said = daemon.run("vault", "move", "--back", code=1)
            assert "skipped: this space is locked" in said
            assert "hint: " in said
            # Taken out too early.
            (home / "daemon.toml").write_text(NO_MODEL)
            daemon.start()
            machine.run("secrets", "show", "--raw", name, code=5)
            said = daemon.run("doctor", code=1)
            assert "problem  sealed records of laptop: 1 is in a vault that daemon.toml does not name" in said

            daemon.stop()
            (home / "daemon.toml").write_text(with_vault)
            daemon.start()
            machine.run("secrets", "ls")
            daemon.run("vault", "move", "--back")
            assert bao.paths() == []
            daemon.stop()
            (home / "daemon.toml").write_text(NO_MODEL)
            daemon.start()
            assert TOKEN in machine.run("secrets", "show", "--raw", name)
            daemon.run("doctor")
