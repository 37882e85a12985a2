"""Whose hand may have been on a file that people edit: the user's and root's, and nobody else's (docs/decisions/0020)."""

from __future__ import annotations

import errno
import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from confide_crypto.errors import KeyFileError
from confide_crypto.keys import strict_modes
from confide_crypto.keys.strict_modes import check_strict_modes

STRANGER = 12345
GROUP = 54321


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir(mode=0o755)
    file = folder / "proxy.toml"
    file.write_text("")
    file.chmod(0o644)
    return file


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Has a place belong to a stranger; who is not root becomes the stranger."""

    def give(place: Path) -> None:
        if os.geteuid() == 0:
            os.chown(place, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return give


def refused(path: Path, place: Path, problem: str) -> str:
    """It is refused for this place; what to do about it."""
    with pytest.raises(KeyFileError, match=problem) as caught:
        check_strict_modes(path)
    assert caught.value.path == place
    return caught.value.hint or ""


def user(name: str, uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says who is in `GROUP`: as their first group, and by being listed."""

    def say(first: dict[str, int], *listed: str, others: dict[str, int] | None = None) -> None:
        known = [user(name, uid, GROUP) for name, uid in first.items()]
        known += [user(name, uid, 100) for name, uid in (others or {}).items()]
        monkeypatch.setattr(pwd, "getpwall", lambda: known)
        entry = grp.struct_group(("own", "x", GROUP, list(listed)))
        monkeypatch.setattr(grp, "getgrgid", {GROUP: entry}.__getitem__)

    return say


def of_group(place: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Give a place to `GROUP`, which only root can: others have their own group answered for it."""
    if os.geteuid() == 0:
        os.chown(place, -1, GROUP)
    else:
        monkeypatch.setattr(strict_modes, "_is_own_group", lambda _gid, own=strict_modes._is_own_group: own(GROUP))
    place.chmod(mode)


def test_a_file_in_a_usual_place_is_taken(file: Path) -> None:
    """Anybody may read it: it holds no secrets. pytest's own folder is below /tmp, to which everybody writes."""
    check_strict_modes(file)
    check_strict_modes(file.parent / ".." / "config" / "proxy.toml")


def test_a_relative_path_is_looked_at_from_the_root(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    check_strict_modes(Path("proxy.toml"))
    file.parent.parent.chmod(0o777)
    refused(Path("proxy.toml"), file.parent.parent, "written by other users")


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o602])
def test_a_file_that_everybody_can_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert refused(file, file, "can be written by other users") == f"chmod go-w {file}"


def test_a_folder_that_everybody_can_write_is_refused(file: Path) -> None:
    """Whoever can write to a folder on the way can put a folder of their own in the place of the next one."""
    file.parent.parent.chmod(0o777)
    assert refused(file, file.parent.parent, "can be written by other users") == f"chmod go-w {file.parent.parent}"


def test_a_folder_in_which_nobody_can_replace_what_is_not_theirs_is_taken(file: Path) -> None:
    """As /tmp, and as the store of Nix is."""
    file.parent.chmod(0o1777)
    check_strict_modes(file)


def test_a_file_of_another_user_is_refused(file: Path, give_away: Callable[[Path], None]) -> None:
    file.parent.chmod(0o1777)
    give_away(file)
    with pytest.raises(KeyFileError, match="belongs to another user") as caught:
        check_strict_modes(file)
    assert "chown" in (caught.value.hint or "")


def test_a_folder_of_another_user_is_refused(file: Path, give_away: Callable[[Path], None]) -> None:
    give_away(file.parent)
    with pytest.raises(KeyFileError, match="belongs to another user"):
        check_strict_modes(file)


def test_a_link_is_followed_and_both_ends_are_looked_at(file: Path, tmp_path: Path) -> None:
    """Dotfiles are kept so: the folder that a link leads to counts as much as the one it is in."""
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir(mode=0o755)
    (dotfiles / "proxy.toml").write_text("")
    file.unlink()
    file.symlink_to(dotfiles / "proxy.toml")
    check_strict_modes(file)
    whole = tmp_path / "linked"
    whole.symlink_to("config/../dotfiles")
    check_strict_modes(whole / "proxy.toml")
    dotfiles.chmod(0o777)
    refused(file, dotfiles, "can be written by other users")
    refused(whole / "proxy.toml", dotfiles, "can be written by other users")
    dotfiles.chmod(0o755)
    file.parent.chmod(0o777)
    refused(file, file.parent, "can be written by other users")


