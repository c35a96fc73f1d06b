#!/bin/sh
# Writes a random password for every identity into a new file that its owner alone may read, with the names of
# docker-compose.yml and deploy/nats/accounts.conf:
#
#   deploy/credentials.sh .env
#
# An existing file stays as it is: NATS, MinIO and every service must have the same passwords. `--replace` before the name of
# the file replaces all of them, and keeps the other lines; restart everything afterwards. It keeps the derivation key too, without
# which waiting turns, sign-ins and names of files would be lost: remove its line first if others may have read it.
set -eu

usage() {
    echo "usage: $0 [--replace] FILE" >&2
    exit 2
}

# Prints a letter and 48 random digits. The letter is there because the server would read a value that looks like a number as
# one.
random() {
    digits=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
    [ ${#digits} -eq 48 ]
    echo "$1$digits"
}

credentials() {
    for identity in ORCHESTRATOR FILE_RESOLVER EGRESS_FETCHER SANDBOX_TRANSFER PLATFORM_DELIVERY SWEEPER COMMAND_LINE \
        MCP MCP_APPROVER TICKETS CONSOLE CONSOLE_OPERATOR OPERATOR PROVISIONER PUBLISHER_ACME; do
        value=$(random p)
        echo "DRAY_${identity}_PASSWORD=$value"
    done
    for identity in EGRESS_FETCHER FILE_RESOLVER ORCHESTRATOR SANDBOX_TRANSFER PLATFORM_DELIVERY SWEEPER COMMAND_LINE \
        MCP MCP_APPROVER TICKETS CONSOLE CONSOLE_OPERATOR; do
        value=$(random s)
        echo "DRAY_${identity}_SECRET_KEY=$value"
    done
    value=$(random m)
    echo "DRAY_MINIO_ROOT_PASSWORD=$value"
    value=$(sed -n 's/^DRAY_ORCHESTRATOR_DERIVATION_KEY=//p' "$file" 2>/dev/null | tail -n 1)
    [ -n "$value" ] || value=$(random k)
    echo "DRAY_ORCHESTRATOR_DERIVATION_KEY=$value"
}

replace=no
if [ "${1-}" = --replace ]; then
    replace=yes
    shift
fi
[ $# -eq 1 ] || usage
case $1 in
    "" | -*) usage ;;
esac
file=$1
if [ "$replace" = no ] && { [ -e "$file" ] || [ -L "$file" ]; }; then
    echo "$0: $file exists; its passwords stay. --replace makes new ones; restart everything afterwards" >&2
    exit 1
fi

umask 077
# The new file gets its name when it is complete, and the shell creates it itself instead of following a link.
set -C
trap 'rm -f -- "$file.new"' EXIT
credentials >"$file.new"
if [ -e "$file" ]; then
    awk -F= 'NR == FNR { new[$1]; next } !($1 in new)' "$file.new" "$file" >>"$file.new"
fi
mv -f -- "$file.new" "$file"
