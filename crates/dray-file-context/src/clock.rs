//! The current time as a model gets it (agent-file-context 10).

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::{Offset, TimeZone};
use serde::{Deserialize, Serialize};

/// An instant and a person's time zone. The caller provides both; this module does not read a clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalTime {
    /// The instant, as RFC 3339.
    pub at: Timestamp,
    /// An IANA name (`Asia/Shanghai`) or an offset (`+08:00`). Absent means UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// The zone is neither a known name nor an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time zone is neither an IANA name nor an offset such as +08:00")]
pub struct UnknownZone;

impl LocalTime {
    /// `YYYY-MM-DD HH:mm:ss dddd`, the weekday in English.
    pub fn text(&self) -> Result<String, UnknownZone> {
        let zone = match self.time_zone.as_deref() {
            None | Some("") => TimeZone::UTC,
            Some(name) => parse_zone(name).ok_or(UnknownZone)?,
        };
        let local = self.at.to_zoned(zone);
        strtime::format("%Y-%m-%d %H:%M:%S %A", &local).map_err(|_| UnknownZone)
    }
}

fn parse_zone(name: &str) -> Option<TimeZone> {
    if let Some(offset) = parse_offset(name) {
        return Some(TimeZone::fixed(offset));
    }
    TimeZone::get(name).ok()
}

/// Parses `+HH:MM` or `-HH:MM`, up to 23:59.
fn parse_offset(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.strip_prefix('+') {
        Some(rest) => (1, rest),
        None => (-1, text.strip_prefix('-')?),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let hours: i32 = hours
        .parse()
        .ok()
        .filter(|hours| (0..=23).contains(hours))?;
    let minutes: i32 = minutes
        .parse()
        .ok()
        .filter(|minutes| (0..=59).contains(minutes))?;
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(zone: Option<&str>) -> Result<String, UnknownZone> {
        let at = "2026-05-14T02:00:00Z".parse().unwrap();
        let time_zone = zone.map(str::to_owned);
        LocalTime { at, time_zone }.text()
    }

    #[test]
    fn the_time_is_written_in_the_zone_of_the_request() {
        assert_eq!(
            text(Some("Asia/Shanghai")).unwrap(),
            "2026-05-14 10:00:00 Thursday"
        );
        assert_eq!(
            text(Some("+08:00")).unwrap(),
            "2026-05-14 10:00:00 Thursday"
        );
        assert_eq!(
            text(Some("America/New_York")).unwrap(),
            "2026-05-13 22:00:00 Wednesday"
        );
        assert_eq!(
            text(Some("-00:30")).unwrap(),
            "2026-05-14 01:30:00 Thursday"
        );
        assert_eq!(text(None).unwrap(), "2026-05-14 02:00:00 Thursday");
    }

    #[test]
    fn an_unknown_zone_is_refused_and_not_taken_for_utc() {
        for zone in ["Mars/Olympus", "+25:00", "+08", "../etc/passwd"] {
            assert_eq!(text(Some(zone)), Err(UnknownZone), "{zone}");
        }
    }
}
