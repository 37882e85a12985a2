"""Estimates the language of a text, as far as the choice of an embedding model and of the words of a
question needs it: English, another language that the multilingual model reads, or neither.

Scripts are distinguished by their letters, and languages in Latin letters by their most common
words, and by words with letters that English does not have. A sentence contains some of these. A
list of names or a line of code contains none, and counts as English.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from confide_memory.tools.words import fold

_SCRIPTS: Final = re.compile(
    "[\u0400-\u052f\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff\u0e00-\u0e7f"  # Cyrillic, Arabic, Thai
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # Kana, Han
)
"""Letters of the scripts that the multilingual model reads, but Latin."""
_LATIN: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_ACCENTED: Final = re.compile("(?=.*[^a-z'])[a-z'\u00df-\u024f\u1e00-\u1eff]+")
"""A word in Latin letters that are not all of English. One that is not `islower` is a name, such as
José or Łódź.
"""
_LETTER: Final = re.compile(r"[^\W\d_]")
_WORD: Final = re.compile(r"(?<![\w./\\@$=:#~])(?<!(?<!\w)-)[^\W\d_]+(?:'[^\W\d_]+)?(?![\w/\\=(@]|\.\w)")
"""A word by itself: no part of a path, a longer name, an option or a call."""
_READ: Final = 2000
"""Characters of a text that are looked at."""
_SHARE: Final = 0.3
"""Of the letters, from which on a script decides: names in Latin letters stand in any text."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGLISH: Final = _words(
    """the of and to is are were be been its this that these those for with at by from or not but you i they she our
    your their my her what when where which who whom whose why how does did done has have had can could should would
    must may might if then than there here into about after before any only more most because while until each every
    us them"""
)
"""Common words of English alone; without those of other languages as well ("was", "in", "die")."""
_OTHERS: Final = _words(
    # German, Dutch
    """des ein eine einen einem einer und oder nicht ist sind waren wird werden wurde wurden wir ihr sie ich für auf
    bei nach vor über unter durch gegen ohne zu zum zur vom beim wie wo wann warum wem wen welche welchem welchen
    welcher welches haben hatte kann können muss müssen soll sollen darf dürfen weil dass damit wenn dann noch schon
    auch nur immer nie niemals sein seine unser unsere unseren jede jeder jedes jeden wohin woher wieso weshalb
    womit gibt kein keine keinen spätestens het een niet zijn wordt worden werd voor naar uit ook maar bij wij
    jullie hij zij welk waar wanneer waarom wie heeft hebben moet moeten geen """
    # Spanish, Portuguese, French, Italian
    """una unos unas por como más pero sobre cuando cuándo dónde adónde quién qué cuál cuáles cómo cuántos cuántas
    cuánto está están fue nuestro nuestra porque desde hasta después nunca uma não è é são foi quando onde quem qual
    quais muito depois sempre nous vous ils elle elles je sont était à dans avec leur notre cette qui quoi où
    pourquoi combien quel quelle quels quelles lorsque depuis avant après jamais gli della delle degli dalla nel
    nella nei sul sulla sono erano perché quale quali quanto quanti anche più dopo noi nostra """
    # Polish, Turkish
    """nie są był była było były się że żeby jak kto gdzie kiedy dlaczego który która które dla przed przez oraz tylko
    zawsze nigdy jej jego nasz nasza bir şu için ile değil mı mü neden nasıl nerede nereye hangi kaç çok daha gibi
    kadar sonra önce siz veya olarak olan"""
)
_SHARED: Final = _words(
    """el la los las del di da dos das de le les der den van von un il y hat er dem mit im aus dat dit hoe para se su
    sus lo sin son nos hay que ao em nas ne pas est ou au aux sur pour sans sa ses ce ces comment ont uno dei dal
    che chi non era mai dove jest ale ve bu mi mu ama biz"""
)
"""Common words that are names or words of software as well, such as `jest`, "comment" and "mit license"; each counts half."""
_COMMON: Final = (
    _OTHERS
    | _SHARED
    | _words(
        # German, Dutch
        """die das den dem was wer wir ihr er es an am als so man du mein meine meinen dein deine euer eure uns euch
        mich dich sich mir dir ihm ihn ihnen eines sondern doch also denn aber ob bis seit während zwischen hinter neben
        wurden würde würden habe hast hatten wäre wären bin bist sei konnte konnten sollte mehr sehr hier dort etwas
        alle alles allem allen dieser diese dieses diesem diesen jene welche wieviel wofür wovon worum worauf
        zijn was waren ben bent mijn jouw onze ons hun hen deze daar hier als om te tot nog al meer veel zo wat dan"""
        # Spanish, Portuguese, French, Italian
        """a y o e si no me te mi tu ti este esta estos estas ese esa eso esto ya muy tiene tenemos ha han hay ser son
        era eran entre durante cada donde quien cual cuales cuanto todo todos toda todas me meu minha seu sua isso isto
        este esta esse essa tem temos há uns umas num numa pelo pela nós eu ele ela você mas já só tu moi toi lui
        leurs mon ma mes ton ta tes nos vos votre cet cette celui celle cela ça ai as a avons avez ont suis es êtes
        étaient sera fait faut peut doit plus mais donc si ne pas y en ci mio mia tuo tua suo sua questo questa quello
        quella ho hai ha abbiamo avete hanno è sei siamo come cosa chi quando se ma o ed ad al alla allo ai agli"""
        # Swedish, Danish, Norwegian
        """och att det som på är av för den till inte ett om jag hade vi kan men var där vad hur vem vilken vilka när
        varför hvad hvem hvor hvordan hvilken hvornår hvorfor hva hvilken når jeg ikke til med har ved fra er og at"""
        # Polish, Turkish
        """w z na do i o a to co czy po od ze dla jaki jaka jakie ile u mam mamy ma mają być ne ki da de mı mi mu mü ben
        sen o bunlar şunlar kim kime ama hem ya nereden kime kimin hangisi kaçta var yok"""
        # Russian, Ukrainian
        """и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только ее мне было вот от меня
        еще нет о из ему когда где кто кому чей какой какая какое какие каким какую сколько почему зачем куда откуда
        для мы их чем была были есть был ли или наш наша наше наши это этот эта эти який яка яке які де коли хто чому
        скільки є та що як до від під над про"""
        # Arabic
        """ما ماذا متى أين من كيف لماذا كم هل هو هي هم في على إلى عن مع أن إن كان كانت الذي التي هذا هذه ذلك تلك أي لم
        لا قد ثم أو بعد قبل عند بين"""
    )
)
"""Words that ask, join and point, in languages other than English. They say nothing about what is asked, as
`STOP_WORDS` in English.
"""
_ELIDED: Final = _words("l d j m t s n c qu dell nell all sull dall")
"""The parts before an apostrophe in French and Italian, unlike the English "we'll"."""


