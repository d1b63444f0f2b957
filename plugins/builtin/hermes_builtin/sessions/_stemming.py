"""Bring the forms of an English word together, so that a question meets its answer.

`stem` follows the idea of Porter's algorithm: suffixes are taken off in a fixed order, each
only where enough of the word is left over. Irregular forms ("went", "children") are looked up
first. A stem is a key for the index, not a word to show.
"""

# ruff: noqa: RUF001 - Russian letters look like Latin ones

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

LONGEST_WORD: Final = 30
SHORTEST_WORD: Final = 3

_VOWELS: Final = frozenset("aeiou")

# After these a final "-li" is the adverb's ending: "quick-ly", but not "fami-ly".
_BEFORE_LI: Final = frozenset("cdeghkmnrt")

# The first suffix that fits decides, so a longer one stands before its own ending.
_STEP_2: Final = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "abli": "able",
    "bli": "ble",
    "alli": "al",
    "fulli": "ful",
    "lessli": "less",
    "entli": "ent",
    "ousli": "ous",
    "eli": "e",
    "ili": "i",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "ogi": "og",
}
_STEP_3: Final = {
    "icate": "ic",
    "ative": "",
    "alize": "al",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
_STEP_4: Final = (
    *("ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti"),
    *("ous", "ive", "ize", "ion", "al", "er", "ic", "ou"),
)

# Left as they are: their stem would be that of another word ("ski", "new", "police", "generate").
_WHOLE: Final = frozenset(("sky", "news", "university", "policy", "general", "generous"))

_BRITISH_OUR: Final = re.compile(r"^(behavi|col|fav|flav|harb|hon|hum|lab|neighb|rum)our")
# "organise" and its kin; "revise" and "supervise" have an s in every spelling.
_BRITISH_ISE: Final = re.compile(r"(?<=[a-z]{4})(?<!v)is(e|e[drs]|ers|ing|ations?)$")

# A base form, then what it is written as when it does not follow the rules.
_IRREGULAR: Final = """
arise arose arisen|beat beaten|become became|begin began begun|bend bent
bite bitten|bleed bled|blow blew blown|break broke broken|breed bred
bring brought|build built|burn burnt|buy bought|catch caught|choose chose chosen|cling clung
come came|creep crept|deal dealt|die dying|dig dug|do does did done doing|draw drew drawn
dream dreamt|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed
feel felt|fight fought|find found|flee fled|fly flew flown|forbid forbade forbidden
forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten
give gave given|go went gone goes|grow grew grown|hang hung|have has had
hear heard|hide hid hidden|hold held|keep kept|kneel knelt|know knew known|lay laid|lead led
leap leapt|learn learnt|leave left|lend lent|lie lying|light lit|lose lost|make made
mean meant|meet met|mistake mistook mistaken|overcome overcame|pay paid|prove proven
ride rode ridden|ring rang rung|rise risen|run ran|say said|see saw seen|seek sought
sell sold|send sent|sew sewn|shake shook shaken|shine shone|shoot shot|show shown
shrink shrank shrunk|sing sang sung|sink sank sunk|sit sat|sleep slept|slide slid|sow sown
speak spoke spoken|speed sped|spend spent|spin spun|spring sprang sprung|stand stood
steal stole stolen|stick stuck|sting stung|strike struck|strive strove|swear swore sworn
sweep swept|swell swollen|swim swam swum|swing swung|take took taken|teach taught
tear tore torn|tell told|think thought|throw threw thrown|tie tying|undergo underwent undergone
understand understood|undertake undertook undertaken|wake woke woken|wear wore worn
weave wove woven|weep wept|win won|withdraw withdrew withdrawn|write wrote written
calf calves|child children|crisis crises|foot feet|goose geese|half halves|knife knives
leaf leaves|life lives|loaf loaves|man men|mouse mice|person people|scarf scarves|shelf shelves
thief thieves|tooth teeth|wife wives|wolf wolves|woman women|analysis analyses
bus buses|gas gases|general generally|ski skis|sky skies|university universities|policy policies
"""

_BASE_FORMS: Final = {
    form: base
    for base, *forms in map(str.split, _IRREGULAR.strip().replace("|", "\n").splitlines())
    for form in forms
}

# Question and function words only. A word of another language that is also an English word or a
# name ("hat", "war", "son", "Mia") is left out: how common it is in the archive weighs it enough.
STOP_WORDS: Final[frozenset[str]] = frozenset(
    """
    a about above after again ain all also am an and any are aren as at be because been before
    being below between both but by can could couldn d did didn do does doesn doing don down
    during each few for from further get got had hadn has hasn have haven having he her here
    hers herself him himself his how i if in into is isn it its itself just ll m many me might
    mightn more most much must mustn my myself no nor not of off on once only or other our ours
    ourselves out over own re s same shall she should shouldn so some such t than that the their
    theirs them themselves then there these they this those through to too under until up ve
    very was wasn we were weren what when where which while who whom whose why will with would
    wouldn you your yours yourself yourselves
    aber auch auf aus bei bis da damit dann das dass dem der dies diese dieser doch du ein eine
    einem einen einer eines er es euch habe haben hatte ich ihm ihn ihr im ins ist ja kann mein
    mich mir nach nicht noch nur ob oder ohne sein sich sie sind uber um und uns unser vom von
    vor wann waren warum welche welcher welches wenn wer wie wieder wir wird wo wurde zu zum zur
    au aux avec avez avons ce cela ces cet cette comme dans de donc du elles en est et
    etait ete etre eu il ils je la le les leur leurs lui mais mes moi mon ne nos notre nous ont
    ou pas pourquoi quand que quel quelle quelles quels qui quoi sa se ses si sont ta te tes toi
    tu un une vos votre vous
    como cual cuales cuando cuanto de del donde el ella ellas ellos en eran es esa ese eso esta
    este esto fue ha han la las le les lo los mi mis muy nos o para pero por porque que quien
    quienes se ser si sobre su sus te tu tus un una unos y ya yo
    ao aos com como da das de dos e ela elas ele eles em entre essa esse esta este eu foi ha
    isso isto ja lhe mais meu minha muito na nas nao nem nos nossa nosso o onde ou para pela
    pelo por porque qual quais quando quanto que quem se sem seu sua tem um uma voce voces
    alla alle anche che ci cosa cui da dalla dei del della delle di e gli ha hai hanno ho il io
    la le lo loro lui mi mio ne nel nella noi non o per perche piu quale quali quando quanto
    quella quello questa questo se si sono su sua suo ti tu un una voi
    aan bij dat de der deze dit dus een en er geen heb hebben heeft het hij hun ik je jij jullie
    kan maar mij mijn na naar niet nog nu om ons ook op te uit voor waar waarom wanneer
    waren wat welke wel werd wie wij zal ze zich zij zijn zo zou
    а без бы был была были было быть в вам вас во вот все всё вы где да для до его ее её если
    есть же за зачем и из или им их к как какая какие какой ко когда которая который кто куда ли
    меня мне мой моя мы на над не него нее неё нет ни них но ну о об он она они оно от по под
    почему при с сколько со так там те тебя то тоже только тот ты у уже чего чем что чтобы чья
    эта эти это этот я
    """.split()  # noqa: SIM905 - a list literal would be one word per line
)


def stem(word: str) -> str:
    """Give the index key of a lower-case word; what is not plain English stays as it is."""
    if not (len(word) <= LONGEST_WORD and word.isascii() and word.isalpha()):
        return word
    word = _american(word)
    word = _without_plural(_BASE_FORMS.get(word, word))
    if len(word) < SHORTEST_WORD or word in _WHOLE:
        return word
    word = _without_past_or_gerund(word)
    word = _with_i_for_y(word)
    word = _without_double_suffix(word)
    word = _replaced(word, _STEP_3)
    word = _without_last_suffix(word)
    return _tidied(word)


def _american(word: str) -> str:
    if "our" in word:
        word = _BRITISH_OUR.sub(r"\1or", word)
    return _BRITISH_ISE.sub(r"iz\1", word) if "is" in word else word


def _shape(word: str) -> str:
    """Write the word as c (consonant) and v (vowel); a y after a consonant is a vowel."""
    shape = ""
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """Count how often a vowel is followed by a consonant: about the number of syllables."""
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _ends_short(word: str) -> bool:
    """Tell whether the end is like "hop", "mak" or "us": such a stem may have lost an e."""
    shape = _shape(word)
    return shape == "vc" or (shape[-3:] == "cvc" and word[-1] not in "wxy")


def _ends_double(word: str) -> bool:
    return word[-1:] == word[-2:-1] and word[-1:] not in _VOWELS


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ies", "ied")):
        return word[:-2] if len(word) > len("ties") else word[:-1]
    if len(word) < SHORTEST_WORD or word[-1] != "s" or word.endswith(("news", "ss", "us", "is")):
        return word
    # "gas" keeps its s: a plural has a vowel before its last two letters.
    return word[:-1] if _has_vowel(word[:-2]) else word


def _without_past_or_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("edly", "ingly", "ed", "ing"):
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return _restored(rest) if _has_vowel(rest) else word
    return word


def _restored(rest: str) -> str:
    """Mend what an "-ed" or "-ing" had changed: "hopp" is hop, "mak" is make."""
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _ends_double(rest) and rest[-1] not in "lsz":
        return rest[:-1] if len(rest) > len("add") else rest
    if _measure(rest) == 1 and _ends_short(rest):
        return rest + "e"
    return rest


def _with_i_for_y(word: str) -> str:
    """Let "party" and "parties" meet; "by" and "play" keep their y."""
    if len(word) > len("by") and word[-1] == "y" and _shape(word)[-2] == "c":
        return word[:-1] + "i"
    return word


def _replaced(word: str, suffixes: Mapping[str, str]) -> str:
    if not word.endswith(tuple(suffixes)):
        return word
    for suffix, short in suffixes.items():
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + short if _measure(rest) > 0 else word
    return word


def _without_double_suffix(word: str) -> str:
    replaced = _replaced(word, _STEP_2)
    if replaced != word or not word.endswith("li"):
        return replaced
    rest = word[:-2]
    return rest if rest[-1:] in _BEFORE_LI and _measure(rest) > 0 else word


def _without_last_suffix(word: str) -> str:
    if not word.endswith(_STEP_4):
        return word
    for suffix in _STEP_4:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            fits = suffix != "ion" or rest.endswith(("s", "t"))
            return rest if fits and _measure(rest) > 1 else word
    return word


def _tidied(word: str) -> str:
    """Drop a final e or i and one of two l, where the word is long enough."""
    rest = word[:-1]
    if word.endswith("e"):
        measure = _measure(rest)
        return rest if measure > 1 or (measure == 1 and not _ends_short(rest)) else word
    return rest if word.endswith(("ll", "i")) and _measure(rest) > 1 else word
