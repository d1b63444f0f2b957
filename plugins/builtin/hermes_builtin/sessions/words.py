"""Text as words of the index: folded, stemmed, in pairs where a script has no spaces; synonyms."""

# ruff: noqa: RUF001 - Russian letters look like Latin ones

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from Stemmer import Stemmer  # type: ignore[import-not-found,unused-ignore]

# -- the forms of an English word -----------------------------------------------------------------
# A question says "went" where the conversation said "going". Snowball's stemmer takes endings
# off; irregular forms and British spelling are looked up first, since it knows neither. A stem is
# a key for the index, not a word to show.

LONGEST_WORD: Final = 30
_LONG_STEM: Final = 7

# Left as they are: their stem would be that of another word ("new", "univers", "polic", "gener").
_WHOLE: Final = frozenset(("news", "university", "policy", "general", "generous"))

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


def stem(word: str) -> str:
    """Return the index key of a lower-case word; what is not plain English stays as it is."""
    if not (len(word) <= LONGEST_WORD and word.isascii() and word.isalpha()):
        return word
    word = _american(word)
    word = _BASE_FORMS.get(word, word)
    if word in _WHOLE:
        return word
    found = str(_stemmer("english").stemWord(word))
    # Lets "history" and "historic" meet, and "allergy" and "allergic".
    return found.removesuffix("i") if len(found) >= _LONG_STEM else found


def _american(word: str) -> str:
    if "our" in word:
        word = _BRITISH_OUR.sub(r"\1or", word)
    return _BRITISH_ISE.sub(r"iz\1", word) if "is" in word else word


@cache
def _stemmer(language: str) -> Stemmer:
    # Its cache is off: we have one, and without it a stemmer can be used by several threads.
    return Stemmer(language, 0)


# -- the forms of words in other languages --------------------------------------------------------
# The language of a word is not known, that of a message mostly is: by its script, or by words
# that only one language has. So the index has such a message's words twice: as they are written,
# and as "haus+de", the German stem. A query needs no language: each of its words is also looked
# up as a stem of the languages that the archive has, and nothing else is found than before if
# there are none.

#: Question and function words. A word of another language that is also an English word or a name
#: ("hat", "war", "son", "Mia") is left out: how common it is in the archive weighs it enough.
_STOP_WORDS: Final = {
    "english": """
        a about above after again ain all also am an and any are aren as at be because been before
        being below between both but by can could couldn d did didn do does doesn doing don down
        during each few for from further get got had hadn has hasn have haven having he her here
        hers herself him himself his how i if in into is isn it its itself just ll m many me might
        mightn more most much must mustn my myself no nor not of off on once only or other our ours
        ourselves out over own re s same shall she should shouldn so some such t than that the their
        theirs them themselves then there these they this those through to too under until up ve
        very was wasn we were weren what when where which while who whom whose why will with would
        wouldn you your yours yourself yourselves
    """,
    "german": """
        aber auch auf aus bei bis da damit dann das dass dem der dies diese dieser doch du ein eine
        einem einen einer eines er es euch habe haben hatte ich ihm ihn ihr im ins ist ja kann mein
        mich mir nach nicht noch nur ob oder ohne sein sich sie sind uber um und uns unser vom von
        vor wann waren warum welche welcher welches wenn wer wie wieder wir wird wo wurde zu zum zur
    """,
    "french": """
        au aux avec avez avons ce cela ces cet cette comme dans de donc du elles en est et
        etait ete etre eu il ils je la le les leur leurs lui mais mes moi mon ne nos notre nous ont
        ou pas pourquoi quand que quel quelle quelles quels qui quoi sa se ses si sont ta te tes toi
        tu un une vos votre vous
    """,
    "spanish": """
        como cual cuales cuando cuanto de del donde el ella ellas ellos en eran es esa ese eso esta
        este esto fue ha han la las le les lo los mi mis muy nos o para pero por porque que quien
        quienes se ser si sobre su sus te tu tus un una unos y ya yo
    """,
    "portuguese": """
        ao aos com como da das de dos e ela elas ele eles em entre essa esse esta este eu foi ha
        isso isto ja lhe mais meu minha muito na nas nao nem nos nossa nosso o onde ou para pela
        pelo por porque qual quais quando quanto que quem se sem seu sua tem um uma voce voces
    """,
    "italian": """
        alla alle anche che ci cosa cui da dalla dei del della delle di e gli ha hai hanno ho il io
        la le lo loro lui mi mio ne nel nella noi non o per perche piu quale quali quando quanto
        quella quello questa questo se si sono su sua suo ti tu un una voi
    """,
    "dutch": """
        aan bij dat de der deze dit dus een en er geen heb hebben heeft het hij hun ik je jij jullie
        kan maar mij mijn na naar niet nog nu om ons ook op te uit voor waar waarom wanneer
        waren wat welke wel werd wie wij zal ze zich zij zijn zo zou
    """,
    "russian": """
        а без бы был была были было быть в вам вас во вот все всё вы где да для до его ее её если
        есть же за зачем и из или им их к как какая какие какой ко когда которая который кто куда ли
        меня мне мой моя мы на над не него нее неё нет ни них но ну о об он она они оно от по под
        почему при с сколько со так там те тебя то тоже только тот ты у уже чего чем что чтобы чья
        эта эти это этот я
    """,
}
_ENGLISH: Final = frozenset(_STOP_WORDS["english"].split())
STOP_WORDS: Final[frozenset[str]] = frozenset(" ".join(_STOP_WORDS.values()).split())

