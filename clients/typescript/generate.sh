#!/usr/bin/env bash
# Generates the TypeScript code of the API, and of the conformance suite's language, here or below the folder that is
# given:
#
#     clients/typescript/generate.sh [OUT]
#
# It needs what `npm ci` installs: buf and the plugin, pinned in package.json.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$here}
export PATH=$here/node_modules/.bin:$PATH

# A file that is gone from the API must be gone from its code too.
rm -rf "${out:?}"/{src,conformance}/gen
mkdir -p "$out"
cd "$here"
buf generate "$root/protos" --template buf.gen.yaml --output "$out"
buf generate protos --template buf.gen.yaml --output "$out"
buf generate "$root" --config conformance/buf.yaml --template conformance/buf.gen.yaml \
    --path "$root/tests/conformance/conformance.proto" --output "$out"
