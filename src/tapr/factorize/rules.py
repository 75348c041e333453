"""The table of what people write in an edit: a pattern and the handler that reads it, first match wins."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from tapr.factorize.clauses import Clause
from tapr.factorize.phrases import Atom, Manner, absolute, atoms_in, chunks, role_of, settle
from tapr.factorize.predicates import describe, say_of, split_object
from tapr.factorize.reading import Draft
from tapr.factorize.words import lexicon, load, plural_phrase

Handler = Callable[[Draft, "re.Match[str]"], None]

_FILLER = re.compile(
    r"^(?:(?:please|also|then|and|but|now|so|i (?:want|need|would like|am looking for|prefer)(?: (?:it|something|one|to see|the target image to(?: be| show| have)?))?"
    r"(?: (?:that|which))?|(?:the )?(?:target|desired|second|new|final)(?: (?:image|photo|photograph|picture|pic|item|product))?"
    r"(?= (?:is|are|shows?|has|have|should|must|will)\b)|(?:we|you) (?:can )?(?:see|have)|like this|something|unlike (?:the )?"
    r"(?:reference|first|other|source|original|provided)(?: (?:image|photo|picture|one|item|product))*)\s*)+\b"
)
_CONTRAST = re.compile(
    r"(?:^|\s)(?:rather than|instead of|in place of|excluding|without|except(?: for)?|minus|unlike|no longer|and not|not|no|none of|never|missing|"
    r"rather (?:than )?(?:to )?(?:(?:making|make|showing|show|having|being|wearing|placing|keeping|rap\w*|on|in|with|of|a|the) ?)+(?:it )?(?:with |out )?)\s+"
)
_EMPTY_VERB = re.compile(r"^(?:(?:to|be|being|is|are|do|does|have|has|having|any|a|an|the|of|it|with|making|showing|made of|wearing|in|on|at|other|"
                         r"show|shows|contain|include|there)\s+)+")  # fmt: skip


def read_clause(draft: Draft, clause: Clause) -> None:
    """Read one clause into the draft."""
    text = _FILLER.sub("", clause.text).strip()
    if not text or re.match(r"^unlike\b", text):
        return
    text = re.sub(r" instead$", "", text)
    if _continues_removal(draft, clause, text):
        draft.drop(_removed(text))
        return
    draft.removing = ""
    head, removed = _split_contrast(text)
    added_before = list(draft.add)
    head = _take_views(draft, head)
    if head:
        _apply(draft, head)
    fresh = [atom for atom in draft.add if atom not in added_before]
    for phrase in removed:
        gone = _aligned(phrase, fresh)
        if gone and draft.unsaid and not fresh and role_of(gone) == "quality":
            gone = f"{gone} {draft.subject}"  # "the walls are not white"
        draft.drop(gone)
        if re.search(r"\bno\b|without", text):
            draft.removing = "no"
            _take_beside(draft, phrase)


def _take_beside(draft: Draft, phrase: str) -> None:
    """ "no straps, with a floral print": what is had beside the missing thing is added."""
    for chunk, (atom, said) in list(zip(chunks(phrase.split()), atoms_in(phrase.split()), strict=True))[1:]:
        if chunk.lead in ("with", "wearing"):
            draft.read(atom, said)


def _split_contrast(text: str) -> tuple[str, list[str]]:
    """ "cat instead of dog" -> ("cat", ["dog"]); negation is read the same way: "is not red" -> ("is", ["red"])."""
    head, *removed = _CONTRAST.split(text)
    if not head and removed and text.startswith(("instead of", "rather than")):
        return "", removed
    return head.strip(), [phrase.strip() for phrase in removed if phrase.strip()]


def _take_views(draft: Draft, head: str) -> str:
    for pattern, atom in _views():
        if not (found := pattern.search(head)):
            continue
        head = f"{head[: found.start()]} {head[found.end() :]}".strip()
        if atom == "different viewpoint":
            draft.changed.add("viewpoint")
        elif atom != "same viewpoint":
            draft.take(Atom(atom))
    return re.sub(r"^(?:(?:it|the|a|an|photo|picture|image|this|shot|taken|make|change|angle|to|seen|is|are|viewed|view|shown|take|on|of|camera|be|in|and|has|more)\s?)+$", "", head)


def _apply(draft: Draft, head: str) -> None:
    for pattern, handler in _table():
        if found := pattern.match(head):
            handler(draft, found)
            return
    describe(draft, head.split())


def _removed(phrase: str) -> str:
    """The thing that goes, bare: "have a belt" -> "belt"."""
    phrase = re.sub(r"^(?:all|both|any)(?: of)?(?: the)?\s+(?=\w)", "", phrase) if not phrase.startswith("both") else phrase
    phrase = _EMPTY_VERB.sub("", phrase + " ").strip()
    words = phrase.split()
    parts = chunks(words)
    return settle(absolute(parts[0].words).add.split()) if parts else ""


def _aligned(phrase: str, added: list[str]) -> str:
    """Say the removed thing in the words of the added one: "red ones" -> "red flowers", "right" -> "facing right"."""
    lexis = lexicon()
    said, phrase = phrase.split(), _removed(phrase)
    words = phrase.split()
    if not words or not added:
        return phrase
    first = added[0].split()
    if said[-1] in ("one", "ones") and len(said) > 1:
        return f"{phrase} {first[-1]}"
    if len(words) == 1 and lexis.has("directions", words[0]) and lexis.has("directions", first[-1]):
        verb = next((word for word in first if word.endswith("ing")), "")
        return f"{verb} {phrase}".strip()
    return phrase


def _continues_removal(draft: Draft, clause: Clause, text: str) -> bool:
    """ "remove the hand and the spoon", "no buildings and cars": is the second thing gone too?"""
    if not draft.removing or clause.joint not in ("and", ",", "or"):
        return False
    lexis = lexicon()
    first = text.split()[0]
    opens_anew = first in lexis.classes["be"] | lexis.classes["have"] | {"with", "there", "it", "they", "in", "on", "at", "only"}
    relative = lexis.is_comparative(first) or first in ("more", "less", "fewer") or lexis.is_quality(first)
    if opens_anew or relative or _CONTRAST.search(f" {text}") or any(pattern.match(text) for pattern, _ in _table()):
        return False
    if any(word in lexis.classes["be"] or word in lexis.inflections for word in text.split()[1:]):
        return False
    return draft.removing == "remove" or first not in lexis.classes["determiners"]


# --- handlers -------------------------------------------------------------------------------------------------------


def _remove(draft: Draft, found: re.Match[str]) -> None:
    what = found["what"]
    some = re.match(r"^(?:all (?:but|except)|only) (?:one|1)(?: of)?(?: the)? (?P<thing>.+)$", what)
    if some:
        draft.take(Atom(f"one {settle(some['thing'].split()).rstrip('s')}"))
        return
    part = re.match(r"^(?:the )?(?:one|two|three|some|a few|half|1|2|3|extra|other)(?: of)?(?: the)?(?: other)? (?P<thing>.+)$", what)
    if part:
        thing = chunks(part["thing"].split())
        if thing:
            draft.take(Atom(f"few {plural_phrase(settle(_bare(thing[0].words)))}"))
            draft.removing = "remove"
        return
    if what in ("the background", "background"):
        draft.take(Atom("plain background", "with", "a"))
        return
    first, *places = chunks(what.split()) or [None]
    if first:
        draft.drop(_removed(" ".join(first.words)))
        draft.removing = "remove"
    for place in places:
        draft.hold(settle(_bare(place.words)))


def _replace(draft: Draft, found: re.Match[str]) -> None:
    old, new = found["old"].strip(), found["new"].strip()
    old_words = _bare(old.split())
    if not old_words:  # "turn it into a cat"
        _become(draft, new)
        return
    lexis = lexicon()
    dimension = re.match(r"^(?:the )?(?:(?P<of>\w+) of (?:the |its )?(?P<thing>.+)|(?P<before>.*?)\s?(?P<last>\w+))$", " ".join(old_words))
    name = (dimension["of"] or dimension["last"]) if dimension else ""
    if dimension and lexis.has("dimensions", name):
        _set_dimension(draft, name, dimension["thing"] or dimension["before"] or "", new)
        return
    old_atom = settle(old_words)
    if role_of(old_atom) == "thing" and role_of(settle(_bare(new.split())) or new) == "quality":
        say_of(draft, old_words, new.split())
        return
    before = list(draft.add)
    describe(draft, new.split())
    fresh = [atom for atom in draft.add if atom not in before]
    if not any(old_atom == atom or atom.endswith(" " + old_atom) for atom in fresh):
        draft.drop(_both(old, old_atom))


def _both(old: str, atom: str) -> str:
    return f"both {atom}" if old.startswith("both ") and not atom.startswith("both") else atom


def _become(draft: Draft, new: str) -> None:
    before = len(draft.add)
    new = _take_views(draft, new)
    describe(draft, new.split())
    fresh = list(draft.add)[before:]
    draft.replaces_subject |= bool(fresh) and role_of(fresh[0]) == "thing" and lexicon().kind(fresh[0].split()[-1]) != "style"


def _set_dimension(draft: Draft, dimension: str, thing: str, new: str) -> None:
    new = _take_views(draft, re.sub(r" (?:view|colour|one)$", "", new) if dimension in ("angle", "view", "colour") else new)
    value = settle(_bare(new.split()))
    if not value:
        return
    if dimension in ("background", "floor"):
        draft.take(Atom(f"{value} background" if not value.endswith("background") else value, "with", "a"))
    elif dimension in ("number", "amount"):
        draft.take(Atom(f"{value} {thing}".strip()))
    elif dimension in ("direction", "orientation", "position") and lexicon().has("directions", value.split()[-1]):
        draft.take(Atom(f"facing {value}"))
    elif thing:
        say_of(draft, thing.split(), new.split())
    else:
        describe(draft, new.split())


def _from_to(draft: Draft, found: re.Match[str]) -> None:
    thing, old, new = (settle(_bare((found[name] or "").split())) for name in ("thing", "old", "new"))
    thing = "" if lexicon().has("dimensions", thing) else thing
    is_quality = thing and role_of(new) == "quality"
    draft.take(Atom(f"{new} {thing}" if is_quality else new))
    draft.drop(f"{old} {thing}" if is_quality else old)


def _add(draft: Draft, found: re.Match[str]) -> None:
    verb, what = found["verb"], found["what"]
    if verb == "give":
        what = re.sub(r"^(?:it|him|her|them|the \w+)\s+", "", what)
    what, _, receiver = what.partition(" to the ")
    if receiver and re.match(r"^(?:left|right|side|back|front|top)", receiver):
        what, receiver = f"{what} to the {receiver}", ""
    pieces = list(zip(chunks(what.split()), atoms_in(what.split(), Manner(adding=True)), strict=True))
    moved = bool(pieces) and pieces[0][0].determiner == "the" and verb in ("put", "place", "set", "lay", "position") and any(
        atom for _, (atom, _) in pieces[1:]
    )
    for position, (chunk, (atom, said)) in enumerate(pieces):
        known_place = position > 0 and chunk.lead in lexicon().classes["places"] and chunk.determiner == "the"
        if atom and ((moved and position == 0) or (known_place and not moved)):
            draft.hold(atom.text)
        elif atom:
            draft.read(Atom(atom.text, atom.lead or "with", atom.determiner), said)
        else:
            draft.read(None, said)
    draft.hold(settle(_bare(receiver.split())) if receiver else "")


def _make(draft: Draft, found: re.Match[str]) -> None:
    thing, predicate = split_object(found["what"].split())
    if not predicate:
        describe(draft, thing, Manner(bare_verbs=True))
    elif not _bare(thing):
        if predicate[0] in ("a", "an"):
            _become(draft, " ".join(predicate))
        else:
            describe(draft, predicate, Manner(bare_verbs=True))
    else:
        say_of(draft, thing, predicate)


def _have(draft: Draft, found: re.Match[str]) -> None:
    describe(draft, found["what"].split(), Manner(bare_verbs=True))


def _act(draft: Draft, found: re.Match[str]) -> None:
    """Verbs that name their own result: "open the window", "blur the background"."""
    thing, _, filling = found["what"].partition(" with ")
    if found["verb"].startswith("fill"):
        draft.take(Atom(f"filled with {settle(_bare(filling.split()))}") if filling else None)
        draft.hold(settle(_bare(thing.split())))
        return
    name = settle(_bare(chunks(thing.split())[0].words)) if chunks(thing.split()) else ""
    if name:
        draft.take(Atom(lexicon().meanings["actions"][found["verb"]].format(name), "with"))


def _count(draft: Draft, found: re.Match[str]) -> None:
    groups = found.groupdict()
    thing = settle(_bare(chunks(groups["what"].split())[0].words)) if chunks(groups["what"].split()) else ""
    number = groups.get("number") or ("many" if groups["verb"].startswith(("increas", "rais", "more")) else "few")
    number = lexicon().meanings["canonical"].get(number, number)
    if thing:
        draft.take(Atom(f"{number} {_one_of(thing) if number == 'one' else plural_phrase(thing)}"))


def _one_of(thing: str) -> str:
    from tapr.factorize.words import singular

    *before, head = thing.split()
    return " ".join([*before, singular(head)])


def _same(draft: Draft, found: re.Match[str]) -> None:
    """ "the same person as an astronaut": the person stays, what follows is read for itself."""
    words = re.sub(r"^(?:exact |(?:breed|kind|type|species|sort) of )+", "", found["what"]).split()
    thing, rest = split_object(["the", *words])
    draft.hold(settle(_bare(thing)))
    draft.subject = draft.subject or settle(_bare(thing))
    if rest:
        describe(draft, rest)


def _of_this(draft: Draft, found: re.Match[str]) -> None:
    """ "a pencil drawing of this animal"."""
    draft.hold(settle((found["thing"] or "").split()))
    describe(draft, found["what"].split())


def _keep(draft: Draft, found: re.Match[str]) -> None:
    only = re.match(r"^(?:only|just) (?P<what>.+)$", found["what"])
    if only:
        describe(draft, only["what"].split())
        return
    for chunk in chunks(found["what"].split()):
        draft.hold(settle(_bare(chunk.words)))


def _show(draft: Draft, found: re.Match[str]) -> None:
    describe(draft, found["what"].split())


def _gone(draft: Draft, found: re.Match[str]) -> None:
    draft.drop(_removed(found["what"]))


def _bare(words: list[str]) -> list[str]:
    lexis = lexicon()
    return [word for word in words if word not in lexis.classes["determiners"] | lexis.classes["adverbs"] | lexis.classes["pronouns"] or word == "one"]


# --- the table ------------------------------------------------------------------------------------------------------


@cache
def _views() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rf"(?:^|\b)(?:{pattern})(?!\w)"), atom) for pattern, atom in load("views.json"))


@cache
def _table() -> tuple[tuple[re.Pattern[str], Handler], ...]:
    verbs = {group: "(?:" + "|".join(map(re.escape, forms)) + ")" for group, forms in lexicon().verbs.items()}
    actions = "(?:" + "|".join(sorted(lexicon().meanings["actions"], key=len, reverse=True)) + ")"
    number = r"(?P<number>one|two|three|four|five|six|seven|eight|nine|ten|\d+|several|many)"
    became = rf"(?:(?:has|have|is|are|was|were|been) )*(?:{verbs['became']})(?: (?:to be|to|into|by|for|with))?"
    rows: list[tuple[str, Handler]] = [
        (r"(?P<what>.+) REMOVED.*", _gone),
        (r"(?P<what>.+) (?:removed|missing|gone)", _gone),
        (r"there (?:was|were) (?P<what>.+)", _gone),
        (r"looking at (?P<what>(?!the camera|camera|each).+)", _show),
        (rf"{verbs['remove']}(?: away| out)? (?P<what>.+)", _remove),
        (rf"(?:the )?(?P<verb>reduce|decrease|increase|raise|fewer|more)s?(?: the| to)?(?: number| amount)(?: of)? (?P<what>.+?)(?: (?:to|by) (?:just |only |a )?{number}.*)?", _count),
        (rf"(?P<verb>reduce|decrease|increase)s?(?: to)? (?:the )?(?P<what>.+?)(?: to (?:just |only |a )?{number}.*)?", _count),
        (rf"(?:the )?number of (?P<what>.+?)(?: (?:is|are|has|have|been|was))*(?: (?P<verb>decreased|reduced|increased|changed|dropped|down|up))?(?: (?:to|is|by) {number}.*)?", _count),
        (rf"{verbs['replace']} (?:the |entire |all )?(?P<old>.+?) (?:with|by|for|to|into) (?P<new>.+)", _replace),
        (rf"{verbs['replace']}(?: entire)? (?P<what>.+)", _show),
        (rf"{verbs['change']} (?P<old>(?!with\b|out\b|to\b|into\b|for\b|on\b|off\b).+?) (?:to(?! the (?:left|right|side))|into|for) (?:be |have |show |a view of )?(?P<new>.+)", _replace),
        (r"(?:change|switch|turn|transform|focus|go)(?: focus| view)? (?:to|for|into|on)(?: only| just)? (?:focus on |show |be )?(?P<what>(?!the (?:left|right)|on |off ).+)", _show),
        (r"(?P<thing>(?:the )?.*?)\s?(?:(?:has|have|is|are) )*(?:goes|went|go|changes|changed|turns|turned) from (?P<old>.+?) to (?P<new>.+)", _from_to),
        (rf"(?P<old>.+?) {became} (?P<new>.+)", _replace),
        (rf"(?P<verb>{actions}) (?P<what>(?:the|a|an|its|his|her|their|up)\b.+)", _act),
        (rf"(?P<verb>{verbs['add']})(?: back| in| up)? (?P<what>.+)", _add),
        (r"(?:with |has |have |show |shows |is |are |it is |keep |of )*(?:the )?(?:exact )?same (?P<what>.+)", _same),
        (r"(?:it is )?(?:the |an )?identical (?P<what>.+)", _same),
        (r"(?:this|these|that) (?P<what>(?!one\b|is\b|are\b|has\b)[a-z].*)", _same),
        (r"(?P<what>(?!there\b).+?) (?:of|like|as) (?:this|these|it|them|that)(?: (?P<thing>\w+))?", _of_this),
        (rf"{verbs['keep']} (?P<what>.+)", _keep),
        (r"(?:make|making|made|target|focus|focusing|focused|take|set)(?: more| only| mainly| just)? (?:out|with|on|in)(?: with| only| just)? (?P<what>.+)", _show),
        (rf"{verbs['made']} (?P<what>(?!a |an |two |many |some ).+)", _make),
        (r"(?:let|have|having|show|see) (?P<what>.+)", _have),
        (rf"(?:there (?:is|are|was|were|should be)(?: also| only| just)?|{verbs['show']})(?: only| just| me| also| more focus on)? (?P<what>.+)", _show),
    ]  # fmt: skip
    return tuple((re.compile(pattern + r"$"), handler) for pattern, handler in rows)
