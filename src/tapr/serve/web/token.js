// A link to a search holds it after the #: it is kept while the token is asked for.

document.getElementById("token-form").action = `/${location.hash}`;
