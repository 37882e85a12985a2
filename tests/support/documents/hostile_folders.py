"""Project folders as somebody would make them who wants more than a place to work in: a grammar, and what lies beside the folder and must
stay unread and as it is.

Git carries the files and symlinks of it, an archive everything: pipes, sockets, devices, hard links, a whole `.git`.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from hypothesis import strategies as st
from tests.support.daemon.hostile import EVIL
from tests.support.deadline import DEADLINE_S

CANARY: Final = "the acquisition of Nightingale"
"""Stands in every file outside, and may be in nothing that comes of the folder."""
VICTIM: Final = "github.com/victim/secret"
HUGE: Final = 100 * 2**20
EVIL_NAME: Final = "x\x1b]0;t\x07\n\u202e\u200b\x9b2J[red]"

# References that stand for gigabytes, nesting without end, a field as long as the file, and keys of every type.
FRONT_MATTERS: Final = (
    "---\na: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{k}: &{k} [{', '.join(f'*{chr(ord(k) - 1)}' for _ in range(9))}]\n" for k in "bcdefghi"),
    "---\na: &a [*a]\nsensitive: *a\n",
    "---\ntitle: " + "[" * 5000 + "\n",
    "---\n" + "".join(f"{' ' * n}a:\n" for n in range(900)),
    "---\n? {[1]: 2}\n: !!python/object/apply:os.system [id]\n<<: *x\n1e999: .inf\n~: 0x" + "f" * 5000 + "\n",
    "---\n" + "k: v\n" * 20_000,
    f"---\nid: mem_{'a' * 5000}\nentity: ../../x\ntitle: {EVIL!r}\n",
    "---\n--- \n...\n--\n",
    "---\nno end\n",
)
TEXTS: Final[tuple[bytes, ...]] = (
    *(
        b"",
        b"\xff\xfe#\x00",
        b"a\0b",
        b"\xef\xbb\xbf# x\r\n",
        b"x" * 300_000,
        b"# " * 5000,
        b"> " * 3000 + b"\n",
        b"```" * 3000,
    ),
    *(EVIL.encode("utf-8", "replace"), ("a" + "\u0300" * 5000).encode(), ("[" * 5000 + "](" * 5000).encode()),
    *(f"{head}---\n# Title {EVIL_NAME}\n\ntext\n".encode() for head in FRONT_MATTERS),
)
CLAIMS: Final[tuple[bytes, ...]] = (
    *(
        f"name = {name}\n".encode()
        for name in (f'"{VICTIM}"', '"global"', '" global "', '"glob\\u200bal"', '""', '"."', '"../x"')
    ),
    *(
        f"name = {name}\n".encode()
        for name in ("7", "[]", "{a=1}", "2026-01-01", "inf", '"' + "n" * 5000 + '"', '"\\u001b[2J\\u202e"')
    ),
    *(
        b'name = "a"\nname = "b"\n',
        b"\xef\xbb\xbfname = 'x'\n",
        "name = 'x'\n".encode("utf-16"),
        b"\xff",
        b"name = '\x1b]0;t\x07'\n",
        b"\0",
    ),
    *(
        b"a = " + b"[" * 30_000,
        b"a = " + b"{a=" * 10_000,
        b".".join([b"a"] * 20_000) + b" = 1\n",
        b"x = " + b"9" * 60_000 + b"\n",
        b"#" * 70_000,
    ),
    *(
        b"[a]\n" * 2,
        b"[[a]]\n" * 10_000,
        b'"\\u001b[2J" = 1\nextra = ["/etc/**"]\nmax_bytes = 1\n',
        b"exclude = 7\n",
        b'exclude = ["' + b"x" * 60_000 + b'"]\n',
    ),
    *(
        f"exclude = [{globs}]\n".encode()
        for globs in (
            '"' + "*a" * 3000 + '"',
            '"[z-a]", "[!", "[[", "]", "**/[^/]*", "!memory", "/etc", "../../*", "\\\\", "{a,b}"',
            '"x", ' * 300,
            '"a?*?*?*b", ' * 250,
        )
    ),
)
_REMOTES: Final = (
    *(
        f"https://{VICTIM}.git",
        f"git@{VICTIM.replace('/', ':', 1)}.git",
        f"https://evil.example?@{VICTIM}",
        "file:///etc",
        "../other",
        "ext::sh -c id",
    ),
    *(
        "-oProxyCommand=id",
        "https://evil.example/" + "a" * 5000,
        "https://evil.example/\\t\\b" + "\u202e\u200b",
        "::",
        "",
        "https://[::1/x",
        "a:b:c@d:e/f",
    ),
)
GIT_CONFIGS: Final[tuple[bytes, ...]] = (
    b"",
    b"\0\xff[",
    b"[core]\n\trepositoryformatversion = 99\n",
    *(f'[remote "origin"]\n\turl = "{url}"\n'.encode() for url in _REMOTES),
    *(
        # Without its version git reads no work tree from a configuration.
        f'[core]\n\trepositoryformatversion = 0\n\tworktree = {where}\n[remote "origin"]\n\turl = https://evil.example/a\n'.encode()
        for where in ("..", "../..", "/", "../outside/other", "memory")
    ),
    *(f'[remote "{name}"]\n\turl = https://evil.example/x\n'.encode() for name in ("-x", 'a.b\\"c', "origin.url x")),
    b'[core]\n\tfsmonitor = "touch ../outside/ran"\n\thooksPath = ../outside\n\tpager = "touch ../outside/ran"\n',
    b'[alias]\n\trev-parse = "!touch ../outside/ran"\n\tconfig = "!touch ../outside/ran"\n',
    b'[filter "x"]\n\tclean = "touch ../outside/ran"\n\tprocess = "touch ../outside/ran"\n',
    b"[core]\n\texcludesFile = ../outside/pipe\n\tattributesFile = ../outside/pipe\n",
    b'[url "https://' + VICTIM.encode() + b'"]\n\tinsteadOf = work:\n[remote "origin"]\n\turl = work:\n',
)
BELIEVED: Final = frozenset(
    f'[remote "origin"]\n\turl = "{url}"\n'.encode()
    for url in (f"https://{VICTIM}.git", f"git@{VICTIM.replace('/', ':', 1)}.git")
) | {GIT_CONFIGS[-1]}
"""Those that do lead to the victim's. An archive with a whole `.git` is believed (docs/decisions/0016)."""
LINKS: Final = (
    *(
        "{outside}/keep.md",
        "{outside}",
        "{outside}/pipe",
        "{outside}/other",
        "{outside}/other/.git",
        "{outside}/named.toml",
        "../outside/keep.md",
    ),
    *(
        "/dev/zero",
        "/dev/tty",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/",
        ".",
        "..",
        "nowhere",
        "memory/a.md",
        "x" * 200,
    ),
)
PLACES: Final = (
    *(
        "MEMORY.md",
        "memory.md",
        "memory",
        "memory/a.md",
        "memory/deep/b.md",
        "memory/deep",
        "memory/.hidden.md",
        "memory/c.md",
        "memory/.x.7.confide-part",
    ),
    *(
        ".confide.toml",
        ".gitignore",
        ".gitattributes",
        "sub/MEMORY.md",
        "sub/.confide.toml",
        "memory/" + EVIL_NAME + ".md",
        "memory/CON.md",
        "memory/e\u0301.md",
    ),
    *(
        "memory/\u00e9.md",
        "memory/back\\slash.md",
        "memory/" + "n" * 251 + ".md",
        "memory/" + "d/" * 60 + "x.md",
        "memory/x.md/y.md",
        "memory/a.md~",
        "memory/\udcff.md",
    ),
    *("sub/.git", "memory/.git", "memory/nested/.git/config", "docs/d.md"),
)
_GITFILES: Final = (
    *(
        "gitdir: {outside}/other/.git",
        "gitdir: ../outside/other/.git",
        "gitdir: .real",
        "gitdir: {outside}/pipe",
        "gitdir: " + "x" * 5000,
        "gitdir:",
        "",
    ),
    "gitdir: ../outside/tree",
)


