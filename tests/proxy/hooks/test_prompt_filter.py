"""Which prompts are asked of the memory, and with which words."""

from __future__ import annotations

import pytest

from confide_proxy.hooks.prompt_filter import MOST_CHARS, question


@pytest.mark.parametrize(
    "prompt",
    [
        *(
            "",
            "   ",
            "hi",
            "ok thanks",
            "yes please",
            "continue",
            "go on then",
            "run the tests",
            "fix the typo in line 12",
        ),
        *(
            "/compact keep the plan about postgres",
            "!git log --oneline for the release branch",
            "# remember that we use tabs here",
        ),
        *("commit and push it", "make the tests pass please", "rename the function and update the docs"),
        *(
            "```\nwhy did we choose postgres for orders\n```",
            "~~~ text\nwhy did we choose postgres\n~~~",
            "```\nnever closed why did we",
        ),
        *(
            "<confide-memory>why did we choose postgres</confide-memory>",
            "<hook_context>&lt;confide-memory&gt;why did we choose it",
        ),
        "1 2 3 4 5",
    ],
)
def test_what_needs_no_memory_is_not_asked(prompt: str) -> None:
    """Greetings, commands of the client, bare instructions, code alone, our own words alone."""
    assert question(prompt) == ""


@pytest.mark.parametrize(
    "prompt",
    [
        *("fix SHOP-123 please", "SHOP-123", "work on BUG-7", "close #88", "what is E1001?", "ERR_CONN_42 again"),
        *("refund invoice 4471 again", "fix (SHOP-123)", "see #88, please"),
        *("revert a3f9c12", "look at 9f86d081884c", "is CVE-2024-3094 fixed", "rebase feature/SHOP-123-cart"),
    ],
)
def test_a_bare_instruction_that_names_one_thing_is_asked(prompt: str) -> None:
    """A ticket, an error's code, a commit: there may be a note about just that."""
    assert question(prompt) == prompt


@pytest.mark.parametrize("prompt", ["why redis?", "who is Mira?", "deploy staging", "there are aphids on the roses"])
def test_two_words_of_content_are_asked(prompt: str) -> None:
    assert question(prompt) == prompt


@pytest.mark.parametrize(
    "prompt",
    [
        "我们为什么选择了Postgres？",
        "为什么用redis",
        "谁负责功能开关？",
        "なぜKafkaをやめたのですか？",
        "왜 postgres를 선택했나요?",
    ],
)
def test_a_question_without_blanks_is_asked(prompt: str) -> None:
    assert question(prompt) == prompt


@pytest.mark.parametrize("prompt", ["继续", "好的谢谢", "はい", "네", "ok 好的"])
def test_a_word_without_blanks_is_not_asked(prompt: str) -> None:
    assert question(prompt) == ""


@pytest.mark.parametrize("prompt", ["bump it to 2.5", "only 20 more", "add 3 more tests", "deadbeef"])
def test_a_number_alone_names_nothing(prompt: str) -> None:
    assert question(prompt) == ""


def test_a_question_is_asked_without_what_is_not_the_persons() -> None:
    """Blocks of ours, escaped or not, what Gemini repeats of them, and fenced code go; lines are joined."""
    asked = "why did we choose\n postgres?"
    for before in (
        "",
        "<confide-memory>\nold note\n</confide-memory>\n",
        "<hook_context>&lt;confide-memory&gt;old note&lt;/confide-memory&gt;</hook_context>\n\n",
        "&lt;confide-memory&gt;old note&lt;/confide-memory&gt;",
        "```python\nold = 'note'\n```\n",
        "  ~~~~\nold note\n~~~~\n",
    ):
        assert question(before + asked) == "why did we choose postgres?", before
    assert question(f"{asked} <CONFIDE-MEMORY>old note") == "why did we choose postgres?"


def test_a_long_prompt_is_cut() -> None:
    assert len(question("why did we choose postgres " * 5_000)) == MOST_CHARS
    for text in (
        "`" * 60_000,
        "```\n" * 20_000,
        "<confide-memory>" * 5_000,
        "&lt;" * 20_000,
        "a'" * 30_000,
        "a_" * 30_000,
        "a-b.c/" * 9_000,
    ):
        question(text)  # within the time of a hook, or the suite's would show it
