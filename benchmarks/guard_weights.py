"""Learn guard-weights.txt, the guard's weights of words and concepts, from tests/corpus.

It reads the texts for tuning and the pages in docs/, never the held-out and the fresh texts.
Logistic regression with AdaGrad: a text is suspicious if one of its sentences is, so each round
learns from the sentence of each attack that weighs most so far, and from all harmless sentences.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path

from hermes_builtin.notes import guard_weights
from hermes_builtin.notes.guard_rules import Text, known_spans, plain
from hermes_builtin.notes.guard_weights import Feature, features, sentences

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "corpus"
TARGET = Path(guard_weights.__file__).with_name("guard-weights.txt")
ROUNDS, EPOCHS, RATE, PENALTY = 2, 15, 0.2, 0.01
RARE = 3  # texts that a feature has to be in
LEAST = 0.05  # smaller weights are left out
#: Hosts in made-up attacks have telling names; real ones don't.
GIVEN_AWAY = {"bad", "evil", "malo", "zlo", "boese", "mal", "male", "mau", "slecht", "attacker"}
#: What is hidden or encoded is not found by words.
NOT_BY_WORDS = {"obfuscated", "hidden"}

Example = tuple[set[Feature], int]


def texts(name: str) -> list[str]:
    lines = (CORPUS / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [row["text"] for row in map(json.loads, lines) if row["kind"] not in NOT_BY_WORDS]


def pages() -> list[str]:
    """The paragraphs of the docs, which are harmless; the page about the guard quotes attacks."""
    found = [
        page
        for page in sorted(ROOT.glob("docs/*.md"))
        if page.name not in {"notes.md", "security.md"}
    ]
    return [
        part for page in found for part in page.read_text("utf-8").split("\n\n") if part.strip()
    ]


def sentences_of(text: str) -> list[set[Feature]]:
    read = Text.of(plain(text))
    found = (features(each) for each in sentences(read.words, known_spans(read)))
    return [{each for each in one if GIVEN_AWAY.isdisjoint(each)} for one in found] or [set()]


def total(weights: dict[Feature, float], sentence: set[Feature]) -> float:
    return sum(weights[each] for each in sentence)


class Learner:
    """Weights, and how far each has moved."""

    def __init__(self, known: set[Feature]) -> None:
        self.weights = dict.fromkeys(sorted(known), 0.0)
        self.moved = dict.fromkeys(known, 0.05)
        self.weights["bias",], self.moved["bias",] = -2.0, 0.05

    def learn(self, sentence: set[Feature], label: int) -> None:
        value = self.weights["bias",] + total(self.weights, sentence)
        error = 1 / (1 + math.exp(-max(-30.0, min(30.0, value)))) - label
        for each in (*sentence, ("bias",)):
            penalty = 0.0 if each == ("bias",) else PENALTY
            step = error + penalty * self.weights[each]
            self.moved[each] += step * step
            self.weights[each] -= RATE * step / math.sqrt(self.moved[each])


def train(attacks: list[list[set[Feature]]], harmless: list[list[set[Feature]]]) -> Learner:
    count = Counter(each for text in (*attacks, *harmless) for each in set[Feature]().union(*text))
    known = {each for each, number in count.items() if number >= RARE}
    attacks, harmless = (
        [[one & known for one in text] for text in part] for part in (attacks, harmless)
    )
    learner, order = Learner(known), random.Random(1)
    chosen = [max(text, key=len) for text in attacks]
    for _ in range(ROUNDS):
        examples: list[Example] = [(one, 1) for one in chosen]
        examples += [(one, 0) for text in harmless for one in text]
        for _ in range(EPOCHS):
            order.shuffle(examples)
            for one, label in examples:
                learner.learn(one, label)
        chosen = [max(text, key=lambda one: total(learner.weights, one)) for text in attacks]
    return learner


def main() -> None:
    attacks = [sentences_of(text) for text in texts("attacks")]
    harmless = [sentences_of(text) for text in (*texts("harmless"), *pages())]
    weights = train(attacks, harmless).weights
    rows = [
        f"{weight:.2f} {' '.join(each)}"
        for each, weight in sorted(weights.items())
        if abs(weight) >= LEAST
    ]
    head = "# Written by benchmarks/guard_weights.py: a weight, and what it is for.\n"
    TARGET.write_text(head + "\n".join(rows) + "\n", "utf-8")
    print(
        f"{len(rows):,} weights from {len(attacks):,} attacks and {len(harmless):,} harmless texts"
    )


if __name__ == "__main__":
    main()
