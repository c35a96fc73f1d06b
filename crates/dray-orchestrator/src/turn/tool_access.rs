//! Which tools the caller of a turn may use, by the operator's `tool_access`. Other tools are neither shown to the
//! model nor called, whether by the model, a hook, a called agent, or a turn that continues.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_tool::{Tool, naming};
use serde_json::Value;

use super::SharedParts;
use super::setup_plan::PlannedSet;
use super::tool_sources::{ToolSources, mcp_server};
use crate::config::tool_access::{CallerFacts, ToolAccess};
use crate::permissions::CallerIdentity;

/// Most bytes of the groups of a user in a header.
const MAX_GROUPS_BYTES: usize = 8 << 10;

/// The entries of the configuration with their decision about one caller.
#[derive(Debug, Default)]
pub(super) struct CallerAccess {
    entries: Vec<(ToolAccess, bool)>,
}

impl CallerAccess {
    /// The access of a caller. Facts that DIAL Core does not return count as missing.
    pub(super) async fn of(
        parts: &SharedParts,
        caller: &Caller,
        identity: &CallerIdentity,
    ) -> Self {
        let entries = &parts.config.tool_access;
        if entries.is_empty() {
            return Self::default();
        }
        // DIAL Core is asked only where an entry depends on the user.
        let needs_user = entries.iter().any(ToolAccess::needs_user);
        let facts = caller_facts(parts, caller, identity, needs_user).await;
        let decide = |access: &ToolAccess| (access.clone(), access.permits(&facts));
        Self {
            entries: entries.iter().map(decide).collect(),
        }
    }

    /// Whether the caller may use a tool.
    fn allows(&self, name: &str, sources: &[String]) -> bool {
        let covers =
            |access: &ToolAccess| access.covers_tool(name) || access.covers_sources(sources);
        let mut covering = self.entries.iter().filter(|(access, _)| covers(access));
        let first = covering.next();
        // A tool that no entry covers is for all callers, as without any entries.
        first.is_none_or(|(_, permits)| *permits || covering.any(|(_, permits)| *permits))
    }

    /// Removes the sets of which the caller may use no tool, before they are connected or started.
    pub(super) fn retain_sets(&self, sets: &mut Vec<Arc<PlannedSet>>) {
        if self.entries.is_empty() {
            return;
        }
        let permitted = self.entries.iter().filter(|(_, permits)| *permits);
        let by_name: Vec<_> = permitted.flat_map(|(access, _)| &access.tools).collect();
        sets.retain(|planned| {
            // An entry may let the caller use single tools of a set, whose names are not known yet.
            let has_named = match mcp_server(&planned.set) {
                Some(name) => by_name.iter().any(|pattern| may_name_tool(pattern, name)),
                None => !by_name.is_empty(),
            };
            has_named || self.allows_set(planned.sources())
        });
    }

    fn allows_set(&self, sources: &[String]) -> bool {
        let mut covering = self
            .entries
            .iter()
            .filter(|(access, _)| access.covers_sources(sources));
        let first = covering.next();
        first.is_none_or(|(_, permits)| *permits || covering.any(|(_, permits)| *permits))
    }

    /// Removes the tools that the caller may not use.
    pub(super) fn retain(&self, tools: &mut Vec<Arc<dyn Tool>>, sources: &ToolSources) {
        if self.entries.is_empty() {
            return;
        }
        tools.retain(|tool| {
            let name = &tool.declaration().name;
            let allows = self.allows(name, sources.of(name));
            if !allows {
                tracing::debug!(tool = %name, "the caller may not use a tool");
            }
            allows
        });
    }

    /// Like [`Self::retain`], for tools that the model's own deployment runs.
    pub(super) fn retain_statics(&self, statics: &mut Vec<Value>) {
        // They belong to no set of the manifest, so only their name can be covered.
        statics.retain(|tool| {
            let name = tool.pointer("/static_function/name");
            let name = name.and_then(Value::as_str).unwrap_or_default();
            self.allows(name, &[])
        });
    }
}

