"""What each kind of clause does to the draft; rules.py says which clause goes to which handler."""

from __future__ import annotations

import re
from collections.abc import Callable

from tapr.factorize.grammar.absolutes import Manner, absolute, settle
from tapr.factorize.grammar.patterns import pattern
from tapr.factorize.grammar.phrases import Atom, atoms_in, chunks, role_of
from tapr.factorize.grammar.predicates import describe, say_of, split_object
from tapr.factorize.grammar.reading import ReadingDraft
from tapr.factorize.grammar.views import take_views
from tapr.factorize.grammar.words import lexicon, plural_phrase, singular

Handler = Callable[[ReadingDraft, "re.Match[str]"], None]


def bare(words: list[str]) -> list[str]:
    """Keep the content words: no determiners, adverbs and pronouns; "one" may be a count."""
    classes = lexicon().classes
    dropped = (classes["determiners"] | classes["adverbs"] | classes["pronouns"]) - {"one"}
    return [word for word in words if word not in dropped]


def name_of(text: str) -> str:
    """Return the first thing the text names: "the bird in the cage" -> "bird"."""
    parts = chunks(text.split())
    return settle(bare(parts[0].words)) if parts else ""


def without(phrase: str) -> str:
    """Return the thing that goes, bare: "have a belt" -> "belt"."""
    if not phrase.startswith("both"):
        phrase = re.sub(r"^(?:all|any)(?: of)?(?: the)? ", "", phrase)
    parts = chunks(pattern("empty verbs").sub("", phrase + " ").split())
    return settle(absolute(parts[0].words).add.split()) if parts else ""


