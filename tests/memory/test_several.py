"""Which questions ask for several things, and stay one where a part does not stand for itself."""

from __future__ import annotations

import pytest

from confide_memory.tools.several import MOST_PARTS, parts_of

SEVERAL = {
    "what port does the API use and who owns billing?": ["what port does the API use", "who owns billing?"],
    "Tell me what port the API uses and who owns billing": ["Tell me what port the API uses", "who owns billing"],
    "Which port does the API use? Who owns the billing service?": [
        "Which port does the API use?",
        "Who owns the billing service?",
    ],
    "- Which port does the API use?\n\n- Who owns billing?\n- when is the release freeze": [
        "Which port does the API use?",
        "Who owns billing?",
        "when is the release freeze",
    ],
    "what port does the API use, who owns billing, and when is the release freeze?": [
        "what port does the API use",
        "who owns billing",
        "when is the release freeze?",
    ],
    "Compare Redis and Memcached": ["Redis", "Memcached"],
    "what is the difference between the billing service and the search service?": [
        "the billing service",
        "the search service",
    ],
    "Welchen Port nutzt die API und wer besitzt Billing?": ["Welchen Port nutzt die API", "wer besitzt Billing?"],
    "quel port utilise l'API et qui gère la facturation ?": ["quel port utilise l'API", "qui gère la facturation ?"],
    "¿qué puerto usa la API y quién lleva la facturación?": ["¿qué puerto usa la API", "quién lleva la facturación?"],
    "支付超时是什么原因？订单服务用哪个端口？": ["支付超时是什么原因？", "订单服务用哪个端口？"],
}
ONE = (
    "",
    "?",
    "why did we choose postgres",
    "what is it and why do we need it",
    "when and where did we meet",
    "what port does the API use and what host?",
    "what color and which size is the shirt",
    "What did Caroline say about who she is and what she wants",
    "What activities does Melanie do with her family and where do they go?",
    "pros and cons of postgres",
    'what does "why and what breaks here" mean',
    "the error `who and what failed here` at night",
    "compare A and B",
    "Ann, who owns billing, and Bob",
    "ERROR a b\nERROR c d",
    "Traceback (most recent call last):\n  File x\nValueError: why",
    "What is the port? " * 60,
)


@pytest.mark.parametrize("text", SEVERAL)
def test_questions_that_stand_for_themselves_are_split(text: str) -> None:
    assert parts_of(text) == SEVERAL[text]


@pytest.mark.parametrize("text", ONE)
def test_everything_else_stays_one(text: str) -> None:
    assert parts_of(text) == [text.strip()]


def test_there_are_few_parts_and_no_word_is_lost() -> None:
    text = "\n".join(f"Who owns the service number {number}?" for number in range(9))
    parts = parts_of(text)
    assert len(parts) == MOST_PARTS
    assert " ".join(parts) == " ".join(text.split("\n"))
