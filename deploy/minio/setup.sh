#!/bin/sh
# The bucket, its expiry, and one access key for each service that holds bytes. Can run any number of times.
set -eu

mc alias set store http://minio:9000 root "$MINIO_ROOT_PASSWORD"
mc mb --ignore-existing store/drayage
# A dead letter can be started again for 14 days, and needs its bytes for that long.
mc ilm rule import store/drayage < /etc/minio/lifecycle.json
mc admin policy create store artifacts /etc/minio/artifacts.json
mc admin user add store egress-fetcher "$EGRESS_FETCHER_SECRET_KEY"
mc admin user add store file-resolver "$FILE_RESOLVER_SECRET_KEY"
mc admin user add store orchestrator "$ORCHESTRATOR_SECRET_KEY"
mc admin user add store sandbox-transfer "$SANDBOX_TRANSFER_SECRET_KEY"
mc admin user add store platform-delivery "$PLATFORM_DELIVERY_SECRET_KEY"
mc admin user add store sweeper "$SWEEPER_SECRET_KEY"
for service in egress-fetcher file-resolver orchestrator sandbox-transfer platform-delivery sweeper; do
    # Attaching what is attached already is an error of its own; look first.
    mc admin user info --json store "$service" | grep -q '"policyName":"artifacts"' ||
        mc admin policy attach store artifacts --user "$service"
done
