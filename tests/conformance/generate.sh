#!/usr/bin/env bash
# Generates the Python code of conformance.proto, beside it or below the folder that is given:
#
#     tests/conformance/generate.sh PYTHON [OUT]
#
# PYTHON is the interpreter of an environment with protos/generate-requirements.txt; `make gen` makes it. The other
# languages generate theirs where their drivers are.
set -euo pipefail

python=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${2:-$root}

mkdir -p "$out/tests/conformance"
"$python" -m grpc_tools.protoc -I "$root/protos" -I "$root" \
    --plugin=protoc-gen-mypy="$(dirname "$python")/protoc-gen-mypy" \
    --python_out="$out" --mypy_out=quiet:"$out" \
    "$root/tests/conformance/conformance.proto"
