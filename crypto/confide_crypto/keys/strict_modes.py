"""Check that no other user could have written a file that people edit, such as a configuration.

A private file must belong to this user alone (`keys.private_files`). A configuration may also
belong to root, be a link into a dotfiles folder or a package store, or be mounted into a container;
only this user and root may have been able to change its content. The rule is ssh's (sshd_config(5),
StrictModes), with Debian's allowance for a user's own group; docs/decisions/0020 gives the reason
for each part.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confide_crypto import portable
from confide_crypto.errors import KeyFileError
from confide_crypto.keys.private_files import cannot

_ROOT: Final = 0
_MOST_LINKS: Final = 40
"""As many as the kernel follows (path_resolution(7))."""
_ACL: Final = "system.posix_acl_access"
_PROC: Path = Path("/proc")
_WHOLE: Final = ["0", "0", "4294967295"]
"""The uid map of a process outside of all user namespaces (user_namespaces(7)), where every user
has a number.
"""


def check_strict_modes(path: Path) -> None:
    """Check that only this user and root could have written or replaced a file.

    Confide checks the file, every folder on its path, and every link on the way. A link may point
    anywhere if this user or root owns it.

    Raises KeyFileError if there is no such file, it is not a regular file, or another user owns or
    can write to it or a folder on its path. The `path` of the error names the file or folder whose
    owner or mode must be changed.
    """
    try:
        status = None
        for place in _on_the_way(path):
            status = place.lstat()
            if (
                portable.HAS_MODES
                and (trouble := _trouble(place, status)) is not None
                and not _is_mounted_read_only(place)
            ):
                raise trouble
    except OSError as error:
        raise cannot(path, "be read", error) from error
    if status is None or not stat.S_ISREG(status.st_mode):
        raise KeyFileError(path, "is not a plain file")


def _on_the_way(path: Path) -> Iterator[Path]:
    """Yield each path that the kernel visits to open a file, from the root: folders, links and
    their targets, the file.
    """
    left = list(reversed(path.absolute().parts))
    here = Path(left.pop())
    yield here
    links = 0
    while left:
        part = left.pop()
        if part == "..":  # all earlier links were followed, so this is the parent folder
            here = here.parent
            continue
        step = here / part
        yield step
        if not step.is_symlink():
            here = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = step.readlink()
        left += reversed(target.parts)
        if target.is_absolute():
            here = Path(left.pop())


def _trouble(place: Path, status: os.stat_result) -> KeyFileError | None:
    if status.st_uid not in (portable.user(), _ROOT) and not _is_from_outside(status.st_uid):
        hint = f"if you know it as yours: sudo chown $(id -un) {place}; else keep the file elsewhere, and name it with --config"
        return KeyFileError(place, "belongs to another user", hint=hint)
    mode = stat.S_IMODE(status.st_mode)
    # A link's mode is always open and has no meaning. Everyone may write to /tmp, but its sticky
    # bit keeps users from replacing files of others.
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX):
        return None
    if mode & stat.S_IWOTH:
        return KeyFileError(place, f"can be written by other users (mode {mode:04o})", hint=f"chmod go-w {place}")
    if mode & stat.S_IWGRP and (_has_acl(place) or not _is_own_group(status.st_gid)):
        return KeyFileError(place, f"can be written by its group (mode {mode:04o})", hint=f"chmod g-w {place}")
    return None


def _is_own_group(gid: int) -> bool:
    """Return True if a group's only members are this user and root, as in the group that Debian and
    Fedora create for each user.

    Members are the users that the group lists, and those with it as primary group; users that a
    directory service does not enumerate are not seen.
    """
    import grp  # neither is there on Windows, where nothing has a group's number
    import pwd

    try:
        listed = grp.getgrgid(gid).gr_mem
    except KeyError:
        return False
    users = pwd.getpwall()
    members = {user.pw_uid for user in users if user.pw_gid == gid or user.pw_name in listed}
    is_known = set(listed) <= {user.pw_name for user in users}
    return is_known and bool(members) and members <= {portable.user(), _ROOT}


def _has_acl(place: Path) -> bool:
    """Return True if the group bits are the mask of an access control list, which may name any user
    (acl(5)). Always False on systems other than Linux.
    """
    list_attributes = getattr(os, "listxattr", None)
    if list_attributes is None:
        return False
    try:
        return _ACL in list_attributes(place, follow_symlinks=False)
    except OSError:
        return False  # the file system has no attributes


def _is_mounted_read_only(place: Path) -> bool:
    """Return True if the file system is mounted read-only, so that its modes do not matter: a
    ConfigMap of Kubernetes (0777), a volume `:ro`, the store of Nix.

    A user who can mount it could have mounted anything.
    """
    return bool(os.statvfs(place.parent if place.is_symlink() else place).f_flag & os.ST_RDONLY)


def _is_from_outside(uid: int) -> bool:
    """Return True if this user namespace has no number for an owner, as for root inside bubblewrap
    (user_namespaces(7)).
    """
    try:
        overflow = int((_PROC / "sys/kernel/overflowuid").read_text("ascii"))
        return uid == overflow and (_PROC / "self/uid_map").read_text("ascii").split() != _WHOLE
    except (OSError, ValueError):
        return False