/// Whether a pattern can match the name of a tool of this set.
fn may_name_tool(pattern: &str, set: &str) -> bool {
    let prefix = naming::qualified_name(set, "");
    let (head, is_open) = match pattern.split_once('*') {
        Some((head, _)) => (head, true),
        None => (pattern, false),
    };
    // A pattern with `*` may have only a part of the set's prefix before the `*`; another one must have all of it.
    head.starts_with(&prefix) || (is_open && prefix.starts_with(head))
}

/// The facts about a caller. The user is looked up at DIAL Core only if an entry depends on the user.
async fn caller_facts(
    parts: &SharedParts,
    caller: &Caller,
    identity: &CallerIdentity,
    needs_user: bool,
) -> CallerFacts {
    let mut facts = CallerFacts {
        caller: match identity {
            CallerIdentity::Dial(_) => "dial".to_owned(),
            CallerIdentity::Local | CallerIdentity::Client(_) => identity.key(),
        },
        ..CallerFacts::default()
    };
    if !needs_user {
        return facts;
    }
    let permissions = parts.config.permissions.of(identity);
    if permissions.user_header.is_some() || permissions.groups_header.is_some() {
        let header = |name: &Option<String>| caller.only_header(name.as_deref()?);
        // A header that is sent twice is ignored: the gateway may have written only one of them.
        facts.user = header(&permissions.user_header).map(str::to_owned);
        let groups =
            header(&permissions.groups_header).filter(|groups| groups.len() <= MAX_GROUPS_BYTES);
        let groups = groups.unwrap_or_default().split(',').map(str::trim);
        facts.groups = groups
            .filter(|group| !group.is_empty())
            .map(str::to_owned)
            .collect();
        return facts;
    }
    if let (Some(core), true) = (&parts.core, caller.api_key.is_some()) {
        // This is used behind DIAL, even for a client of the operator: the key in `Api-Key` identifies the user.
        let (bucket, info) = tokio::join!(core.user_bucket(caller), core.user_info(caller));
        match bucket {
            Ok(bucket) => facts.user = Some(bucket.bucket),
            Err(error) => tracing::warn!(%error, "DIAL Core did not name the user of a turn"),
        }
        match info {
            Ok(info) => (facts.groups, facts.claims) = (info.roles, info.user_claims),
            Err(error) => {
                tracing::warn!(%error, "DIAL Core did not name the roles of the user of a turn");
            }
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(value: Value) -> ToolAccess {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_pattern_names_tools_of_a_set_by_their_prefix() {
        for pattern in ["bank_pay", "bank_*", "ba*", "*", "*_read", "bank_*d*"] {
            assert!(may_name_tool(pattern, "bank"), "{pattern}");
        }
        for pattern in ["bank", "shop_*", "bankers_*", ""] {
            assert!(!may_name_tool(pattern, "bank"), "{pattern}");
        }
        assert!(may_name_tool("my_bank_pay", "my bank"));
    }

    #[test]
    fn a_covered_tool_is_for_the_callers_of_one_of_its_entries() {
        let (bank, read) = (
            entry(json!({"tool_sets": ["bank"], "callers": ["client:a"]})),
            entry(json!({"tools": ["*_read"], "callers": ["client:b"]})),
        );
        let sources = ["bank".to_owned()];
        let of = |may_bank: bool, may_read: bool| CallerAccess {
            entries: vec![(bank.clone(), may_bank), (read.clone(), may_read)],
        };
        let allowed = |access: &CallerAccess| {
            [
                ("bank_pay", &sources[..]),
                ("bank_read", &sources),
                ("shop_read", &[]),
                ("shop_buy", &[]),
            ]
            .map(|(name, sources)| access.allows(name, sources))
        };
        assert_eq!(allowed(&of(true, false)), [true, true, false, true]);
        assert_eq!(allowed(&of(false, true)), [false, true, true, true]);
        assert_eq!(allowed(&of(false, false)), [false, false, false, true]);
    }
}
