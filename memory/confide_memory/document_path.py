"""What a document may be called: the one rule of both ends (PROTOCOL.md 9.1). Pure functions; nothing is opened here.

A document that a machine cannot have as a file would be found by every search and seen by nobody, and one whose name the daemon refuses
would be sent for ever. So both ends ask here. Where a machine keeps documents is another question: `is_memory` for the files that are
written, the user's globs for those that are only read.
"""

from __future__ import annotations

import re

MAX_PATH_BYTES = 512
MAX_COMPONENT_BYTES = 255
"""What file systems allow."""
MAX_DEPTH = 32
MEMORY_FILES = ("MEMORY.md", "memory.md")
MEMORY_FOLDER = "memory"
TOOL_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""What tools make, and walks leave out."""
EXAMPLE = "memory/notes/decisions.md"
GLOBAL_PROJECT = "global"
"""The project of what holds everywhere; every machine has it."""
_TRANSCRIPTS = "sessions/"


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
    return is_in_memory(path) and problem(path) is None


def is_in_memory(path: str) -> bool:
    """Whether its place is that of a file of memory, whatever it is called there."""
    return path in MEMORY_FILES or path.startswith(f"{MEMORY_FOLDER}/")


def problem(path: str) -> str | None:
    """Why no document that is written may have this path; None where it may."""
    return stored_problem(path) or unkept(path)


def stored_problem(path: str) -> str | None:
    """Why nobody may change a document at this path, though earlier versions took some names that `problem` refuses.

    Such documents stay: they can be read, deleted, restored and exported.
    """
    if (why := unsafe(path)) is not None:
        return why
    if path.startswith(_TRANSCRIPTS):
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
    return None


def is_hidden(path: str) -> bool:
    """Whether the file, or a folder that it is in, is hidden."""
    return path.startswith(".") or "/." in path


def _is_control(character: str) -> bool:
    import unicodedata

    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
