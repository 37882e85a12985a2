"""Convert the tool calls in the hook events of each client to one form.

A hook runs before and after tool calls, so this module imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

EDITS: Final = frozenset(
    {
        *("Edit", "Write", "MultiEdit", "NotebookEdit"),  # Claude Code
        *("apply_patch", "edit", "write", "patch", "multiedit"),  # Codex, OpenCode
        *("replace", "write_file", "edit_file", "search_replace", "Delete"),  # Gemini CLI, Cursor
        *(
            "editFiles",
            "create_file",
            "replace_string_in_file",
            "multi_replace_string_in_file",
            "insert_edit_into_file",
        ),  # VS Code
        "edit_notebook_file",
    }
)
"""Tools that change a file."""
MOST_OUTPUT: Final = 32 * 1024
"""Characters of a tool's output that are sent: a quarter from its start, the rest from its end."""
MOST_PATHS: Final = 16
MOST_COMMAND: Final = 8192
READS: Final = frozenset({"Read", "read", "read_file", "readFile", "View", "view"})
"""Tools that read a file."""
_WEB: Final = ("web", "fetch", "browser", "codesearch")
_FETCHES: Final = frozenset({"curl", "wget", "lynx", "w3m", "gh", "glab"})
"""Programs that print web pages, or issues of a forge."""
_RUNS: Final = frozenset({"-c", "-lc", "-ic", "-ec", "eval"})
"""Words before an argument that a shell runs."""
_HERE: Final = ("localhost", "127.0.0.1", "[::1]")
_OTHERS: Final = ("mcp__", "mcp_", "mcp:")
"""Prefixes of tools of MCP servers, in lower case."""
_JOINS: Final = ("__", "/", ":", ".", "-")
"""Marks between the names of a server and of its tool; no tool of the clients' own has one."""
_OPENCODE: Final = ("plan_", "apply_")
"""Beginnings of OpenCode's own tools with a "_" in their names; the others' begin with the server's."""
_OWN: Final = ("plugin_confide_confide", "confide")
"""Names of Confide's server, by the plugin and by `confide setup`. Another may be called
`confident-ai`, `confide_docs` or `evil_confide`.
"""
_SERVER: Final = "mcp_server_name"
"""Field that names the server beside a tool, where the tool's name does not (Cursor)."""
_OWN_TOOLS: Final = frozenset(
    {"context_info", "entity_list", "entity_search", "memory_dedupe", "memory_delete", "memory_forget", "memory_get"}
    | {"memory_history", "memory_import", "memory_link", "memory_list", "memory_read", "memory_search", "memory_status"}
    | {"memory_store", "memory_sync", "memory_update", "project_summary", "secret_get", "task_add", "task_cancel"}
    | {"task_list", "task_results"}
)
"""Names of their tools, whole: the beginning `memory_` may belong to the name of a server `confide_memory`."""
_PATHS: Final = (
    "file_path",
    "filePath",
    "notebook_path",
    "path",
    "absolute_path",
    "target_file",
    "relative_workspace_path",
)
_PATCHES: Final = ("input", "patch", "patchText", "command")
_PATCHED: Final = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
_OUTPUTS: Final = ("error", "tool_response", "tool_output")
_PARTS: Final = (
    "error",
    "stderr",
    "output",
    "stdout",
    "llmContent",
    "text",
    "content",
    "message",
    "result",
)
_CODES: Final = ("exit_code", "exitCode", "exit", "returncode", "code")
_DEEPEST: Final = 4


def describe_call(told: dict[str, object], *, is_failure: bool) -> dict[str, object]:
    """Return the tool call of an event as a dict.

    `tool` and `command` are "" and `paths` is [] if there are none; `output` is what a finished
    call returned; `failed` is True, False, or None if the event does not say. `is_failure` means
    that clients report this event only for failed calls.
    """
    tool = told.get("tool_name")
    given = told.get("tool_input")
    arguments: dict[str, object] = given if isinstance(given, dict) else {"input": given}
    name = tool if isinstance(tool, str) else ""
    command = _command(arguments)
    is_edit = name in EDITS or "*** Begin Patch" in command
    return {
        "tool": name[:128],
        "command": "" if is_edit else command[:MOST_COMMAND],
        "paths": _edited_paths(arguments) if is_edit else [],
        "output": _clip("\n".join(text for key in _OUTPUTS if (text := _text(told.get(key))))),
        "failed": True if is_failure else _has_failed(told),
    }


