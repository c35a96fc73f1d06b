//! Decides what follows a request that the platform refused, so that no part of it is visible (platform-delivery 7,
//! 10).

use std::time::Duration;

use dray_platform::ErrorKind;

use crate::machine::has_attempts_left;

/// Bound of the delay before the first retry (platform-delivery 10.2).
pub const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Most doublings of this bound.
const MAX_DOUBLINGS: u32 = 5;

/// The delay after a refusal for a rate limit that names none.
const RATE_LIMIT_DELAY: Duration = Duration::from_secs(1);

/// Factor of this delay for each further such refusal of a chat in a row, as `WhatsApp` requires for the messages to one
/// person (platform-delivery 7.5).
const RATE_LIMIT_FACTOR: u32 = 4;

/// Longest delay after a refusal for a rate limit that names none.
const MAX_RATE_LIMIT_DELAY: Duration = Duration::from_hours(1);

/// The action after a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalAction {
    /// Send the same step again after this delay, or after [`unnamed_rate_limit_delay`] if the platform named none. The
    /// attempt does not count, because the file did not fail.
    WaitForRateLimit(Duration),
    /// Send the same step again after this delay, or after a random one below [`backoff_bound`]. The attempt counts.
    RetryLater(Option<Duration>),
    /// Send the bytes of the files in place of the platform's ids, if an attempt is left.
    ForgetFileIds,
    /// Send the same step without the message that it replies to, then without the thread.
    LeaveThread,
    /// Wait until the user writes. The attempt does not count.
    ParkUntilUserWrites,
    /// Send the content in another way: by another route, file by file, as shorter texts, or as a link.
    UseAnotherRoute,
    /// Send the files of an album one by one. A single file fails.
    SplitAlbum,
    /// The chat or the account is the cause: this step and all that follow fail.
    FailChat,
    /// The step fails.
    GiveUp,
}

/// Decides what follows a refusal of this kind. `attempts` counts the refused one, and `retry_after` is the delay that
/// the platform named.
pub fn decide_refusal(
    kind: ErrorKind,
    attempts: u32,
    retry_after: Option<Duration>,
) -> RefusalAction {
    match kind {
        ErrorKind::RateLimited => {
            RefusalAction::WaitForRateLimit(retry_after.unwrap_or(RATE_LIMIT_DELAY))
        }
        ErrorKind::Transient | ErrorKind::Source if has_attempts_left(attempts) => {
            RefusalAction::RetryLater(retry_after)
        }
        // The platform may refuse only one file of an album; the others then arrive separately.
        ErrorKind::Transient | ErrorKind::Source | ErrorKind::Empty | ErrorKind::Unknown => {
            RefusalAction::SplitAlbum
        }
        ErrorKind::StaleFileId => RefusalAction::ForgetFileIds,
        ErrorKind::NoThread => RefusalAction::LeaveThread,
        ErrorKind::WindowClosed => RefusalAction::ParkUntilUserWrites,
        ErrorKind::TooLarge
        | ErrorKind::UnsupportedKind
        | ErrorKind::BadFormat
        | ErrorKind::TooLong => RefusalAction::UseAnotherRoute,
        ErrorKind::Auth | ErrorKind::NotFound => RefusalAction::FailChat,
        ErrorKind::Forbidden => RefusalAction::GiveUp,
    }
}

/// The delay after a refusal for a rate limit that names none, when this many such refusals of the chat came before it in
/// a row.
pub fn unnamed_rate_limit_delay(earlier: u32) -> Duration {
    let factor = RATE_LIMIT_FACTOR.saturating_pow(earlier);
    RATE_LIMIT_DELAY
        .saturating_mul(factor)
        .min(MAX_RATE_LIMIT_DELAY)
}

