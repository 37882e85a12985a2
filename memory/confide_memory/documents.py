"""What a document is: its name, its text and how that travels, its days, and the marks of a clash. It knows no database and opens no file.

A document is a markdown file named by (project, path). Lines end in "\\n" and are counted from 1; other characters that some tools take for
line ends (form feed, U+2028) are not, so that line numbers agree with editors and with `memory_read`.

What it may be called is one rule of both ends (PROTOCOL.md 9.1): one that a machine cannot have as a file would be found by every search
and seen by nobody, and one whose name the daemon refuses would be sent for ever. Where a machine keeps documents is another question:
`is_memory` for the files that are written, the user's globs for those that are only read.

A short text travels as a parameter, a longer one as the body of a stream. Ten thousand files that are the same at both ends are found to be
so with one short request, by digests of their states; where some differ, only their buckets are compared file by file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, Protocol

from confide_crypto.errors import RequestError
from confide_memory.errors import InvalidPathError, InvalidTextError, TooLargeError, UnfitAnswerError

if TYPE_CHECKING:
    from confide_crypto.transport.inbox import Body

SOURCES = ("memory", "sessions")
# Where notes lie, and those of tasks, each task in a folder of its own.
NOTES = "memory/notes/"
TASKS = "memory/tasks/"
MAX_PATH_BYTES = 512
MAX_COMPONENT_BYTES = 255
"""What file systems allow."""
MAX_DEPTH = 32
MEMORY_FILES = ("MEMORY.md", "memory.md")
MEMORY_FOLDER = "memory"
TOOL_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""What tools make, and walks leave out."""
_INSTRUCTIONS: Final = frozenset(
    {
        *("claude", "claude.local", "agent", "agents", "agents.local", "agents.override", "gemini", "qwen"),
        *("copilot-instructions", "skill", "crush", "crush.local", "warp", "iflow", "codebuddy"),
    }
)
"""Without `.md`. Rules of programs in files that end otherwise, such as `.mdc`, are no documents."""
_INSTRUCTIONS_END: Final = (".instructions", ".prompt", ".chatmode", ".agent")
_PASSED_OVER: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""What Unicode calls default-ignorable: ext4 and HFS+ find a file by a name without them."""
EXAMPLE = "memory/notes/decisions.md"
GLOBAL_PROJECT = "global"
"""The project of what holds everywhere; every machine has it."""


def check_path(path: str) -> str:
    """The path itself, when it may name a document that is written. Raises InvalidPathError: what is wrong with it."""
    return _checked(path, path_problem(path))


def check_stored_path(path: str) -> str:
    """The path itself, when it may name a document that is there, which an earlier version may have taken. Raises InvalidPathError."""
    return _checked(path, stored_path_problem(path))


def _checked(path: str, why: str | None) -> str:
    if why is not None:
        raise InvalidPathError(f"the document path is not allowed: {why}", hint=f"for example {EXAMPLE}")
    return path


def leads_out(path: str) -> bool:
    """Whether a path that narrows a search, a glob or a folder perhaps, names something outside of the projects."""
    return (
        path.startswith(("/", "~", "\\"))
        or ".." in re.split(r"[/\\]", path)
        or re.match(r"[A-Za-z]:", path) is not None
    )


def composed(path: str) -> str:
    """The path in Unicode's normal form C, as documents are named. macOS and some programs name files in the decomposed form."""
    if path.isascii():
        return path
    import unicodedata  # a megabyte of tables, which most paths do not need

    return unicodedata.normalize("NFC", path)


def spellings(component: str) -> tuple[str, ...]:
    """How a file system may spell one component of a composed path: composed, and decomposed where that is another spelling."""
    if component.isascii():
        return (component,)
    import unicodedata

    decomposed = unicodedata.normalize("NFD", component)
    return (component,) if decomposed == component else (component, decomposed)


def is_memory(path: str) -> bool:
    """Whether it names a file of memory, which machines write: `MEMORY.md`, `memory.md` or one below `memory/`."""
    return is_in_memory(path) and path_problem(path) is None


