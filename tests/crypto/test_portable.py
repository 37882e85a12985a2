"""Windows, as far as Linux can show it: without what Windows lacks, the modules load, lock, read and write, and hooks are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

from confide_memory.documents import leads_out, path_problem, unsafe

ROOT = Path(__file__).parents[2]
OF_TERMINALS = ("run.child_process", "run.child_leader", "run.quick_run", "run.secret_files")
"""Modules that Windows never loads: `confide run` is refused there."""
HIDDEN = "from tests.support.windows.hiding import hide\nhide()\n"


def run(script: str, folder: Path) -> str:
    """The output of a process that lacks what Windows lacks."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + script],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "CONFIDE_HOME": str(folder / "confide")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_modules_of_the_device_load(tmp_path: Path) -> None:
    """Those of the proxy, of what both programs share, and of the add-ons' halves on a device."""
    script = (
        "import importlib, pkgutil\n"
        "for name in ('confide_crypto', 'confide_memory', 'confide_proxy'):\n"
        "    package = importlib.import_module(name)\n"
        "    for module in pkgutil.walk_packages(package.__path__, f'{name}.'):\n"
        f"        module.name.endswith(('__main__', *{OF_TERMINALS})) or importlib.import_module(module.name)\n"
        "import confide_proxy.__main__\n"
        "from confide_proxy.addons import installed\n"
        "print(len(installed()))\n"
    )
    assert int(run(script, tmp_path)) >= 1


def test_the_command_line_answers(tmp_path: Path) -> None:
    """From its first module on, as a person starts it."""
    script = (
        "import sys\n"
        "sys.argv = ['confide', '--help']\n"
        "from confide_proxy import __main__ as program\n"
        "program.leave = sys.exit\n"
        "program.main()\n"
    )
    assert "search" in run(script, tmp_path)


def test_a_command_that_needs_a_terminal_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "sys.argv = ['confide', 'run', '--env', 'A=secret:b', '--', 'true']\n"
        "sys.stderr = sys.stdout\n"
        "from confide_proxy import __main__ as program\n"
        "program.leave = lambda code: print('exit', code)\n"
        "program.main()\n"
    )
    said = run(script, tmp_path)
    assert "confide run needs Linux or macOS" in said
    assert "WSL" in said


def test_a_lock_is_held_by_one_process(tmp_path: Path) -> None:
    """By the byte beyond the end of the file, so that others still read it."""
    script = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from confide_proxy import locks\n"
        "file = Path('a.lock')\n"
        "fd = locks.lock_file(file)\n"
        "print(locks.try_lock(fd))\n"
        "os.write(fd, b'held')\n"
        "child = f'{sys.argv[1]}\\nfrom confide_proxy import locks\\nfrom pathlib import Path\\n"
        'fd = locks.lock_file(Path("a.lock"))\\nprint(Path("a.lock").read_text(), locks.try_lock(fd))\'\n'
        "def other():\n"
        "    return subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout.strip()\n"
        "print(other())\n"
        "os.close(fd)\n"
        "print(other())\n"
    )
    script = script.replace("{sys.argv[1]}", HIDDEN.replace("\n", "\\n"))
    assert run(script, tmp_path).split("\n")[:3] == ["True", "held False", "held True"]


