//! Large sets of tools: the model gets two tools instead of all declarations. It searches by words, gets the
//! declarations of matching tools as a result, and calls them by name. So the beginning of the prompt stays the same.
//!
//! A call through [`CALL_TOOL`] is replaced by a call of the named tool before any other code handles it: rules on
//! approval, stages, budgets and records see the tool that is called. Only the model sees the call as it made it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::approval::matches_pattern;
use dray_agent::issues::ToolIssue;
use dray_agent::manifest::Manifest;
use dray_agent::message::{Message, ToolCall as ModelCall};
use dray_tool::{
    CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
};
use serde_json::{Value, json};

use super::SharedParts;
use super::body::ClientParameters;
use super::client_tools::chosen_names;
use super::tool_sources::ToolSources;
use crate::http::MAX_TOOLS;

/// Name of the tool that finds others.
pub(super) const SEARCH_TOOL: &str = "search_tools";
/// Name of the tool that calls others.
pub(super) const CALL_TOOL: &str = "call_tool";
/// The tools that the model gets in place of others.
const OWN_TOOLS: [&str; 2] = [SEARCH_TOOL, CALL_TOOL];
/// The set of the client's tools, in the description of the search.
const CLIENT_SET: &str = "client";
/// Declarations in a result, unless the call asks for another number.
const DEFAULT_RESULTS: usize = 5;
/// Most declarations in a result.
const MAX_RESULTS: usize = 20;
/// Most bytes of the declarations of a result. A longer result would become a file.
const MAX_RESULT_BYTES: usize = 24 << 10;
/// Most names in a result that has no declarations.
const MAX_NAMES: usize = 100;
/// Most sets that the description of the search names.
const MAX_NAMED_SETS: usize = 50;
/// Weight of a word in the name of a tool, in its description, and in the names of its arguments.
const FIELD_WEIGHTS: [u64; 3] = [8, 3, 1];
/// Fewest characters of a word that also matches longer words that begin with it.
const MIN_PREFIX_CHARACTERS: usize = 3;

/// The tools of a turn that the model does not get in its list.
#[derive(Clone, Debug, Default)]
pub(super) struct DeferredTools {
    /// Their names; empty if the model gets all tools.
    names: Arc<HashSet<String>>,
    /// Names of all tools of the agent and the client.
    all: Arc<HashSet<String>>,
}

impl DeferredTools {
    /// Whether the model gets a tool only by a search.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Puts the calls themselves in place of calls through [`CALL_TOOL`]. A call of something else stays and is
    /// answered by that tool.
    pub(super) fn resolve(&self, calls: &mut [ModelCall]) {
        if self.names.is_empty() {
            return;
        }
        for call in calls {
            if call.function.name != CALL_TOOL {
                continue;
            }
            let Some((name, arguments)) = named_call(&call.function.arguments) else {
                continue;
            };
            // An unknown name stays a call of the wrapper, whose result lists the names for the model.
            if self.all.contains(&name) {
                call.function.name = name;
                call.function.arguments = arguments;
            }
        }
    }

    /// Shows the model its calls as it made them.
    pub(super) fn show(&self, messages: &mut [Message]) {
        if self.names.is_empty() {
            return;
        }
        let calls = messages
            .iter_mut()
            .filter_map(|message| message.tool_calls.as_mut())
            .flatten();
        for call in calls.filter(|call| self.has(&call.function.name)) {
            let text = &call.function.arguments;
            let arguments = serde_json::from_str::<Value>(text).ok();
            // Arguments that do not parse as JSON are shown as the text that the model wrote.
            let arguments = arguments.unwrap_or_else(|| Value::from(text.as_str()));
            let shown = json!({"name": call.function.name, "arguments": arguments});
            call.function.arguments = shown.to_string();
            CALL_TOOL.clone_into(&mut call.function.name);
        }
    }
}