/// The bound of the random delay (full jitter) after this number of attempts. It doubles with each of them. `first` is
/// [`FIRST_RETRY_DELAY`], and less in tests.
pub fn backoff_bound(first: Duration, attempts: u32) -> Duration {
    first * (1 << attempts.saturating_sub(1).min(MAX_DOUBLINGS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{MAX_LOST_RESPONSES, MAX_VISIBLE_ATTEMPTS};

    fn decide(kind: ErrorKind, attempts: u32) -> RefusalAction {
        decide_refusal(kind, attempts, None)
    }

    #[test]
    fn a_failure_that_may_pass_is_retried_until_the_attempts_are_used_up() {
        let given = Some(Duration::from_secs(7));
        for kind in [ErrorKind::Transient, ErrorKind::Source] {
            let retried = decide_refusal(kind, MAX_VISIBLE_ATTEMPTS - 1, given);
            assert_eq!(retried, RefusalAction::RetryLater(given));
            assert_eq!(
                decide(kind, MAX_VISIBLE_ATTEMPTS),
                RefusalAction::SplitAlbum
            );
        }
    }

    #[test]
    fn a_rate_limit_is_waited_for_after_any_number_of_attempts() {
        let given = Duration::from_secs(90);
        let decided = decide_refusal(
            ErrorKind::RateLimited,
            MAX_VISIBLE_ATTEMPTS + 1,
            Some(given),
        );
        assert_eq!(decided, RefusalAction::WaitForRateLimit(given));
    }

    #[test]
    fn a_rate_limit_without_a_delay_is_waited_for_longer_each_time_up_to_an_hour() {
        let delays = [0, 1, 2, 5, 6, u32::MAX].map(unnamed_rate_limit_delay);
        let seconds = delays.map(|delay| delay.as_secs());
        assert_eq!(seconds, [1, 4, 16, 1024, 3600, 3600]);
    }

    #[test]
    fn the_bound_of_the_delay_doubles_up_to_32_times_the_first() {
        let bounds =
            [1, 2, 3, 6, 7, 100].map(|attempts| backoff_bound(FIRST_RETRY_DELAY, attempts));
        assert_eq!(bounds.map(|bound| bound.as_secs()), [1, 2, 4, 32, 32, 32]);
    }

    /// The text between a heading of `docs/deliveries.md` and the next one.
    fn section(heading: &str) -> String {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deliveries.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
        section.split("\n## ").next().unwrap().to_owned()
    }

    #[test]
    fn the_page_of_deliveries_says_what_follows_each_kind_of_refusal() {
        let section = section("Retries");
        for kind in ErrorKind::ALL_KINDS {
            let follows = match decide(kind, 1) {
                RefusalAction::WaitForRateLimit(_) => "the attempt does not count",
                RefusalAction::RetryLater(_) => "sent again after a delay",
                RefusalAction::ForgetFileIds => "bytes are sent",
                RefusalAction::LeaveThread => "without the thread",
                RefusalAction::ParkUntilUserWrites => "until the user writes",
                RefusalAction::UseAnotherRoute => "another route",
                RefusalAction::SplitAlbum => "one by one",
                RefusalAction::FailChat => "all later messages",
                RefusalAction::GiveUp => "the file fails",
            };
            let name = format!("`{}`", kind.as_str());
            let rows: Vec<_> = section
                .lines()
                .filter(|line| {
                    line.split('|')
                        .nth(1)
                        .is_some_and(|kinds| kinds.contains(&name))
                })
                .collect();
            let [row] = rows[..] else {
                panic!("{name} is in {} rows", rows.len());
            };
            assert!(row.contains(follows), "{row} does not say: {follows}");
        }
    }

    #[test]
    fn the_page_of_deliveries_states_the_numbers_of_retries() {
        let section = section("Retries");
        let bounds: Vec<_> = (1..MAX_VISIBLE_ATTEMPTS)
            .map(|attempts| {
                backoff_bound(FIRST_RETRY_DELAY, attempts)
                    .as_secs()
                    .to_string()
            })
            .collect();
        let limit = RATE_LIMIT_DELAY.as_secs();
        for stated in [
            format!("at most {MAX_VISIBLE_ATTEMPTS} attempts"),
            format!("at most {} s", bounds.join(", ")),
            format!("or {limit} s when it names none"),
            format!("{RATE_LIMIT_FACTOR} times as long after each further such refusal"),
            format!("after {MAX_LOST_RESPONSES} lost responses"),
        ] {
            assert!(
                section.contains(&stated),
                "the page does not state: {stated}"
            );
        }
    }
}
