"""Allowlists for requests to the models' APIs: fields, tools and content parts, by name.

Providers extend their formats, so anything not listed is refused. The lists contain nothing that
makes the provider fetch an address, run a program, or use data that it stored earlier: each would
be a way out of a sandbox without a network, and an input of unknown length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

IMAGE_TOKENS: Final = 25_000
"""More tokens than any image has: OpenAI's largest detail has 10,000 patches of at most 2.46
tokens; Anthropic's images have 5,000 tokens.
"""
DOCUMENT_TOKENS: Final = 1_000_000
"""Tokens counted for a request with a document, as many as the largest model reads. A PDF page of
60 bytes can have 5,000 tokens.
"""
_BYTES_A_TOKEN: Final = 2
"""Fewer bytes per token than texts in ASCII have: the input is overestimated until the answer
reports the actual count. Of rare letters beyond ASCII each byte may be a token.
"""
_NOT_ASCII: Final = bytes(range(128, 256))
_MOST_WHERE: Final = 200
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=_\s-]*")
_IMAGE_URL: Final = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,", re.IGNORECASE)
_FILE_DATA: Final = re.compile(r"(data:[a-z0-9.+-]{1,80}/[a-z0-9.+-]{1,80};base64,)?", re.IGNORECASE)
_SCHEMAS: Final = ("http://json-schema.org/", "https://json-schema.org/")
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class UnfitError(Exception):
    """The request is refused; the message is for the agent."""


@dataclass(slots=True)
class Weight:
    """The non-text content of a request: the number of images and documents, and their size in
    bytes.
    """

    images: int = 0
    documents: int = 0
    packed_bytes: int = 0

    def tokens(self, raw: bytes) -> int:
        """Return an upper bound for the input tokens of a request with this body."""
        ascii_bytes = len(raw.translate(None, _NOT_ASCII))
        text = max(0, ascii_bytes - self.packed_bytes) // _BYTES_A_TOKEN + len(raw) - ascii_bytes
        return text + self.images * IMAGE_TOKENS + (DOCUMENT_TOKENS if self.documents else 0)


Form = Callable[[Any, str, Weight], Any]
"""Function that checks the value at a path of a request, adds to the weight, and returns the value
to send. Raises UnfitError.
"""
_OUT: Final = object()
"""Marker returned for a value that is silently left out of the request."""


def _unfit(where: str) -> UnfitError:
    problem = "is not allowed here: this run may ask the model, and nothing beyond it"
    return UnfitError(f"'{where[:_MOST_WHERE]}' {problem}")


def _plain(value: Any, where: str, _weight: Weight) -> Any:
    """Accept a string, a number, a boolean or null."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise _unfit(where)


def _any(value: Any, _where: str, _weight: Weight) -> Any:
    """Accept any value: data of the agent's own tools, which the provider does not interpret."""
    return value


def _empty(_value: Any, _where: str, _weight: Weight) -> Any:
    """Replace by an empty list: results that a provider adds about its own tools, and does not
    require back.
    """
    return []


def _schema(value: Any, where: str, weight: Weight) -> Any:
    """Accept a JSON Schema without external references: `$ref` only within itself, and a known
    `$schema`.
    """
    if isinstance(value, dict):
        for name in _REFERENCES & value.keys():
            if isinstance(value[name], str) and not value[name].startswith("#"):
                raise _unfit(f"{where}.{name}")
        if isinstance(value.get("$schema"), str) and not value["$schema"].startswith(_SCHEMAS):
            raise _unfit(f"{where}.$schema")
        for name, each in value.items():
            _schema(each, f"{where}.{name}", weight)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _schema(each, f"{where}[{number}]", weight)
    return value


def _only(*values: Any) -> Form:
    def check(value: Any, where: str, _weight: Weight) -> Any:
        if isinstance(value, (str, int)) and value in values:
            return value
        raise _unfit(where)

    return check


