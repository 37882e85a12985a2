r"""Documents: their names, text, transfer and dates, and conflict marks. Uses no database and opens
no file.

A document is a markdown file named by (project, path). Lines end in "\n" and are counted from 1.
Other characters that some tools treat as line ends (form feed, U+2028) do not count, so that line
numbers agree with editors and with `memory_read`.

Both ends share one rule for valid names (PROTOCOL.md 9.1). Otherwise searches would find a document
that no device can store as a file and no user can see, and a device would try forever to send a
file whose name the daemon refuses. Which files belong to a project is another question: `is_memory`
covers files that are written, the user's globs cover files that are only read.

A short text is sent as a parameter, a longer one as the body of a stream. To compare files, both
ends exchange digests of their states in 256 buckets: if ten thousand files are equal, one short
request is enough; if some differ, only the files in their buckets are compared one by one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from confide_crypto.errors import RequestError
from confide_memory.errors import InvalidPathError, InvalidTextError, TooLargeError, UnfitAnswerError

if TYPE_CHECKING:
    from confide_crypto.transport.inbox import Body

SOURCES = ("memory", "sessions")
# Folders of notes, and of the notes of tasks, which have a folder for each task.
NOTES = "memory/notes/"
TASKS = "memory/tasks/"
MAX_PATH_BYTES = 512
MAX_COMPONENT_BYTES = 255
"""The limit of common file systems."""
MAX_DEPTH = 32
MEMORY_FILES = ("MEMORY.md", "memory.md")
MEMORY_FOLDER = "memory"
TOOL_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Folders that tools create; scans skip them."""
_INSTRUCTIONS: Final = frozenset(
    {
        *("claude", "claude.local", "agent", "agents", "agents.local", "agents.override", "gemini", "qwen"),
        *("copilot-instructions", "skill", "crush", "crush.local", "warp", "iflow", "codebuddy"),
    }
)
"""Names without `.md`. Instruction files with other endings, such as `.mdc`, are not documents."""
_INSTRUCTIONS_END: Final = (".instructions", ".prompt", ".chatmode", ".agent")
_PASSED_OVER: Final = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""Unicode's default-ignorable characters: ext4 and HFS+ also find a file by its name without them.
"""
_COPY: Final = re.compile(
    r"(?:_(?:BACKUP|BASE|LOCAL|REMOTE)_(?!(?:19|20)\d\d\.)\d{1,7}"  # git mergetool, with its process id; a year is a person's
    r"|\.sync-conflict-\d{8}-\d{6}(?:-\w{7})?"  # Syncthing
    r"|_conflict-\d{8}-\d{6}"  # ownCloud, older Nextcloud
    r"|\((?:[^()]*\b[Cc]onflicted copy\b[^()]*|SFConflict [^()]*)\))\.md$"  # Dropbox, Nextcloud, Obsidian; Seafile
)
"""The end of a file's name that a program gives to its copy of one side of a conflict."""
EXAMPLE = "memory/notes/decisions.md"
GLOBAL_PROJECT = "global"
"""The project of notes that apply everywhere; every device has it."""


def check_path(path: str) -> str:
    """Return the path unchanged if a document may be written there.

    Raises InvalidPathError, with the reason, if not.
    """
    return _require_allowed(path, path_problem(path))


def check_stored_path(path: str) -> str:
    """Return the path unchanged if an existing document there may be changed. Earlier versions
    allowed more names than `check_path`.

    Raises InvalidPathError, with the reason, if not.
    """
    return _require_allowed(path, stored_path_problem(path))


def _require_allowed(path: str, why: str | None) -> str:
    if why is not None:
        raise InvalidPathError(f"the document path is not allowed: {why}", hint=f"for example {EXAMPLE}")
    return path


def leads_out(path: str) -> bool:
    """Return True if a path, folder or glob that limits a search points outside of the projects."""
    return (
        path.startswith(("/", "~", "\\"))
        or ".." in re.split(r"[/\\]", path)
        or re.match(r"[A-Za-z]:", path) is not None
    )


def to_nfc(path: str) -> str:
    """Return the path in Unicode's normal form C, which the names of documents use.

    macOS and some programs name files in the decomposed form.
    """
    if path.isascii():
        return path
    import unicodedata  # a megabyte of tables, not needed for most paths

    return unicodedata.normalize("NFC", path)