def test_a_link_of_another_user_is_refused(file: Path, give_away: Callable[[Path], None]) -> None:
    """In a folder such as /tmp it may be theirs, and lead to any file of ours."""
    link = file.parent / "link"
    link.symlink_to(file)
    file.parent.chmod(0o1777)
    give_away(link)
    with pytest.raises(KeyFileError, match="belongs to another user"):
        check_strict_modes(link)


def test_links_in_a_circle_end(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)
    refused(file, file, "cannot be read: too many levels of symbolic links")


def test_what_is_no_plain_file_is_refused(file: Path) -> None:
    refused(file.parent, file.parent, "is not a plain file")
    refused(file.with_name("none"), file.with_name("none"), "cannot be read: no such file")


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_group_of_ones_own_may_write(
    file: Path, place: str, groups: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian and Fedora make a group for each user, and files that it can write."""
    of_group(file if place == "file" else file.parent, monkeypatch, 0o664 if place == "file" else 0o775)
    groups({"me": os.geteuid()}, others={"somebody": STRANGER})
    check_strict_modes(file)
    groups({"me": os.geteuid(), "root": 0}, "me")
    check_strict_modes(file)


def test_a_group_with_others_in_it_may_not(
    file: Path, groups: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_group(file, monkeypatch, 0o664)
    me = os.geteuid()
    groups({"me": me, "bot": STRANGER})
    assert refused(file, file, "can be written by its group") == f"chmod g-w {file}"
    groups({"me": me}, "bot", others={"bot": STRANGER})
    refused(file, file, "can be written by its group")
    groups({"me": me}, "of-a-directory-service")
    refused(file, file, "can be written by its group")
    groups({})
    refused(file, file, "can be written by its group")
    monkeypatch.setattr(grp, "getgrgid", dict[int, grp.struct_group]().__getitem__)
    refused(file, file, "can be written by its group")


def test_a_list_of_others_hides_behind_the_groups_bits(
    file: Path, groups: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """setfacl -m u:bot:rw shows as a file that its group can write."""
    of_group(file, monkeypatch, 0o664)
    groups({"me": os.geteuid()})
    acl = {file: ["system.posix_acl_access"]}
    monkeypatch.setattr(os, "listxattr", lambda place, *, follow_symlinks: acl.get(place, []), raising=False)
    refused(file, file, "can be written by its group")

    def without_attributes(_place: Path, *, follow_symlinks: bool) -> list[str]:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "listxattr", without_attributes, raising=False)
    check_strict_modes(file)
    monkeypatch.delattr(os, "listxattr")
    check_strict_modes(file)


def test_what_is_mounted_read_only_is_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ConfigMap of Kubernetes is a folder with mode 0777, with a link in it, mounted read-only."""
    data = file.parent / "..data"
    data.mkdir()
    (data / "proxy.toml").write_text("")
    file.unlink()
    file.symlink_to("..data/proxy.toml")
    file.parent.chmod(0o777)
    (data / "proxy.toml").chmod(0o666)
    asked: list[Path] = []

    class Mounted:
        f_flag = os.ST_RDONLY

    def statvfs(place: Path) -> Mounted:
        asked.append(place)
        return Mounted()

    monkeypatch.setattr(os, "statvfs", statvfs)
    check_strict_modes(file)
    assert set(asked) == {file.parent, data / "proxy.toml"}


def test_a_link_is_mounted_as_its_folder_is(
    file: Path, give_away: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = file.parent / "link"
    link.symlink_to("proxy.toml")
    give_away(link)
    asked: list[Path] = []

    class Mounted:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda place: asked.append(place) or Mounted())
    check_strict_modes(link)
    assert file.parent in asked
    assert link not in asked


def test_root_has_no_number_in_a_sandbox(
    file: Path, tmp_path: Path, give_away: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside of bubblewrap / and /home seem to be of the user nobody; outside of it they must not."""
    proc = tmp_path / "proc"
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "self").mkdir()
    owner = STRANGER if os.geteuid() == 0 else file.stat().st_uid
    (proc / "sys/kernel/overflowuid").write_text(f"{owner}\n")
    (proc / "self/uid_map").write_text("      1000       1000          1\n")
    monkeypatch.setattr(strict_modes, "_PROC", proc)
    give_away(file)
    check_strict_modes(file)
    (proc / "self/uid_map").write_text("         0          0 4294967295\n")
    with pytest.raises(KeyFileError, match="belongs to another user"):
        check_strict_modes(file)
    (proc / "sys/kernel/overflowuid").unlink()
    with pytest.raises(KeyFileError, match="belongs to another user"):
        check_strict_modes(file)
