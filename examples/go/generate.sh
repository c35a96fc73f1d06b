#!/bin/sh
# Writes the Go code of the contracts into a directory of GOPATH, as the package drayage.example/dray/v1.
# Needs protoc with protoc-gen-go and protoc-gen-go-grpc. Usage: examples/go/generate.sh GOPATH
set -eu
proto=$(cd "$(dirname "$0")/../../proto" && pwd)
mkdir -p "$1/src"
# The contracts name no package of Go, so each file is mapped to the package.
mapping=$(cd "$proto" && printf 'M%s=drayage.example/dray/v1,' dray/v1/*.proto)
exec protoc -I "$proto" \
    --go_out="$mapping:$1/src" --go-grpc_out="$mapping:$1/src" \
    "$proto"/dray/v1/*.proto