def spellings(component: str) -> tuple[str, ...]:
    """Return the forms in which a file system may spell one name in a path: the composed form, and
    the decomposed one if it differs.
    """
    if component.isascii():
        return (component,)
    import unicodedata

    decomposed = unicodedata.normalize("NFD", component)
    return (component,) if decomposed == component else (component, decomposed)


def is_memory(path: str) -> bool:
    """Return True if the path is that of a memory file, which devices write: `MEMORY.md`,
    `memory.md` or a file below `memory/`.
    """
    return is_in_memory(path) and path_problem(path) is None


def is_in_memory(path: str) -> bool:
    """Return True if the path is at a location of memory files, even if its name is not allowed."""
    return path in MEMORY_FILES or path.startswith(f"{MEMORY_FOLDER}/")


def with_plain_suffix(path: str) -> str:
    """Return the path of a markdown file with the suffix `.md` instead of `.MD`, `.Md` or
    `.markdown`; any other path unchanged.

    Document names end only in `.md`. Otherwise two files could have the same name on a file system
    that ignores case.
    """
    stem, dot, suffix = path.rpartition(".")
    return f"{stem}.md" if dot and suffix.lower() in ("md", "markdown") else path


def path_problem(path: str) -> str | None:
    """Return the reason why no document may be written at this path, or None if one may."""
    return stored_path_problem(path) or unkept(path)


def stored_path_problem(path: str) -> str | None:
    """Return the reason why users and tools may not change a document at this path, or None if they
    may.

    Earlier versions allowed some names that `path_problem` refuses. Documents with such names
    remain: they can be read, deleted, restored and exported.
    """
    if (why := unsafe(path)) is not None:
        return why
    if source_of(path) == "sessions":
        return "sessions/ holds the transcripts, which cannot be edited"
    return None


def unsafe(path: str) -> str | None:
    """Return the reason why no document may ever have this path, because it could leave a folder or
    damage a device. None if the path is safe.

    It applies to documents of all versions, including transcripts.
    """
    if not path:
        return "it is empty"
    if not path.isprintable() and any(_is_control(character) for character in path):
        return "it holds control characters"
    if "\\" in path:
        return "it holds a backslash; folders are separated by /"
    if path != to_nfc(path):
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
    """Return the reason why devices store no file with this name, although the name is safe. None
    if they do.
    """
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
    if _COPY.search(path):
        return "programs give it to their copies of a conflict: move what is right into the file itself, or rename this one"
    if is_in_memory(path) and loads_as_instructions(path):
        return "programs of agents load files of that name as instructions"
    return None


def loads_as_instructions(path: str) -> bool:
    """Return True if the programs that run agents would load a file as instructions because of its
    name, in any folder.

    Memory holds text from many authors: agents, web pages, programs with a token. So no memory file
    may have such a name, in any spelling of a file system: in another case, in another form of
    Unicode, or with characters that some file systems ignore.
    """
    stem = path.rpartition("/")[2].removesuffix(".md")
    if not stem.isascii():
        import unicodedata

        stem = unicodedata.normalize("NFKC", _PASSED_OVER.sub("", stem).casefold())
    stem = stem.casefold().strip(" .")
    return stem in _INSTRUCTIONS or stem.endswith(_INSTRUCTIONS_END)


def is_hidden(path: str) -> bool:
    """Return True if the name of the file or of one of its folders begins with a dot."""
    return path.startswith(".") or "/." in path


def _is_control(character: str) -> bool:
    import unicodedata

    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def source_of(path: str) -> str:
    """Return the source of a document: "sessions" for transcripts below `sessions/`, else "memory"."""
    return "sessions" if path.startswith("sessions/") else "memory"


def is_note(path: str) -> bool:
    """Return True if a document at this path is a note, not another markdown file."""
    return path.startswith(NOTES) or task_of(path) is not None


def task_of(path: str) -> str | None:
    """Return the id of the task whose folder the document is in, or None."""
    task, slash, rest = path.removeprefix(TASKS).partition("/")
    return task if path.startswith(TASKS) and slash and rest else None