#: More languages, by frequent words that are in no other list; without accents, as all words are.
_FREQUENT_WORDS: Final = {
    "catalan": "amb els perque aixo tambe pero molt aquest aquesta tinc",
    "czech": "jsem jsou ktery ktera protoze nebo jako tady neni bylo",
    "danish": "ikke hvad hvorfor hvordan meget efter blev noget kunne bliver",
    "estonian": "ning kuid mida ainult sest oli olen meie siis",
    "finnish": "etta mutta ovat mita kun olen olla tama siita minun",
    "hungarian": "hogy nem egy csak vagy mert nekem volt lesz miert",
    "indonesian": "dan yang dengan untuk tidak dari adalah saya apa bagaimana",
    "lithuanian": "yra kad arba todel buvo mano kaip taip labai",
    "norwegian": "ikke hva hvorfor hvordan mye etter ble noe kunne blir",
    "polish": "nie jest jak dlaczego oraz ale czy bardzo gdzie tego",
    "romanian": "este sunt pentru dar unde cand foarte acest nostru cum",
    "swedish": "och att det inte jag varfor mycket efter nagot kunde",
    "turkish": "bir icin neden nasil degil cok ile ama gibi daha",
}
_CODES: Final = {
    "arabic": "ar", "armenian": "hy", "catalan": "ca", "czech": "cs", "danish": "da",
    "dutch": "nl", "estonian": "et", "finnish": "fi", "french": "fr", "german": "de",
    "greek": "el", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "italian": "it",
    "lithuanian": "lt", "norwegian": "no", "polish": "pl", "portuguese": "pt",
    "romanian": "ro", "russian": "ru", "spanish": "es", "swedish": "sv", "tamil": "ta",
    "turkish": "tr",
}  # fmt: skip
_LANGUAGES: Final = {code: language for language, code in _CODES.items()}
#: What stands in the index for each language that some message is in.
LANGUAGE_MARKS: Final = tuple(f"+{code}" for code in _LANGUAGES)

_SCRIPTS: Final = re.compile(
    r"(?P<el>[\u0370-\u03ff])|(?P<ru>[\u0400-\u04ff])|(?P<hy>[\u0530-\u058f])"
    r"|(?P<ar>[\u0600-\u06ff])|(?P<hi>[\u0900-\u097f])|(?P<ta>[\u0b80-\u0bff])"
)
#: In a text of so many words one word is enough to recognise its language.
_SHORT: Final = 8


@cache
def _typical_words() -> Mapping[str, tuple[str, ...]]:
    """The languages that a word is typical of, by word. English is the default."""
    found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for language, listed in {**_STOP_WORDS, **_FREQUENT_WORDS}.items():
        for word in listed.split() if language != "english" else ():
            if word not in _ENGLISH and len(word) > 1:
                found[word] += (_CODES[language],)
    return found


def language_of(text: str, folded: Sequence[str]) -> str:
    """Return the code of a text's language, from its folded words; "" for English or unknown."""
    if not text.isascii() and (script := _SCRIPTS.search(text)):
        return str(script.lastgroup)
    typical = _typical_words()
    found = typical.keys() & folded
    if not found:
        return ""
    counts = Counter(code for word in found for code in typical[word])
    (code, count), *_ = counts.most_common(1)
    is_clear = count > 1 or len(folded) <= _SHORT
    return code if is_clear and not _is_english(folded, count) else ""


def _is_english(folded: Sequence[str], count: int) -> bool:
    """Whether a text has more typical words of English than of another language."""
    return len(_ENGLISH.intersection(folded)) > count


def inflected(word: str, code: str) -> str:
    """Return what the index has for a word of a language, whatever its ending."""
    written = unicodedata.normalize("NFC", word.casefold())[:LONGEST]
    return f"{fold(_stemmer(_LANGUAGES[code]).stemWord(written))}+{code}"


def language_in(word: str) -> str:
    """Return the language of an index word that `inflected` made; "" of any other."""
    # "c++" has a plus as well, but no language code behind it.
    code = word.rpartition("+")[2] if "+" in word else ""
    return code if code in _LANGUAGES else ""


def _inflected_words(text: str, folded: Sequence[str]) -> list[str]:
    """All words of a text in another language than English, as that language's stems."""
    code = language_of(text, folded)
    if not code:
        return []
    written = written_words(text)
    return [f"+{code}", *(inflected(each, code) for each in written if each.isalpha())]


# -- Text as words for the index: folded, stemmed, and in pairs where a script has no spaces ----
#
# Chinese, Japanese, Korean, Thai and similar scripts are stored as overlapping pairs of characters,
# and the last character alone: a pair is found as a word, and a single character as the
# beginning of a word.

