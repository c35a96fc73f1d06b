//! Builds tools from the tool sets of a manifest (quickapps 9, 26, 40).

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::layer;
use dray_agent::manifest::tool::InternalTool;
use dray_agent::manifest::toolset::{Internal, RestApi, ToolSet};
use dray_agent::message::Message;
use dray_dial::DialPort;
use dray_http::HttpClient;
use dray_tool::{SetupIssue, Tool, ToolsetResult, naming};
use dray_tool_mcp::{ConfirmedSignIn, McpToolset, OAuthOptions};
use futures_util::future::join_all;

use super::setup_plan::PlannedSet;
use super::tool_sources::ToolSources;
use crate::permissions::CallerIdentity;
use crate::sign_ins::StoredSignIns;

/// The problem of entries that need DIAL, if DIAL is not configured.
const NO_DIAL: &str = "This needs DIAL, and this service has no DIAL_URL.";

/// Clients and options of tools that all requests share.
#[derive(Clone, Debug)]
pub(crate) struct ToolKinds {
    /// Client for endpoints that manifests name.
    pub(crate) client: HttpClient,
    pub(crate) rest: dray_tool_rest::RestOptions,
    pub(crate) mcp: dray_tool_mcp::McpOptions,
    pub(crate) dial: Option<Arc<dyn DialPort>>,
    /// Sign-ins at MCP servers, where browsers can reach this service.
    pub(crate) sign_ins: Option<Arc<StoredSignIns>>,
    /// The interpreter's session for conversations that have none.
    pub(crate) interpreter_session: Option<String>,
}

/// The tools that the tool sets of a manifest offer in one turn.
#[derive(Debug, Default)]
pub(crate) struct BuiltTools {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// The tools that cannot be used.
    pub(crate) issues: Vec<SetupIssue>,
    /// The tool set of each tool.
    pub(crate) sources: ToolSources,
}

/// The caller and conversation that tools are set up for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolAudience<'a> {
    pub(crate) caller: &'a Caller,
    /// Who the request is from, after its key was checked.
    pub(crate) identity: &'a CallerIdentity,
    /// The caller by a name that is the same in all requests.
    pub(crate) principal: &'a str,
    /// Whose sign-ins at MCP servers the turn may use; `None` where the user is not known.
    pub(crate) sign_in_owner: Option<&'a str>,
    /// The conversation and its owner; no other conversation has this text.
    pub(crate) conversation: &'a str,
    /// The conversation to which sign-in pages belong: the same in every turn, even for clients that return no state.
    pub(crate) sign_in_conversation: &'a str,
    /// Sign-ins that the user confirmed with this request.
    pub(crate) confirmed: &'a [ConfirmedSignIn],
    /// Connects addresses of the caller's manifest.
    pub(crate) guarded: Option<&'a HttpClient>,
}

impl ToolKinds {
    /// The sign-ins whose codes are in the last message.
    pub(crate) async fn confirmed_sign_ins(
        &self,
        audience: ToolAudience<'_>,
        messages: &[Message],
    ) -> Vec<ConfirmedSignIn> {
        let (Some(sign_ins), Some(owner)) = (&self.sign_ins, audience.sign_in_owner) else {
            return Vec::new();
        };
        sign_ins
            .take_confirmed(owner, audience.sign_in_conversation, messages)
            .await
    }

    /// Sets up all tool sets, each kind concurrently. Tools are in the order of the manifest; of two with one name
    /// the first is kept.
    pub(crate) async fn build(
        &self,
        sets: &[Arc<PlannedSet>],
        audience: ToolAudience<'_>,
    ) -> BuiltTools {
        // Applications come first: their metadata decide which protocol they are called with.
        let apps = self.build_apps(sets, audience).await;
        let (mcp, others) = tokio::join!(
            Box::pin(self.build_mcp(sets, audience)),
            join_all(
                sets.iter()
                    .map(|set| Box::pin(self.build_other(set, audience)))
            )
        );
        let (mut apps, mut mcp) = (Some(apps), mcp.into_iter());
        let mut all = ToolsetResult::default();
        let mut sources = ToolSources::default();
        for (planned, other) in sets.iter().zip(others) {
            let built = match &planned.set {
                // All applications are set up together, at the position of the first one.
                ToolSet::DialApp(_) => apps.take(),
                ToolSet::Mcp(_) | ToolSet::DialMcp(_) => mcp.next(),
                _ => Some(other),
            };
            let built = built.unwrap_or_default();
            sources.add(sets, planned, &built.tools);
            sources.add_failed(planned, &built);
            all.tools.extend(built.tools);
            all.issues.extend(built.issues);
        }
        // Providers refuse a request with two tools of one name (quickapps 19.1).
        all.issues.extend(naming::drop_duplicates(&mut all.tools));
        BuiltTools {
            tools: all.tools,
            issues: all.issues,
            sources,
        }
    }

    async fn build_apps(
        &self,
        sets: &[Arc<PlannedSet>],
        audience: ToolAudience<'_>,
    ) -> ToolsetResult {
        let caller = audience.caller;
        let entries: Vec<_> = sets
            .iter()
            .filter_map(|planned| match &planned.set {
                ToolSet::DialApp(app) => Some(app.clone()),
                _ => None,
            })
            .collect();
        match &self.dial {
            _ if entries.is_empty() => ToolsetResult::default(),
            None => ToolsetResult {
                tools: Vec::new(),
                issues: entries
                    .iter()
                    .filter(|app| app.common.enabled)
                    .map(|app| SetupIssue::of_set(&app.deployment_id, NO_DIAL))
                    .collect(),
            },
            Some(dial) => {
                let connect = |app, facts: dray_tool_dial::DeploymentFacts| async move {
                    let set = McpToolset::App {
                        app: &app,
                        display_name: facts.display_name.as_deref(),
                    };
                    dray_tool_mcp::connect_set(set, caller, &self.mcp).await
                };
                dray_tool_dial::app_toolsets(&entries, dial, caller, connect).await
            }
        }
    }

