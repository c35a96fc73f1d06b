//! JSON schemas of the types that configuration is made of. The configuration loader and the generated reference
//! recognise the formats `byte-size`, `duration` and `password`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{ByteSize, FileSetting, Period, Secret};

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        // The schema is inlined, here and below: the loader looks for `format` at the setting itself, not through a
        // reference.
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A plain number of bytes is an integer in a file, and a text in the environment.
        json_schema!({ "type": ["string", "integer"], "format": "byte-size" })
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "duration" })
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "password" })
    }
}

impl JsonSchema for FileSetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FileSetting".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
