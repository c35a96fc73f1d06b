//! Ids and stable names of files in the arguments of other tools: links and addresses in their place
//! (docs/file-tools.md).

use std::collections::BTreeSet;

use dray_proto::v1;
use dray_tool::ToolFailure;
use dray_types::reference::{FileReference, ParsedReference, ReferenceForm};
use serde_json::{Map, Value};

use super::ask::{CallFailure, PeerService};
use super::context::{ContextBuilder, MAX_CONTEXT_BYTES};
use super::name_key::{NAME_PREFIX, key_of};

impl ContextBuilder {
    /// Replaces ids by fresh URLs in the arguments of a tool that accepts URLs, and so the stable names of stored files.
    /// No request is sent if no argument is one of them.
    ///
    /// # Errors
    ///
    /// The reader or the store cannot be reached, or a file has no link that others can open.
    pub(super) async fn substitute(
        &self,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure> {
        for (parameter, value) in &mut arguments {
            self.strip_url_references(value);
            self.replace_names_by_ids(value);
            self.replace_names_by_links(parameter, value).await?;
        }
        if !self.catalog.has_files() || !arguments.values().any(|value| self.names_a_file(value)) {
            return Ok(arguments);
        }
        let services = &self.scope.services;
        let bytes = Value::Object(arguments).to_string();
        let request = v1::SubstituteIdsRequest {
            catalog: Some(
                services
                    .content(self.catalog.json(), "application/json")
                    .await?,
            ),
            arguments: Some(services.content(bytes.into(), "application/json").await?),
            // 0 means two hours, longer than any call of a tool.
            link_seconds: 0,
        };
        let time = services.config.call_timeout.as_duration();
        let reply = services
            .ask(PeerService::Documents, &self.scope.meta(time), &request)
            .await?;
        let done = services
            .read(
                PeerService::Documents,
                reply.arguments,
                MAX_CONTEXT_BYTES,
                time,
            )
            .await?;
        let substituted: Map<String, Value> = serde_json::from_slice(&done)
            .map_err(|_| CallFailure::Malformed(PeerService::Documents))?;
        for id in &reply.unresolved {
            // Former links of a file stay: they may still work.
            let mut named = substituted.iter();
            if let Some((parameter, _)) = named.find(|(_, value)| has_text(value, id)) {
                return Err(missing_file_failure(parameter, id));
            }
        }
        Ok(substituted)
    }

    /// Replaces ids by the addresses of their files, see [`super::catalog::ConversationCatalog::address_of`].
    pub(super) fn replace_ids_by_addresses(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(address) = self.catalog.address_of(text, &self.scope.services) {
                    *text = address;
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.replace_ids_by_addresses(item)),
            _ => {}
        }
    }

    /// Removes `file:url::` before ids and stable names, which then become links as without it.
    fn strip_url_references(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let parsed = FileReference::parse(text);
                if let ParsedReference::Reference(reference) = parsed
                    && reference.form == ReferenceForm::Url
                    && self.names_one_file(reference.target)
                {
                    let target = reference.target.to_owned();
                    *text = target;
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.strip_url_references(item)),
            Value::Object(members) => members
                .values_mut()
                .for_each(|member| self.strip_url_references(member)),
            _ => {}
        }
    }

    /// Whether a text is the id or the stable name of a file of this conversation.
    fn names_one_file(&self, text: &str) -> bool {
        self.catalog.entry(text).is_some() || self.names.checked_name(text).is_some()
    }

    /// Replaces the stable names of stored files that have no id, such as files of results, by links.
    async fn replace_names_by_links(
        &self,
        parameter: &str,
        value: &mut Value,
    ) -> Result<(), ToolFailure> {
        let mut names = BTreeSet::new();
        self.collect_names(value, &mut names);
        for name in names {
            let Some(claim) = self.names.named_claim(&name, "").await? else {
                return Err(missing_file_failure(parameter, &name));
            };
            let link = self.scope.services.link(&claim).await?;
            replace_text(value, &name, link.url.expose());
        }
        Ok(())
    }

    /// The stable names of this conversation in a value.
    fn collect_names(&self, value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::String(text) if self.names.checked_name(text).is_some() => {
                names.insert(text.clone());
            }
            Value::Array(items) => items
                .iter()
                .for_each(|item| self.collect_names(item, names)),
            Value::Object(members) => members
                .values()
                .for_each(|member| self.collect_names(member, names)),
            _ => {}
        }
    }

    /// Replaces the stable name of a file, which the model uses for stored files, by its id. A name that does not
    /// belong to this conversation is not changed.
    fn replace_names_by_ids(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.starts_with(NAME_PREFIX) => {
                let Some((sha256, size)) = self.names.checked_name(text) else {
                    return;
                };
                let key = key_of(&sha256, size);
                if let Some(id) = self.catalog.id_of_key(&key) {
                    *text = id;
                }
            }
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.replace_names_by_ids(item)),
            Value::Object(members) => members
                .values_mut()
                .for_each(|member| self.replace_names_by_ids(member)),
            _ => {}
        }
    }

    fn names_a_file(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.catalog.entry(text).is_some(),
            Value::Array(items) => items.iter().any(|item| self.names_a_file(item)),
            Value::Object(members) => members.values().any(|member| self.names_a_file(member)),
            _ => false,
        }
    }
}

fn missing_file_failure(parameter: &str, name: &str) -> ToolFailure {
    ToolFailure::parameter(
        parameter,
        format!(
            "The file {name} cannot be fetched by other services, or no longer. Ask the user for it again."
        ),
    )
}

/// Whether a value has this text, as a whole, at any depth.
fn has_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Array(items) => items.iter().any(|item| has_text(item, wanted)),
        Value::Object(members) => members.values().any(|member| has_text(member, wanted)),
        _ => false,
    }
}

/// Replaces a text, as a whole, at any depth.
fn replace_text(value: &mut Value, wanted: &str, replacement: &str) {
    match value {
        Value::String(text) if text == wanted => replacement.clone_into(text),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| replace_text(item, wanted, replacement)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| replace_text(member, wanted, replacement)),
        _ => {}
    }
}
