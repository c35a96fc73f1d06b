//! Values of messages as text for people.

/// Unix milliseconds as RFC 3339; as a number when they are out of range.
pub(crate) fn rfc3339_time(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|unix_ms| jiff::Timestamp::from_millisecond(unix_ms).ok())
        .map_or_else(|| unix_ms.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339_time(0), "1970-01-01T00:00:00Z");
    }
}
