//! Charts of the last hour, as SVG in the page: a bar for each minute.

use maud::{Markup, html};

use crate::index::{MINUTES_SHOWN, MinuteCounts};
use crate::state::ConsoleState;
use crate::text::duration_text;

/// Width of a bar (5) and the gap after it (1), in units of the SVG's `viewBox`.
const BAR_STEP: u64 = 6;
/// Height of the chart, in the same units.
const CHART_HEIGHT: u64 = 48;
/// Width of the chart, in the same units.
const CHART_WIDTH: u64 = BAR_STEP * MINUTES_SHOWN;

/// Rate, failures and latency of the last hour.
pub(super) fn charts(state: &ConsoleState) -> Markup {
    let minutes = state.index.last_hour(state.now_ms());
    let events: u64 = minutes.iter().map(|counts| counts.events).sum();
    let failures: u64 = minutes.iter().map(|counts| counts.failures).sum();
    let slowest = minutes
        .iter()
        .filter_map(|counts| counts.latency_bound_ms(95))
        .max();
    let latency = match slowest {
        Some(slowest) => format!(
            "95 % took at most {} in the slowest minute",
            duration_text(slowest)
        ),
        None => "no event of the last hour has a duration".to_owned(),
    };
    html! {
        div.charts {
            (bar_chart("Events", &format!("{events} in the last hour"), &minutes, |counts| counts.events))
            (bar_chart("Failures and refusals", &format!("{failures} in the last hour"), &minutes, |counts| counts.failures))
            (bar_chart("Latency", &latency, &minutes, |counts| counts.latency_bound_ms(95).unwrap_or(0)))
        }
    }
}

/// One bar per minute, the oldest on the left, relative to the largest.
fn bar_chart(
    title: &str,
    sentence: &str,
    minutes: &[MinuteCounts],
    value: impl Fn(&MinuteCounts) -> u64,
) -> Markup {
    // The value is at least 1, to avoid a division by zero in an hour without events.
    let largest = minutes.iter().map(&value).max().unwrap_or(0).max(1);
    html! {
        figure {
            figcaption { strong { (title) } " " (sentence) }
            svg role="img" aria-label={ (title) ": " (sentence) } viewBox={ "0 0 " (CHART_WIDTH) " " (CHART_HEIGHT) }
                preserveAspectRatio="none" {
                line.axis x1="0" x2=(CHART_WIDTH) y1=(CHART_HEIGHT) y2=(CHART_HEIGHT) {}
                @for (index, counts) in (0_u64..).zip(minutes) {
                    @let height = bar_height(value(counts), largest);
                    @if height > 0 {
                        rect x=(index * BAR_STEP) y=(CHART_HEIGHT - height) width=(BAR_STEP - 1) height=(height) {}
                    }
                }
            }
        }
    }
}

/// Height of a bar, at least 1 for a value above zero, so that it is visible.
fn bar_height(value: u64, largest: u64) -> u64 {
    let height = u128::from(value) * u128::from(CHART_HEIGHT) / u128::from(largest);
    u64::try_from(height)
        .unwrap_or(CHART_HEIGHT)
        .max(u64::from(value > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_relative_to_the_largest_and_never_invisible() {
        assert_eq!(bar_height(0, 10), 0);
        assert_eq!(bar_height(1, 1_000_000), 1);
        assert_eq!(bar_height(5, 10), CHART_HEIGHT / 2);
        assert_eq!(bar_height(u64::MAX, u64::MAX), CHART_HEIGHT);
    }

    #[test]
    fn the_label_of_a_chart_describes_it_for_screen_readers() {
        let minutes = vec![MinuteCounts {
            events: 3,
            ..MinuteCounts::default()
        }];
        let svg = bar_chart("Events", "3 in the last hour", &minutes, |counts| {
            counts.events
        });
        let svg = svg.into_string();
        assert!(svg.contains("aria-label=\"Events: 3 in the last hour\""));
        assert_eq!(svg.matches("<rect").count(), 1, "{svg}");
    }
}