def is_log(path: str) -> bool:
    """Return True if the document is a daily log, named by its date. In a daily log, a conflict
    keeps both versions.
    """
    return re.search(r"(^|/)\d{4}-\d{2}-\d{2}[^/]*\.md$", path) is not None


def iso(moment: float) -> str:
    """Return a time (seconds since 1970) in the form used in files and messages: ISO 8601, UTC,
    whole seconds.
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time; without a zone it is taken as UTC. None if it is malformed."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def local_time(told: str) -> str:
    """Return a time from the daemon (ISO 8601) for users: in local time, with its zone.

    Raises UnfitAnswerError if it is malformed.
    """
    try:
        return datetime.fromisoformat(told).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except (ValueError, OverflowError):
        raise UnfitAnswerError from None


# Words in every text. Leaving them out costs no results and saves scans of their long posting
# lists.
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
"""Up to this size one record is cheaper than the three of a stream."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
MAX_SENT: Final = 32
"""Texts of one file that a device has sent without an answer."""
REMOVED: Final = "0" * 64
"""Marks the deletion of a file among the hashes of sent texts; no text has this hash."""


def check_text(text: str) -> str:
    """Return the text unchanged if it may be stored.

    Raises:
        TooLargeError: it is over `MAX_TEXT_BYTES` of UTF-8.
        InvalidTextError: it contains NUL characters or lone surrogates.
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
    """Return the BLAKE2b-256 of the text's UTF-8 bytes, in hex. Requests and answers identify texts
    by it.
    """
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def bucket_of(path: str) -> int:
    """Return the number of the bucket for a path, 0 to 255: the first byte of the BLAKE2b-256 of
    its UTF-8 bytes.
    """
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=32).digest()[0]


def digests(states: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return a digest of each bucket of files, by which both ends find out which files differ; ""
    for an empty bucket.

    The digest is the hex BLAKE2b-128 of `path 0x00 hash 0x00 revision 0x0a` for each file, sorted
    by the bytes of the paths.

    Args:
        states: (path, hash, revision) of each file.
    """
    lines: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for path, digest, revision in states:
        lines[bucket_of(path)].append(f"{path}\0{digest}\0{revision}\n".encode("utf-8", "surrogateescape"))
    return [
        hashlib.blake2b(b"".join(sorted(each)), digest_size=_DIGEST_BYTES).hexdigest() if each else "" for each in lines
    ]


class RequestChannel(Protocol):
    """The interface for sending requests: a connection, or a link that has one."""

    async def request(
        self, op: str, body: dict[str, object], *, timeout_s: float, bulk: bool = False
    ) -> dict[str, object]:
        """Send a request and return its answer, as `Connection.request` does."""

    async def upload(self, op: str, body: dict[str, object], data: bytes, *, timeout_s: float) -> dict[str, object]:
        """Send a request with a body and return its answer, as `Connection.upload` does."""


async def send_text(
    link: RequestChannel, op: str, body: dict[str, object], text: str, *, timeout_s: float
) -> dict[str, object]:
    """Send a request that carries a text, after all interactive data. A long text is sent as a
    body.

    Raises RequestError, ConnectionLost and TimeoutError, as `Connection.upload` does.
    """
    data = text.encode()
    if len(data) > INLINE_BYTES:
        return await link.upload(op, body, data, timeout_s=timeout_s)
    return await link.request(op, {**body, "text": text}, timeout_s=timeout_s, bulk=True)


async def receive_text(body: Body) -> str:
    """Receive a text that was sent as a body.

    Raises:
        RequestError: with the code `too_large`, `invalid` if it is not UTF-8, or the reason of a
            sender who gave it up.
        ConnectionLost: the connection ended first.
    """
    try:
        return (await body.read(MAX_TEXT_BYTES)).decode()
    except UnicodeDecodeError:
        raise RequestError("invalid", "the text is not UTF-8") from None


# Conflict marks replace lines that could not be merged: plain lines that people and agents read
# alike, that have no meaning in markdown, and that git tools do not mistake for their own. A
# document is in conflict until all marks are deleted.

