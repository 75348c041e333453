"""The factorizer `last-word`: the edit's last word is what to add. It looks at no picture."""

from __future__ import annotations

from tapr.errors import BadInput
from tapr.factorize.row import FactorizerRow
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec


class LastWord:
    name = "last-word/1"  # with a version: records of another version are not taken for this one's

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        words = edit.split()
        if not words:
            raise BadInput("the edit is empty: say in words how the picture you want differs")
        return Factorization(EditSpec(edit, add=(words[-1],)), self.name, ("read by its last word alone",))


LAST_WORD = FactorizerRow("last-word", "The edit's last word is what to add.", lambda setting: LastWord())