def is_readable(text: str) -> bool:
    """Return True if most letters of a text belong to a script that the multilingual model reads."""
    part = text[:_READ]
    letters = len(_LETTER.findall(part))
    return letters > 0 and 2 * (len(_SCRIPTS.findall(part)) + len(_LATIN.findall(part))) > letters


def is_foreign(text: str, *, fewest: int = 1) -> bool:
    """Return True if a text is in a language other than English that the multilingual model reads.

    A text in Latin letters must contain at least `fewest` different common words of other
    languages, and more of them than of English. A word that software or names share with another
    language counts half, and so does one with letters that English lacks. Only the first 2,000
    characters count.
    """
    part = text[:_READ]
    if not part.isascii():
        letters = len(_LETTER.findall(part))
        if len(_SCRIPTS.findall(part)) > _SHARE * letters:
            return is_readable(part)
    found = _WORD.findall(part.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    # MIT, EST and NAS are abbreviations; where all letters are large, they say nothing.
    is_loud = part.isupper()
    words = {word.lower() for word in found if is_loud or len(word) == 1 or not word.isupper()}
    others = len(words & _OTHERS) + len(words & _SHARED) / 2
    others += len({before for before, sign, _ in (word.partition("'") for word in words) if sign} & _ELIDED)
    accented = {word for word in found if word.islower() and _ACCENTED.fullmatch(word)}
    others += len(accented - _OTHERS - _SHARED) / 2
    return others >= fewest and others > len(words & _ENGLISH)


def common_words(text: str) -> frozenset[str]:
    """Return the words, in the form that `fold` gives them, that say nothing about what a question
    asks for, if it is in another language than English; else none.
    """
    return _folded() if is_foreign(text) else frozenset()


@cache
def _folded() -> frozenset[str]:
    return frozenset(map(fold, _COMMON | _ELIDED))
