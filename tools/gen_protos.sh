#!/usr/bin/env bash
# Generates halfmoon/v1 from protos/. With --check, fails when what is committed differs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$(command -v "$python")")
out=.
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
"$python" -m grpc_tools.protoc -I protos \
  --plugin=protoc-gen-mypy="$bin/protoc-gen-mypy" --plugin=protoc-gen-mypy_grpc="$bin/protoc-gen-mypy_grpc" \
  --python_out="$out" --grpc_python_out="$out" --mypy_out=quiet:"$out" --mypy_grpc_out=quiet:"$out" \
  protos/halfmoon/v1/*.proto
if [ "$out" != . ]; then
  diff -r -x __init__.py -x __pycache__ "$out/halfmoon/v1" halfmoon/v1 || {
    echo "halfmoon/v1 differs from protos/: run 'make protos'" >&2
    exit 1
  }
fi