@dataclass(frozen=True, slots=True)
class Put:
    """One thing at one place."""

    place: str
    kind: str
    what: str | bytes = b""

    def make(self, root: Path, outside: Path) -> None:
        """What the disk does not take is not there."""
        with suppress(OSError, ValueError, RuntimeError):  # the last is pathlib's of a link to itself
            self._make(root, outside)

    def _make(self, root: Path, outside: Path) -> None:
        target = root / self.place
        # An earlier one may be a link to "/" or "..", and what is put below it would stay there for every test that comes after.
        below = target.resolve() if self.kind == "git" else target.parent.resolve()
        if not any(_is_below(below, place) for place in (root, outside)):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        what = os.fsdecode(self.what).replace("{outside}", str(outside))
        match self.kind:
            case "file":
                # By a descriptor: what an earlier act has put there may be a pipe, or a link to somewhere else.
                fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
                with open(fd, "wb") as file:
                    file.write(self.what if isinstance(self.what, bytes) else what.encode())
            case "huge":
                fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
                with open(fd, "wb") as file:
                    file.truncate(HUGE)
            case "pipe":
                os.mkfifo(target)
            case "socket":
                # A socket's address is short.
                with chdir(target.parent), socket.socket(socket.AF_UNIX) as bound:
                    bound.bind(target.name)
            case "device":
                os.mknod(target, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # zero; for root alone
            case "folder":
                target.mkdir(exist_ok=True)
            case "link":
                target.symlink_to(what)
            case "hard link":
                os.link(outside / "linked.md", target)
            case "git":
                _write_repository(target, self.what if isinstance(self.what, bytes) else what.encode())


def _is_below(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder.resolve())


def _write_repository(kept: Path, config: bytes) -> None:
    for folder in ("objects", "refs/heads"):
        (kept / folder).mkdir(parents=True)
    (kept / "HEAD").write_text("ref: refs/heads/main\x1b[2J\n" if len(config) % 2 else "ref: refs/heads/main\n")
    (kept / "config").write_bytes(config)


_SPECIAL: Final = ("huge", "pipe", "socket", "device", "folder", "hard link")


def folders() -> st.SearchStrategy[list[Put]]:
    """What is put into a folder, in order."""
    text = st.builds(Put, st.sampled_from(PLACES), st.just("file"), st.sampled_from(TEXTS))
    link = st.builds(Put, st.sampled_from(PLACES), st.just("link"), st.sampled_from(LINKS))
    special = st.builds(Put, st.sampled_from(PLACES), st.sampled_from(_SPECIAL))
    claim = st.builds(
        Put, st.sampled_from((".confide.toml", "sub/.confide.toml")), st.just("file"), st.sampled_from(CLAIMS)
    )
    git = st.one_of(
        st.builds(Put, st.just(".git"), st.just("git"), st.sampled_from(GIT_CONFIGS)),
        st.builds(Put, st.just(".git"), st.just("file"), st.sampled_from(_GITFILES)),
        st.builds(Put, st.just(".git"), st.just("link"), st.sampled_from(LINKS)),
        st.builds(Put, st.just("sub/.git"), st.just("git"), st.sampled_from(GIT_CONFIGS)),
    )
    return st.lists(st.one_of(text, text, link, special, claim, git), min_size=1, max_size=14)


def write_outside(outside: Path) -> None:
    """What is none of the folder's: a file, a pipe that nobody writes to, and another project with its repository and a worktree."""
    outside.mkdir()
    for name in ("keep.md", "other/MEMORY.md", "other/memory/deal.md"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(f"# {CANARY}\n")
    (outside / "linked.md").write_text("of two names\n")
    (outside / "named.toml").write_text(f'name = "{CANARY}"\n')
    os.mkfifo(outside / "pipe")
    remote = f'[remote "origin"]\n\turl = https://{VICTIM}.git\n'.encode()
    _write_repository(outside / "other/.git", remote)
    # A worktree's folder of somebody who would have us wait for ever.
    _write_repository(outside / "tree", b"")
    (outside / "tree/commondir").write_text("../other/.git\n")
    os.mkfifo(outside / "tree/gitdir")


def seen(outside: Path) -> dict[str, tuple[int, int, bytes]]:
    """What lies outside, as it is now."""
    found = {}
    for path in sorted(outside.rglob("*")):
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        data = path.read_bytes() if is_file else b""
        found[str(path.relative_to(outside))] = (status.st_mode, status.st_mtime_ns if is_file else 0, data)
    return found


@contextmanager
def in_time() -> Iterator[None]:
    """What waits in the system, as for a pipe that nobody writes to, fails the test."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"nothing came of it in {DEADLINE_S:.0f} s")

    before: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
