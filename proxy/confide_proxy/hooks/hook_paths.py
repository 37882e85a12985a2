"""Find the paths that a hook needs without importing `confide_proxy.paths`, which takes too long. A
test checks that both return the same paths.
"""

from __future__ import annotations

import os
import stat
import sys

from confide_crypto import portable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

HOME_VARIABLE: Final = "CONFIDE_HOME"
_VARIABLES: Final = (HOME_VARIABLE, "XDG_DATA_HOME", "XDG_CONFIG_HOME")
MOST_ADDRESS: Final = 103
"""Most bytes of a Unix socket's path: 104 with the final NUL on macOS, 108 on Linux."""
MOST_CONFIG: Final = 64 * 1024
_PROJECT_FILE: Final = ".confide.toml"
_DEEPEST: Final = 64


def find() -> tuple[str, str]:
    """Return the paths of the state folder and of the configuration file `proxy.toml`."""
    found = _find_paths()
    if any(os.environ.get(name) for name in _VARIABLES) or _is_set_up(found[0]):
        return found
    # The memory may be elsewhere, as a note file says; it is read only if none is in the usual
    # place.
    from confide_proxy import paths

    paths.follow_note()
    return _find_paths()


def _is_set_up(state: str) -> bool:
    return os.path.lexists(f"{state}/link.json") or os.path.exists(os.path.join(os.path.dirname(state), "daemon"))


def _find_paths() -> tuple[str, str]:
    home = os.environ.get(HOME_VARIABLE)
    if home:
        root = os.path.abspath(os.path.expanduser(home))
        return os.path.join(root, "proxy"), os.path.join(root, "proxy.toml")
    if sys.platform == "linux":
        data = os.environ.get("XDG_DATA_HOME", "").strip() or os.path.expanduser("~/.local/share")
        settings = os.environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
        return os.path.join(data, "confide", "proxy"), os.path.join(settings, "confide", "proxy.toml")
    import platformdirs

    data, settings = platformdirs.user_data_dir("confide"), platformdirs.user_config_dir("confide")
    return os.path.join(data, "proxy"), os.path.join(settings, "proxy.toml")


def addresses(state: str) -> list[str]:
    """Return the paths where the hook socket may be: in the state folder, or in a runtime folder if
    the first path is too long for a socket.

    Raises OSError if the state folder doesn't exist.
    """
    own = os.path.join(state, "hooks.sock")
    if len(os.fsencode(own)) <= MOST_ADDRESS:
        return [own]
    status = os.stat(state)
    name = f"confide-{status.st_dev:x}-{status.st_ino:x}.sock"
    said = os.environ.get("XDG_RUNTIME_DIR")
    folders = dict.fromkeys([*([said] if said else []), f"/run/user/{portable.user()}"])
    found = [os.path.join(folder, name) for folder in folders if _is_private(folder)]
    return [each for each in found if len(os.fsencode(each)) <= MOST_ADDRESS]


def is_off(config: str, cwd: str, option: str = "hooks") -> bool:
    """Return True if the user has switched off hooks for the folder `cwd`, or another `option`.

    That is so if `proxy.toml`, or the `.confide.toml` of a folder above `cwd`, sets `hooks = false`
    or cannot be read.
    """
    if _says_off(config, option, is_ours=True):
        return True
    folder = os.path.realpath(cwd) if cwd else ""
    for _ in range(_DEEPEST):
        if not folder:
            return False
        if _says_off(os.path.join(folder, _PROJECT_FILE), option, is_ours=False):
            return True
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
    return False


def project_of(cwd: str) -> str:
    """Return the nearest folder at or above `cwd` that is a repository or has a `.confide.toml`;
    `cwd` itself if there is none.
    """
    folder = cwd
    for _ in range(_DEEPEST):
        if not folder or os.path.dirname(folder) == folder:
            break
        if any(os.path.lexists(os.path.join(folder, name)) for name in (".git", _PROJECT_FILE)):
            return folder
        folder = os.path.dirname(folder)
    return cwd


def own_folders(state: str) -> tuple[str, ...]:
    """Return the folders outside a project in which clients and Confide keep files of their own."""
    home = os.path.expanduser("~")
    clients = (".claude", ".codex", ".gemini", ".cursor", ".config/opencode", ".local/share/opencode")
    return (os.path.dirname(state), *(os.path.join(home, name) for name in clients))


def plain(path: str, most: int) -> bytes:
    """Read at most `most` bytes of a regular file.

    Raises OSError if the file doesn't exist or isn't regular: reading a pipe or a device may block
    forever.
    """
    fd = os.open(path, os.O_RDONLY | portable.NO_WAIT | portable.NO_LINK | portable.CLOSED)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(None, "no plain file")
        return file.read(most)


def _says_off(path: str, option: str, *, is_ours: bool) -> bool:
    try:
        if is_ours:
            path = os.path.realpath(path)  # the user may link to it
        data = plain(path, MOST_CONFIG + 1)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return is_ours
    if option.encode() not in data:
        return False
    import tomllib  # doubles a hook's import time, so only if needed

    try:
        table: dict[str, object] = tomllib.loads(data.decode("utf-8-sig")) if len(data) <= MOST_CONFIG else {}
    except (ValueError, RecursionError):
        return True  # unreadable counts as off
    return table.get(option) is False


def _is_private(folder: str) -> bool:
    try:
        status = os.stat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == portable.user() and not status.st_mode & portable.OTHERS