# Longer "words" are base64, hashes and URLs: their beginning is enough to find them.
LONGEST: Final = 64
_MOST_STEMS: Final = 65_536

_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30ff"
    r"\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    r"\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
#: Marks that belong to the letter before them, in scripts where \w leaves them out.
_MARKS: Final = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06ed\u0900-\u0963\u0980-\u0dff\u0f18-\u0fbc"
)
_SYMBOLS: Final = r"\u00a2-\u00b6\u20a0-\u20cf\u2100-\u2bff\U0001f000-\U0001fbff"

#: What plain English is made of: letters in lower case, digits, and blanks for all else.
_PLAIN: Final = "".join(chr(at).lower() if chr(at).isalnum() else " " for at in range(128))
_ASCII: Final = re.compile(r"c\+\+|[cfj]#(?![a-z0-9])|[a-z0-9]+")
_ANY: Final = re.compile(
    rf"c\+\+|[cfj]#(?!\w)|[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_]|[{_MARKS}])+|[{_SYMBOLS}]",
    re.IGNORECASE,
)
_ACCENTS: Final = re.compile(r"[\u0300-\u036f]")
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")


def words(text: str) -> list[str]:
    """The words of a text as the index has them, in order; then its stems in another language."""
    if text.isascii():
        is_plain = "+" not in text and "#" not in text
        written = text.translate(_PLAIN).split() if is_plain else _ASCII.findall(text.lower())
        found = list(map(_INDEX_WORDS.__getitem__, written))
        return found + _inflected_words(text, written)
    found = []
    folded = runs(text)
    for run in folded:
        found += words_of(run)
    return found + _inflected_words(text, folded)


def runs(text: str) -> list[str]:
    """The words of a text, folded but not stemmed; runs of scripts without spaces."""
    return _ANY.findall(fold(text))


def written_words(text: str) -> list[str]:
    """The words of a text as they are written, with accents."""
    return _ANY.findall(text)


#: Latin letters for others that look like them.
TO_LATIN: Final = str.maketrans(
    "аеорсхуіјѕһԁԛԝвкмнтгзαεορικνυτχγβωηɡʏ",
    "aeopcxyijshdqwbkmhtrzaeopiknutxybwngy",
)


def fold(text: str) -> str:
    """Text without case, accents, and other ways to write the same letter."""
    if text.isascii():
        return text.lower()
    # NFKD separates letters from their accents and unifies full-width forms. NFC afterwards puts
    # Korean syllables together again, which NFKD takes apart.
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFC", bare)


def places(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Where words are in a text as it was written: begin, end, and their index words.

    In scripts without spaces each character has its own place.
    """
    if text.isascii():
        for match in _ASCII.finditer(text.lower()):
            yield *match.span(), [_INDEX_WORDS[match.group()]]
        return
    for match in _ANY.finditer(text):
        begin, end = match.span()
        if _IS_UNSPACED.match(text, begin):
            for at in range(begin, end):
                yield at, at + 1, plain_words(text[at : min(at + 2, end)])
        else:
            yield begin, end, plain_words(match.group())


def plain_words(text: str) -> list[str]:
    """The words of a text as the index has them, in order, whatever its language."""
    return [word for run in runs(text) for word in words_of(run)]


def is_unspaced(word: str) -> bool:
    """Whether a word is of a script without spaces."""
    return _IS_UNSPACED.match(word) is not None


def storable(text: str) -> str:
    """Text without halves of surrogate pairs, which no database takes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def words_of(run: str) -> list[str]:
    """The index words of one run."""
    if is_unspaced(run):
        return [run[at : at + 2] for at in range(len(run))]
    return [_INDEX_WORDS[run]]


class _IndexWords(dict[str, str]):
    """What the index has for a word. Keeps stems: an lru_cache takes twice as long to look up."""

    def __missing__(self, word: str) -> str:
        if not word.isalpha():  # it has no stem, and would only crowd out others that have one
            return word[:LONGEST]
        if len(self) >= _MOST_STEMS:
            self.clear()
        self[word] = found = stem(word)[:LONGEST]
        return found


_INDEX_WORDS: Final = _IndexWords()

# -- Other words for a word: a question says "film" where the conversation said "movie" ---------
#
# The words are in thesaurus.txt, which is read at the first search, not at import.

#: What another word counts for, where the word itself counts for 1.
WEIGHT: Final = 0.6

_FILE: Final = Path(__file__).with_name("thesaurus.txt")


def related(term: str) -> frozenset[str]:
    """Return the stems that may stand for a stem, without the stem itself."""
    return _read(_FILE).get(term, frozenset())


@cache
def _read(file: Path) -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in file.read_text(encoding="utf-8").splitlines():
        for term, other in _pairs(line):
            found[term].add(other)
    return {term: frozenset(others - {term}) for term, others in found.items()}


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    """Read ``a = b c`` (both ways) and ``a > b c`` (from a alone)."""
    words = line.partition("#")[0].split()
    if not words:
        return
    head, sign, *members = words
    for member in members:
        yield stem(head), stem(member)
        if sign == "=":
            yield stem(member), stem(head)
