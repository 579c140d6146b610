#!/bin/sh
# A provider that signs everybody in as somebody, a server with tools, and the edge in front of
# it, all on this machine. They end with this script (Ctrl-C).
set -eu
cd "$(dirname "$0")"
idp=../../edge/edgetest/idp
PATH="$PWD/../../bin:$PWD/$idp/node_modules/.bin:$PATH"
mkfifo "${TMPDIR:-/tmp}/weir-sign-in.$$"
exec 3<>"${TMPDIR:-/tmp}/weir-sign-in.$$" # the provider ends when its input does
rm "${TMPDIR:-/tmp}/weir-sign-in.$$"
all=
trap 'kill $all 2>/dev/null' EXIT
trap 'exit 130' INT TERM
IDP_PORT=9400 node "$idp/provider.mjs" <&3 >/dev/null &
all=$!
weir serve --listen 127.0.0.1:9001 --admin-listen '' >/dev/null 2>&1 & # which says how to call it: here that is the edge's part
all="$all $!"
weir serve -c local.yaml &
edge=$!
all="$all $edge"
echo "In a second terminal: bin/weir call http://127.0.0.1:4483/mcp demo_echo text=hello --auth"
wait "$edge" # in the background, so that a signal ends this script at once
