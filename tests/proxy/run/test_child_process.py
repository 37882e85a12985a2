"""A command that has secrets sees what it would see without us, and nobody else sees the secrets."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import secret_run
from tests.support.deadline import DEADLINE_S
from tests.support.programs.processes import wait_until

VALUE = "xK7mQ2vR9t/Lw4zz"
SHOWN = "(sealed:token:0f)"
DRIVER = """
import json, os, signal, sys
from confide_proxy.errors import NotRunError
from confide_proxy.run import child_process, run_request
from confide_proxy.sealing.masking import Mask, SecretForms
told = json.load(open(int(sys.argv[1]))) if sys.argv[1].isdigit() else json.loads(sys.argv[1])
value = told["value"].encode("latin-1")
forms = SecretForms({value: b"SHOWN"})
child_process.protect()
try:
    code = child_process.run(run_request.ChildTerms(
        child_process.program_of(told["command"][0]), told["command"],
        {"TOKEN": value} if told.get("env", True) else {}, {"KEY": value} if told.get("file") else {},
        value if told.get("stdin") else None, lambda: Mask(forms)))
except NotRunError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
""".replace("SHOWN", SHOWN)


def arguments(*command: str, value: str = VALUE, **told: object) -> list[str]:
    return [sys.executable, "-c", DRIVER, json.dumps({"command": command, "value": value, **told})]


def ran(*command: str, value: str = VALUE, given: bytes = b"", **told: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command. What it has goes over a file: no argument has a megabyte."""
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps({"command": command, "value": value, **told}).encode())
        file.seek(0)
        return subprocess.run(
            [sys.executable, "-c", DRIVER, str(file.fileno())],
            input=given,
            capture_output=True,
            timeout=DEADLINE_S,
            pass_fds=[file.fileno()],
        )


def test_a_command_has_the_value_and_what_it_prints_does_not() -> None:
    script = (
        'echo "out $TOKEN"; echo "err $TOKEN" >&2; printf %s "$TOKEN" | base64; printf %s "$TOKEN" | od -An -tx1; '
        'printf %s "${TOKEN%%m*}"; sleep 0.2; printf %s "${TOKEN#xK7}"; test "$TOKEN" = "xK7mQ2vR9t/Lw4zz" && exit 7'
    )
    ended = ran("sh", "-c", script)
    assert ended.returncode == 7
    said = ended.stdout.decode() + ended.stderr.decode()
    assert said.startswith(f"out {SHOWN}\n{SHOWN}")
    assert f"err {SHOWN}\n" in said
    for part in (VALUE, base64.b64encode(VALUE.encode()).decode()[:16], VALUE.encode().hex(" "), "R9t/Lw4zz"):
        assert part not in said


def test_a_command_has_what_its_shell_has_opened_for_it() -> None:
    """Such as the pipe of `<(…)`."""
    out, into = os.pipe()
    os.write(into, b"from the shell")
    os.close(into)
    with open(out, "rb") as pipe:
        ended = subprocess.run(
            arguments("cat", f"/dev/fd/{pipe.fileno()}"),
            capture_output=True,
            pass_fds=[pipe.fileno()],
            timeout=DEADLINE_S,
        )
    assert ended.stdout == b"from the shell"


def test_both_outputs_in_one_place_keep_their_order() -> None:
    """As where an agent's shell collects both: no line is cut by one of the other output."""
    with tempfile.TemporaryFile() as file:
        script = 'for n in 1 2 3; do echo "error $n of $TOKEN" >&2; echo "output $n"; done'
        subprocess.run(arguments("sh", "-c", script), stdout=file, stderr=file, timeout=DEADLINE_S, check=True)
        file.seek(0)
        said = file.read().decode()
    assert said == "".join(f"error {n} of {SHOWN}\noutput {n}\n" for n in (1, 2, 3))


def test_a_file_is_private_and_gone_afterwards() -> None:
    ended = ran(
        "sh",
        "-c",
        'stat -c "%a %s" "$KEY" 2>/dev/null || stat -f "%Lp %z" "$KEY"; echo "$KEY"; cmp -s "$KEY" - && echo same',
        given=VALUE.encode(),
        file=True,
    )
    mode, path, same = ended.stdout.decode().splitlines()
    assert (mode, same) == (f"600 {len(VALUE)}", "same")
    assert not Path(path).parent.exists()


@pytest.mark.parametrize("value", ["x" * 3 + "\x00\xff\r\n\t" * 9, "two\nlines of it\n", "a1" * 500_000])
def test_the_standard_input_is_the_value_byte_for_byte(value: str) -> None:
    """Binary, lines, a megabyte; and a command that does not read it ends as it would."""
    program = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    ended = ran(sys.executable, "-c", program, value=value, env=False, stdin=True)
    assert ended.stdout.decode().strip() == hashlib.sha256(value.encode("latin-1")).hexdigest()
    assert ran("sh", "-c", "exit 5", value=value, env=False, stdin=True).returncode == 5