/// Tool and arguments of a call through [`CALL_TOOL`].
fn named_call(text: &str) -> Option<(String, String)> {
    let Value::Object(mut call) = serde_json::from_str(text).ok()? else {
        return None;
    };
    // The name is removed, not cloned: arguments may be megabytes.
    let Value::String(name) = call.shift_remove("name")? else {
        return None;
    };
    let arguments = match call.shift_remove("arguments") {
        // Some models write objects as texts.
        Some(Value::String(text)) if !text.trim().is_empty() => text,
        None | Some(Value::Null | Value::String(_)) => "{}".to_owned(),
        Some(value) => value.to_string(),
    };
    // A call of the wrapper through the wrapper would never end.
    (name != CALL_TOOL).then_some((name, arguments))
}

/// Number of tools above which they are deferred; `None` for never.
fn threshold(parts: &SharedParts, manifest: &Manifest) -> Option<usize> {
    let default = parts.config.tool_search_threshold;
    let tools = match &manifest.features.tool_search {
        None => default,
        Some(search) if search.enabled => search.threshold.unwrap_or(default),
        Some(_) => 0,
    };
    usize::try_from(tools).ok().filter(|tools| *tools > 0)
}

/// Whether services refuse a list of so many tools. An operator whose service accepts more has raised the limit.
const fn is_too_long(declared: usize, limit: usize) -> bool {
    declared > MAX_TOOLS && declared > limit
}

/// Whether the model has to search for the tools of sets: there are more of them than the limit, or `all` tools of its
/// requests are more than services accept.
const fn needs_search(of_sets: usize, all: usize, limit: usize) -> bool {
    of_sets > limit || (of_sets > 0 && is_too_long(all, limit))
}

/// The tools that the model does not get in its list: those of the tool sets if there are too many, and those of the
/// client if they do not fit beside the others. The service's own tools stay, and those that the manifest or the client's
/// choice names.
fn tools_to_defer(
    limit: usize,
    manifest: &Manifest,
    sources: &ToolSources,
    (client_parameters, statics): (&ClientParameters, &[Value]),
    tools: &[Arc<dyn Tool>],
) -> Vec<ToolDeclaration> {
    let is_of_set = |tool: &&ToolDeclaration| {
        !sources.of(&tool.name).is_empty() && !sources.is_handoff(&tool.name)
    };
    let declared = tools.iter().map(|tool| tool.declaration());
    let of_sets: Vec<_> = declared.filter(is_of_set).collect();
    let all = tools.len() + statics.len() + client_parameters.tools.declarations().len();
    let search = manifest.features.tool_search.clone().unwrap_or_default();
    let always = search.always_loaded.unwrap_or_default();
    let chosen = client_parameters.tool_choice.as_ref();
    let chosen = chosen.map(chosen_names).unwrap_or_default();
    let may_defer = |name: &str| {
        !chosen.contains(&name) && !always.iter().any(|pattern| matches_pattern(pattern, name))
    };
    let mut deferred: Vec<ToolDeclaration> = Vec::new();
    if needs_search(of_sets.len(), all, limit) {
        let of_sets = of_sets.into_iter().filter(|tool| may_defer(&tool.name));
        deferred.extend(of_sets.cloned());
    }
    let added = if deferred.is_empty() {
        0
    } else {
        OWN_TOOLS.len()
    };
    if is_too_long(all - deferred.len() + added, limit) {
        let of_client = client_parameters.tools.tool_declarations();
        deferred.extend(of_client.filter(|tool| may_defer(&tool.name)));
    }
    deferred
}

/// Defers tools if there are too many, and adds the two tools that find and call them.
pub(super) fn defer_tools(
    parts: &SharedParts,
    manifest: &Manifest,
    sources: &ToolSources,
    others: (&ClientParameters, &[Value]),
    tools: &mut Vec<Arc<dyn Tool>>,
) -> (DeferredTools, Option<ToolIssue>) {
    let deferred = threshold(parts, manifest)
        .map(|limit| tools_to_defer(limit, manifest, sources, others, tools))
        .unwrap_or_default();
    if deferred.is_empty() {
        return (DeferredTools::default(), None);
    }
    // With two tools of one name, a call would be ambiguous.
    let is_taken = |name: &str| {
        let mut of_client = others.0.tools.names();
        tools.iter().any(|tool| tool.declaration().name == name)
            || of_client.any(|taken| taken == name)
    };
    if let Some(name) = OWN_TOOLS.into_iter().find(|name| is_taken(name)) {
        let issue = ToolIssue {
            tool: Some(name.to_owned()),
            toolset: None,
            message:
                "Tools cannot be searched, since a tool has this name; the model gets all of them."
                    .to_owned(),
            details: Vec::new(),
            is_for_user: false,
        };
        return (DeferredTools::default(), Some(issue));
    }
    let index = SearchIndex::new(deferred, sources);
    let names = index.tools.iter().map(|tool| tool.name.clone());
    let names: Arc<HashSet<_>> = Arc::new(names.collect());
    let all = tools.iter().map(|tool| tool.declaration().name.clone());
    let of_client = others.0.tools.names().map(str::to_owned);
    let all = Arc::new(all.chain(of_client).collect());
    tools.push(Arc::new(SearchTools::new(index)));
    tools.push(Arc::new(CallTool::new()));
    (DeferredTools { names, all }, None)
}

