//! The identities of a deployment, and the files that give each of them its rights: `deploy/nats/accounts.conf` and
//! the policies under `deploy/minio`. `cargo xtask generate` writes them through `dray reference deployment`.
//!
//! Services declare their permissions themselves ([`dray_service::Service::permissions`]); this module has those of
//! other clients. What it does not do: it contains no passwords or keys.

use std::collections::BTreeMap;

use dray_bus::Permissions;
use dray_bus::permissions::{account_block, accounts_file, password_variable, publisher_name};
use dray_egress_fetcher::policy_bucket::{self, POLICY_BUCKET};
use dray_proto::v1;
use dray_service::Service as _;
use dray_service::config::ConfigSources;
use dray_store::StoreAccess;
use dray_types::TenantId;

use crate::context;
use crate::outcome::CommandFailure;

/// Name of the bucket in the shipped deployment.
const DEFAULT_BUCKET: &str = "drayage";
/// Tenant of the publisher that the shipped deployment shows as an example.
const EXAMPLE_TENANT: &str = "acme";

/// The generated files as a JSON object, by their paths below the root of the repository.
pub(crate) fn files_as_json() -> Result<String, CommandFailure> {
    serde_json::to_string(&deployment_files()?)
        .map_err(|error| CommandFailure::Usage(error.to_string()))
}

/// The account of a publisher for one tenant, as `accounts.conf` needs it, with what else is to be done.
pub(crate) fn publisher_account(tenant: &str) -> Result<String, CommandFailure> {
    let tenant = TenantId::new(tenant).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    let permissions = publisher_permissions(&tenant);
    Ok(format!(
        "    # Add this to `accounts` in your copy of accounts.conf, set {} for the servers, reload them, and run\n    \
         # `dray topology apply --publisher {}`.\n{}",
        password_variable(permissions.user()),
        tenant.as_str(),
        account_block(&permissions),
    ))
}

/// The generated files by their paths below the root of the repository.
fn deployment_files() -> Result<BTreeMap<String, String>, CommandFailure> {
    let identities = deployment_identities()?;
    for (permissions, _) in &identities {
        check_consumers(permissions)?;
    }
    let mut files = BTreeMap::new();
    for (permissions, access) in &identities {
        let Some(access) = access else { continue };
        let policy = serde_json::to_string_pretty(&access.policy(DEFAULT_BUCKET))
            .map_err(|error| CommandFailure::Usage(error.to_string()))?;
        let path = format!("deploy/minio/policies/{}.json", permissions.user());
        files.insert(path, format!("{policy}\n"));
    }
    let permissions: Vec<Permissions> = identities
        .into_iter()
        .map(|(permissions, _)| permissions)
        .collect();
    files.insert(
        "deploy/nats/accounts.conf".to_owned(),
        accounts_file(&permissions),
    );
    Ok(files)
}

/// Refuses an identity that consumes from a queue that no deployment has: the file would not contain the queue, and the
/// service would fail at run time.
fn check_consumers(permissions: &Permissions) -> Result<(), CommandFailure> {
    match permissions.unknown_durables().next() {
        None => Ok(()),
        Some(durable) => Err(CommandFailure::Usage(format!(
            "{} consumes from {durable}, which is not a consumer of the topology",
            permissions.user()
        ))),
    }
}

/// Every identity, with its rights in the store where it has an access key.
fn deployment_identities() -> Result<Vec<(Permissions, Option<StoreAccess>)>, CommandFailure> {
    let services = context::all_services_host(ConfigSources::default()).identities();
    let mut all: Vec<_> = services
        .into_iter()
        .map(|(permissions, access)| (with_optional_rights(permissions), Some(access)))
        .collect();
    all.push((command_line(), Some(StoreAccess::probe().reads().writes())));
    all.push((mcp_client(), Some(StoreAccess::probe().reads().writes())));
    all.push((mcp_approver(), Some(StoreAccess::probe().reads().writes())));
    // The console signs its login links with its access key. Without permission to act it reads no content, but it
    // shows from where content was fetched.
    all.push((console_client(), Some(StoreAccess::probe().reads_origins())));
    all.push((
        console_operator(),
        Some(StoreAccess::probe().reads().writes()),
    ));
    // Identities that need no store get no key for it.
    all.push((operator_permissions(), None));
    all.push((provisioner_permissions(), None));
    let tenant =
        TenantId::new(EXAMPLE_TENANT).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    all.push((publisher_permissions(&tenant), None));
    Ok(all)
}