def is_foreign(told: dict[str, object], own: tuple[str, ...]) -> bool:
    """Return True if third parties may have written what a tool call returns: a web page, the
    result of another MCP server, or a file outside the folders `own`.
    """
    name, given = told.get("tool_name"), told.get("tool_input")
    if not isinstance(name, str) or not name:
        return False
    arguments: dict[str, object] = given if isinstance(given, dict) else {}
    is_of_server = told.get("client") == "opencode" and "_" in name and not name.startswith(_OPENCODE)
    if name.lower().startswith(_OTHERS) or any(join in name for join in _JOINS) or _SERVER in told or is_of_server:
        return not is_own(told)
    if any(word in name.lower() for word in _WEB):
        return True
    if name in READS:
        found = [path for key in _PATHS if isinstance(path := arguments.get(key), str)]
        cwd = told.get("cwd")
        return any(_is_elsewhere(path, cwd if isinstance(cwd, str) else "", own) for path in found)
    return name not in EDITS and _fetches(_command(arguments))


def is_own(told: dict[str, object]) -> bool:
    """Return True if a tool call is certainly to one of Confide's tools, however the client spells
    its name: `mcp__confide__memory_search`, `MCP:confide:memory_search`, `confide/memory_search`.

    Cursor's `MCP:memory_search` does not contain the server's name. It could be another server's,
    so it counts only if a field of the event names Confide.
    """
    name, server = told.get("tool_name"), told.get(_SERVER)
    if not isinstance(name, str):
        return False
    mark = next((each for each in _OTHERS if name.lower().startswith(each)), "")
    rest = name[len(mark) :]
    if isinstance(server, str):
        return server in _OWN and any(_is_own_tool(rest, each) for each in ("", *_OWN))
    return any(_is_own_tool(rest, each) for each in _OWN)


def _is_own_tool(name: str, server: str) -> bool:
    befores = [server + join for join in ((*_JOINS, "_") if server else ("",))]
    return any(name[len(before) :] in _OWN_TOOLS for before in befores if name.startswith(before))


def _is_elsewhere(path: str, cwd: str, folders: tuple[str, ...]) -> bool:
    """Return True if a path, which may be relative to `cwd`, leads out of all of these folders."""
    is_relative = not path.startswith(("/", "~/"))
    if is_relative and not cwd.startswith("/"):
        return ".." in path.split("/")
    parts: list[str] = []
    for part in f"{cwd if is_relative else ''}/{path}".split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    whole = f"/{'/'.join(parts)}/"
    return not any(folder and whole.startswith(folder.rstrip("/") + "/") for folder in folders)


def _fetches(command: str) -> bool:
    """Return True if a command may print text from the web, other than from this device itself."""
    return any(_fetches_words(words) for words in _commands(command))


def _fetches_words(words: list[str]) -> bool:
    for at, word in enumerate(words[:-1]):
        if word in _RUNS and any(_fetches_words(inner) for inner in _commands(words[at + 1])):
            return True
    programs = [at for at, word in enumerate(words) if word.rpartition("/")[2] in _FETCHES]
    urls = [word for word in words if "://" in word]
    if any(not _is_here(word.partition("://")[2]) for word in urls if programs or "http" in word.lower()):
        return True
    return bool(programs) and not urls and not any(_is_here(word) for word in words[programs[0] + 1 :])