def _list(form: Form) -> Form:
    def check(value: Any, where: str, weight: Weight) -> Any:
        if not isinstance(value, list):
            raise _unfit(where)
        found = (form(each, f"{where}[{number}]", weight) for number, each in enumerate(value))
        return [each for each in found if each is not _OUT]

    return check


def _text_or(form: Form) -> Form:
    def check(value: Any, where: str, weight: Weight) -> Any:
        return value if isinstance(value, str) else form(value, where, weight)

    return check


def _plain_table(value: Any, where: str, weight: Weight) -> Any:
    """Accept an object of plain values with any names."""
    if not isinstance(value, dict):
        raise _unfit(where)
    return {name: _plain(each, f"{where}.{name}", weight) for name, each in value.items()}


def _members(forms: Mapping[str, Form]) -> Form:
    """Return a form for an object with these fields. Other fields are left out if empty (null,
    false, "" or the like), else refused.
    """

    def check(value: Any, where: str, weight: Weight) -> Any:
        if not isinstance(value, dict):
            raise _unfit(where)
        found = {}
        for name, each in value.items():
            place = f"{where}.{name}" if where else name
            if name in forms:
                found[name] = each if each is None else forms[name](each, place, weight)
            elif each or (each == 0 and not isinstance(each, bool)):
                raise _unfit(place)
        return {name: each for name, each in found.items() if each is not _OUT}

    return check


def _plain_members(*names: str, **more: Form) -> Form:
    return _members({**dict.fromkeys(names, _plain), **more})


def _kinds(forms: Mapping[str, Form], *, usual: str = "") -> Form:
    """Return a form for an object selected by its `type`, `usual` by default."""

    def check(value: Any, where: str, weight: Weight) -> Any:
        kind = value.get("type", usual) if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in forms:
            raise _unfit(f"{where}.type '{kind}'" if isinstance(kind, str) and kind.isprintable() else where)
        return forms[kind](value, where, weight)

    return check


def _tools(forms: Mapping[str, Form], dated: re.Pattern[str] | None = None, of_dated: Form | None = None) -> Form:
    """Return a form for a tool. Tools that the provider would run are left out, since agents offer
    them by default.
    """

    def check(value: Any, where: str, weight: Weight) -> Any:
        if not isinstance(value, dict) or not isinstance(kind := value.get("type", "custom"), str):
            return _OUT
        if kind in forms:
            return forms[kind](value, where, weight)
        if dated is not None and of_dated is not None and dated.fullmatch(kind):
            return of_dated(value, where, weight)
        return _OUT

    return check


def _require_base64(value: Any, where: str, weight: Weight, begins: re.Pattern[str] | None = None) -> Any:
    """Accept base64 data within the request itself, never an address."""
    begin = begins.match(value) if begins is not None and isinstance(value, str) else None
    if not isinstance(value, str) or (begins is not None and begin is None):
        raise _unfit(where)
    if not _BASE64.fullmatch(value, begin.end() if begin is not None else 0):
        raise _unfit(where)
    weight.packed_bytes += len(value)
    return value


def _image(value: Any, where: str, weight: Weight) -> Any:
    weight.images += 1
    return _require_base64(value, where, weight)


def _document(value: Any, where: str, weight: Weight) -> Any:
    weight.documents += 1
    return _require_base64(value, where, weight)


def _image_url(value: Any, where: str, weight: Weight) -> Any:
    weight.images += 1
    return _require_base64(value, where, weight, _IMAGE_URL)


def _file_data(value: Any, where: str, weight: Weight) -> Any:
    weight.documents += 1
    return _require_base64(value, where, weight, _FILE_DATA)


# Anthropic's messages