_OURS = "<<<<<<< confide: "
_THEIRS = "======= confide: "
_END = ">>>>>>> confide: these versions differ; keep what is right and delete the marks\n"
# In front matter, where other lines would make all of it invalid YAML.
_COMMENT = "# confide clash, "
_MARKS = re.compile(r"^(?:[<=>]{7} confide: |# confide clash, )", re.MULTILINE)


def marked_clash(ours: Sequence[str], theirs: Sequence[str], names: tuple[str, str]) -> list[str]:
    """Return the lines for a conflict: both versions with conflict marks, each below the name of
    its origin.

    If `ours` already is a conflict, `theirs` is added to its versions, and replaces an older
    version of the same author. Otherwise a device that has not seen the marks yet, or keeps its
    file without them, would add its own versions again and again.
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
    """Return the versions between the marks, with their names; empty if the lines are not one
    conflict from the first mark to the last.
    """
    if len(lines) < 3 or not lines[0].startswith(_OURS) or [line for line in lines if _is_end(line)] != [lines[-1]]:
        return []
    found: list[tuple[str, list[str]]] = []
    for line in lines[:-1]:
        mark = next((mark for mark in (_OURS, _THEIRS) if line.startswith(mark)), None)
        if mark is not None:
            found.append((line.removeprefix(mark).rstrip("\r\n"), []))
        else:
            found[-1][1].append(line)
    return found


def _is_end(line: str) -> bool:
    """Return True if the line ends a conflict, whatever its line end is: the last one may have none."""
    return line.rstrip("\r\n") == _END.rstrip("\n")


def clash_comments(lines: Sequence[str], name: str) -> list[str]:
    """Return the lines of the version that lost a conflict in front matter as YAML comments. They
    replace earlier comments of the same author.
    """
    older = f"{_COMMENT}{_author(name)}, "
    others = [line for line in lines if line.strip() and not line.startswith(older)]
    return [line if line.startswith(_COMMENT) else f"{_COMMENT}{name}: {line}" for line in others]


def _author(name: str) -> str:
    return name.rpartition(", revision ")[0] or name


def has_clash(text: str) -> bool:
    """Return True if the text contains an unresolved conflict."""
    return " confide" in text and _MARKS.search(text) is not None


def is_conflict_mark(line: str) -> bool:
    """Return True if the line is a conflict mark, which separates the versions of a conflict."""
    return _MARKS.match(line) is not None


def conflict_lines(text: str) -> list[str]:
    """Return the lines of all conflicts in a text, including their conflict marks."""
    found: list[str] = []
    is_open = False
    for line in text.split("\n"):
        is_open = is_open or line.startswith(_OURS)
        if is_open or line.startswith(_COMMENT):
            found.append(line)
        if _is_end(line):
            is_open = False
    return found


def clash_origins(text: str) -> tuple[str, str] | None:
    """Return the names of the two versions in the conflicts of a text. None if there is no
    conflict, or not all conflicts have the same two names.
    """
    blocks = [versions for versions in _clashes(text) if not isinstance(versions, str)]
    found = {tuple(name for name, _ in versions) for versions in blocks}
    if len(found) != 1 or f"\n{_COMMENT}" in f"\n{text}":
        return None
    names = found.pop()
    return (names[0], names[1]) if len(names) == 2 and names[0] != names[1] else None


def clash_kept(text: str, origin: str) -> str:
    """Return the text with all conflicts resolved: each is replaced by the version of `origin`."""
    parts = []
    for part in _clashes(text):
        parts += [part] if isinstance(part, str) else [line for name, lines in part if name == origin for line in lines]
    return "".join(parts)


def clash_version(text: str, origin: str) -> str:
    """Return the lines of one version, named by `origin`, from all conflicts in a text."""
    versions = [part for part in _clashes(text) if not isinstance(part, str)]
    return "".join(line for part in versions for name, lines in part if name == origin for line in lines)


def _clashes(text: str) -> Iterator[str | list[tuple[str, list[str]]]]:
    """Yield the lines of a text that are in no conflict, and the versions of each conflict."""
    block: list[str] = []
    for line in text.splitlines(keepends=True):
        if not block and not line.startswith(_OURS):
            yield line
            continue
        block.append(line)
        if _is_end(line):
            versions = _versions(block)
            if versions:
                yield versions
            else:
                yield from block
            block = []
    yield from block
