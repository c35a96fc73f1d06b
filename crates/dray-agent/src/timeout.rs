//! How long a call may take (quickapps 21).

use std::time::Duration;

/// The limit of a call in order of nearness: the tool's, its set's, the manifest's default, all in seconds, else the
/// service's. Values that are no duration, or not more than 0, count as absent.
pub fn effective(
    tool: Option<f64>,
    set: Option<f64>,
    defaults: Option<f64>,
    service: Duration,
) -> Duration {
    [tool, set, defaults]
        .into_iter()
        .flatten()
        .filter_map(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .find(|limit| !limit.is_zero())
        .unwrap_or(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_13_the_nearest_limit_that_is_one_counts() {
        let service = Duration::from_secs(9);
        let of = |tool, set, defaults| effective(tool, set, defaults, service).as_secs_f64();
        assert_eq!(of(Some(1.5), Some(2.0), Some(3.0)).to_string(), "1.5");
        assert_eq!(of(None, Some(2.0), Some(3.0)).to_string(), "2");
        assert_eq!(of(Some(0.0), Some(f64::NAN), Some(3.0)).to_string(), "3");
        assert_eq!(of(Some(-1.0), None, None).to_string(), "9");
    }
}
