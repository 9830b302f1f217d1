#!/usr/bin/env bash
# Generates the Go code of the API into memoryd/v1, and that of the conformance suite's language into
# internal/conformance/conformancepb, or below the folder that is given:
#
#     clients/go/generate.sh [OUT]
#
# It needs go, and buf on the PATH or in the repository's .venv. The plugins come by package name, pinned in internal/gen.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$here}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

(cd "$here/internal/gen" && GOBIN=$tools go install tool)
export PATH=$tools:$PATH:$root/.venv/bin

# A file that is gone from the API must be gone from its code too.
rm -rf "${out:?}/memoryd/v1"
mkdir -p "$out"
buf generate "$root/protos" --template "$here/buf.gen.yaml" --output "$out"

# The language of the suite imports the API, whose code is the client's own: together they are one module to buf.
suite=$tools/protos
mkdir -p "$suite/tests/conformance"
cp -R "$root/protos/memoryd" "$suite"
cp "$root/tests/conformance/conformance.proto" "$suite/tests/conformance"
buf generate "$suite" --path "$suite/tests/conformance" --template "$here/buf.gen.yaml" --output "$out"
