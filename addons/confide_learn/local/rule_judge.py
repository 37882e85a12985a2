"""The rule-based judge, always available: finds sentences in which the user states lasting rules,
and failures that were fixed. No function has side effects.

It reads text that the user typed, in English, and of the agent's messages only those between a
command's failure and its success. It prefers misses to false findings: `bench/learning` measures
its precision. A sentence is classified by its beginning, since "it always fails" and "always lint
first" have the same words; it is dropped if it refers to something only visible at that moment
("this one", "line 12", "for now").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from confide_learn.local.checks import LearnedFinding, words_of
from confide_learn.local.exchanges import FENCE, ExchangeMessage, LearnedExchange, typed_part
from confide_memory.actions import shell_commands

MOST_TYPED_CHARS: Final = 4000
"""Most characters of a message that counts as typed; longer ones are pasted."""
_LONGEST_SENTENCE: Final = 400
_LEAST_WORDS: Final = 4
_MOST_STEPS: Final = 40
"""Most steps between a failure and its success; beyond that they are probably unrelated."""


def _any(words: str) -> str:
    """Return a pattern for any of the words in a list separated by strokes."""
    return f"(?:{'|'.join(part.strip().replace(' ', chr(92) + ' ') for part in words.split('/'))})"


_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(A-Z0-9])|\n+")
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|approx|no|nope)\.$", re.IGNORECASE)
_QUOTED_LINE: Final = re.compile(r"^\s*(?:>|\||\$ |at |File \"|#include|import |def |class |[{}\[\]<])")

_LEAD: Final = (
    r"(?:(?:ok(?:ay)?|great|thanks|thank\ you|hm+|well|so|and|also|but|please|hi|right|good|yes|fine|perfect|"
    r"one\ (?:more\ )?thing|before\ we\ continue|for\ next\ time|next\ time)\b[,.:;!-]*\s*)*"
)
"""Fillers at the beginning of a sentence. Spaces are escaped, since it is used in verbose patterns.
"""
_LASTING: Final = _any(
    "repo/repository/project/codebase/team/company/organi[sz]ation/monorepo/package/service/cluster/database"
)
_MOMENT: Final = re.compile(
    rf"""\b(?:
      this(?:\ (?!{_LASTING}\b)\w+|[,.;!]|$)
    | that\ (?:one|file|function|test|line|button|part|bit|idea|old)
    | these | those | for\ that | for\ the\ demo | a\ spike | some\ day | enough | lol
    | the\ (?:other|first|second|third|last|previous|above|following)\b | the\ \w+\ (?:one|option|version)$
    | the\ (?:same|next)\ (?:one|file|option|version|function|test|line|error|two|three)\b
    | for\ now | right\ now | just\ this\ once | temporarily | for\ the\ moment | not\ now | not\ yet | yet$
    | today | tonight | tomorrow | until\ then | in\ (?:ten|five|\d+)\ minutes | (?:on|at)\ (?:three|\d+\ ?[ap]m)
    | lines?\ \d+ | (?:see|as|said|the)\ (?:above|below) | screenshot | I\ mean | I\ meant
    | continue\ without | take\ a\ break | cherry-pick
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words that only have a meaning at that moment."""
_ABOUT_A_TEXT: Final = re.compile(
    rf"\b{_any('write/create/add/generate/draft/implement/make/print/translate/summari[sz]e/rename/fix/explain/show')}\b"
    r".*(?:[\"“:]|\bthat\b|\bso that\b)",
    re.IGNORECASE,
)
"""A request to write something that contains such a sentence."""
_ABOUT_TEXTS: Final = re.compile(
    r"^(?:you are an?\b|act as\b|acceptance criteria|user story|(?:the )?customer says|implement (?:this|the following))"
    r"|\b(?:copy|paste|add|put|write)\b[^\n]{0,80}(?:\binto\b|\bdocs?\b|\bpage\b|\bprompt\b|\.md\b)[^\n]{0,40}[:.]",
    re.IGNORECASE,
)
"""A whole message that plays a role, gives a specification or dictates a text: its rules are not
the user's own.
"""

_REMEMBER: Final = re.compile(
    rf"""^{_LEAD}(?:(?:could|can|would)\ you\ (?:please\ )?)?
    (?:(?:always\ )?remember(?:\ (?:that|for\ (?:all\ )?(?:future\ sessions|the\ future|later|next\ time)))?
     | (?:keep|bear)\ in\ mind(?:\ that)?
     | don['’]?t\ forget(?:\ that)
     | (?:make|take)\ a\ note(?:\ that)?
     | (?:please\ )?note\ (?:for\ (?:the\ future|later|all)|down)(?:\ that)?
     | for\ future\ reference)
    [,:]?\ +(?P<what>.+)$""",
    re.IGNORECASE | re.VERBOSE,
)
_NO_MEMORY: Final = re.compile(
    rf"^{_any('when/how/what/who/why/where/which/to/me/us/you/whether/if/doing/seeing/anything/it/this/your/my/the time')}\b"
    r"|^(?:answer|reply|be|don['’]?t)\b",
    re.IGNORECASE,
)
"""Continuations of "remember" that state nothing to remember: a question, a request for now, talk
of the past.
"""

_ORDERS: Final = _any(
    "use/run/write/put/add/commit/push/force-push/merge/rebase/squash/ask/prefer/keep/name/format/document/test/check/review/explain/"
    "answer/import/install/edit/touch/label/deploy/mock/hard-?code/ever/shorten/abbreviate/include"
)
"""Verbs for what an agent does repeatedly. Verbs for what a program does ("always redirect")
indicate a specification.
"""
_ADDED_TO: Final = _any("add/write/show/touch/change/create/make/commit/edit/use/need/propose/review/push")
_NO_WISH: Final = _any("if/the/this/that/it/to/not/you to/coffee/option")
_DOINGS: Final = _any("always/never/please/explain/run/add/put/use/write/ask/show/include/mention/don['’]?t")
_NO_HABIT: Final = _any(r"see/saw/get/got/hear/ha[dsv]e?/need/want/did/were/was/found/\w+ed")
_ASKS_TO_KEEP: Final = re.compile(
    rf"^{_LEAD}(?:could|can|would)\ you\ (?:please\ )?(?:remember|keep\ in\ mind|make\ a\ note)(?:\ that\b|:)",
    re.IGNORECASE,
)
_PREFERENCE: Final = re.compile(
    rf"""^{_LEAD}(?:
      (?:(?:from\ now\ on|going\ forward),?\ (?!(?:the|it|this|that|there|two)\b)\w+
         |in\ (?:the\ )?future\ (?:please|always|never|use|put|write|show|do|don['’]?t))\b
    | (?:please\ )?(?:you\ (?:should|must|have\ to)\ )?(?:always|never)\ {_ORDERS}\b
    | I(?:['’]d|\ would)?\ (?:(?:really|strongly|generally|usually|always)\ )?(?:prefer|rather\ (?:have|you))\ (?!{_NO_WISH}\b)
    | I\ (?:really\ )?(?:hate|dislike|don['’]?t\ like|do\ not\ like)\ (?!(?:{_NO_WISH}|how|when)\b)\w+
    | I\ always\ want\ (?!to\b)
    | I\ want\ you\ to\ (?:always|never)\b
    | in\ general,?\ I\ prefer\b
    | we\ (?:always|never|usually|only|don['’]?t\ ever|generally)\ (?!{_NO_HABIT}\b)[a-z]
    | our\ (?:team|convention|rule|policy|standard|style|guideline)s?\ (?:here\ |in\ this\ \w+\ )?(?:is|are|prefers?|requires?|says?)\s
    | the\ (?:convention|rule|policy)\ (?:(?:here|in\ this\ \w+)\ is\s|is\ (?:that|to)\s)
    | as\ a\ (?:general\ )?rule,?\ (?!of\b)
    | in\ (?:this|our)\ (?:repo(?:sitory)?|project|codebase|team|company)\ (?:we|please|always|never|use)\b
    | (?:whenever|when|if|every\ time|each\ time)\ you\ {_ADDED_TO}\b[^?]*?,?\ {_DOINGS}\b
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_RULE_AT_THE_END: Final = re.compile(
    r"^(?:(?:use|put|keep|write)\b|[A-Z][^?:]{8,}?\b(?:must|has to|have to|should)\b)[^?:]*,"
    r"\s*(?:always|without exception|in every \w+|everywhere)\.?$",
    re.IGNORECASE,
)

_DONE_AGAIN: Final = _any(
    "use/using/add/adding/mock/mocking/touch/touching/commit/committing/put/putting/write/writing/edit/editing/import/importing/"
    "hard-?code/hard-?coding/catch/catching/log/logging/create/creating/install/installing"
)
"""Verbs for recurring work, with which a "don't" applies beyond the moment."""
_CORRECTION: Final = re.compile(
    rf"""^{_LEAD}(?:
      (?:no|nope|wrong|that['’]?s\ (?:wrong|not\ right|incorrect)|incorrect|not\ quite)(?:\s+no)*\s*[,.:;!-]+\s*(?:but\s+)?(?P<after>.+)
    | actually,?\ (?P<actually>.+)
    | (?:please\ )?(?P<dont>(?:don['’]?t|do\ not|stop)\ {_DONE_AGAIN}\b.+)
    | (?P<should>you\ should\ (?:use|always|never|not)\ .+\b(?:not|instead|rather)\b.+)
    | (?P<not>not\ [\w.+#/-]+[.,;]\ (?:use|it['’]?s|we\ use)\ .+)
    | (?P<instead>instead\ of\ (?!\d)[\w.+#/-]+,?\ (?:please\ )?use\ .+)
    )$""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_OUR_DOINGS: Final = _any("use/deploy/have/run/keep/write/call/pin/store/build/ship/host/test/release")
_OPENING: Final = re.compile(
    rf"^{_LEAD}(?:(?:no|nope|wrong|incorrect|that['’]?s\ (?:wrong|not\ right|incorrect)|actually)\b(?:\s+no)*\s*[,.:;!-]*\s*)?",
    re.IGNORECASE,
)
_STATES: Final = re.compile(
    rf"""(?:^(?:please\ )?(?:never|always|don['’]?t|use)\ \w
      | \bwe(?:['’]ve|['’]re)?\ (?:always\ |never\ |only\ |don['’]?t\ )?{_OUR_DOINGS}\b
      | \b(?:is|are|returns?|lives?|go|goes|must|means?|counts?|has\ to|have\ to|was\ removed|were\ removed|called)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Verbs of a correction that applies beyond the moment: it states a fact, or what is used."""
_CONTRASTS: Final = re.compile(
    rf"\b{_any('not/instead of/rather than/never/always/everywhere/was removed/only/must/by hand/confirmed/until')}\b"
    r"|\b(?:are lower case|in this codebase|here)\b|;",
    re.IGNORECASE,
)
_OURS_IS: Final = re.compile(r"(?:use|we)\b|the [\w ]+ is called\b", re.IGNORECASE)
_WITH_A_REASON: Final = re.compile(
    r"[,.;:] (?!just\b|please\b|only\b|and\b)\w+|\b(?:because|since|instead|here|every|everywhere|in (?:this|our) \w+)\b",
    re.IGNORECASE,
)
"""A "don't" with a reason or an alternative; others apply only to the moment."""
_NOT_A_RULE: Final = re.compile(
    rf"^{_any('go/undo/let/I/it/that/this/they/thanks/please/can/could/need/problem/wait/look/try/still')}(?:['’]s)?\b"
    r"|^use (?:this|that|the other|it)\b|^the (?:test|function|button|second|first|error|code|bug|issue|problem|fix|change|old|new)\b",
    re.IGNORECASE,
)
_DECISION: Final = re.compile(
    rf"""^(?:{_LEAD}|[^.?!,:]{{0,60}}[,:]\s+)(?:
      (?:we|I|the\ [\w ]{{2,30}})(?:['’]ve|\ have)?\ (?:finally\ |now\ |all\ )?
          (?P<verb>decided|chose|chosen|agreed|settled\ on|picked|went\ with|opted\ for)\ ?:?\ (?P<what>.+)
    | we(?:['’]re|\ are|['’]ll|\ will)\ (?:go(?:ing)?\ with|drop(?:ping)?|(?:moving|switching)\ to|keeping|us(?:e|ing))\ (?P<going>.+)
    | we\ won['’]?t\ use\ (?P<wont>.+)
    | let['’]?s\ go\ with\ (?P<lets>.+)
    | it\ was\ decided\ that\ (?P<was>.+)
    | (?:the\ )?decision:\ (?P<said>.+)
    )$""",
    re.IGNORECASE | re.VERBOSE,
)
_REASON: Final = re.compile(
    rf"\b{_any('because/since/so that/due to/for its/because of/thanks to/instead of/over/rather than/in favou?r of')}\b"
    r"|\bas (?:it|we|they|nobody|no|there|the)\b",
    re.IGNORECASE,
)
_FIRM: Final = re.compile(r"^(?:decided|agreed)\b|^decision:", re.IGNORECASE)
_NO_DECISION: Final = re.compile(
    r"^on [^,]*, \w+|^that[ ,]+(?:because|since)|^(?:nothing|to (?:meet|wait|take|go|leave|stop)|that you|a (?:random|bad|wrong)|it|this)\b"
    r"|^the (?:wrong|first|second|shorter|other|name)\b",
    re.IGNORECASE,
)
_DOUBT: Final = re.compile(
    r"^(?:if|when|why|how|which|what|who|should|shall|have|has|had|did|do|does|is|are|can|could|would|maybe|perhaps|since|because of)\b",
    re.IGNORECASE,
)
_HEDGE: Final = re.compile(
    r"\b(?:maybe|perhaps|might|not sure|I think we should|haven['’]?t decided|at some point|I guess)\b", re.IGNORECASE
)

_CAUSE: Final = re.compile(
    r"\b(?:because|root cause|the (?:problem|cause|reason|issue) (?:was|is)|caused by|due to|since|so (?:the|it)\b[^.]*\bcannot|"
    r"(?:is|are|was|were) (?:missing|taken|never installed|not installed|not on the PATH)|only reads)\b",
    re.IGNORECASE,
)
_NO_CAUSE: Final = re.compile(
    r"\b(?:does not exist yet|not implemented yet|flaky|mistyped|I(?:['’]ll| will) write)\b", re.IGNORECASE
)
_COMMAND: Final = re.compile(r"^\[tool (?:Bash|shell|exec_command|local_shell|container\.exec): (?P<line>.+)\]$")


def judge(window: Sequence[LearnedExchange]) -> list[LearnedFinding]:
    """Return the findings in these exchanges, in order."""
    found: list[LearnedFinding] = []
    for exchange in window:
        found += _findings_of_person(exchange.user)
    steps = [said for exchange in window for said in exchange.messages]
    found += _fixes(steps)
    return found


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences that the user typed, without code and quotations."""
    for line in FENCE.sub("\n", text).split("\n"):
        if _QUOTED_LINE.match(line):
            continue
        held = ""
        for part in _SENTENCE.split(line.strip().removeprefix("- ").removeprefix("* ")):
            if not part:
                continue
            held = f"{held} {part}".strip()
            if _ABBREVIATION.search(held):
                continue
            yield held
            held = ""
        if held:
            yield held


def _findings_of_person(text: str) -> Iterator[LearnedFinding]:
    if len(text) > MOST_TYPED_CHARS or text.startswith(("/", "!", "#")) or _ABOUT_TEXTS.search(text):
        return
    for sentence in sentences(typed_part(text)):
        if len(sentence) > _LONGEST_SENTENCE or "(redacted:" in sentence or len(words_of(sentence)) < _LEAST_WORDS:
            continue
        if (found := _remember(sentence)) is not None:
            yield found
            continue
        if sentence.endswith("?") or _MOMENT.search(sentence) or _HEDGE.search(sentence):
            continue
        if kind := _kind(sentence):
            yield LearnedFinding(_capital(_core(sentence)), sentence, kind)


def _remember(sentence: str) -> LearnedFinding | None:
    found = _REMEMBER.match(sentence)
    if found is None:
        return None
    what = found["what"]
    is_asked = sentence.endswith("?") and not _ASKS_TO_KEEP.match(sentence)
    if is_asked or _NO_MEMORY.match(what) or _MOMENT.search(what) or len(words_of(what)) < _LEAST_WORDS - 1:
        return None
    return LearnedFinding(_capital(what.rstrip("?")), sentence, "remember")


def _kind(sentence: str) -> str:
    """Return the kind of a sentence; "" if it applies only to the moment."""
    if _is_decision(sentence):
        return "decision"
    if _ABOUT_A_TEXT.match(sentence):
        return ""
    if _PREFERENCE.match(sentence) or _RULE_AT_THE_END.match(sentence):
        return "preference"
    return "correction" if _is_correction(sentence) else ""


def _is_decision(sentence: str) -> bool:
    """Return True if the sentence states a decision, firmly or with its reason."""
    decided = _DECISION.match(sentence)
    if decided is None or _DOUBT.match(sentence):
        return False
    what = next(part for name, part in decided.groupdict().items() if part and name != "verb")
    is_firm = bool(decided["verb"] and _FIRM.match(decided["verb"])) or bool(decided["said"] or decided["was"])
    holds = is_firm or bool(_REASON.search(what))
    return holds and not _NO_DECISION.match(what) and len(words_of(what)) >= 3


def _is_correction(sentence: str) -> bool:
    """Return True if the sentence corrects the agent beyond the moment."""
    corrected = _CORRECTION.match(sentence)
    if corrected is None:
        return False
    what = next(part for part in corrected.groupdict().values() if part)
    if corrected["after"] or corrected["actually"]:  # only the position marks it as a correction
        if _NOT_A_RULE.match(what) or not _STATES.search(what):
            return False
        if not _CONTRASTS.search(what) and not _OURS_IS.match(what):
            return False
    if corrected["dont"] and not _WITH_A_REASON.search(what):
        return False
    return len(words_of(what)) >= 3


def _core(sentence: str) -> str:
    """Remove from a sentence what only responds to the previous one: "no,", "ok, and"."""
    core = _OPENING.sub("", sentence)
    return core if len(words_of(core)) >= _LEAST_WORDS - 1 else sentence


def _fixes(steps: Sequence[ExchangeMessage]) -> Iterator[LearnedFinding]:
    """Yield findings about commands that failed and later succeeded: with the agent's explanation
    from in between or right after, and else with the error and the command that worked.

    Commands are the same if their program and first argument are.
    """
    failed: dict[tuple[str, ...], int] = {}
    for at, step in enumerate(steps):
        line = _command_of(step)
        if not line or step.failed is None:
            continue
        head = _head(line)
        if step.failed:
            failed[head] = at
            continue
        began = failed.pop(head, None)
        if began is None or at - began > _MOST_STEPS:
            continue
        between = steps[began + 1 : at]
        found = _find_explanation(steps[began], step, [*between, *steps[at + 1 : at + 2]], between)
        if found := found or _find_pair(steps[began], step, between):
            yield found


def _command_of(step: ExchangeMessage) -> str:
    command = _COMMAND.match(step.text) if step.role == "call" else None
    return command["line"] if command else ""


def _head(line: str) -> tuple[str, ...]:
    """Return the program and the first argument of a line's last command that is one."""
    run = shell_commands.commands(line)
    return tuple(run[-1][:2]) if run else (line,)


def _find_explanation(
    failure: ExchangeMessage,
    success: ExchangeMessage,
    said: Sequence[ExchangeMessage],
    between: Sequence[ExchangeMessage],
) -> LearnedFinding | None:
    line = _command_of(failure)
    is_changed = any(each.role == "call" and not each.failed for each in between)
    if _command_of(success) != line or not is_changed or not (cause := _cause(said)):
        return None
    return LearnedFinding(f"`{line}` failed: {_capital(cause)}", cause, "fix")


def _find_pair(
    failure: ExchangeMessage, success: ExchangeMessage, between: Sequence[ExchangeMessage]
) -> LearnedFinding | None:
    """Return the finding that a command failed with an error, and which other command worked: itself
    in another form, or the last one before it worked again.
    """
    line, worked = _command_of(failure), _command_of(success)
    is_again = worked == line
    if is_again:
        done = [command for each in between if each.failed is False and (command := _command_of(each))]
        worked = next(
            (command for command in reversed(done) if not shell_commands.only_read(shell_commands.commands(command))),
            "",
        )
    if not failure.error or not worked or "…" in f"{line}{worked}" or "`" in f"{line}{worked}{failure.error}":
        return None
    helped = f"after `{worked}` it worked" if is_again else f"`{worked}` worked"
    return LearnedFinding(f"`{line}` failed with `{failure.error}`; {helped}.", failure.error, "fix")


def _cause(steps: Sequence[ExchangeMessage]) -> str:
    for step in steps:
        if step.role != "assistant" or _NO_CAUSE.search(step.text):
            continue
        for sentence in sentences(step.text):
            if len(sentence) <= _LONGEST_SENTENCE - 100 and _CAUSE.search(sentence) and not sentence.endswith("?"):
                return sentence
    return ""


def _capital(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:]