_CACHE: Final[Mapping[str, Form]] = {"cache_control": _plain_members("type", "ttl", "scope")}
_CITED: Final = _list(
    _plain_members(
        *("type", "cited_text", "document_index", "document_title", "title"),
        *("start_char_index", "end_char_index", "start_page_number", "end_page_number"),
        *("start_block_index", "end_block_index"),
    )
)
_TEXT: Final = _plain_members("type", "text", **_CACHE, citations=_CITED)
_IMAGE: Final = _members(
    {
        "type": _plain,
        "source": _kinds({"base64": _plain_members("type", "media_type", data=_image)}),
        **_CACHE,
    }
)
_DOCUMENT: Final = _members(
    {
        "type": _plain,
        "source": _kinds(
            {
                "base64": _plain_members("type", "media_type", data=_document),
                "text": _plain_members("type", "media_type", "data"),
                "content": _plain_members("type", content=_text_or(_list(_kinds({"text": _TEXT, "image": _IMAGE})))),
            }
        ),
        "title": _plain,
        "context": _plain,
        "citations": _plain_members("enabled"),
        **_CACHE,
    }
)
_TOOL_REFERENCE: Final = _plain_members("type", "tool_name", **_CACHE)
_RESULT: Final = _plain_members(
    *("type", "tool_use_id", "is_error"),
    **_CACHE,
    content=_text_or(
        _list(_kinds({"text": _TEXT, "image": _IMAGE, "document": _DOCUMENT, "tool_reference": _TOOL_REFERENCE}))
    ),
)
_DIRECT: Final = _only("direct")
_ANTHROPIC_TOOLS: Final = _tools(
    {
        "custom": _plain_members(
            *("type", "name", "description", "strict", "defer_loading", "eager_input_streaming"),
            **_CACHE,
            input_schema=_schema,
            input_examples=_any,
            allowed_callers=_list(_DIRECT),
        )
    },
    # Tools that the agent runs itself, in every dated version.
    re.compile(r"(bash|text_editor|memory|computer)_20\d{6}"),
    _plain_members(
        *("type", "name", "strict", "defer_loading", "max_characters"),
        *("display_width_px", "display_height_px", "display_number", "enable_zoom"),
        **_CACHE,
        input_examples=_any,
        allowed_callers=_list(_DIRECT),
    ),
)


def _definition(value: Any, where: str, weight: Weight) -> Any:
    """Accept a tool definition within a conversation, where a tool cannot be left out silently."""
    if (found := _ANTHROPIC_TOOLS(value, where, weight)) is _OUT:
        raise _unfit(where)
    return found


_CHANGED: Final = _kinds(
    {
        "tool_reference": _plain_members("type", "name"),
        "tool_definition": _plain_members("type", definition=_definition),
    }
)
_BLOCKS: Final = _text_or(
    _list(
        _kinds(
            {
                "text": _TEXT,
                "image": _IMAGE,
                "document": _DOCUMENT,
                "thinking": _plain_members("type", "thinking", "signature", **_CACHE),
                "redacted_thinking": _plain_members("type", "data", **_CACHE),
                "tool_use": _plain_members(
                    "type", "id", "name", **_CACHE, input=_any, caller=_members({"type": _DIRECT})
                ),
                "tool_result": _RESULT,
                "tool_addition": _plain_members("type", **_CACHE, tool=_CHANGED),
                "tool_removal": _plain_members("type", **_CACHE, tool=_CHANGED),
            }
        )
    )
)
_FORMAT: Final = _plain_members("type", schema=_schema)
_EDIT: Final = _plain_members(
    *("type", "clear_tool_inputs"),
    keep=_text_or(_plain_table),
    trigger=_plain_table,
    clear_at_least=_plain_table,
    exclude_tools=_list(_plain),
)
ANTHROPIC: Final = _plain_members(
    *("model", "max_tokens", "stream", "temperature", "top_p", "top_k"),
    **_CACHE,
    messages=_list(_plain_members("role", content=_BLOCKS)),
    system=_text_or(_list(_kinds({"text": _TEXT}))),
    tools=_list(_ANTHROPIC_TOOLS),
    tool_choice=_plain_members("type", "name", "disable_parallel_tool_use"),
    stop_sequences=_list(_plain),
    metadata=_plain_members("user_id"),
    thinking=_plain_members("type", "budget_tokens", "display"),
    output_config=_plain_members("effort", format=_FORMAT, task_budget=_plain_table),
    output_format=_FORMAT,
    context_management=_members(
        # Not `compact_…`: with it the model writes more than the request's limit.
        {"edits": _list(_kinds({"clear_thinking_20251015": _EDIT, "clear_tool_uses_20250919": _EDIT}))}
    ),
)

