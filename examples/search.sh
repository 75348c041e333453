#!/bin/sh
# Search a running tapr server with curl: examples/search.sh REFERENCE "EDIT" [SERVER]; set TAPR_TOKEN if it asks for one.
curl --silent --show-error --fail-with-body \
  --header "Authorization: Bearer ${TAPR_TOKEN:-}" \
  --form "reference=@\"$1\"" --form-string "edit=$2" --form k=5 \
  "${3:-http://127.0.0.1:8765}/api/search"