/// Adds the rights that a service needs with some settings only. They are not among its own permissions, whose streams it
/// verifies at every start.
fn with_optional_rights(service: Permissions) -> Permissions {
    if service.user() == dray_egress_fetcher::EgressFetcher::NAME {
        policy_bucket::declare_reading(service)
    } else {
        service
    }
}

/// The client with the calls of the commands in this crate. A new call of a command belongs here.
fn command_line() -> Permissions {
    Permissions::client(
        "command-line",
        "Commands that call a running system: `dray resolve`, `fetch`, `read`, `sandbox`, `session`, `deliver`,\n\
         `preview`,\n\
         `receipts`, `policy`, `egress purge`, `doctor --accounts`.",
    )
    .calls::<v1::FetchRequest>()
    .calls::<v1::ExplainRequest>()
    .calls::<v1::ShowEgressPolicyRequest>()
    .calls::<v1::PurgeFetchRequest>()
    .calls::<v1::ListEgressQuestionsRequest>()
    .calls::<v1::AnswerEgressQuestionRequest>()
    .calls::<v1::ResolveRequest>()
    .calls::<v1::ReadAttachmentRequest>()
    .calls::<v1::ProbeSandboxRequest>()
    .calls::<v1::StatSandboxRequest>()
    .calls::<v1::ListSandboxRequest>()
    .calls::<v1::GetSandboxFileRequest>()
    .calls::<v1::GetSandboxTreeRequest>()
    .calls::<v1::PutSandboxFileRequest>()
    .calls::<v1::MakeSandboxDirectoryRequest>()
    .calls::<v1::RemoveSandboxPathRequest>()
    .calls::<v1::ExecSandboxRequest>()
    .calls_streaming::<v1::ExecSandboxStreamRequest>()
    .calls::<v1::BindSessionRequest>()
    .calls::<v1::ShowSessionRequest>()
    .calls::<v1::UnbindSessionRequest>()
    .calls::<v1::SettleUploadsRequest>()
    .calls::<v1::SendFileRequested>()
    .calls::<v1::ResendRequest>()
    .calls::<v1::DeliveryOutcomeRequest>()
    .calls::<v1::ListReceiptsRequest>()
    .calls::<v1::IssueTicketRequest>()
    .calls::<v1::ListTicketsRequest>()
    .calls::<v1::InspectTicketRequest>()
    .calls::<v1::RevokeTicketRequest>()
    .calls::<v1::CreatePreviewRequest>()
    .calls::<v1::ListPreviewsRequest>()
    .calls::<v1::RevokePreviewRequest>()
    .calls::<v1::CheckAccountsRequest>()
    .calls::<v1::CheckBackendsRequest>()
}

/// The MCP server: the calls of its tools, and the session that its command line names.
fn mcp_client() -> Permissions {
    let identity = Permissions::client(
        "mcp",
        "`dray mcp --nats`: the calls of its tools, and the binding of the session that its command line names.",
    );
    with_mcp_rights(identity)
}

/// The MCP server with `--approve-hosts`.
fn mcp_approver() -> Permissions {
    let identity = Permissions::client(
        "mcp-approver",
        "`dray mcp --nats --approve-hosts TIME`: as `mcp`, and answers questions about hosts of every tenant. Only where the\n\
         person at the client may decide what the policy leaves to a person.",
    );
    dray_mcp::declare_approvals(with_mcp_rights(identity))
}

fn with_mcp_rights(identity: Permissions) -> Permissions {
    let identity = dray_mcp::declare_calls(identity);
    // `--tickets`: the endpoint is in the same process.
    dray_ticket::declare_rights(identity)
}

/// The read-only console.
fn console_client() -> Permissions {
    let identity = Permissions::client(
        "console",
        "`dray console --nats`: looks at everything of every tenant and changes nothing.",
    );
    policy_bucket::declare_reading(dray_console::declare_looking(identity))
}

/// The console whose logins may act.
fn console_operator() -> Permissions {
    let identity = Permissions::client(
        "console-operator",
        "`dray console --nats --role act`: also sends again, restarts dead-lettered work, moves files of sandboxes,\n\
         and has accounts and backends checked.",
    );
    policy_bucket::declare_reading(dray_console::declare_acting(identity))
}

