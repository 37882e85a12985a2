"""Detection of lines that address a model, or hide something from a reader. A text with such lines
is `untrusted`, even if a trusted author wrote it (docs/agents.md).

It uses rules, not a model: they are fast, the same on every device, and give a reason. They are no
complete protection: an instruction phrased as a fact is not detected, but the trust class of its
author still applies. After a change of the rules, a migration of the daemon checks stored texts
again.
"""

from __future__ import annotations

import bisect
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

MAX_LOOKED_AT: Final = 4 * 1024 * 1024
"""Characters that the patterns examine, which takes a second or so; only lines near a rule's words
count. A text with more is treated as hostile.
"""
# Line ends that a phrase may contain.
_REACH: Final = 2

# The gap between words includes the marks of markdown, quotes and comments, so that no line end or
# mark hides a phrase. The end of a sentence ends it, a full stop inside a word does not.
_GAP: Final = r"(?:[\s>*_#`\"“”|~,:()\[\]/-]|[.!](?=\w)){1,40}"
_NEAR: Final = 5


@dataclass(frozen=True, slots=True)
class _Rule:
    """A finding, its pattern, and groups of words. A word of each group must be near: a search for
    those costs a hundredth of the pattern.
    """

    why: str
    source: str
    near: tuple[tuple[str, ...], ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        return _compiled(self.source)


_compiled: Final = functools.cache(re.compile)
"""Compiles a rule's pattern when its words first occur: all of them would take 40 ms at every
start, and most texts contain none.
"""


def _rule(why: str, pattern: str, *near: str) -> _Rule:
    return _Rule(why, pattern, tuple(tuple(group.split("|")) for group in near))


def _phrase_rule(why: str, pattern: str, *near: str) -> _Rule:
    """Return a rule for a phrase: a blank matches any gap, and ` ... ` up to five words."""
    between = rf"{_GAP}(?:[\w'’]+{_GAP}){{0,{_NEAR}}}?"
    return _rule(why, rf"(?<!\w)(?:{pattern.replace(' ... ', between).replace(' ', _GAP)})(?!\w)", *near)


_MODEL: Final = (
    r"(?:ai|a i|llms?|(?:large )?language models?|ai models?|ai assistants?|ai agents?|"
    r"coding agents?|coding assistants?|assistants?|"
    r"chatbots?|chatgpt|gpt|claude|claude code|codex|copilot|gemini|cursor)"
)
_MODELS: Final = "ai|a.i|llm|model|assistant|chatbot|gpt|claude|codex|copilot|gemini|cursor|agent"
_RULES_OF: Final = (
    r"(?:instructions?|prompts?|directives?|guidelines?|guardrails?|orders|commands|rules|"
    r"constraints|programming|training)"
)
_RULES_NEAR: Final = (
    "instruction|prompt|directive|guideline|guardrail|orders|command|rules|constraint|programming|training"
)
_EARLIER: Final = (
    r"(?:previous|previously|prior|earlier|above|preceding|foregoing|former|original|initial|"
    r"existing|system|your|developer)"
)
_PERSON: Final = r"(?:users?|humans?|owners?|developers?|operators?|persons?|anyone|anybody)"
_TAKES_BACK: Final = "takes orders back"
_NEW_ROLE: Final = "gives a model another role"
_TO_MODEL: Final = "speaks to a model"
_ORDERS: Final = "gives new orders"
_CARRIES_OFF: Final = "carries secrets off"

_PHRASES: Final = (
    _phrase_rule(
        _TAKES_BACK,
        r"(?:ignore|ignores|ignoring|disregard|forget|override|overrides|bypass|discard|drop|abandon|skip) ... "
        rf"{_EARLIER} ... {_RULES_OF}",
        "ignor|disregard|forget|overrid|bypass|discard|drop|abandon|skip",
        _RULES_NEAR,
    ),
    _phrase_rule(
        _TAKES_BACK,
        r"(?:ignore|disregard|forget|override|bypass) (?:all|any|every|everything|the|these|those|all of) ... "
        rf"(?:{_RULES_OF} (?:given|you were|you have|you received|that came|so far|before|above)|"
        r"(?:you were told|said before|you have been told|above this line|before this line))",
        "ignore|disregard|forget|override|bypass",
        f"{_RULES_NEAR}|told|said|line",
    ),
    _phrase_rule(
        _TAKES_BACK,
        r"(?:do not|don t|don't|don’t|no longer|stop|never) (?:follow|obey|following|obeying|apply|adhere to|comply with) ... "
        rf"{_EARLIER} ... {_RULES_OF}",
        "follow|obey|apply|adhere|comply",
        _RULES_NEAR,
        "not|don|longer|stop|never",
    ),
    _phrase_rule(
        _TAKES_BACK,
        rf"{_EARLIER} {_RULES_OF} (?:are|is) (?:now )?(?:void|cancelled|canceled|revoked|suspended|"
        rf"obsolete|invalid|lifted|null|no longer "
        r"(?:valid|in force|apply|binding))",
        "void|cancel|revoked|suspended|obsolete|invalid|lifted|null|no longer",
        _RULES_NEAR,
    ),
    _phrase_rule(
        _ORDERS,
        r"(?:new|updated|revised|real|actual|true|secret|hidden|important) (?:system )?(?:instructions?|prompt|directives?|orders) "
        rf"(?:for (?:you|(?:the )?{_MODEL})|follow|below|begin|start here|override|supersede|replace|take precedence)",
        "instruction|prompt|directive|orders",
        "new|updated|revised|real|actual|true|secret|hidden|important",
        "for|follow|below|begin|start|override|supersede|replace|precedence",
    ),
    _phrase_rule(
        _ORDERS,
        r"(?:system override|admin override|developer mode (?:enabled|on|activated|output)|"
        r"jailbreak mode|dan mode|god mode enabled|"
        r"(?:begin|start|end) (?:of )?(?:the )?(?:system prompt|system message|system instructions|"
        r"user input|hidden instructions))",
        "override|mode|prompt|message|instructions|input",
        "system|admin|developer|jailbreak|dan|god|user|hidden",
    ),
    _phrase_rule(
        _NEW_ROLE,
        r"you are (?:now|no longer|henceforth) (?:an?|the|in|my|dan|bound|restricted|operating|acting|free|root|claude|gpt|codex)",
        "you",
        "now|longer|henceforth",
    ),
    _phrase_rule(
        _NEW_ROLE,
        r"(?:from now on|from this point on|from this moment|henceforth|starting now) (?:you|the assistant|the model|the agent|"
        r"every answer|each answer|all your answers|your answers|answer only|respond only|reply only)",
        "from now|from this|henceforth|starting|now on",
        "you|assistant|model|agent|answer|respond|reply",
    ),
    _phrase_rule(
        _NEW_ROLE,
        r"(?:act as|pretend to be|pretend you are|roleplay as|behave as|simulate) (?:an? |the |if you were )?(?:\w+ )?"
        r"(?:unrestricted|unfiltered|uncensored|jailbroken|evil|root|administrator|admin|developer mode|dan)",
        "unrestricted|unfiltered|uncensored|jailbroken|evil|root|admin|developer|dan",
        "act as|pretend|roleplay|behave|simulate|act",
    ),
    _phrase_rule(
        _TO_MODEL,
        rf"(?:if|when|because|since|as) (?:you are|you re|you're|you’re|youre|reading this as) (?:an? |the )?{_MODEL}",
        "you|reading this",
        _MODELS,
        "if|when|because|since|as",
    ),
    _phrase_rule(
        _TO_MODEL,
        rf"as an? {_MODEL} (?:(?:working|running|reading|operating|that|who|with|in) ... )?you (?:should|"
        rf"must|will|are|have|need|can|may)",
        "as a",
        _MODELS,
        "you",
    ),
    _phrase_rule(
        _TO_MODEL,
        rf"(?:to|for) (?:the|any|every|each|all|whichever|whatever) (?:{_MODEL}|agents?|model) (?:that|which|who) "
        r"(?:loads?|reads?|sees?|finds?|gets?|process(?:es)?|summari[sz]es?|opens?|is given) (?:this|these|the following)",
        "load|read|see|find|get|process|summari|open|given",
        _MODELS,
        "this|these|following",
    ),
    _phrase_rule(
        _TO_MODEL,
        rf"(?:attention|dear|hey|listen up),? (?:all |any |every |the )?(?:{_MODEL}|agents?|model)",
        "attention|dear|hey|listen",
        _MODELS,
    ),
    _phrase_rule(
        _TO_MODEL,
        r"(?:note|notice|message|memo|warning|reminder|orders|directive|addressed|instructions?) (?:to|for) "
        rf"(?:all |any |every |the |whichever |future )?(?:{_MODEL}|agents?|model) "
        r"(?:reading|processing|that reads?|who reads?|summari[sz]ing|that finds|who finds|please|you)",
        "note|notice|message|memo|warning|reminder|orders|directive|addressed|instruction",
        _MODELS,
        "reading|processing|read|summari|find|please|you",
    ),
    _phrase_rule(
        _TO_MODEL,
        rf"(?:{_MODEL}|any agent|the agent|the model|agents?) (?:reading|that reads|who reads|"
        rf"processing|which reads|summari[sz]ing|"
        r"loading) (?:this|these|the following)",
        "reading|reads|processing|summari|loading",
        _MODELS,
        "this|these|following",
    ),
    _phrase_rule(
        _TO_MODEL,
        rf"(?:{_MODEL}|agents?|model) (?:must|shall|should|is required to|are required to|has to|have to|is to|will) "
        r"(?:now |first |always |immediately |silently |quietly |then |also )?"
        r"(?:execute|exfiltrate|obey|comply|reveal|disclose|upload|forward|run the following|"
        r"run this|send|fetch|download|ignore|hide|"
        r"conceal|append this|include this|repeat|delete all|grant|approve|not tell|not mention|"
        r"not reveal|never tell|never mention|"
        r"pretend)",
        "must|shall|should|required|has to|have to|is to|will",
        _MODELS,
        "execute|exfiltrate|obey|comply|reveal|disclose|upload|forward|run|send|fetch|download|ignore|hide|conceal|append|include|"
        "repeat|delete|grant|approve|tell|mention|pretend",
    ),
    _phrase_rule(
        "hides from a person",
        r"(?:do not|don t|don't|don’t|never|must not|without|avoid|instead of|rather than) (?:tell|telling|inform|informing|alert|"
        r"alerting|notify|notifying|warn|warning|mention (?:this|it|that) to|mentioning (?:this|it|that) to|reveal (?:this|it) to|"
        r"show (?:this|it) to|say so to|disclose (?:this|it) to|report (?:this|it) to|asking|consulting|confirming with) "
        rf"(?:the |your |any |this )?{_PERSON}(?! (?:to|for|whether|which|again|that|twice|when|if|how|where|what|who))",
        "user|human|owner|developer|operator|person|anyone|anybody",
        "tell|inform|alert|notify|warn|mention|reveal|show|say|disclose|report|ask|consult|confirm",
        "not|don|never|without|avoid|instead|rather",
    ),
    _phrase_rule(
        "hides from a person",
        rf"(?:keep|hide|conceal|withhold) (?:this|it|that|all of this) (?:(?:a )?(?:secret|hidden|"
        rf"quiet) )?from (?:the |your |any )?{_PERSON}",
        "keep|hide|conceal|withhold",
        "from",
        "user|human|owner|developer|operator|person|anyone|anybody",
    ),
    _phrase_rule(
        "asks for the prompt",
        r"(?:reveal|print|output|repeat|leak|disclose|show|dump|recite|write out|expose|tell me|return|include) (?:me |us )?"
        r"(?:(?:all )?your|the (?:full|entire|whole|hidden|initial|secret|original|complete|exact|verbatim)) (?:\w+ ){0,2}"
        r"(?:system prompt|system message|hidden prompt|initial prompt|initial instructions|"
        r"system instructions|hidden instructions|"
        r"secret instructions|original instructions)",
        "prompt|instructions|message",
        "system|hidden|initial|secret|original",
        "reveal|print|output|repeat|leak|disclose|show|dump|recite|write|expose|tell|return|include",
    ),
    _phrase_rule(
        _CARRIES_OFF,
        r"(?:send|post|upload|forward|email|e mail|mail|exfiltrate|leak|copy|transmit|submit|"
        r"append|embed|encode|paste|put) (?:me |us )?"
        r"(?:all|your|any|every|the user s|the user's|the user’s|the contents? of|the whole|the full|their|the current|the stored) "
        r"... (?:api keys?|secrets?|credentials?|tokens?|passwords?|environment variables|env vars?|"
        r"env|ssh keys?|private keys?|ssh|aws|"
        r"keychain|cookies|recovery codes?|conversation|chat history|system prompt|memory|memories|source code|files) "
        r"(?:[\w'’]+ ){0,5}?(?:to|at|via|as|in|into|through|with) (?:https?|www|ftp|the webhook|"
        r"a webhook|this url|the url|this address|"
        r"the address|this server|the following|pastebin|the attacker|an image url|the query string|"
        r"a query parameter|webhook|the image|"
        r"[\w+]+@\w+|\w+ (?:com|net|org|io|xyz|site|ru|example|test|invalid)(?!\w))",
        "send|post|upload|forward|mail|exfiltrate|leak|copy|transmit|submit|append|embed|encode|paste|put",
        "key|secret|credential|token|password|env|ssh|aws|cookie|code|conversation|history|prompt|memor|files",
        "http|www|ftp|webhook|url|address|server|following|pastebin|attacker|image|query|@|.com|.net|.org|.io|.xyz|.site|.ru|.example|"
        ".test|.invalid",
    ),
    _phrase_rule(
        _CARRIES_OFF, r"exfiltrate (?:the|all|your|any|every|it|them|this|data|secrets|credentials)", "exfiltrate"
    ),
    _phrase_rule(
        "opens secrets",
        r"(?:call|use|invoke|run|execute) (?:the )?(?:tool )?secret_get ... (?:and|then|for (?:every|"
        r"each|all)|on (?:every|each|all))",
        "secret_get|secret get",
    ),
    # The same in the most requested languages.
    _phrase_rule(
        _TAKES_BACK,
        r"(?:ignorieren? sie|ignoriere?|vergiss|vergessen sie|missachten? sie|missachte|beachte nicht)"
        r" ... (?:vorherigen?|bisherigen?|"
        r"früheren?|vorigen?|obigen?|vorangegangenen?) ... (?:anweisungen?|befehle?|regeln?|instruktionen|vorgaben|anordnungen)",
        "ignorier|vergiss|vergessen|missacht|beachte",
        "anweisung|befehl|regel|instruktion|vorgaben|anordnung",
    ),
    _phrase_rule(
        _TAKES_BACK,
        r"(?:ignore|ignorez|ignorer|oublie|oubliez|oublier) ... (?:instructions|consignes|directives|règles|ordres) ... "
        r"(?:précédentes?|précédents|antérieures?|antérieurs|ci dessus|reçues)",
        "ignore|oubli",
        "précédent|antérieur|ci-dessus|ci dessus|reçues",
    ),
    _phrase_rule(
        _TAKES_BACK,
        r"(?:ignora|ignore|ignoren|olvida|olvide|olviden|ignorar|descarta|ignori|dimentica|esqueça|esqueca|desconsidere) ... "
        r"(?:instrucciones|órdenes|indicaciones|reglas|istruzioni|regole|ordini|instruções|instrucoes|regras|ordens) ... "
        r"(?:anteriores|previas|precedenti|anteriori|prévias|recibidas|acima)",
        "ignor|olvid|descarta|dimentica|esque|desconsidere",
        "anterior|previas|precedenti|prévias|recibidas|acima",
    ),
    _phrase_rule(
        _TAKES_BACK,
        r"(?:игнорируй|игнорируйте|забудь|забудьте|отбрось) ... (?:предыдущие|прошлые|прежние|все) ... "
        r"(?:инструкции|указания|команды|правила)",
        "игнорируй|забудь|отбрось",
    ),
    _rule(
        _TAKES_BACK,
        r"(?:忽略|无视|無視|忘记|忘記|不要遵守|不要理会).{0,10}(?:之前|以上|先前|前面|此前|上述|所有|原来).{0,10}"
        r"(?:指令|指示|提示|命令|规则|規則|要求)",
        "忽略|无视|無視|忘记|忘記|不要遵守|不要理会",
    ),
    _rule(
        _TAKES_BACK,
        r"(?:以前|これまで|上記|前|今まで|すべて).{0,8}(?:指示|命令|プロンプト|ルール|規則).{0,6}(?:無視|忘れ|破棄)",
        "無視|忘れ|破棄",
    ),
    _rule(
        _TAKES_BACK,
        r"(?:이전|위의|지금까지|앞의|모든).{0,10}(?:지시|명령|지침|규칙|프롬프트).{0,8}(?:무시|잊|따르지)",
        "무시|잊|따르지",
    ),
)

_SHELL: Final = (
    r"(?:(?:/usr)?/bin/)?(?:ba|z|da|k|c|tc|fi|a)?sh\b|(?:/usr/bin/(?:env )?)?(?:python[\d.]*|perl|ruby|node|php|pwsh|powershell)\b|"
    r"iex\b|invoke-expression\b|source\s+/dev/stdin|\.\s+/dev/stdin"
)
_FETCH: Final = r"(?:curl|wget|fetch|iwr|irm|invoke-webrequest|invoke-restmethod)"
_FETCHES: Final = "curl|wget|fetch|iwr|irm|invoke-webrequest|invoke-restmethod"
_FETCHED: Final = "runs what it fetches"
_ROLE: Final = "marks a role"
_TAGS: Final = (
    r"system|system[-_]?(?:prompt|reminder|message)|developer|assistant|instructions?|important[-_]?instructions?|hook[-_]context|"
    r"confide[-\w]*|tool[-_]?(?:result|use|call|output|response)s?|function[-_]?(?:call|result|response)s?|antml:[\w-]+|invoke|"
    r"override|human[-_]?turn|assistant[-_]?turn|untrusted|trusted"
)
_MARKS: Final = (
    _rule(_ROLE, rf"(?:<|&lt;)/?\s{{0,8}}(?:{_TAGS})(?:\s[^<>\n]{{0,80}})?/?\s{{0,8}}(?:>|&gt;)", "<|&lt;", ">|&gt;"),
    _rule(_ROLE, r"<\|[\w ]{2,32}\|>|<</?sys>>|<(?:start|end)_of_turn>|<\|?/?(?:bos|eos|eot|s)\|?>", "<"),
    _rule(_ROLE, r"\[/?inst\]|\[/?system\]|\[system[ _-]?(?:message|prompt)\]", "[inst]|[/inst]|[system|[/system"),
    _rule(
        _ROLE,
        r"(?m)^[ \t>*#-]{0,40}(?:system|developer|human|assistant)\s?(?:prompt|message)?\s?[:：]\s{0,8}(?:you (?:are|"
        r"must|will|should|now)|"
        r"ignore|disregard|forget|new instructions?|from now on|override|execute|run the|always obey|the user has)",
        "system|developer|human|assistant",
        ":|：",
    ),
    _rule(
        _ROLE,
        r"(?m)^ {0,3}#{2,6} (?:system|instruction|response|human|assistant|user) ?: ?$",
        "##",
        "system:|instruction:|response:|human:|assistant:|user:|system :|instruction :",
    ),
    _rule(
        _FETCHED,
        rf"\b{_FETCH}\b(?:[^\n|]|\\\n){{0,300}}\|[\s\\]{{0,20}}(?:sudo\s+(?:-\w+\s+){{0,4}})?(?:env\s+(?:\w+=\S*\s+){{0,4}})?(?:{_SHELL})",
        _FETCHES,
        "|",
    ),
    _rule(_FETCHED, rf"(?:{_SHELL})\s+(?:-\w+\s+){{0,4}}[\"']?(?:<\(|\$\(|`)\s{{0,8}}{_FETCH}\b", _FETCHES, "<(|$(|`"),
    _rule(
        _FETCHED,
        rf"\b(?:eval|source|exec)\s+[\"']?(?:\$\(|`|<\()\s{{0,8}}{_FETCH}\b|(?:^|\s)\.\s+<\(\s{{0,8}}{_FETCH}\b",
        _FETCHES,
        "<(|$(|`",
    ),
    _rule(
        _FETCHED,
        rf"\b{_FETCH}\b[^\n]{{0,200}}?(?:-o|>|--output|--output-document)[ =]{{0,4}}\S{{1,80}}[^\n]{{0,80}}?(?:&&|;)\s{{0,8}}"
        r"(?:sudo\s+)?(?:(?:ba|z|da)?sh\s+\S|chmod\s+\S{0,8}x\S{0,8}\s+\S)",
        _FETCHES,
        "&&|;",
        "sh|chmod",
    ),
    _rule(
        _FETCHED,
        r"\biex\b[^\n]{0,80}(?:downloadstring|iwr|irm|webclient)|downloadstring\([^\n]{0,200}\)\s?\|\s?iex",
        "iex",
    ),
    _rule(
        _FETCHED,
        r"\bexec\(\s?(?:urllib|requests|__import__|base64|bytes\.fromhex|compile)|eval\(\s?(?:atob|"
        r"buffer\.from|base64|fetch|require\()",
        "exec(|eval(",
    ),
    _rule(
        "runs what is encoded",
        rf"\bbase64\s+(?:-d|--decode|-di)\b[^\n|]{{0,200}}\|\s{{0,8}}(?:sudo\s+)?(?:{_SHELL})"
        rf"|-enc(?:odedcommand)?\s+[a-z0-9+/]{{40}}",
        "base64|-enc",
    ),
    _rule(
        "destroys",
        r"\brm\s+-(?:rf|fr|r\s+-f)\s+(?:--no-preserve-root\s+)?[\"']?(?:/|~/?|\$home/?)[\"']?\*?(?=[\s;&|\"'`]|$)",
        "rm -rf|rm -fr|rm -r -f|rm  -",
    ),
)
_RULES: Final = (*_MARKS, *_PHRASES)

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{200,}={0,2}")
_BASE64_LINE: Final = re.compile(r"\s*(?:>\s*)?[A-Za-z0-9+/]{56,100}={0,2}\s*")
_BASE64_LINES: Final = 4
# Public keys and certificates are no secret, and people keep them in notes.
_PUBLIC: Final = re.compile(
    r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+|sk-\S+@openssh\.com)\s|BEGIN [A-Z ]*(?:CERTIFICATE|PUBLIC KEY|PGP SIGNATURE)"
)
_TAG_CHARACTERS: Final = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]")
_TURNED: Final = re.compile("[\u202a\u202b\u202d\u202e]")
_ZERO_WIDTH: Final = re.compile("[\u200b\u2060-\u2064\ufeff\u00ad\u180e]")
_MOST_ZERO_WIDTH: Final = 4
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e007f]"
)
# Letters of other scripts that look like Latin ones; replaced in words that mix scripts.
_CYRILLIC: Final = "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u0501\u04bb\u051b\u051d"
_GREEK: Final = "\u03b1\u03b5\u03bf\u03c1\u03c5\u03b9\u03ba\u03bd\u03c4"
_LOOK_ALIKE: Final = str.maketrans(_CYRILLIC + _GREEK, "aeopcyxisjdhqw" + "aeopuiknt")
_MIXED: Final = re.compile(r"\w*(?:[a-z][\u0370-\u052f]|[\u0370-\u052f][a-z])\w*")


