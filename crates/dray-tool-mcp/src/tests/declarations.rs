//! Tests of tools whose names, descriptions or schemas are too long or hide text.

use dray_agent::caller::Caller;
use dray_tool::ToolsetResult;
use serde_json::{Value, json};

use super::support::{FakeMcpServer, call, fake_server, messages, named, options, streamable};
use crate::declaration::{MAX_DESCRIPTION_CHARACTERS, MAX_SCHEMA_BYTES, MAX_TOOLS};
use crate::{McpToolset, connect_set};

/// The set of a server with these tools.
async fn build_toolset(tools: Value) -> ToolsetResult {
    let server = fake_server(FakeMcpServer {
        tools: Some(tools),
        ..FakeMcpServer::default()
    })
    .await;
    let set = streamable(&server.shared().url());
    connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await
}

fn offered_tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

fn names(built: &ToolsetResult) -> Vec<&str> {
    let tools = built.tools.iter();
    tools.map(|tool| tool.declaration().name.as_str()).collect()
}

#[tokio::test]
async fn a_long_description_is_cut_and_a_tool_with_a_long_schema_or_name_is_left_out() {
    let huge = json!({"name": "huge", "inputSchema": {"type": "object", "description": "s".repeat(MAX_SCHEMA_BYTES)}});
    let long_name = "n".repeat(129);
    let built = build_toolset(json!([
        offered_tool("long", &"d".repeat(1 << 20)),
        huge,
        offered_tool(&long_name, "x"),
        offered_tool("short", "fits"),
    ]))
    .await;
    assert_eq!(names(&built), ["s_long", "s_short"]);
    let description = built.tools[0].declaration().description.clone().unwrap();
    let cut = format!(
        "{}… (1048576 characters)",
        "d".repeat(MAX_DESCRIPTION_CHARACTERS)
    );
    assert!(description == cut, "{}", description.len());
    let shown_name = format!("{}… (129 characters)", &long_name[1..]);
    assert_eq!(
        messages(&built),
        [
            format!("MCP error for s: the tool '{shown_name}': left out, because a name has at most 128 characters"),
            "MCP error for s: the tool 'long': cut, because a description has at most 8000 characters".to_owned(),
            "MCP error for s: the tool 'huge': left out, because the arguments of a tool have at most 65536 bytes of \
             schema"
                .to_owned(),
        ]
    );
}

#[tokio::test]
async fn a_server_has_a_limit_of_tools_and_of_bytes_that_reach_the_model() {
    let many = (0..MAX_TOOLS + 40).map(|number| offered_tool(&format!("t{number}"), "short"));
    let built_many = build_toolset(many.collect()).await;
    assert_eq!(built_many.tools.len(), MAX_TOOLS);
    assert_eq!(
        messages(&built_many),
        [
            "MCP error for s: the tools 't512', 't513', 't514' and 37 more: left out, because a server has at most 512 \
             tools with 524288 bytes of descriptions and schemas"
        ]
    );
    let long = "d".repeat(MAX_DESCRIPTION_CHARACTERS);
    let heavy = (0..100).map(|number| offered_tool(&format!("t{number}"), &long));
    let built_heavy = build_toolset(heavy.chain([offered_tool("last", "short")]).collect()).await;
    // A tool that fits is kept, even after one that does not.
    assert_eq!(
        (built_heavy.tools.len(), names(&built_heavy)[65]),
        (66, "s_last")
    );
    let message = messages(&built_heavy)[0];
    assert!(
        message.contains("'t65', 't66', 't67' and 32 more: left out"),
        "{message}"
    );
}

#[tokio::test]
async fn texts_of_tools_have_no_characters_that_hide_and_the_call_has_the_name_of_the_server() {
    let name = "pay\u{202e}\u{1b}[1m";
    let server = fake_server(FakeMcpServer {
        tools: Some(json!([{
            "name": name,
            "description": "Pays\u{e0049}\u{1b}[8m.\nTwice.",
            "inputSchema": {"type": "object", "properties": {"sum": {"description": "In\u{200b} euros"}}},
        }])),
        acts: vec![super::support::FakeAction::Code(7)],
        ..FakeMcpServer::default()
    })
    .await;
    let set = streamable(&server.shared().url());
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options()).await;
    let tool = named(&built, "s_pay_1m");
    let declaration = tool.declaration();
    assert_eq!(declaration.description.as_deref(), Some("Pays.\nTwice."));
    assert_eq!(
        declaration.parameters["properties"]["sum"]["description"],
        "In euros"
    );
    let failure = call(&tool, json!({})).await.unwrap_err();
    assert_eq!(failure.to_string(), "Error calling MCP tool 'pay': says no");
    assert_eq!(server.shared().lock().calls[0]["name"], name);
}