def _commands(line: str) -> list[list[str]]:
    """Return the words of each command in a line of a shell, without quotes. `shlex` would take a
    hook too long to import.
    """
    found: list[list[str]] = [[]]
    word = quote = ends = ""
    at = 0
    while at < len(line) <= MOST_COMMAND:
        sign = line[at]
        at += 1
        is_inner = quote != "'" and (sign == "`" or (sign == "$" and line[at : at + 1] == "("))
        if sign == "\\" and quote != "'":
            word += line[at : at + 1].strip("\n")
            at += 1
        elif sign == quote:
            quote = ""
        elif quote and not is_inner:
            word += sign
        elif sign in "\"'":
            quote = sign
        elif sign in " \t\n;|&()<>" or is_inner:
            found[-1] += [word] if word else []
            word = ""
            if sign not in " \t<>":
                found.append([])
            if sign == ends[-1:] and not quote:  # a command within double quotes has ended
                ends, quote = ends[:-1], '"'
            elif quote:
                ends, quote = ends + ("`" if sign == "`" else ")"), ""
        else:
            word += sign
    if quote or ends or len(line) > MOST_COMMAND:  # such as an apostrophe in a text that the line has
        for sign in ";|&()`\n\"'":
            line = line.replace(sign, "\n")
        return [part.split() for part in line.split("\n")]
    found[-1] += [word] if word else []
    return found


def _is_here(address: str) -> bool:
    """Return True for an address of this device."""
    host = address.strip("\"'").partition("/")[0].lower()
    # What stands before an "@" is a user, not a host.
    return "@" not in host and any(host == each or host.startswith(f"{each}:") for each in _HERE)


def _command(arguments: dict[str, object]) -> str:
    found = arguments.get("command", arguments.get("cmd"))
    if isinstance(found, list):  # ["bash", "-lc", "make test"]
        words = [word for word in found if isinstance(word, str)]
        return words[-1] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words)
    return found if isinstance(found, str) else ""


def _edited_paths(arguments: dict[str, object]) -> list[str]:
    found = [path for key in _PATHS if isinstance(path := arguments.get(key), str)]
    for key in _PATCHES:
        patch = arguments.get(key)
        for line in patch[: 4 * MOST_OUTPUT].split("\n") if isinstance(patch, str) else ():
            found += [line[len(mark) :].strip() for mark in _PATCHED if line.startswith(mark)]
    files = arguments.get("files")
    found += [file for file in files[:MOST_PATHS] if isinstance(file, str)] if isinstance(files, list) else []
    edits = arguments.get("replacements")
    for one in edits[:MOST_PATHS] if isinstance(edits, list) else ():
        found += [one["filePath"]] if isinstance(one, dict) and isinstance(one.get("filePath"), str) else []
    return [path[:4096] for path in dict.fromkeys(found) if path][:MOST_PATHS]


def _text(value: object, depth: int = 0) -> str:
    """Return the texts in a tool's answer, in the order in which a reader wants them."""
    if isinstance(value, str):
        return value
    if depth == _DEEPEST:
        return ""
    if isinstance(value, dict):
        found = [_text(value[key], depth + 1) for key in _PARTS if key in value]
        codes = [f"exit code {value[key]}" for key in _CODES if isinstance(value.get(key), int)]
        return "\n".join(text for text in (*found, *codes) if text)
    if isinstance(value, list):
        return "\n".join(text for each in value[:64] if (text := _text(each, depth + 1)))
    return ""


def _clip(text: str) -> str:
    if len(text) <= MOST_OUTPUT:
        return text
    return f"{text[: MOST_OUTPUT // 4]}\n{text[-3 * MOST_OUTPUT // 4 :]}"


def _has_failed(told: dict[str, object]) -> bool | None:
    if told.get("error"):
        return True
    for key in _OUTPUTS:
        answer = told.get(key)
        if not isinstance(answer, dict):
            continue
        if answer.get("is_error") is True or answer.get("isError") is True or answer.get("success") is False:
            return True
        if answer.get("error"):
            return True
        codes = [answer.get(code) for code in _CODES]
        if said := [code for code in codes if isinstance(code, int) and not isinstance(code, bool)]:
            return any(said)
    return None
