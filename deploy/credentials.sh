#!/bin/sh
# Prints a random password for every identity, as docker-compose.yml and deploy/nats/accounts.conf name them:
#
#   deploy/credentials.sh > .env
#
# Run it again to replace all of them, and restart everything afterwards.
set -eu

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

for identity in ORCHESTRATOR FILE_RESOLVER EGRESS_FETCHER SANDBOX_TRANSFER PLATFORM_DELIVERY SWEEPER COMMAND_LINE \
    MCP MCP_APPROVER TICKETS CONSOLE CONSOLE_OPERATOR OPERATOR PROVISIONER PUBLISHER_ACME; do
    # The password begins with a letter: the server would read a value that looks like a number as one.
    echo "DRAY_${identity}_PASSWORD=p$(random)"
done
for identity in EGRESS_FETCHER FILE_RESOLVER ORCHESTRATOR SANDBOX_TRANSFER PLATFORM_DELIVERY SWEEPER COMMAND_LINE \
    MCP MCP_APPROVER TICKETS CONSOLE CONSOLE_OPERATOR; do
    echo "DRAY_${identity}_SECRET_KEY=s$(random)"
done
echo "DRAY_MINIO_ROOT_PASSWORD=m$(random)"
