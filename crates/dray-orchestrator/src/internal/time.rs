//! The tool that returns the current time (quickapps 15).

use async_trait::async_trait;
use dray_agent::clock;
use dray_tool::{Call, Declaration, Failed, Failure, Output, Rules, Tool, Turn};
use dray_types::Clock;
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde_json::{Value, json};

/// Argument: an IANA name such as `Europe/Berlin`.
const ZONE: &str = "timezone";

/// The time by the clock of the service.
#[derive(Debug)]
pub(super) struct Now {
    declaration: Declaration,
    rules: Rules,
    clock: Clock,
    zones: TimeZoneDatabase,
}

impl Now {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            declaration: super::declaration(
                clock::TOOL,
                "Tells the current date and time, in UTC or in a time zone.",
                json!({
                    "type": "object",
                    "properties": {ZONE: {
                        "type": "string",
                        "description": "IANA name of a time zone, such as Europe/Berlin. UTC if it is left out.",
                    }},
                }),
            ),
            rules: super::rules("Current time", true),
            clock: clock.clone(),
            zones: TimeZoneDatabase::bundled(),
        }
    }

    /// The time in a zone; `None` for an unknown zone.
    fn tell(&self, wanted: Option<&str>) -> Option<String> {
        let (zone, source) = match wanted {
            None => (TimeZone::UTC, "default"),
            Some(name) => (self.zones.get(name).ok()?, "request"),
        };
        let now = i64::try_from(self.clock.now_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        let now = now.to_zoned(zone);
        let iso = now.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string();
        let name = now.time_zone().iana_name().unwrap_or("UTC");
        Some(clock::result(&iso, name, source))
    }
}

#[async_trait]
impl Tool for Now {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    async fn call(&self, call: Call, _: &Turn) -> Result<Output, Failure> {
        let wanted = match call.arguments.get(ZONE) {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.trim()).filter(|name| !name.is_empty()),
            Some(_) => {
                return Err(Failure::parameter(
                    ZONE,
                    "it is not the name of a time zone",
                ));
            }
        };
        let told = self.tell(wanted).ok_or_else(|| {
            let name = wanted.unwrap_or_default();
            Failed::new(format!(
                "There is no time zone '{name}'; give an IANA name such as Europe/Berlin."
            ))
        })?;
        Ok(Output::text(told, "text/plain"))
    }
}
