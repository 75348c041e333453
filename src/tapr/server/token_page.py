"""The page that asks a browser's user for a token, instead of a JSON error."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import Scope

_LANGUAGES = ("en", "de", "fr", "es")
PARTS = (  # public files of the page
    "/web/page.css", "/web/parts.css", "/web/icon.svg", "/web/token.js", "/web/i18n.js", "/web/memory.js",
    *(f"/web/words_{language}.js" for language in _LANGUAGES),
)  # fmt: skip
_PAGES = ("/", "/docs")
_WRONG = '<p class="trouble" role="alert" data-t="token.wrong">That is not the token of this server.</p>'
_WHO = "Whoever started the server has it: it was given with --token, or printed when the server started."
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>tapr: token needed</title>
<link rel="icon" href="/web/icon.svg">
<link rel="stylesheet" href="/web/page.css">
<link rel="stylesheet" href="/web/parts.css">
<script src="/web/token.js"></script>
<script type="module" src="/web/i18n.js"></script>
</head>
<body>
<main class="token-main">
<h1 data-t="token.title">This gallery needs a token</h1>
<p class="soft" data-t="token.who">{who}</p>
{trouble}
<form id="token-form" method="get" action="/">
<label for="token" data-t="token.label">Token</label>
<div class="edit-line">
<input id="token" name="token" type="password" required autocomplete="current-password" autofocus>
<button class="primary tall" type="submit" data-t="token.open">Open</button>
</div>
</form>
</main>
</body>
</html>
"""


def wanted(scope: Scope, headers: Headers) -> bool:
    """Whether to show the page: yes for people, while API clients get the problem as JSON."""
    return scope["method"] == "GET" and scope["path"] in _PAGES and "text/html" in headers.get("accept", "")


def page(wrong: bool) -> HTMLResponse:
    content = _PAGE.format(trouble=_WRONG if wrong else "", who=_WHO)
    return HTMLResponse(content, 401, {"WWW-Authenticate": "Bearer"})