/// Words of a text in lower case. A change from lower to upper case begins a new word.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in text.chars() {
        let begins = !character.is_alphanumeric() || (was_lower && character.is_uppercase());
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase();
    }
    // Two separators in a row leave an empty word between them.
    words.retain(|word| !word.is_empty());
    words
}

/// The deferred tools with their words.
#[derive(Debug, Default)]
struct SearchIndex {
    tools: Vec<ToolDeclaration>,
    /// Words of name, description and arguments of each tool.
    fields: Vec<[Vec<String>; 3]>,
    /// Number of tools of each set, in the order of the manifest.
    sets: Vec<(String, usize)>,
}

impl SearchIndex {
    fn new(tools: Vec<ToolDeclaration>, sources: &ToolSources) -> Self {
        let mut index = Self::default();
        for tool in &tools {
            let arguments = tool.parameters.get("properties").and_then(Value::as_object);
            let arguments = arguments.into_iter().flat_map(|members| members.keys());
            index.fields.push([
                words(&tool.name),
                words(tool.description.as_deref().unwrap_or_default()),
                arguments.flat_map(|name| words(name)).collect(),
            ]);
            let set = sources.of(&tool.name).first();
            let set = set.map_or(CLIENT_SET, String::as_str);
            match index.sets.iter_mut().find(|(known, _)| known == set) {
                Some((_, count)) => *count += 1,
                None => index.sets.push((set.to_owned(), 1)),
            }
        }
        index.tools = tools;
        index
    }

    /// The tools that fit best. Equal matches are in the order of the manifest. A rare word counts more than one that
    /// many tools have.
    fn find(&self, query: &str) -> Vec<&ToolDeclaration> {
        let query_words: HashSet<String> = words(query).into_iter().collect();
        let weights: HashMap<&String, Vec<u64>> = query_words
            .iter()
            .map(|word| {
                (
                    word,
                    self.fields
                        .iter()
                        .map(|fields| weight(word, fields))
                        .collect(),
                )
            })
            .collect();
        let mut scores: BTreeMap<usize, u64> = BTreeMap::new();
        for of_tools in weights.values() {
            let matches = of_tools.iter().filter(|weight| **weight > 0).count();
            let rarity = self.tools.len().checked_div(matches).unwrap_or_default();
            // The logarithm, so that two common words count more than a rare one.
            let rarity = u64::from(rarity.checked_ilog2().unwrap_or_default()) + 1;
            for (number, weight) in of_tools
                .iter()
                .enumerate()
                .filter(|(_, weight)| **weight > 0)
            {
                *scores.entry(number).or_default() += weight * rarity;
            }
        }
        let mut ranked: Vec<_> = scores.into_iter().collect();
        // The number keeps equal tools in the order of the manifest, so that a prompt is always the same.
        ranked.sort_by_key(|(number, score)| (Reverse(*score), *number));
        let tools = ranked
            .into_iter()
            .filter_map(|(number, _)| self.tools.get(number));
        tools.collect()
    }
}

