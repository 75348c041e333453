#!/bin/sh
# install_programs.sh PROGRAM:PACKAGE ...: installs Debian packages whose programs are missing, where that may be done.
set -u
for pair in "$@"; do
  program=${pair%%:*} package=${pair#*:}
  command -v "$program" >/dev/null && continue
  if [ -n "${NO_INSTALL:-}" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no $program: the tests that need it are skipped; install the package $package to run them"
    continue
  fi
  echo "installing the system package $package with apt-get, for the tests that run $program (NO_INSTALL=1 leaves it out)"
  [ -n "${updated:-}" ] || apt-get update -qq
  updated=1
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null \
    || echo "$package could not be installed: the tests that need $program are skipped"
done
