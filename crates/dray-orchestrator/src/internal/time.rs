//! The tool that returns the current time (quickapps 15).

use async_trait::async_trait;
use dray_agent::clock;
use dray_tool::{
    CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
};
use dray_types::Clock;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde_json::{Value, json};

/// Argument: an IANA name such as `Europe/Berlin`.
const ZONE_ARGUMENT: &str = "timezone";

/// The time by the clock of the service.
#[derive(Debug)]
pub(super) struct CurrentTime {
    declaration: ToolDeclaration,
    rules: CallRules,
    clock: Clock,
    zones: TimeZoneDatabase,
}

impl CurrentTime {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            declaration: super::tool_declaration(
                clock::CLOCK_TOOL,
                "Returns the current date and time, in UTC or in a time zone.",
                json!({
                    "type": "object",
                    "properties": {ZONE_ARGUMENT: {
                        "type": "string",
                        "description": "IANA name of a time zone, such as Europe/Berlin. UTC if it is left out.",
                    }},
                }),
            ),
            rules: super::call_rules("Current time", true),
            clock: clock.clone(),
            // The time zones are bundled, so that the zones do not depend on files of the machine.
            zones: TimeZoneDatabase::bundled(),
        }
    }

    /// The time in a zone; `None` for an unknown zone.
    fn time_in_zone(&self, requested_zone: Option<&str>) -> Option<String> {
        let (zone, source) = match requested_zone {
            None => (TimeZone::UTC, "default"),
            Some(name) => (self.zones.get(name).ok()?, "request"),
        };
        let now = i64::try_from(self.clock.now_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        let now = now.to_zoned(zone);
        let iso = now.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
        let name = now.time_zone().iana_name().unwrap_or("UTC");
        Some(clock::clock_result(&iso, name, source))
    }
}

#[async_trait]
impl Tool for CurrentTime {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, _: &Turn) -> Result<ToolOutput, ToolFailure> {
        let requested_zone = match call.arguments.get(ZONE_ARGUMENT) {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.trim()).filter(|name| !name.is_empty()),
            Some(_) => {
                return Err(ToolFailure::parameter(
                    ZONE_ARGUMENT,
                    "it is not the name of a time zone",
                ));
            }
        };
        let zoned_time = self.time_in_zone(requested_zone).ok_or_else(|| {
            let name = requested_zone.unwrap_or_default();
            HandledFailure::new(format!(
                "The time zone '{name}' does not exist; give an IANA name such as Europe/Berlin."
            ))
        })?;
        Ok(ToolOutput::text(zoned_time, "text/plain"))
    }
}