/// How much a word counts for a tool: by the best of its fields.
fn weight(word: &str, fields: &[Vec<String>; 3]) -> u64 {
    let may_be_longer = word.chars().count() >= MIN_PREFIX_CHARACTERS;
    let in_field = |(field, weight): (&Vec<String>, u64)| {
        if field.iter().any(|candidate| candidate == word) {
            return 2 * weight;
        }
        let begins = may_be_longer && field.iter().any(|candidate| candidate.starts_with(word));
        if begins { weight } else { 0 }
    };
    let weights = fields.iter().zip(FIELD_WEIGHTS).map(in_field);
    weights.max().unwrap_or_default()
}

/// The tool that finds others.
#[derive(Debug)]
struct SearchTools {
    declaration: ToolDeclaration,
    rules: CallRules,
    index: SearchIndex,
}

impl SearchTools {
    fn new(index: SearchIndex) -> Self {
        let sets = index.sets.iter().take(MAX_NAMED_SETS);
        let sets: Vec<_> = sets
            .map(|(set, count)| format!("{set} ({count})"))
            .collect();
        let description = format!(
            "Finds tools by words of their names and descriptions, and returns their declarations. Most tools are not in \
             your list: search before you say that something cannot be done, then call them with `{CALL_TOOL}`. Sets of \
             tools: {}.",
            sets.join(", ")
        );
        Self {
            declaration: ToolDeclaration {
                name: SEARCH_TOOL.to_owned(),
                description: Some(description),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "Words that describe what the tool does"},
                        "limit": {
                            "type": "integer", "minimum": 1, "maximum": MAX_RESULTS,
                            "description": format!("Most declarations in the result, {DEFAULT_RESULTS} by default"),
                        },
                    },
                    "required": ["query"],
                }),
            },
            rules: own_rules("Search tools"),
            index,
        }
    }

    fn result(&self, query: &str, limit: usize) -> Value {
        let found = self.index.find(query);
        if found.is_empty() {
            let names = self.index.tools.iter().take(MAX_NAMES);
            let names: Vec<_> = names.map(|tool| tool.name.as_str()).collect();
            return json!({"found": 0, "tools": [], "names": names, "of": self.index.tools.len()});
        }
        let (mut tools, mut names, mut size) = (Vec::new(), Vec::new(), 0);
        for tool in &found {
            let declared = json!({
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            });
            size += declared.to_string().len();
            if tools.len() < limit && size <= MAX_RESULT_BYTES {
                tools.push(declared);
            } else if names.len() < MAX_NAMES {
                names.push(tool.name.as_str());
            }
        }
        json!({"found": found.len(), "tools": tools, "names": names})
    }
}

fn own_rules(label: &str) -> CallRules {
    CallRules {
        label: label.to_owned(),
        debug_only: true,
        ..CallRules::default()
    }
}

#[async_trait]
impl Tool for SearchTools {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, _turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let Some(query) = call.arguments.get("query").and_then(Value::as_str) else {
            return Err(ToolFailure::Parameter {
                name: "query".to_owned(),
                message: "it must be a text".to_owned(),
            });
        };
        let limit = call.arguments.get("limit").and_then(Value::as_u64);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(DEFAULT_RESULTS).clamp(1, MAX_RESULTS);
        let result = self.result(query, limit).to_string();
        Ok(ToolOutput::text(result, "application/json"))
    }
}

/// The tool that calls others. Calls of tools that exist never arrive here.
#[derive(Debug)]
struct CallTool {
    declaration: ToolDeclaration,
    rules: CallRules,
}

impl CallTool {
    fn new() -> Self {
        Self {
            declaration: ToolDeclaration {
                name: CALL_TOOL.to_owned(),
                description: Some(format!("Calls a tool that `{SEARCH_TOOL}` found.")),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "Name of the tool"},
                        "arguments": {"type": "object", "description": "Its arguments, by its declaration"},
                    },
                    "required": ["name", "arguments"],
                }),
            },
            rules: own_rules("Call tool"),
        }
    }
}

#[async_trait]
impl Tool for CallTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, _turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let name = call.arguments.get("name").and_then(Value::as_str);
        let text = format!(
            "There is no tool '{}'. Find one with `{SEARCH_TOOL}`, and give its `name` and `arguments`.",
            name.unwrap_or_default()
        );
        Err(HandledFailure::new(text).into())
    }
}

#[cfg(test)]
mod tests;
