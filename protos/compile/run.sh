#!/usr/bin/env bash
# Compiles the API for TypeScript, Go and Java into build/protos, so that no name or type clashes there. `make
# protos-compile` runs it, with buf on the PATH. Plugins and libraries come by package name from the ordinary registries,
# pinned by the manifests beside this script.
#
# A machine that lacks a toolchain is told so, and nothing is compiled; with CI set that is an error.
set -euo pipefail

protos=$(cd "$(dirname "$0")/.." && pwd)
out=$(dirname "$protos")/build/protos

missing=()
for command in node npm go java mvn; do
    command -v "$command" >/dev/null || missing+=("$command")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Not compiled: this needs node, go, java and mvn, and there is no ${missing[*]}." >&2
    [ -z "${CI:-}" ]
    exit
fi

# A clean folder, so that nothing of an earlier API compiles along.
rm -rf "$out"
mkdir -p "$out"
cp -R "$protos"/compile/{typescript,go,java} "$out"

cd "$out/typescript"
npm ci --no-fund --no-audit --loglevel=error >/dev/null
cd "$out/go"
GOBIN=$out/bin go install tool
PATH=$out/bin:$out/typescript/node_modules/.bin:$PATH \
    buf generate "$protos" --template "$protos/buf.gen.yaml" --output "$out"

cd "$out/typescript"
node_modules/.bin/tsc --project .
echo 'TypeScript: compiles'

cd "$out/go"
go build ./...
echo 'Go: compiles'

cd "$out/java"
mvn --batch-mode --quiet --no-transfer-progress -Dstyle.color=never compile -Dprotos="$protos"
echo 'Java: compiles'