@dataclass(frozen=True, slots=True)
class SuspiciousLines:
    """Consecutive lines that address a model: the first and the last, counted from 1, and a few
    words for users on what they do.
    """

    first: int
    last: int
    why: str


def find(text: str) -> list[SuspiciousLines]:
    """Return the lines that address a model or hide something from a reader, in order, with a
    reason for each.
    """
    lines = text.split("\n")
    return sorted(
        {*_in_hidden(lines), *_in_encoded(lines), *_in_prose([_plain(line) for line in lines])},
        key=lambda one: (one.first, one.last, one.why),
    )


def is_hostile(text: str) -> bool:
    """Return True if any line of the text addresses a model or hides something from a reader."""
    return bool(find(text))


def _plain(line: str) -> str:
    """Return a line as a reader sees it: without invisible characters, in one spelling of each
    letter, in lower case.
    """
    if line.isascii():
        return line.lower()
    seen = unicodedata.normalize("NFKC", _UNSEEN.sub("", line)).casefold().replace("\n", " ")
    return _MIXED.sub(lambda word: word[0].translate(_LOOK_ALIKE), seen)


def _in_prose(lines: Sequence[str]) -> Iterator[SuspiciousLines]:
    whole = "\n".join(lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    left = MAX_LOOKED_AT
    for rule in _RULES:
        if not all(any(word in whole for word in group) for group in rule.near):
            continue
        for first, last in _windows(whole, starts, rule.near[0]):
            begin, end = starts[first], starts[last + 1] - 1
            if not all(any(whole.find(word, begin, end) >= 0 for word in group) for group in rule.near[1:]):
                continue
            left -= end - begin
            if left < 0:
                yield SuspiciousLines(first + 1, len(lines), "has more than can be judged")
                return
            for match in rule.pattern.finditer(whole, begin, end):
                at = (match.start(), max(match.start(), match.end() - 1))
                begins, ends = (bisect.bisect_right(starts, place) for place in at)
                yield SuspiciousLines(begins, min(ends, len(lines)), rule.why)


def _windows(whole: str, starts: Sequence[int], words: Iterable[str]) -> list[tuple[int, int]]:
    """Return the line ranges around lines with one of the words, counted from 0; overlapping ranges
    are joined.
    """
    held: set[int] = set()
    for word in words:
        at = whole.find(word)
        while at >= 0:
            line = bisect.bisect_right(starts, at) - 1
            held.add(line)
            # Continue at the next line, since several occurrences on a line do not matter.
            at = whole.find(word, starts[line + 1]) if line + 1 < len(starts) else -1
    found: list[tuple[int, int]] = []
    for line in sorted(held):
        first, last = max(0, line - _REACH), min(len(starts) - 2, line + _REACH)
        if found and first <= found[-1][1]:
            first = found.pop()[0]
        found.append((first, last))
    return found


def _in_hidden(lines: Sequence[str]) -> Iterator[SuspiciousLines]:
    for number, line in enumerate(lines, 1):
        if line.isascii():
            continue
        # A byte order mark at the beginning of a file is harmless.
        rest = line.removeprefix("\ufeff") if number == 1 else line
        if _TAG_CHARACTERS.search(rest) or _TURNED.search(rest) or len(_ZERO_WIDTH.findall(rest)) >= _MOST_ZERO_WIDTH:
            yield SuspiciousLines(number, number, "has letters that cannot be seen")


def _in_encoded(lines: Sequence[str]) -> Iterator[SuspiciousLines]:
    run: list[int] = []
    is_public = False
    for number, line in enumerate([*lines, ""], 1):
        is_public = bool(_PUBLIC.search(line)) or (is_public and not line.startswith("-----END"))
        if not is_public and len(line) >= 56 and _BASE64_LINE.fullmatch(line) and _is_mixed(line):
            run.append(number)
            continue
        if len(run) >= _BASE64_LINES:
            yield SuspiciousLines(run[0], run[-1], "has a long encoded text")
        run = []
        if not is_public and len(line) >= 200 and any(_is_mixed(match[0]) for match in _BASE64.finditer(line)):
            yield SuspiciousLines(number, number, "has a long encoded text")


def _is_mixed(run: str) -> bool:
    """Return True if a run looks encoded: it changes often between upper case, lower case and
    digits, which no path, rule or number does.
    """
    kinds = [0 if one.isupper() else 1 if one.islower() else 2 for one in run[:4096] if one.isalnum()]
    changes = sum(one != other for one, other in pairwise(kinds))
    return len(set(kinds)) == 3 and changes > len(kinds) * 0.3
