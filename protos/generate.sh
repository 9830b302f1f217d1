#!/usr/bin/env bash
# Generates the Python code of the API into a folder that stands for the root of the import packages:
#
#     protos/generate.sh PYTHON OUT
#
# PYTHON is the interpreter of an environment with protos/generate-requirements.txt; `make gen` makes it. The proto package
# is the import package (memoryd.v1 in memoryd/v1), so no import is rewritten.
set -euo pipefail

python=$1
out=$2
protos=$(dirname "$0")
bin=$(dirname "$python")
package=memoryd/v1

messages=("$protos/$package"/*.proto)
services=("$protos/$package"/*_service.proto)

# A file that is gone from the API must be gone from its code too.
rm -rf "${out:?}/$package"
mkdir -p "$out/$package"

"$python" -m grpc_tools.protoc -I "$protos" \
    --plugin=protoc-gen-mypy="$bin/protoc-gen-mypy" \
    --python_out="$out" --mypy_out=quiet:"$out" \
    "${messages[@]}"
"$python" -m grpc_tools.protoc -I "$protos" \
    --plugin=protoc-gen-mypy_grpc="$bin/protoc-gen-mypy_grpc" \
    --grpc_python_out="$out" --mypy_grpc_out=quiet:"$out" \
    "${services[@]}"

cat >"$out/$package/__init__.py" <<'PYTHON'
"""The API `memoryd.v1`: code generated from protos/memoryd/v1 by `make gen`. Do not edit."""
PYTHON
