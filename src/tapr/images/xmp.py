"""Read the properties of an XMP packet, from a picture or from a sidecar of Lightroom, digiKam or darktable.

The packet is untrusted: there is no document type and so no entity, and texts and their number have limits.
"""

from __future__ import annotations

from contextlib import suppress
from xml.parsers import expat

MAX_PACKET_BYTES = 4 * 2**20
MAX_TEXT, MAX_VALUES, MAX_PROPERTIES, MAX_DEPTH = 400, 200, 500, 64
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns# "
_DESCRIPTION, _ITEM = f"{_RDF}Description", f"{_RDF}li"


class _Refused(Exception):
    """The packet is not read any further."""


class _Reader:
    """Collects the properties while expat reads."""

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._text = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _Refused
        if name == _DESCRIPTION:
            for attribute, text in attributes.items():
                self._add(attribute, text)
        self._open.append(name)
        self._text = ""

    def end(self, name: str) -> None:
        self._open.pop()
        property_ = self._property(name)
        if property_:
            self._add(property_, self._text)
        self._text = ""

    def characters(self, text: str) -> None:
        self._text = (self._text + text)[:MAX_TEXT]

    def refuse(self, *_: object) -> None:
        raise _Refused

    def _property(self, name: str) -> str:
        """Return the property whose value ends here: an item of a list, or a direct child of a description."""
        if name == _ITEM:
            return self._open[-2] if len(self._open) >= 2 else ""
        return name if self._open and self._open[-1] == _DESCRIPTION else ""

    def _add(self, name: str, text: str) -> None:
        if text.strip() and (name in self.values or len(self.values) < MAX_PROPERTIES):
            values = self.values.setdefault(name.rpartition(" ")[2], [])
            if len(values) < MAX_VALUES:
                values.append(text.strip()[:MAX_TEXT])


def read_xmp(packet: bytes) -> dict[str, list[str]]:
    """Return the values of each property by its local name; what was read before an error counts."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = reader.refuse
    with suppress(expat.ExpatError, _Refused, ValueError):
        parser.Parse(packet[:MAX_PACKET_BYTES].strip(b"\0 \r\n\t"), True)
    return reader.values
