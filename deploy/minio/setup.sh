#!/bin/sh
# Makes the bucket, its expiry rules, and for each identity an access key with its own policy. Can be run again.
# Uses only the shell and `mc`: the image has few other programs.
set -eu

# Makes the user, replaces its policy with the shipped one, and attaches it.
grant() {
    identity=$1
    mc admin user add store "$identity" "$2"
    mc admin policy create store "$identity" "/etc/minio/policies/$identity.json"
    # Attaching a policy again is an error, so the script looks for it first.
    case "$(mc admin user info --json store "$identity")" in
        *"\"policyName\":\"$identity\""*) ;;
        *) mc admin policy attach store "$identity" --user "$identity" ;;
    esac
}

mc alias set store http://minio:9000 root "$MINIO_ROOT_PASSWORD"
mc mb --ignore-existing store/drayage
# A dead letter can be restarted for 14 days, and its content must exist for as long.
mc ilm rule import store/drayage < /etc/minio/lifecycle.json
grant egress-fetcher "$EGRESS_FETCHER_SECRET_KEY"
grant file-resolver "$FILE_RESOLVER_SECRET_KEY"
grant orchestrator "$ORCHESTRATOR_SECRET_KEY"
grant sandbox-transfer "$SANDBOX_TRANSFER_SECRET_KEY"
grant platform-delivery "$PLATFORM_DELIVERY_SECRET_KEY"
grant sweeper "$SWEEPER_SECRET_KEY"
grant command-line "$COMMAND_LINE_SECRET_KEY"
grant mcp "$MCP_SECRET_KEY"
grant mcp-approver "$MCP_APPROVER_SECRET_KEY"
grant tickets "$TICKETS_SECRET_KEY"
grant console "$CONSOLE_SECRET_KEY"
grant console-operator "$CONSOLE_OPERATOR_SECRET_KEY"