def is_in_memory(path: str) -> bool:
    """Whether its place is that of a file of memory, whatever it is called there."""
    return path in MEMORY_FILES or path.startswith(f"{MEMORY_FOLDER}/")


def path_problem(path: str) -> str | None:
    """Why no document that is written may have this path; None where it may."""
    return stored_path_problem(path) or unkept(path)


def stored_path_problem(path: str) -> str | None:
    """Why nobody may change a document at this path, though earlier versions took some names that `path_problem` refuses.

    Such documents stay: they can be read, deleted, restored and exported.
    """
    if (why := unsafe(path)) is not None:
        return why
    if source_of(path) == "sessions":
        return "sessions/ holds the transcripts, which nobody writes by hand"
    return None


def unsafe(path: str) -> str | None:
    """Why no document of any version, transcripts included, has this path: it could lead out of a folder or break a machine."""
    if not path:
        return "it is empty"
    if not path.isprintable() and any(_is_control(character) for character in path):
        return "it holds control characters"
    if "\\" in path:
        return "it holds a backslash; folders are separated by /"
    if path != composed(path):
        return "it is not in Unicode normal form C"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"it is longer than {MAX_PATH_BYTES} bytes"
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "it is not relative"
    for component in path.split("/"):
        if component in ("", ".", ".."):
            return "it has an empty, '.' or '..' component"
        if len(component.encode()) > MAX_COMPONENT_BYTES:
            return f"a component is longer than {MAX_COMPONENT_BYTES} bytes"
        if component != component.strip():
            return "a component begins or ends with a blank"
    if not path.endswith(".md") or path.rsplit("/", 1)[-1] == ".md":
        return "it does not end in .md"
    return None


def unkept(path: str) -> str | None:
    """Why no machine keeps a file with a name that is safe otherwise."""
    if not path.isprintable():
        return "it holds characters that cannot be seen"
    *folders, _ = parts = path.split("/")
    if is_hidden(path):
        return "a name that begins with a dot is hidden, and hidden files are not kept as memory"
    if len(parts) > MAX_DEPTH:
        return f"it has more than {MAX_DEPTH} components"
    for folder in folders:
        if folder in TOOL_FOLDERS:
            return f"{folder}/ is left out as a folder of tools"
        if folder.endswith(".md"):
            return "a folder in it ends in .md, as files do"
    if is_in_memory(path) and loads_as_instructions(path):
        return "programs of agents load files of that name as instructions"
    return None


def loads_as_instructions(path: str) -> bool:
    """Whether a program of agents takes a file for a person's orders by its name alone, wherever it lies.

    Memory holds words of many: of agents, of web pages, of programs with a token. So no file of memory may be called so, however a file
    system spells the name: in another case, in another form of Unicode, with characters that some of them pass over.
    """
    stem = path.rpartition("/")[2].removesuffix(".md")
    if not stem.isascii():
        import unicodedata

        stem = unicodedata.normalize("NFKC", _PASSED_OVER.sub("", stem).casefold())
    stem = stem.casefold().strip(" .")
    return stem in _INSTRUCTIONS or stem.endswith(_INSTRUCTIONS_END)


def is_hidden(path: str) -> bool:
    """Whether the file, or a folder that it is in, is hidden."""
    return path.startswith(".") or "/." in path


def _is_control(character: str) -> bool:
    import unicodedata

    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def source_of(path: str) -> str:
    """Which source a document belongs to: transcripts lie below `sessions/`, everything else is memory."""
    return "sessions" if path.startswith("sessions/") else "memory"


def is_note(path: str) -> bool:
    """Whether a document of that name is a note."""
    return path.startswith(NOTES) or task_of(path) is not None


def task_of(path: str) -> str | None:
    """The task whose folder the document lies in."""
    task, slash, rest = path.removeprefix(TASKS).partition("/")
    return task if path.startswith(TASKS) and slash and rest else None