    /// One result for each set that is an MCP server, in order.
    async fn build_mcp(
        &self,
        sets: &[Arc<PlannedSet>],
        audience: ToolAudience<'_>,
    ) -> Vec<ToolsetResult> {
        let sets: Vec<_> = sets
            .iter()
            .filter_map(|planned| match &planned.set {
                ToolSet::Mcp(set) => Some((McpToolset::Mcp(set), planned.is_guarded)),
                // The address is DIAL's own.
                ToolSet::DialMcp(set) => Some((McpToolset::Dial(set), false)),
                _ => None,
            })
            .collect();
        let of = |guarded: bool| -> Vec<McpToolset<'_>> {
            let sets = sets.iter().filter(|(_, is_guarded)| *is_guarded == guarded);
            sets.map(|(set, _)| *set).collect()
        };
        if sets.is_empty() {
            // Most manifests have no MCP server, and their turns need none of the options below.
            return Vec::new();
        }
        // Two batches, since the servers of one batch share a client.
        let (open, guarded) = (of(false), of(true));
        let options = |client: &HttpClient, trace| dray_tool_mcp::McpOptions {
            client: client.clone(),
            trace,
            principal: audience.sign_in_owner.map(str::to_owned),
            conversation: Some(audience.conversation.to_owned()),
            oauth: OAuthOptions {
                conversation: audience.sign_in_conversation.to_owned(),
                confirmed: audience.confirmed.to_vec(),
                ..self.mcp.oauth.clone()
            },
            ..self.mcp.clone()
        };
        let open_options = options(&self.client, self.mcp.trace);
        // Servers that a caller's manifest names get no trace headers.
        let mut guarded_options = options(self.guarded_client(audience), None);
        // Nor do they get tokens for the identity of this service.
        guarded_options.oauth.workload_tokens.clear();
        let (open, guarded) = tokio::join!(
            Box::pin(dray_tool_mcp::connect_all(
                &open,
                audience.caller,
                &open_options
            )),
            Box::pin(dray_tool_mcp::connect_all(
                &guarded,
                audience.caller,
                &guarded_options
            )),
        );
        let (mut open, mut guarded) = (open.into_iter(), guarded.into_iter());
        let built = sets.iter().map(|(_, is_guarded)| {
            let built = if *is_guarded {
                guarded.next()
            } else {
                open.next()
            };
            built.unwrap_or_default()
        });
        built.collect()
    }

    /// The client for addresses that a caller chose.
    fn guarded_client<'a>(&'a self, audience: ToolAudience<'a>) -> &'a HttpClient {
        audience.guarded.unwrap_or(&self.client)
    }

    async fn build_other(&self, planned: &PlannedSet, audience: ToolAudience<'_>) -> ToolsetResult {
        let caller = audience.caller;
        match &planned.set {
            ToolSet::RestApi(set) => self.build_rest(planned, set, audience),
            ToolSet::DialDeployment(set) => match &self.dial {
                Some(dial) => dray_tool_dial::build_deployments(set, dial, caller).await,
                None if set.common.enabled => missing_set(&set.name),
                None => ToolsetResult::default(),
            },
            ToolSet::Internal(set) => self.build_internal(set),
            // Other functions set these up, or an earlier step replaced them.
            ToolSet::Mcp(_)
            | ToolSet::DialMcp(_)
            | ToolSet::DialApp(_)
            | ToolSet::Agents(_)
            | ToolSet::Predefined(_) => ToolsetResult::default(),
        }
    }

    /// The tools of a set of REST endpoints. They do not depend on the turn, so all turns with the plan share them;
    /// the client of a guarded set belongs to its caller.
    fn build_rest(
        &self,
        planned: &PlannedSet,
        set: &RestApi,
        audience: ToolAudience<'_>,
    ) -> ToolsetResult {
        if planned.is_guarded {
            let options = dray_tool_rest::RestOptions {
                trace: None,
                ..self.rest.clone()
            };
            return dray_tool_rest::build_set(set, self.guarded_client(audience), &options);
        }
        planned.shared_tools(|| dray_tool_rest::build_set(set, &self.client, &self.rest))
    }

    fn build_internal(&self, set: &Internal) -> ToolsetResult {
        let mut built = ToolsetResult::default();
        for tool in set.tools.iter().filter(|_| set.common.enabled) {
            match (tool, &self.dial) {
                (InternalTool::PythonInterpreter(common), Some(dial)) if common.enabled => {
                    let options = dray_tool_dial::InterpreterOptions {
                        default_session: self.interpreter_session.clone(),
                        set_timeout_seconds: set.common.timeout_seconds,
                    };
                    let tool = dray_tool_dial::new_interpreter(common, dial, options);
                    built.tools.push(tool);
                }
                (InternalTool::PythonInterpreter(common), None) if common.enabled => {
                    built.issues.extend(missing_set(&set.name).issues);
                }
                _ => {}
            }
        }
        built
    }
}

fn missing_set(set: &str) -> ToolsetResult {
    ToolsetResult {
        tools: Vec::new(),
        issues: vec![SetupIssue::of_set(set, NO_DIAL)],
    }
}

/// A template that could not be used, as it is shown.
pub(crate) fn template_issue(failure: &layer::TemplateFailure) -> SetupIssue {
    SetupIssue {
        tool: Some(format!("template '{}'", failure.template)),
        toolset: None,
        message: failure.message(),
        details: failure.details(),
        is_for_user: false,
    }
}
