//! JSON Schema of the messages of the contracts in their JSON form
//! (<https://protobuf.dev/programming-guides/json/>), with the comments of `proto/`.

use std::collections::BTreeMap;

use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::prost_types::source_code_info::Location;
use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};

/// Schemas by the name of the message or enum, without the package.
pub(crate) struct SchemaSet {
    pool: DescriptorPool,
    definitions: BTreeMap<String, Value>,
}

impl SchemaSet {
    /// An empty set; `None` cannot occur in a correct build.
    pub(crate) fn new() -> Option<Self> {
        Some(Self {
            pool: DescriptorPool::decode(dray_proto::FILE_DESCRIPTOR_SET).ok()?,
            definitions: BTreeMap::new(),
        })
    }

    /// Adds a message with all of its nested types; `None` if the message does not exist.
    pub(crate) fn add(&mut self, full_name: &str) -> Option<()> {
        let message = self.pool.get_message_by_name(full_name)?;
        self.add_message(&message);
        Some(())
    }

    /// The schemas.
    pub(crate) fn into_definitions(self) -> BTreeMap<String, Value> {
        self.definitions
    }

    fn add_message(&mut self, message: &MessageDescriptor) {
        let name = message.name().to_owned();
        if self.definitions.contains_key(&name) {
            return;
        }
        // The definition is inserted before its fields, because a message may contain itself.
        self.definitions.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        for field in message.fields() {
            let schema = self.field_schema(&field);
            properties.insert(field.json_name().to_owned(), schema);
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        describe(
            &mut schema,
            message.parent_file().file_descriptor_proto(),
            message.path(),
        );
        self.definitions.insert(name, schema);
    }

    fn add_enum(&mut self, kind: &EnumDescriptor) {
        let names: Vec<_> = kind.values().map(|value| value.name().to_owned()).collect();
        let mut schema = json!({ "type": "string", "enum": names });
        describe(
            &mut schema,
            kind.parent_file().file_descriptor_proto(),
            kind.path(),
        );
        self.definitions.insert(kind.name().to_owned(), schema);
    }

    fn field_schema(&mut self, field: &FieldDescriptor) -> Value {
        let mut schema = self.kind_schema(&field.kind());
        if field.is_list() {
            schema = json!({ "type": "array", "items": schema });
        } else if schema.get("$ref").is_some() {
            // Beside a reference a description would not count.
            schema = json!({ "allOf": [schema] });
        }
        let file = field.parent_message().parent_file();
        describe(&mut schema, file.file_descriptor_proto(), field.path());
        schema
    }

    fn kind_schema(&mut self, kind: &Kind) -> Value {
        match kind {
            Kind::String => json!({ "type": "string" }),
            Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::Double | Kind::Float => json!({ "type": "number" }),
            // Numbers of 64 bits are strings in JSON, because many readers would round them.
            Kind::Uint64 | Kind::Fixed64 => json!({ "type": "string", "pattern": "^[0-9]+$" }),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
                json!({ "type": "string", "pattern": "^-?[0-9]+$" })
            }
            Kind::Uint32 | Kind::Fixed32 => json!({ "type": "integer", "minimum": 0 }),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => json!({ "type": "integer" }),
            Kind::Message(message) => {
                self.add_message(message);
                reference(message.name())
            }
            Kind::Enum(kind) => {
                self.add_enum(kind);
                reference(kind.name())
            }
        }
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Sets a member of a JSON object; any other value stays as it is.
pub(crate) fn set_member(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// Adds the comment of the element at `path` to a schema.
fn describe(schema: &mut Value, file: &FileDescriptorProto, path: &[i32]) {
    let locations = file.source_code_info.iter().flat_map(|info| &info.location);
    let comment = locations
        .filter(|location| location.path == path)
        .map(Location::leading_comments)
        .find(|comment| !comment.is_empty());
    if let Some(comment) = comment {
        let lines: Vec<_> = comment.lines().map(str::trim).collect();
        let text = lines.join(" ").trim().to_owned();
        set_member(schema, "description", Value::String(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_types_of_their_json_form() {
        let mut set = SchemaSet::new().unwrap();
        set.add("dray.v1.FetchReply").unwrap();
        let definitions = set.into_definitions();
        let fetched = &definitions["FetchReply"]["properties"];
        assert_eq!(fetched["size"]["type"], "string");
        assert_eq!(fetched["sha256"]["contentEncoding"], "base64");
        assert_eq!(
            fetched["content"]["allOf"][0]["$ref"],
            "#/components/schemas/Content"
        );
        assert_eq!(
            definitions["Content"]["properties"]["inline"]["description"],
            "At most 64 KiB."
        );
        assert!(definitions.contains_key("Artifact"));
    }

    #[test]
    fn an_unknown_message_is_reported() {
        assert!(SchemaSet::new().unwrap().add("dray.v1.None").is_none());
    }
}