fn operator_permissions() -> Permissions {
    Permissions::client(
        "operator",
        "`dray events tail`, `dray dlq`, `dray topology check`: looks at everything, restarts dead-lettered work.\n\
         `dray policy show`, `put`: the policy that egress-fetcher takes from the bus. `dray doctor` asks egress-fetcher\n\
         whether it is in force.",
    )
    .operates()
    .lists_keys(POLICY_BUCKET)
    .calls::<v1::ExplainRequest>()
    .calls::<v1::ShowEgressPolicyRequest>()
}

fn provisioner_permissions() -> Permissions {
    Permissions::client(
        "provisioner",
        "`dray topology apply`: makes and changes streams, and the consumers of services and publishers. It deletes nothing, but\n\
         a change can empty a stream (a lower limit) or copy its messages (`republish`): its password belongs into that job\n\
         alone.",
    )
    .provisions()
}

fn publisher_permissions(tenant: &TenantId) -> Permissions {
    Permissions::client(
        publisher_name(tenant),
        format!(
            "Publishes tool calls for the tenant `{}` and learns their outcome. Each tenant needs such an account in your copy\n\
             of this file; `dray reference publisher TENANT` prints it. The tenant is a token of every subject, so no\n\
             publisher asks for the outcome of another tenant.",
            tenant.token()
        ),
    )
    .in_own_account()
    .publishes_work_of::<v1::ToolCallRequested>(tenant)
    .receives_outcomes_of::<v1::ToolCallOutcomeRequest>(tenant)
    .subscribes_to_events_of::<v1::ToolCallResolved>(tenant)
}

#[cfg(test)]
mod tests {
    use dray_bus::Topology;

    use super::*;

    #[test]
    fn every_service_has_an_identity_a_policy_and_a_description() {
        let identities = deployment_identities().unwrap();
        for name in context::all_services_host(ConfigSources::default()).names() {
            let (permissions, access) = identities
                .iter()
                .find(|(permissions, _)| permissions.user() == name)
                .unwrap();
            assert!(access.is_some(), "{name}");
            let text = accounts_file(std::slice::from_ref(permissions));
            assert!(text.contains("            # "), "{name} has no description");
        }
    }

    #[test]
    fn every_queue_of_the_topology_is_consumed_by_exactly_one_service() {
        let mut consumed: Vec<String> = deployment_identities()
            .unwrap()
            .iter()
            .flat_map(|(permissions, _)| permissions.topology().consumers)
            .map(|consumer| consumer.durable)
            .collect();
        consumed.sort();
        let mut provisioned: Vec<String> = Topology::default()
            .consumers
            .into_iter()
            .map(|consumer| consumer.durable)
            .collect();
        provisioned.sort();
        assert_eq!(consumed, provisioned);
    }

    #[test]
    fn an_identity_with_an_unknown_queue_gets_no_deployment() {
        let named = |durable| Permissions::service("x").consumes::<v1::DeliverFiles>(durable);
        assert!(check_consumers(&named("platform-delivery-slack")).is_ok());
        let error = check_consumers(&named("platform-delivery-slak")).unwrap_err();
        assert!(
            error.to_string().contains("platform-delivery-slak"),
            "{error}"
        );
    }

    #[test]
    fn the_account_of_a_publisher_names_its_tenant_alone() {
        let account = publisher_account("globex").unwrap();
        assert!(!account.contains("acme"), "{account}");
        let example = publisher_account(EXAMPLE_TENANT).unwrap();
        let replaced = example.replace("acme", "globex").replace("ACME", "GLOBEX");
        assert_eq!(account, replaced);
        let (_, block) = example.split_once("`.\n").unwrap();
        let file = &deployment_files().unwrap()["deploy/nats/accounts.conf"];
        assert!(file.contains(block), "{block}");
        assert!(publisher_account("not a tenant").is_err());
    }

    #[test]
    fn files_are_below_the_directory_of_the_deployment() {
        let files = deployment_files().unwrap();
        assert!(files.contains_key("deploy/nats/accounts.conf"));
        assert!(files.contains_key("deploy/minio/policies/command-line.json"));
        assert!(files.contains_key("deploy/minio/policies/mcp.json"));
        assert!(files.keys().all(|path| path.starts_with("deploy/")));
    }
}