def test_exit_codes_and_signals_are_the_commands_own(tmp_path: Path) -> None:
    assert ran("sh", "-c", "exit 0").returncode == 0
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        assert ran("sh", "-c", f"kill -{int(number)} $$").returncode == -number
    missing = ran("no-such-command-here")
    assert (missing.returncode, missing.stdout) == (127, b"")
    plain = tmp_path / "plain"
    plain.write_text("no program")
    assert ran(str(plain)).returncode == 126
    plain.chmod(0o755)
    assert ran(str(plain)).returncode == 126  # no #! line


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap 'echo caught; exit 3' TERM; touch {ready}; while :; do sleep 0.05; done"
    with subprocess.Popen(arguments("sh", "-c", script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        wait_until("the command", ready.exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 3
        assert process.stdout is not None
        assert process.stdout.read() == b"caught\n"


def is_there(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux keeps track of orphans")
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_what_forks_and_stays_ends_too(tmp_path: Path, how: str) -> None:
    """In the background, in a session of its own, with our output open: all of it ends with the command, or with us."""
    pids = tmp_path / "pids"
    rest = "" if how == "ends" else "; sleep 100"
    script = (
        f"(sleep 100 & echo $! >> {pids})\nsetsid sh -c 'echo $$ >> {pids}; trap : TERM; sleep 100' &\n"
        f"sleep 0.1; echo $$ >> {pids}{rest}"
    )
    with subprocess.Popen(
        arguments("sh", "-c", script), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        wait_until("the processes", lambda: pids.exists() and len(pids.read_text().split()) == 3)
        left = [int(pid) for pid in pids.read_text().split()]
        if how == "is killed":
            process.kill()
        process.wait(DEADLINE_S)
    wait_until("the end of all", lambda: not any(map(is_there, left)))


def test_a_reader_that_goes_away_ends_the_command() -> None:
    with subprocess.Popen(arguments("yes"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(2)
        process.stdout.close()
        assert process.wait(DEADLINE_S) == -signal.SIGPIPE


def test_a_command_that_closes_its_output_goes_on() -> None:
    assert ran("sh", "-c", "exec >&- 2>&-; sleep 0.1; exit 4").returncode == 4


class Terminal:
    """A person at a terminal, whose shell has started the command."""

    def __init__(self, *command: str, **told: object) -> None:
        pid, self._fd = pty.fork()
        if pid == 0:
            # A shell without job control would start it the same way: as the group in the foreground.
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
                os.tcsetpgrp(0, os.getpgrp())
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTTOU])
                os.execv(sys.executable, arguments(*command, **told))
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
            while True:
                _, status = os.waitpid(child, os.WUNTRACED)
                if os.WIFSTOPPED(status):
                    os.tcsetpgrp(0, os.getpgrp())
                    os.write(1, b"[stopped]")
                    os.read(0, 1)
                    os.tcsetpgrp(0, child)
                    os.write(1, b"[goes on]")
                    os.killpg(child, signal.SIGCONT)
                    continue
                os.write(1, b"[exit %d]" % os.waitstatus_to_exitcode(status))
                os._exit(0)
        self.said = ""

    def until(self, text: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while text not in self.said:
            assert select.select([self._fd], [], [], max(0.0, end - time.monotonic()))[0], self.said
            try:
                self.said += os.read(self._fd, 65_536).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(self.said) from None

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def close(self) -> None:
        os.close(self._fd)


@contextlib.contextmanager
def terminal(*command: str, **told: object) -> Iterator[Terminal]:
    opened = Terminal(*command, **told)
    try:
        yield opened
    finally:
        opened.close()


def test_at_a_terminal_a_command_has_one() -> None:
    """It reads lines, is asked without echo, sees the size and its changes, and its value is masked."""
    script = (
        'test -t 0 && test -t 1 && test -t 2 && echo "all terminals"; read line; echo "read $line"; echo "$TOKEN"; '
        "trap 'stty size; exit 6' WINCH; echo waits; while :; do sleep 0.05; done"
    )
    with terminal("sh", "-c", script) as person:
        person.until("all terminals")
        person.type("something\r")
        person.until("read something")
        person.until("waits")
        assert SHOWN in person.said
        assert VALUE not in person.said
        person.resize(33, 111)
        person.until("33 111")
        person.until("[exit 6]")


def test_keys_interrupt_and_stop_as_without_us() -> None:
    """Ctrl-C ends the command; Ctrl-Z gives the terminal back to the shell, and the command goes on afterwards."""
    with terminal("sh", "-c", "echo begins; sleep 100") as person:
        person.until("begins")
        person.type("\x03")
        person.until(f"[exit {-signal.SIGINT}]")
    with terminal("sh", "-c", "echo begins; read line; echo went on: $line; exit 9") as person:
        person.until("begins")
        person.type("\x1a")
        person.until("[stopped]")
        person.type("\r")
        person.until("[goes on]")
        person.type("well\r")
        person.until("went on: well")
        person.until("[exit 9]")


@pytest.mark.skipif(sys.platform != "linux", reason="there is /proc on Linux")
def test_no_process_above_the_command_has_the_value_in_its_arguments_or_environment() -> None:
    program = (
        "import os, resource; from pathlib import Path; pid, found = os.getppid(), 0\n"
        "for _ in range(2):\n"
        "    where = Path(f'/proc/{pid}')\n"
        "    found += sum(os.environb[b'TOKEN'] in (where / name).read_bytes() for name in ('cmdline', 'environ'))\n"
        "    pid = int((where / 'stat').read_text().rpartition(')')[2].split()[1])\n"
        "print(found, resource.getrlimit(resource.RLIMIT_CORE))"
    )
    ended = ran(sys.executable, "-c", program)
    if b"PermissionError" in ended.stderr:
        return  # who is not root cannot even look
    assert ended.stdout == b"0 (0, 0)\n", ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="there is /proc on Linux")
def test_of_many_commands_none_shows_the_value(tmp_path: Path) -> None:
    """The short form of `python -m bench.secret_run`, which notices a value in each of its forms."""
    for form in (VALUE, base64.b64encode(b"x" + VALUE.encode()).decode(), VALUE.encode().hex(" ")):
        assert secret_run.is_in(VALUE.encode(), form.encode())
    for script in secret_run.COMMANDS[4::9]:
        assert secret_run.leaks(script, VALUE, tmp_path) == [], script
