//! Compares two descriptor sets: finds the elements that a client of the first uses and the second does not have.

use std::collections::BTreeMap;

use prost_types::descriptor_proto::ReservedRange;
use prost_types::enum_descriptor_proto::EnumReservedRange;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto, ServiceDescriptorProto,
};

/// Everything with a name, by its full name.
#[derive(Default)]
struct Contracts<'a> {
    messages: BTreeMap<String, &'a DescriptorProto>,
    enums: BTreeMap<String, &'a EnumDescriptorProto>,
    services: BTreeMap<String, &'a ServiceDescriptorProto>,
}

impl<'a> Contracts<'a> {
    fn of(descriptors: &'a FileDescriptorSet) -> Self {
        let mut contracts = Self::default();
        for file in &descriptors.file {
            for message in &file.message_type {
                contracts.add_message(file.package(), message);
            }
            for kind in &file.enum_type {
                contracts
                    .enums
                    .insert(join(file.package(), kind.name()), kind);
            }
            for service in &file.service {
                contracts
                    .services
                    .insert(join(file.package(), service.name()), service);
            }
        }
        contracts
    }

    fn add_message(&mut self, scope: &str, message: &'a DescriptorProto) {
        let name = join(scope, message.name());
        for nested in &message.nested_type {
            self.add_message(&name, nested);
        }
        for kind in &message.enum_type {
            self.enums.insert(join(&name, kind.name()), kind);
        }
        self.messages.insert(name, message);
    }
}

fn join(scope: &str, name: &str) -> String {
    format!("{scope}.{name}")
}

/// One sentence for each breaking change, in the order of names.
pub(super) fn breaking_changes(
    released: &FileDescriptorSet,
    current: &FileDescriptorSet,
) -> Vec<String> {
    let (released, current) = (Contracts::of(released), Contracts::of(current));
    let mut changes = Vec::new();
    for (name, message) in &released.messages {
        match current.messages.get(name) {
            Some(now) => compare_message(name, message, now, &mut changes),
            None => changes.push(format!("message {name} was removed")),
        }
    }
    for (name, kind) in &released.enums {
        match current.enums.get(name) {
            Some(now) => compare_enum(name, kind, now, &mut changes),
            None => changes.push(format!("enum {name} was removed")),
        }
    }
    for (name, service) in &released.services {
        match current.services.get(name) {
            Some(now) => compare_service(name, service, now, &mut changes),
            None => changes.push(format!("service {name} was removed")),
        }
    }
    changes
}

fn compare_message(
    name: &str,
    released: &DescriptorProto,
    current: &DescriptorProto,
    changes: &mut Vec<String>,
) {
    for field in &released.field {
        let number = field.number();
        let Some(now) = current.field.iter().find(|now| now.number() == number) else {
            changes.push(
                match current.field.iter().find(|now| now.name() == field.name()) {
                    Some(moved) => format!(
                        "field {name}.{} was renumbered from {number} to {}",
                        field.name(),
                        moved.number()
                    ),
                    None => format!("field {name}.{} = {number} was removed", field.name()),
                },
            );
            continue;
        };
        if now.name() != field.name() {
            // JSON and generated code contain the names of fields, so a new name breaks clients as a new number does.
            changes.push(format!(
                "field {name}.{} = {number} was renamed to {}",
                field.name(),
                now.name()
            ));
        }
        let (before, after) = (
            FieldShape::of(field, released),
            FieldShape::of(now, current),
        );
        if before != after {
            changes.push(format!(
                "field {name}.{} = {number} changed from {} to {}",
                field.name(),
                before.text(),
                after.text()
            ));
        }
    }
    for number in reused_numbers(&released.reserved_range, current) {
        changes.push(format!(
            "field number {number} of {name} was reserved and is used again"
        ));
    }
}

/// Numbers of fields that the release had reserved.
fn reused_numbers(reserved: &[ReservedRange], current: &DescriptorProto) -> Vec<i32> {
    let numbers = current.field.iter().map(FieldDescriptorProto::number);
    numbers
        // The end of a field range is exclusive; the end of a range of enum values is inclusive.
        .filter(|number| {
            reserved
                .iter()
                .any(|range| (range.start()..range.end()).contains(number))
        })
        .collect()
}

/// The properties of a field that determine its encoding.
#[derive(PartialEq, Eq)]
struct FieldShape {
    kind: String,
    is_repeated: bool,
    /// Whether its absence is distinguishable from its default.
    is_optional: bool,
    /// Name of its `oneof`, where it has one: a setter of one field clears the others.
    oneof: Option<String>,
}

impl FieldShape {
    fn of(field: &FieldDescriptorProto, message: &DescriptorProto) -> Self {
        let kind = match field.type_name() {
            "" => field.r#type().as_str_name().to_owned(),
            name => name.trim_start_matches('.').to_owned(),
        };
        let is_optional = field.proto3_optional();
        let oneof = field
            .oneof_index
            .and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?))
            // The compiler adds a separate `oneof` for an optional field.
            .filter(|_| !is_optional)
            .map(|oneof| oneof.name().to_owned());
        Self {
            kind,
            is_repeated: field.label() == prost_types::field_descriptor_proto::Label::Repeated,
            is_optional,
            oneof,
        }
    }

    fn text(&self) -> String {
        let prefix = match (self.is_repeated, self.is_optional) {
            (true, _) => "repeated ",
            (_, true) => "optional ",
            _ => "",
        };
        let kind = self.kind.trim_start_matches("TYPE_");
        match &self.oneof {
            Some(oneof) => format!("{prefix}{kind} in oneof {oneof}"),
            None => format!("{prefix}{kind}"),
        }
    }
}

fn compare_enum(
    name: &str,
    released: &EnumDescriptorProto,
    current: &EnumDescriptorProto,
    changes: &mut Vec<String>,
) {
    for value in &released.value {
        match current.value.iter().find(|now| now.name() == value.name()) {
            None => changes.push(format!("enum value {name}.{} was removed", value.name())),
            Some(now) if now.number() != value.number() => changes.push(format!(
                "enum value {name}.{} was renumbered from {} to {}",
                value.name(),
                value.number(),
                now.number()
            )),
            Some(_) => {}
        }
    }
    let is_reserved = |number: i32| {
        let mut ranges = released.reserved_range.iter();
        ranges.any(|range: &EnumReservedRange| (range.start()..=range.end()).contains(&number))
    };
    for value in current
        .value
        .iter()
        .filter(|value| is_reserved(value.number()))
    {
        changes.push(format!(
            "number {} of enum {name} was reserved and is used again",
            value.number()
        ));
    }
}

fn compare_service(
    name: &str,
    released: &ServiceDescriptorProto,
    current: &ServiceDescriptorProto,
    changes: &mut Vec<String>,
) {
    for method in &released.method {
        let Some(now) = current
            .method
            .iter()
            .find(|now| now.name() == method.name())
        else {
            changes.push(format!("rpc {name}/{} was removed", method.name()));
            continue;
        };
        let (before, after) = (signature(method), signature(now));
        if before != after {
            changes.push(format!(
                "rpc {name}/{} changed from {before} to {after}",
                method.name()
            ));
        }
    }
}

fn signature(method: &MethodDescriptorProto) -> String {
    let stream = |streams: bool| if streams { "stream " } else { "" };
    format!(
        "({}{}) returns ({}{})",
        stream(method.client_streaming()),
        method.input_type().trim_start_matches('.'),
        stream(method.server_streaming()),
        method.output_type().trim_start_matches('.')
    )
}
