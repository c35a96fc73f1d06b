//! Texts about calls that take too long (quickapps 21).

use std::time::Duration;

/// Message for the model, on one line.
pub fn timeout_message(tool: &str, limit: Duration) -> String {
    format!(
        // Triggers in manifests match on `timed out` (quickapps 21).
        "The tool call `{tool}` timed out after {} seconds. Consider retrying with a smaller or different input, \
         breaking the request into smaller pieces, or informing the user that the operation is taking longer than \
         expected.",
        seconds_text(limit)
    )
}

/// Seconds as a person writes them: `30`, `0.5`.
fn seconds_text(limit: Duration) -> String {
    let text = format!("{:.3}", limit.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The timeout of a call: the timeout of the tool or its set, otherwise the default. A zero timeout counts as unset.
pub fn effective_timeout(own: Option<Duration>, default: Duration) -> Duration {
    own.filter(|own| !own.is_zero()).unwrap_or(default)
}

/// The time limit from a number of seconds in a manifest; `None` if it is not positive.
pub fn from_seconds(seconds: f64) -> Option<Duration> {
    // `from_secs_f64` panics on negative, infinite and undefined values.
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_contract() {
        assert_eq!(
            timeout_message("shop_order", Duration::from_mins(5)),
            "The tool call `shop_order` timed out after 300 seconds. Consider retrying with a smaller or different \
             input, breaking the request into smaller pieces, or informing the user that the operation is taking \
             longer than expected."
        );
        assert!(timeout_message("t", Duration::from_millis(500)).contains("after 0.5 seconds."));
        assert!(timeout_message("t", Duration::from_millis(1250)).contains("after 1.25 seconds."));
    }

    #[test]
    fn r_13_the_limit_of_a_tool_wins_over_the_default() {
        let (own, default) = (Duration::from_secs(3), Duration::from_mins(5));
        assert_eq!(effective_timeout(Some(own), default), own);
        assert_eq!(effective_timeout(None, default), default);
        assert_eq!(effective_timeout(Some(Duration::ZERO), default), default);
    }

    #[test]
    fn seconds_without_a_limit_give_no_timeout() {
        assert_eq!(from_seconds(1.5), Some(Duration::from_millis(1500)));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(from_seconds(wrong), None);
        }
    }
}
