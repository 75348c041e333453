"""The words of the page: every language has them all, labels are the server's, and no module has words of its own."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

from tapr.options import SearchOptions
from tapr.query.edit_kinds import EDIT_KINDS
from tapr.query.factors import FACTORS
from tapr.server import token_page
from tapr.store.columns import ColumnType

WEB = files("tapr.server").joinpath("web")
LANGUAGES = ("en", "de", "fr", "es")
Table = dict[str, str | dict[str, str]]


def table(language: str) -> Table:
    read: Table = json.loads(source(f"words_{language}.js").partition("export default ")[2].strip().removesuffix(";"))
    return read


def source(name: str) -> str:
    return WEB.joinpath(name).read_text(encoding="utf-8")


def modules() -> dict[str, str]:
    """The scripts of the page without their comments."""
    names = [one.name for one in WEB.iterdir() if one.name.endswith(".js") and not one.name.startswith("words_")]
    return {name: re.sub(r"(^|\s)//.*", "", source(name)) for name in names}


ENGLISH = table("en")


def forms(text: str | dict[str, str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text.values())


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_every_language_has_every_text_with_the_same_names_to_fill_in(language: str) -> None:
    other = table(language)
    assert list(other) == list(ENGLISH)
    for key, text in ENGLISH.items():
        assert type(other[key]) is type(text), key
        filled = {frozenset(re.findall(r"{(\w+)}", form)) for form in (*forms(text), *forms(other[key]))}
        assert len(filled) == 1, key
    same = [key for key in ENGLISH if forms(other[key]) == forms(ENGLISH[key]) and len(str(ENGLISH[key])) > 24]
    assert same == [], "left in English"


def test_languages_are_listed_where_they_are_chosen_and_where_they_are_served() -> None:
    listed = re.search(r"LANGUAGES = {(.+?)}", source("i18n.js"))
    assert listed is not None
    assert tuple(re.findall(r"(\w+):", listed[1])) == LANGUAGES
    assert {f"/web/words_{language}.js" for language in LANGUAGES} <= set(token_page.PARTS)


def test_what_the_page_names_is_in_the_tables_and_no_more() -> None:
    code = "\n".join([*modules().values(), source("index.html"), bytes(token_page.page(wrong=True).body).decode()])
    plain = {key for key in re.findall(r"[\"'`]([a-z]+(?:\.[a-z_]+)+)[\"'`]", code) if key.split(".")[0] in FAMILIES}
    assert plain <= set(ENGLISH)
    made = set(re.findall(r"`([a-z.]+\.)\$\{", code))  # `factor.${name}`
    unused = [key for key in ENGLISH if key not in plain and not any(key.startswith(start) for start in made)]
    assert unused == []


FAMILIES = {key.split(".")[0] for key in ENGLISH}


def test_the_servers_factors_options_kinds_and_types_have_their_words() -> None:
    for row in FACTORS:
        assert {f"factor.{row.name}", f"factor.{row.name}.hint"} <= set(ENGLISH)
    for name, field in SearchOptions.model_fields.items():
        label = (field.json_schema_extra or {}).get("label")  # type: ignore[union-attr]
        if label:
            assert ENGLISH[f"option.{name}"] == label
        if f"option.{name}.hint" in ENGLISH:
            assert ENGLISH[f"option.{name}.hint"] == field.description
    for name, kind in EDIT_KINDS.items():
        assert str(ENGLISH[f"kind.{name}"]).replace("’", "'") == kind.says
    assert {f"column.{type_}" for type_ in ColumnType.__args__} <= set(ENGLISH)  # type: ignore[attr-defined]


def test_the_token_page_says_in_english_what_the_table_says() -> None:
    shown = bytes(token_page.page(wrong=True).body).decode()
    said = dict(re.findall(r'data-t="([\w.]+)"[^>]*>([^<]+)<', shown))
    assert len(said) == 5
    assert said == {key: ENGLISH[key] for key in said}


# where a text becomes visible or is read aloud
SINK = re.compile(
    r"(?:textContent|title|alt|placeholder|said|message)(?:: | = |\", )"
    r"|\"aria-(?:label|description|valuetext)\"(?:: |, )"
    r"|announce\(|new (?:api\.)?(?:Error|Problem)\((?:\d+, )?|\bdoing\(|[#\s(]button\("
)
WORDS = re.compile(r"[A-Za-z]{2,}")


def without_calls(code: str) -> str:
    """Without t("key", {...}) and other calls whose strings are no texts."""
    while found := re.search(r"\b(?:t|said|byId|has|make|querySelector)\(", code):
        depth, end = 1, found.end()
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        code = code[: found.start()] + code[end:]
    return code


def visible(code: str) -> list[str]:
    """The texts that a script has of its own, written out where people see or hear them."""
    found = []
    for sink in SINK.finditer(code):
        expression = without_calls(code[sink.end() :].split("\n", 1)[0])
        expression = re.split(r",\s|\s\}|;", re.sub(r"\$\{[^}]*\}", "", expression), maxsplit=1)[0]
        found += ["".join(text) for text in re.findall(r'"([^"]*)"|`([^`]*)`', expression)]
    return [text for text in found if WORDS.search(text)]


def test_no_module_has_visible_english_of_its_own() -> None:
    script = 'make("b", { textContent: open ? "Fold" : t("fold"), title: `was ${rank}` }); announce("Copied");'
    assert visible(script) == ["Fold", "was ", "Copied"]
    found = [f"{name}: {text}" for name, code in modules().items() for text in visible(code)]
    assert found == ["reference-weight.js: reference_weight "]  # the API's own name, in a tooltip


def test_the_html_has_no_text_of_its_own() -> None:
    html = re.sub(r"<noscript>.*?</noscript>", "", source("index.html"))
    texts = [text.strip() for text in re.findall(r">([^<]+)<", html)]
    assert [text for text in texts if text] == ["tapr", "tapr", "API"]
    assert not re.search(r'\s(aria-label|placeholder|title)="', html)