def day_of(path: str) -> str | None:
    """The ISO day in the file name (`memory/2026-11-21.md`), if it has a real one."""
    for match in re.finditer(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)", path):
        try:
            day = date.fromisoformat(match[0])
        except ValueError:  # the 31st of February
            continue
        if day.year >= 1970:
            return match[0]
    return None


def is_log(path: str) -> bool:
    """Whether the document is a daily log, where both sides of a clash are kept."""
    return re.search(r"(^|/)\d{4}-\d{2}-\d{2}[^/]*\.md$", path) is not None


def iso(moment: float) -> str:
    """A moment, in seconds since 1970, as both ends write it in files and messages: ISO 8601, UTC, whole seconds."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def parsed(text: str) -> datetime | None:
    """The moment that an ISO 8601 text names, in UTC, which is taken where it names no zone; None where it names none."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def local_time(told: str) -> str:
    """A time of the daemon's (ISO 8601), for people here, with its zone. Raises UnfitAnswerError: it is none."""
    try:
        return datetime.fromisoformat(told).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except (ValueError, OverflowError):
        raise UnfitAnswerError from None


# Words that every text has. Dropping them costs nothing and saves scanning their long lists.
STOP_WORDS: Final = frozenset(
    """a about above after again all also am an and any are as at be because been before being both but by can
    could did do does doing done down during each few for from further get got had has have having he her here hers him his
    how i if in into is it its itself just me mine more most my myself no nor not now of off on once only or other our ours
    out over own same she should so some such than that the their theirs them then there these they this those through to
    too under until up us very was we were what when where which while who whom whose why will with would you your yours
    s t d ll m re ve don""".split()  # noqa: SIM905 - a list of quoted words would fill a screen
)
BUCKETS: Final = 256
_DIGEST_BYTES: Final = 16
INLINE_BYTES: Final = 8 * 1024
"""Up to here one record is cheaper than the three of a stream."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
MAX_SENT: Final = 32
"""Texts of one file that a machine sent without hearing what became of them."""
REMOVED: Final = "0" * 64
"""Stands among the hashes of the texts that were sent for the deletion of the file, which no text has as its hash."""


def check_text(text: str) -> str:
    """The text itself, when it may be stored.

    Raises:
        TooLargeError: over `MAX_TEXT_BYTES` of UTF-8.
        InvalidTextError: NUL characters or lone surrogates.
    """
    if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise TooLargeError(
            f"the document is over {MAX_TEXT_BYTES // (1024 * 1024)} MiB", hint="split it into several files"
        )
    if "\0" in text:
        raise InvalidTextError("the document is not text: it holds NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidTextError("the document is not text: it holds lone surrogates") from None
    return text


def text_hash(text: str) -> str:
    """BLAKE2b-256 of the UTF-8 bytes, in hex: the name of a content on the wire."""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def bucket_of(path: str) -> int:
    """Which bucket a path belongs to: the first byte of the BLAKE2b-256 of its UTF-8 bytes."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=32).digest()[0]


def digests(states: Iterable[tuple[str, str, int]]) -> list[str]:
    """For each bucket the hex BLAKE2b-128 of `path 0x00 hash 0x00 revision 0x0a`, in order of the paths' bytes; "" for an empty one.

    `states`: (path, hash, revision) of each file.
    """
    lines: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for path, digest, revision in states:
        lines[bucket_of(path)].append(f"{path}\0{digest}\0{revision}\n".encode("utf-8", "surrogateescape"))
    return [
        hashlib.blake2b(b"".join(sorted(each)), digest_size=_DIGEST_BYTES).hexdigest() if each else "" for each in lines
    ]


class RequestChannel(Protocol):
    """A connection, or a link that has one."""

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float, bulk: bool = False
    ) -> dict[str, object]:
        """As `Connection.request`."""

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        """As `Connection.upload`."""


