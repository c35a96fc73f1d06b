//! A request made of arguments (quickapps 23.1).

use dray_agent::manifest::tool::ParameterLocation;
use dray_tool::{HandledFailure, ToolFailure};
use dray_types::Secret;
use serde_json::{Map, Value};

use crate::endpoint::{ArgumentSlot, PreparedEndpoint};
use crate::place;

/// A request before it is sent. It is built again when a token was refused.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRequest {
    method: http::Method,
    url: String,
    query: Vec<(String, String)>,
    /// Names in lower case, each once.
    headers: Vec<(String, Secret)>,
    body: Map<String, Value>,
}

impl PreparedRequest {
    /// Builds a request from arguments. Arguments of the model for constants and for unknown parameters are ignored.
    /// Objects and lists in the body stay JSON values.
    ///
    /// # Errors
    ///
    /// [`ToolFailure::Parameter`] for a value that is invalid at its position; a failure for a missing value of the
    /// path.
    pub(crate) fn new(
        endpoint: &PreparedEndpoint,
        mut arguments: Map<String, Value>,
    ) -> Result<Self, ToolFailure> {
        let mut prepared = Self {
            method: endpoint.method.clone(),
            url: String::new(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Map::new(),
        };
        prepared.set_header("accept", &endpoint.accept);
        let mut path = Vec::new();
        for slot in &endpoint.slots {
            let value_sent = match &slot.constant {
                Some(constant) => Some(constant.clone()),
                None => arguments
                    .remove(&slot.argument)
                    .or_else(|| slot.default.clone()),
            };
            if slot.location == ParameterLocation::Url {
                let text = value_sent.as_ref().map(place::value_text);
                // An empty value would change the path: `/a//b`.
                path.push((slot, text.filter(|text| !text.is_empty())));
            } else if let Some(value) = value_sent {
                prepared.put(slot, value)?;
            }
        }
        prepared.url = fill_address(&endpoint.url, &path)?;
        Ok(prepared)
    }

    fn put(&mut self, slot: &ArgumentSlot, value: Value) -> Result<(), ToolFailure> {
        match slot.location {
            ParameterLocation::Body => {
                // `null` is inserted, too: it is a value in JSON, whereas a query or a header leaves it out.
                self.body.insert(slot.key.clone(), value);
            }
            ParameterLocation::Query if !value.is_null() => {
                self.set_query(&slot.key, &place::value_text(&value));
            }
            ParameterLocation::Header if !value.is_null() => {
                let text = place::value_text(&value);
                if !place::is_header_value(&text) {
                    let reason = "it must not hold line breaks or control characters";
                    return Err(ToolFailure::parameter(&slot.argument, reason));
                }
                self.set_header(&slot.key, &text);
            }
            ParameterLocation::Query | ParameterLocation::Header | ParameterLocation::Url => {}
        }
        Ok(())
    }

    /// Sets a header; replaces one of the same name.
    pub(crate) fn set_header(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, Secret::new(value)));
    }

    /// Sets a header if there is none of the name.
    pub(crate) fn add_header(&mut self, name: &str, value: &str) {
        let is_known = self
            .headers
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !is_known && place::is_settable(name) && place::is_header_value(value) {
            self.set_header(name, value);
        }
    }

    /// Sets a parameter of the query; replaces one of the same name.
    pub(crate) fn set_query(&mut self, name: &str, value: &str) {
        self.query.retain(|(known, _)| known != name);
        self.query.push((name.to_owned(), value.to_owned()));
    }

    /// Sets a field of the body.
    pub(crate) fn set_field(&mut self, name: &str, value: &str) {
        self.body.insert(name.to_owned(), Value::from(value));
    }

    /// The request to send. GET and DELETE have no body if it would be empty.
    pub(crate) fn request(&self, client: &dray_http::HttpClient) -> dray_http::RequestBuilder {
        let url = place::with_query(&self.url, &self.query);
        let mut request = client.request(self.method.clone(), &url);
        for (name, value) in &self.headers {
            request = request.header(name, value.expose());
        }
        let may_omit_body = matches!(self.method, http::Method::GET | http::Method::DELETE);
        if may_omit_body && self.body.is_empty() {
            request
        } else {
            request.json(&self.body)
        }
    }
}

