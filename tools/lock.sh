#!/usr/bin/env bash
# Writes constraints.txt: every version that a fresh install of halfmoon[dev] gets, transitive ones included.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
pip=("$folder/venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --quiet hatchling editables ${LOCK_FROM:+-c "$LOCK_FROM"}
"${pip[@]}" install --quiet --no-build-isolation -e '.[dev]' ${LOCK_FROM:+-c "$LOCK_FROM"}
{
  echo "# Versions that are tested together. Written by 'make lock'; do not edit."
  "${pip[@]}" freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==' | LC_ALL=C sort -f
} > "$folder/constraints.txt"
mv "$folder/constraints.txt" constraints.txt
echo "constraints.txt: $(grep -c == constraints.txt) packages"