async def send_text(
    link: RequestChannel, op: str, body: dict[str, object], text: str, *, timeout_s: float
) -> dict[str, object]:
    """Ask with a text, behind everything interactive. Raises RequestError, ConnectionLost, TimeoutError: as `Connection.upload`."""
    data = text.encode()
    if len(data) > INLINE_BYTES:
        return await link.upload(op, body, data, timeout_s=timeout_s)
    return await link.request(op, {**body, "text": text}, timeout_s=timeout_s, bulk=True)


async def receive_text(body: Body) -> str:
    """The text that came as a body.

    Raises:
        RequestError: `too_large`, `invalid` where it is not UTF-8, or as `Body.read`.
        ConnectionLost: the connection ended first.
    """
    try:
        return (await body.read(MAX_TEXT_BYTES)).decode()
    except UnicodeDecodeError:
        raise RequestError("invalid", "the text is not UTF-8") from None


# What stands in a text where two versions of the same lines could not be made one: plain lines that a person and an agent read alike, that
# no markdown turns into something else, and that no tool of git's takes for its own. The document counts as clashing until none is left.

_OURS = "<<<<<<< confide: "
_THEIRS = "======= confide: "
_END = ">>>>>>> confide: these versions differ; keep what is right and delete the marks\n"
# In front matter, where other lines would make the whole of it unreadable.
_COMMENT = "# confide clash, "
_MARKS = re.compile(r"^(?:[<=>]{7} confide: |# confide clash, )", re.MULTILINE)


def marked_clash(ours: Sequence[str], theirs: Sequence[str], names: tuple[str, str]) -> list[str]:
    """Both versions, each below the name of where it comes from.

    Where ours are the versions of a clash already, theirs is one more of them, in place of an older one of the same author: a machine that
    has not seen the marks yet, or keeps its file without them, must not pile up its own versions.
    """
    versions = _versions(ours) or [(names[0], list(ours))]
    if any(lines == list(theirs) for _, lines in versions):
        return list(ours)
    if len(versions) > 1:
        others = [version for version in versions if _author(version[0]) != _author(names[1])]
        versions = others or versions[:1]
    (first, lines), *rest = [*versions, (names[1], list(theirs))]
    text = [f"{_OURS}{first}\n", *lines]
    for name, lines in rest:
        text += [f"{_THEIRS}{name}\n", *lines]
    return [*text, _END]


def _versions(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The versions between the marks, with their names; none where the lines are not one clash from its first mark to its last."""
    if len(lines) < 3 or not lines[0].startswith(_OURS) or lines[-1] != _END or _END in lines[:-1]:
        return []
    found: list[tuple[str, list[str]]] = []
    for line in lines[:-1]:
        mark = next((mark for mark in (_OURS, _THEIRS) if line.startswith(mark)), None)
        if mark is not None:
            found.append((line.removeprefix(mark).rstrip("\n"), []))
        else:
            found[-1][1].append(line)
    return found


def clash_comments(lines: Sequence[str], name: str) -> list[str]:
    """The lines of the version that gave way in front matter, in place of what its author had there before."""
    older = f"{_COMMENT}{_author(name)}, "
    others = [line for line in lines if line.strip() and not line.startswith(older)]
    return [line if line.startswith(_COMMENT) else f"{_COMMENT}{name}: {line}" for line in others]


def _author(name: str) -> str:
    return name.rpartition(", revision ")[0] or name


def has_clash(text: str) -> bool:
    """Whether a clash in the text is not resolved yet."""
    return " confide" in text and _MARKS.search(text) is not None


def is_conflict_mark(line: str) -> bool:
    """Return True if a line marks the versions of a conflict."""
    return _MARKS.match(line) is not None


def conflict_lines(text: str) -> list[str]:
    """Return the lines of a text that are in conflict, with their marks."""
    found: list[str] = []
    is_open = False
    for line in text.split("\n"):
        is_open = is_open or line.startswith(_OURS)
        if is_open or line.startswith(_COMMENT):
            found.append(line)
        if f"{line}\n" == _END:
            is_open = False
    return found