fn fill_address(
    template: &str,
    path: &[(&ArgumentSlot, Option<String>)],
) -> Result<String, ToolFailure> {
    let value = |key: &str| {
        let (_, text) = path.iter().find(|(slot, _)| slot.key == key)?;
        Some(text.as_deref())
    };
    // A path value is required even if the address does not contain it.
    let missing = path.iter().find(|(_, text)| text.is_none());
    let filled = match missing {
        Some((slot, _)) => Err(slot.key.clone()),
        None => place::fill_template(template, value),
    };
    let url = filled
        .map_err(|key| HandledFailure::new(format!("Missing required URL parameter: {key}")))?;
    // Authors may write dots, but values must not add any (path traversal).
    if place::dot_segments(&url) > place::dot_segments(template) {
        let reason = "a part of the path must not be `.` or `..`";
        return Err(ToolFailure::parameter(
            dotted_arguments(template, path, &url),
            reason,
        ));
    }
    Ok(url)
}

/// The names of the arguments whose values add dot segments to this address, alone or together.
fn dotted_arguments(template: &str, path: &[(&ArgumentSlot, Option<String>)], url: &str) -> String {
    let adds_dots = |changed: &ArgumentSlot| {
        let value = |key: &str| {
            let (_, text) = path.iter().find(|(slot, _)| slot.key == key)?;
            Some(if key == changed.key {
                Some("x")
            } else {
                text.as_deref()
            })
        };
        place::fill_template(template, value)
            .is_ok_and(|other| place::dot_segments(&other) < place::dot_segments(url))
    };
    let slots = path.iter().map(|(slot, _)| slot);
    let names: Vec<_> = slots
        .filter(|slot| adds_dots(slot))
        .map(|slot| slot.argument.as_str())
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_slot(name: &str) -> ArgumentSlot {
        ArgumentSlot {
            argument: name.to_owned(),
            location: ParameterLocation::Url,
            key: name.to_owned(),
            constant: None,
            default: None,
        }
    }

    #[test]
    fn dots_are_reported_under_the_names_of_the_arguments_that_have_them() {
        let slots = ["tenant", "name", "ending"].map(path_slot);
        let reported = |template: &str, values: [&str; 3]| {
            let values = values.map(|value| Some(value.to_owned()));
            let path: Vec<_> = slots.iter().zip(values).collect();
            match fill_address(template, &path) {
                Err(ToolFailure::Parameter { name, .. }) => name,
                other => panic!("{other:?}"),
            }
        };
        let separate = "https://h.example/{tenant}/{name}/{ending}";
        assert_eq!(reported(separate, ["acme", "..", "x"]), "name");
        assert_eq!(reported(separate, [".", "x", ".."]), "tenant, ending");
        let joined = "https://h.example/{tenant}/{name}{ending}";
        assert_eq!(reported(joined, ["acme", ".", "."]), "name, ending");
    }

    #[test]
    fn a_value_adds_no_dots_to_a_path_that_has_some() {
        let slot = path_slot("name");
        let fill = |template: &str, value: &str| {
            fill_address(template, &[(&slot, Some(value.to_owned()))])
        };
        let template = "https://h.example/v1/../v2/./{name}/x";
        let filled = fill(template, "a").unwrap();
        assert_eq!(filled, "https://h.example/v1/../v2/./a/x");
        for value in [".", ".."] {
            assert!(fill(template, value).is_err(), "{value}");
        }
        assert!(fill("https://h.example/./.{name}", ".").is_err());
    }
}
