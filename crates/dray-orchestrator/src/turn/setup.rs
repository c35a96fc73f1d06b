//! From the tool sets of a manifest to tools (quickapps 9, 26, 40).

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::layer;
use dray_agent::manifest::tool::InternalTool;
use dray_agent::manifest::toolset::{Internal, ToolSet};
use dray_http::Client;
use dray_tool::{Built, Issue, naming};
use dray_tool_dial::Dial;
use dray_tool_mcp::Set;
use futures_util::future::join_all;

/// Said of what needs DIAL where there is none.
const NO_DIAL: &str = "This needs DIAL, and this service has no DIAL_URL.";

/// What all requests share.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    /// For endpoints that manifests name.
    pub(crate) client: Client,
    pub(crate) rest: dray_tool_rest::Options,
    pub(crate) mcp: dray_tool_mcp::Options,
    pub(crate) dial: Option<Arc<dyn Dial>>,
    /// The interpreter's session of conversations that have none.
    pub(crate) interpreter_session: Option<String>,
}

impl Kinds {
    /// Sets up all tool sets, each kind at once; tools are in the order of the manifest, and of two with one name the
    /// first is there.
    pub(crate) async fn build(&self, sets: &[ToolSet], caller: &Caller) -> Built {
        // Applications come first: they decide what they are spoken to by.
        let apps = self.apps(sets, caller).await;
        let (mcp, others) = tokio::join!(
            Box::pin(self.mcp(sets, caller)),
            join_all(sets.iter().map(|set| Box::pin(self.other(set, caller))))
        );
        let (mut apps, mut mcp) = (Some(apps), mcp.into_iter());
        let mut all = Built::default();
        for (set, other) in sets.iter().zip(others) {
            let built = match set {
                ToolSet::DialApp(_) => apps.take(),
                ToolSet::Mcp(_) | ToolSet::DialMcp(_) => mcp.next(),
                _ => Some(other),
            };
            let built = built.unwrap_or_default();
            all.tools.extend(built.tools);
            all.issues.extend(built.issues);
        }
        all.issues.extend(naming::dedup(&mut all.tools));
        all
    }

    async fn apps(&self, sets: &[ToolSet], caller: &Caller) -> Built {
        let entries: Vec<_> = sets
            .iter()
            .filter_map(|set| match set {
                ToolSet::DialApp(app) => Some(app.clone()),
                _ => None,
            })
            .collect();
        match &self.dial {
            _ if entries.is_empty() => Built::default(),
            None => Built {
                tools: Vec::new(),
                issues: entries
                    .iter()
                    .filter(|app| app.common.enabled)
                    .map(|app| Issue::of_set(&app.deployment_id, NO_DIAL))
                    .collect(),
            },
            Some(dial) => {
                let connect = |app, facts: dray_tool_dial::Facts| async move {
                    let set = Set::App {
                        app: &app,
                        display_name: facts.display_name.as_deref(),
                    };
                    dray_tool_mcp::connect(set, caller, &self.mcp).await
                };
                dray_tool_dial::apps(&entries, dial, caller, connect).await
            }
        }
    }

    /// One outcome for each set that is an MCP server, in order.
    async fn mcp(&self, sets: &[ToolSet], caller: &Caller) -> Vec<Built> {
        let sets: Vec<_> = sets
            .iter()
            .filter_map(|set| match set {
                ToolSet::Mcp(set) => Some(Set::Mcp(set)),
                ToolSet::DialMcp(set) => Some(Set::Dial(set)),
                _ => None,
            })
            .collect();
        dray_tool_mcp::connect_all(&sets, caller, &self.mcp).await
    }

    async fn other(&self, set: &ToolSet, caller: &Caller) -> Built {
        match set {
            ToolSet::RestApi(set) => dray_tool_rest::build(set, &self.client, &self.rest),
            ToolSet::DialDeployment(set) => match &self.dial {
                Some(dial) => dray_tool_dial::deployments(set, dial, caller).await,
                None if set.common.enabled => missing(&set.name),
                None => Built::default(),
            },
            ToolSet::Internal(set) => self.internal(set),
            // Found by their own ways, or replaced before.
            ToolSet::Mcp(_)
            | ToolSet::DialMcp(_)
            | ToolSet::DialApp(_)
            | ToolSet::Predefined(_) => Built::default(),
        }
    }

    fn internal(&self, set: &Internal) -> Built {
        let mut built = Built::default();
        for tool in set.tools.iter().filter(|_| set.common.enabled) {
            match (tool, &self.dial) {
                (InternalTool::PythonInterpreter(common), Some(dial)) if common.enabled => {
                    let options = dray_tool_dial::Options {
                        default_session: self.interpreter_session.clone(),
                    };
                    let tool = dray_tool_dial::interpreter(common, dial, options);
                    built.tools.push(tool);
                }
                (InternalTool::PythonInterpreter(common), None) if common.enabled => {
                    built.issues.extend(missing(&set.name).issues);
                }
                _ => {}
            }
        }
        built
    }
}

fn missing(set: &str) -> Built {
    Built {
        tools: Vec::new(),
        issues: vec![Issue::of_set(set, NO_DIAL)],
    }
}

/// A template that could not be used, as it is shown.
pub(crate) fn template_issue(failure: &layer::Failure) -> Issue {
    Issue {
        tool: Some(format!("template '{}'", failure.template)),
        toolset: None,
        message: failure.message(),
        details: failure.details(),
    }
}
