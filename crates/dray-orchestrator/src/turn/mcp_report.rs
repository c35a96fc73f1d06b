//! Reports calls of MCP tools to clients of `/v1/responses`, which get them as items. A call is reported if its stage
//! would be shown.

use dray_agent::event::{Event, McpCallEnd, McpCallStart, McpListedTool, McpToolList};
use dray_agent::manifest::feature::StageLevel;
use dray_agent::message::{Content, ToolCall};
use dray_tool::pipeline::CompletedCall;
use dray_tool::{ClientGone, EventSink, Tool};

use super::approval_policy::ApprovalPolicy;
use super::open::OpenTurn;
use crate::http::ApprovalForm;

/// Which calls of MCP servers a client sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct McpReport {
    /// Whether the client reads such items.
    pub(super) is_wanted: bool,
    /// The least important stages that are shown.
    pub(super) level: StageLevel,
}

impl McpReport {
    fn shows(self, tool: &dyn Tool) -> bool {
        let rules = tool.rules();
        let is_hidden = rules
            .display
            .stage
            .as_ref()
            .is_some_and(|stage| !stage.show);
        let by_level = match self.level {
            StageLevel::Debug => true,
            StageLevel::Info => !rules.debug_only,
            StageLevel::Error | StageLevel::None => false,
        };
        self.is_wanted && by_level && !is_hidden
    }

    /// Reports the start of a call, with the id of its approval request. Returns whether its end is to be reported,
    /// too.
    pub(super) async fn begin(
        self,
        policy: &ApprovalPolicy,
        tool: &dyn Tool,
        (call, approval, continues): (&ToolCall, Option<&str>, bool),
        sink: &EventSink,
    ) -> Result<bool, ClientGone> {
        let name = &tool.declaration().name;
        let Some(server) = policy.mcp_server(name).filter(|_| self.shows(tool)) else {
            return Ok(false);
        };
        let started = McpCallStart {
            call_id: call.id.clone(),
            server: server.to_owned(),
            tool: name.clone(),
            arguments: call.function.arguments.clone(),
            // Clients that were asked in another form have no item with this id.
            approval_id: approval
                .filter(|_| policy.form() == ApprovalForm::Items)
                .map(str::to_owned),
            continues,
        };
        sink.send(Event::McpCallStarted(started)).await?;
        Ok(true)
    }

    /// Reports the end of a call. A call that asks the user has not ended.
    pub(super) async fn end(
        call: &ToolCall,
        completed: &CompletedCall,
        sink: &EventSink,
    ) -> Result<(), ClientGone> {
        if completed.question.is_some() {
            return Ok(());
        }
        let text = match &completed.message.content {
            Some(Content::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let ended = McpCallEnd {
            call_id: call.id.clone(),
            text,
            failed: completed.failed,
        };
        sink.send(Event::McpCallEnded(ended)).await
    }
}

impl OpenTurn {
    /// Reports the tools of MCP servers, in the order of the manifest, and the servers that have none.
    pub(super) async fn list_mcp_tools(&self, sink: &EventSink) -> Result<(), ClientGone> {
        let report = self.response.mcp;
        if !report.is_wanted || !self.response.lists_mcp {
            return Ok(());
        }
        let mut lists: Vec<McpToolList> = Vec::new();
        for tool in self
            .tools
            .offered
            .iter()
            .filter(|tool| report.shows(tool.as_ref()))
        {
            let declaration = tool.declaration();
            let Some(server) = self.tools.approvals.mcp_server(&declaration.name) else {
                continue;
            };
            let listed = McpListedTool {
                name: declaration.name.clone(),
                description: declaration.description.clone(),
                input_schema: declaration.parameters.clone(),
            };
            match lists.iter_mut().find(|list| list.server == server) {
                Some(list) => list.tools.push(listed),
                None => lists.push(McpToolList {
                    server: server.to_owned(),
                    tools: vec![listed],
                    error: None,
                }),
            }
        }
        let is_shown = matches!(report.level, StageLevel::Info | StageLevel::Debug);
        let failed = self.tools.approvals.failed_servers().iter();
        lists.extend(
            failed
                .filter(|_| is_shown)
                .map(|(server, error)| McpToolList {
                    server: server.clone(),
                    tools: Vec::new(),
                    error: Some(error.clone()),
                }),
        );
        for list in lists {
            sink.send(Event::McpTools(list)).await?;
        }
        Ok(())
    }
}