# OpenAI's responses

_PARTS: Final = _list(
    _kinds(
        {
            "input_text": _plain_members("type", "text"),
            "output_text": _plain_members("type", "text", annotations=_empty, logprobs=_empty),
            "text": _plain_members("type", "text"),
            "summary_text": _plain_members("type", "text"),
            "reasoning_text": _plain_members("type", "text"),
            "refusal": _plain_members("type", "refusal"),
            "encrypted_content": _plain_members("type", "encrypted_content"),
            "input_image": _plain_members("type", "detail", image_url=_image_url),
            "input_file": _plain_members("type", "filename", "detail", file_data=_file_data),
        }
    )
)
_OF_CALLS: Final = ("type", "id", "call_id", "status", "name", "namespace")
_LOCAL: Final = _members({"type": _only("local"), "skills": _list(_plain_members("name", "description", "path"))})
_BY_CLIENT: Final = _only("client")


def _shell(value: Any, where: str, weight: Weight) -> Any:
    """Accept the agent's own shell. Another shell runs in the provider's container, which has a
    network.
    """
    place = value.get("environment")
    if isinstance(place, dict) and place.get("type", "local") != "local":
        return _OUT
    return _plain_members("type", environment=_LOCAL)(value, where, weight)


def _tool_search(value: Any, where: str, weight: Weight) -> Any:
    """Accept a search that the agent performs. At the provider it would run within one request,
    which then reads its input again.
    """
    if value.get("execution") != "client":
        return _OUT
    return _plain_members("type", "execution", "description", parameters=_schema)(value, where, weight)


_TOOL_KINDS: Final[Mapping[str, Form]] = {
    "function": _plain_members(
        *("type", "name", "description", "strict", "defer_loading"), parameters=_schema, output_schema=_schema
    ),
    "custom": _plain_members("type", "name", "description", "defer_loading", format=_plain_table),
    "local_shell": _plain_members("type"),
    "apply_patch": _plain_members("type"),
    "shell": _shell,
    "tool_search": _tool_search,
}


def _with_tools(**more: Form) -> Form:
    """Return a form for an object with tools, which is left out if none of them remains."""
    form = _plain_members("type", "id", "call_id", "status", "name", "description", "role", **more)

    def check(value: Any, where: str, weight: Weight) -> Any:
        found = form(value, where, weight)
        return found if found.get("tools") else _OUT

    return check