def test_memory_files_are_written_read_and_deleted_by_paths(tmp_path: Path) -> None:
    """Bytes stay as they are, CRLF too; a link on the way is refused, and a person's edit is not written over."""
    (tmp_path / "shop").mkdir()
    script = (
        "import os\n"
        "from pathlib import Path\n"
        "from confide_proxy.errors import ChangedMeanwhileError, FolderError\n"
        "from confide_proxy.sync.folder import Folder\n"
        "root = Path('shop').resolve()\n"
        "folder = Folder('shop', root)\n"
        "made = folder.write('memory/a.md', 'one\\r\\ntwo\\n', over=None)\n"
        "print((root / 'memory/a.md').read_bytes())\n"
        "print(repr(folder.read('memory/a.md').text))\n"
        "made = folder.write('memory/a.md', 'three\\n', over=folder.read('memory/a.md'))\n"
        "(root / 'memory/a.md').write_text('a person was here\\n')\n"
        "for over in (made, None):\n"
        "    try:\n        folder.write('memory/a.md', 'four\\n', over=over)\n"
        "    except ChangedMeanwhileError:\n        print('kept')\n"
        "folder.delete('memory/a.md', over=folder.read('memory/a.md'))\n"
        "print(folder.is_missing('memory/a.md'), sorted(os.listdir(root / 'memory')))\n"
        "os.symlink('/etc', root / 'memory/out')\n"
        "try:\n    folder.write('memory/out/b.md', 'five\\n', over=None)\n"
        "except FolderError as error:\n    print(error)\n"
    )
    told = run(script, tmp_path).splitlines()
    assert told[:2] == ["b'one\\r\\ntwo\\n'", "'one\\r\\ntwo\\n'"]
    assert told[2:5] == ["kept", "kept", "True []"]
    assert "symlink" in told[5]


def test_a_hook_is_answered_by_a_port(tmp_path: Path) -> None:
    """Only by the process that has the file's secret; and a hook without it gets no answer."""
    script = (
        "import asyncio, json, os, socket, threading, time\n"
        "from confide_proxy.hooks import loopback\n"
        "from confide_proxy.hooks import hook_process\n"
        "from confide_proxy.hooks.hook_process import Hook\n"
        "hook_process.CONNECT_S = 30\n"  # a busy machine takes longer than a hook may
        "from confide_proxy.hooks.server.prompt_listener import PromptListener\n"
        "os.mkdir('state')\n"
        "asked_by = []\n"
        "async def answer(asked):\n"
        "    asked_by.append(asked)\n"
        "    return {'context': 'herons nest here'}\n"
        "def ask():\n"
        "    hook = Hook(time.monotonic() + 30)\n"
        "    hook._state = 'state'\n"
        "    return hook._request({'kind': 'prompt'})\n"
        "async def main():\n"
        "    listener = PromptListener('state', answer)\n"
        "    await listener.open()\n"
        "    print(listener.is_in_place(), oct(os.stat('state/hooks.port').st_mode & 0o777))\n"
        "    print(*await asyncio.to_thread(ask))\n"
        "    port, secret = loopback.read('state')\n"
        "    loopback.write('state', port)\n"
        "    print(*await asyncio.to_thread(ask))\n"
        "    print(len(asked_by))\n"
        "    listener.close()\n"
        "asyncio.run(main())\n"
    )
    told = run(script, tmp_path).splitlines()
    assert told[0] == "True 0o600"
    assert told[1].startswith("answered ")
    assert "herons nest here" in told[1]
    assert told[2].startswith("absent ")
    assert told[3] == "1"


@pytest.mark.parametrize(
    "path",
    [r"C:\Users\ann\notes.md", r"memory\a.md", r"\\server\share\a.md", "C:a.md", r"..\a.md", r"memory/..\..\a.md"],
)
def test_a_path_of_windows_is_no_document(path: str) -> None:
    """Whatever Windows would take for a drive, a share or a step up never names a document."""
    assert unsafe(path) is not None
    assert path_problem(path) is not None


@pytest.mark.parametrize("path", ["memory/a.md", "memory/deep/er/b.md", "MEMORY.md"])
def test_a_document_stays_below_its_folder_on_windows(path: str) -> None:
    root = PureWindowsPath(r"C:\Users\ann\shop")
    place = root.joinpath(*path.split("/"))
    assert path_problem(path) is None
    assert place.is_relative_to(root)
    assert place.relative_to(root).as_posix() == path


@pytest.mark.parametrize("path", [r"C:\notes", "C:notes", r"\notes", r"..\notes", "~/notes"])
def test_a_folder_of_windows_leads_out(path: str) -> None:
    assert leads_out(path)