def remove(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "remove the people"; "remove one of the dogs" leaves few of them."""
    what = match["what"]
    some = re.match(r"^(?:all (?:but|except)|only) (?:one|1)(?: of)?(?: the)? (?P<thing>.+)$", what)
    if some:
        draft.take(Atom(f"one {_one_of(name_of(some['thing']))}"))
        return
    part = re.match(
        r"^(?:the )?(?:one|two|three|some|a few|half|1|2|3|extra|other)(?: of)?(?: the)?(?: other)? (?P<thing>.+)$",
        what,
    )
    if part:
        if thing := name_of(part["thing"]):
            draft.take(Atom(f"few {plural_phrase(thing)}"))
            draft.removing = "remove"
        return
    if what in ("the background", "background"):
        draft.take(Atom("plain background", "with", "a"))
        return
    for position, chunk in enumerate(chunks(what.split())):
        if position == 0:
            draft.drop(without(" ".join(chunk.words)))
            draft.removing = "remove"
        else:
            draft.hold(settle(bare(chunk.words)))


def replace(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "replace X with Y", "change X to Y", "X has become Y"."""
    old, new = match["old"].strip(), match["new"].strip()
    old_words = bare(old.split())
    if not old_words:  # "turn it into a cat"
        _become(draft, new)
        return
    lexis = lexicon()
    dimension = re.match(
        r"^(?:the )?(?:(?P<of>\w+) of (?:the |its )?(?P<thing>.+)|(?P<before>.*?)\s?(?P<last>\w+))$",
        " ".join(old_words),
    )
    name = (dimension["of"] or dimension["last"]) if dimension else ""
    if dimension and lexis.has("dimensions", name):
        _set_dimension(draft, name, dimension["thing"] or dimension["before"] or "", new)
        return
    old_atom = settle(old_words)
    if role_of(old_atom) == "thing" and role_of(settle(bare(new.split())) or new) == "quality":
        say_of(draft, old_words, new.split())
        return
    before = list(draft.add)
    describe(draft, new.split())
    fresh = [atom for atom in draft.add if atom not in before]
    draft.swaps |= dict.fromkeys(fresh[:1], old_atom)
    if not any(old_atom == atom or atom.endswith(" " + old_atom) for atom in fresh):
        draft.drop(_both(old, old_atom))


def _both(old: str, atom: str) -> str:
    return f"both {atom}" if old.startswith("both ") and not atom.startswith("both") else atom


def _become(draft: ReadingDraft, new: str) -> None:
    """Turn the picture's subject into something; a drawing of it is still the same thing."""
    before = len(draft.add)
    new = take_views(draft, new)
    describe(draft, new.split())
    fresh = list(draft.add)[before:]
    if fresh and role_of(fresh[0]) == "thing" and lexicon().kind(fresh[0].split()[-1]) != "style":
        draft.replaces_subject = True
        draft.swaps |= {fresh[0]: ""}


def _set_dimension(draft: ReadingDraft, dimension: str, thing: str, new: str) -> None:
    """Read "change the colour of the car to black": the dimension's value is what is seen."""
    if dimension in ("angle", "view", "colour"):
        new = re.sub(r" (?:view|colour|one)$", "", new)
    new = take_views(draft, new)
    value = settle(bare(new.split()))
    if not value:
        return
    if dimension == "background":
        draft.take(Atom(f"{value} background" if not value.endswith("background") else value, "with", "a"))
    elif dimension in ("number", "amount"):
        draft.take(Atom(f"{value} {thing}".strip()))
    elif dimension in ("direction", "orientation", "position") and lexicon().has("directions", value.split()[-1]):
        draft.take(Atom(f"facing {value}"))
    elif thing:
        say_of(draft, thing.split(), new.split())
    else:
        describe(draft, new.split())


def from_to(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "the bus goes from red to green"."""
    thing, old, new = (settle(bare((match[name] or "").split())) for name in ("thing", "old", "new"))
    thing = "" if lexicon().has("dimensions", thing) else thing
    if thing and role_of(new or "thing") == "quality":
        draft.take(Atom(f"{new} {thing}"))
        draft.swaps |= {f"{new} {thing}": f"{old} {thing}"}
        draft.drop(f"{old} {thing}")
    else:
        describe(draft, match["new"].split())
        draft.drop(without(match["old"]))


def so_that(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "change the rays so they are swimming"."""
    say_of(draft, match["thing"].split(), match["new"].split())


def add(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "put a hat on the dog" (adds the hat, keeps the dog) and "put the dog on a sofa" (adds the sofa)."""
    verb, what = match["verb"], match["what"]
    if verb == "give":
        what = re.sub(r"^(?:it|him|her|them|the \w+)\s+", "", what)
    what, _, receiver = what.partition(" to the ")
    if receiver and re.match(r"^(?:left|right|side|back|front|top)", receiver):
        what, receiver = f"{what} to the {receiver}", ""
    pieces = list(zip(chunks(what.split()), atoms_in(what.split(), Manner(adding=True)), strict=True))
    moved = (
        bool(pieces)
        and (pieces[0][0].determiner == "the" or lexicon().has("pronouns", pieces[0][0].words[0]))
        and verb in ("put", "place", "set", "lay", "position")
        and any(atom for _, (atom, _) in pieces[1:])
    )
    for position, (chunk, (atom, parsed)) in enumerate(pieces):
        known_place = position > 0 and chunk.lead in lexicon().classes["places"] and chunk.determiner == "the"
        if atom and ((moved and position == 0) or (known_place and not moved)):
            draft.hold(atom.text)
        elif atom:
            draft.read(Atom(atom.text, atom.lead or "with", atom.determiner), parsed)
        else:
            draft.read(None, parsed)
    draft.hold(settle(bare(receiver.split())) if receiver else "")


def make(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "make the dog bigger", "make it a truck", "make it snow"."""
    thing, predicate = split_object(match["what"].split())
    if not predicate:
        describe(draft, thing, Manner(bare_verbs=True))
    elif not bare(thing):
        if predicate[0] in ("a", "an"):
            _become(draft, " ".join(predicate))
        else:
            describe(draft, predicate, Manner(bare_verbs=True))
    else:
        say_of(draft, thing, predicate)


def have(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "let the boy hold a kite"."""
    describe(draft, match["what"].split(), Manner(bare_verbs=True))


def act(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read verbs that name their own result: "open the window", "blur the background"."""
    thing, _, filling = match["what"].partition(" with ")
    if match["verb"].startswith("fill"):
        draft.take(Atom(f"filled with {settle(bare(filling.split()))}") if filling else None)
        draft.hold(settle(bare(thing.split())))
        return
    if name := name_of(thing):
        draft.take(Atom(lexicon().meanings["actions"][match["verb"]].format(name), "with"))


def count(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "reduce the number of dogs to one", "more number of cups"."""
    groups = match.groupdict()
    rises = (groups["verb"] or "").startswith(("increas", "rais", "more"))
    number = groups.get("number") or ("many" if rises else "few")
    number = lexicon().meanings["canonical"].get(number, number)
    if thing := name_of(groups["what"]):
        draft.take(Atom(f"{number} {_one_of(thing) if number == 'one' else plural_phrase(thing)}"))


def _one_of(thing: str) -> str:
    *before, head = thing.split() or ["thing"]
    return " ".join([*before, singular(head)])


def same(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "the same person as an astronaut": the person stays, what follows is read for itself."""
    words = re.sub(r"^(?:exact |(?:breed|kind|type|species|sort) of )+", "", match["what"]).split()
    thing, rest = split_object(["the", *words])
    name = settle(bare(thing))
    draft.hold(name)
    if name in draft.keep:
        draft.subject = draft.subject or name
    if rest:
        describe(draft, rest)


def of_this(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "a pencil drawing of this animal"."""
    draft.hold(settle((match["thing"] or "").split()))
    describe(draft, match["what"].split())


def keep(draft: ReadingDraft, match: re.Match[str]) -> None:
    """Read "keep the chairs"; "leave only one dog" says what is seen."""
    only = re.match(r"^(?:only |just )?(?P<what>(?:a|an|one|two|three|single)\b.+)$", match["what"])
    if only:
        describe(draft, only["what"].split())
        return
    for chunk in chunks(match["what"].split()):
        draft.hold(settle(bare(chunk.words)))


def show(draft: ReadingDraft, match: re.Match[str]) -> None:
    describe(draft, match["what"].split())


def gone(draft: ReadingDraft, match: re.Match[str]) -> None:
    draft.drop(without(match["what"]))


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (remove, replace, from_to, so_that, add, make, have, act, count, same, of_this, keep, show, gone)
}