_WITHIN: Final = _list(_tools(_TOOL_KINDS))
_OPENAI_TOOLS: Final = _list(_tools({**_TOOL_KINDS, "namespace": _with_tools(tools=_WITHIN)}))
_OUTPUT: Final = _plain_members(*_OF_CALLS, "success", output=_text_or(_PARTS))
_ITEMS: Final = _text_or(
    _list(
        _kinds(
            {
                "message": _plain_members(
                    "type", "role", "id", "status", "phase", "end_turn", content=_text_or(_PARTS)
                ),
                "agent_message": _plain_members("type", "id", "author", "recipient", content=_PARTS),
                "reasoning": _plain_members(
                    "type", "id", "status", "encrypted_content", summary=_PARTS, content=_PARTS
                ),
                "function_call": _plain_members(*_OF_CALLS, "arguments"),
                "function_call_output": _OUTPUT,
                "custom_tool_call": _plain_members(*_OF_CALLS, "input"),
                "custom_tool_call_output": _OUTPUT,
                "local_shell_call": _plain_members(
                    *_OF_CALLS,
                    action=_plain_members(
                        *("type", "timeout_ms", "user", "working_directory"), command=_list(_plain), env=_plain_table
                    ),
                ),
                "local_shell_call_output": _OUTPUT,
                "shell_call": _plain_members(
                    *_OF_CALLS,
                    action=_plain_members("timeout_ms", "max_output_length", commands=_list(_plain)),
                    environment=_LOCAL,
                ),
                "shell_call_output": _plain_members(
                    *_OF_CALLS,
                    "max_output_length",
                    output=_text_or(_list(_plain_members("stdout", "stderr", outcome=_plain_table))),
                ),
                "apply_patch_call": _plain_members(*_OF_CALLS, operation=_plain_members("type", "path", "diff")),
                "apply_patch_call_output": _OUTPUT,
                "tool_search_call": _plain_members(*_OF_CALLS, execution=_BY_CLIENT, arguments=_any),
                "tool_search_output": _plain_members(*_OF_CALLS, execution=_BY_CLIENT, tools=_OPENAI_TOOLS),
                "additional_tools": _with_tools(tools=_OPENAI_TOOLS),
                "compaction": _plain_members("type", "id", "encrypted_content"),
            },
            usual="message",
        )
    )
)
OPENAI: Final = _plain_members(
    *("model", "instructions", "max_output_tokens", "stream", "store", "parallel_tool_calls", "temperature", "top_p"),
    *("top_logprobs", "truncation", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    "max_tool_calls",
    input=_ITEMS,
    tools=_OPENAI_TOOLS,
    tool_choice=_text_or(_plain_members("type", "name")),
    reasoning=_plain_members("effort", "summary", "generate_summary", "context"),
    text=_plain_members("verbosity", format=_plain_members("type", "name", "description", "strict", schema=_schema)),
    include=_list(_only("reasoning.encrypted_content", "message.output_text.logprobs")),
    metadata=_plain_table,
    client_metadata=_plain_table,
    stream_options=_plain_members("include_obfuscation", "include_usage"),
)

BETAS: Final = frozenset(
    {
        "advanced-tool-use-2025-11-20",
        "claude-code-20250219",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "effort-2025-11-24",
        "extended-cache-ttl-2025-04-11",
        "fine-grained-tool-streaming-2025-05-14",
        "inline-tools-2026-09-15",
        "interleaved-thinking-2025-05-14",
        "mid-conversation-system-2026-04-07",
        "mid-conversation-tool-changes-2026-07-01",
        "output-128k-2025-02-19",
        "prompt-caching-2024-07-31",
        "prompt-caching-scope-2026-01-05",
        "redact-thinking-2026-02-12",
        "structured-outputs-2025-11-13",
        "structured-outputs-2025-12-15",
        "task-budgets-2026-03-13",
        "thinking-display-updates-2026-08-18",
        "thinking-token-count-2026-05-13",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
        "tool-search-tool-2025-10-19",
    }
)
"""Allowed names in `anthropic-beta`: formats of answers, thinking, caching, and the selection of
the agent's tools.
"""
_OPENAI_BETAS: Final = frozenset({"responses=experimental"})
_VERSIONS: Final = frozenset({"2023-06-01"})


def _choice_of(names: Collection[str]) -> Callable[[str], str]:
    return lambda given: ",".join(name for name in (each.strip() for each in given.split(",")) if name in names)


HEADERS: Final[Mapping[str, Callable[[str], str]]] = {
    "accept": str,
    "user-agent": str,
    "anthropic-beta": _choice_of(BETAS),
    "anthropic-version": _choice_of(_VERSIONS),
    "openai-beta": _choice_of(_OPENAI_BETAS),
}
"""Functions by name of header that return the allowed part of an agent's header; "" for nothing."""
