//! Checks whether the memory limit of the process is enough for the work that it accepts concurrently
//! (messaging-reliability 14).
//!
//! One operation needs at most 8 MiB beyond its message, for any file size (architecture, invariant 4).

use std::path::Path;

use dray_types::ByteSize;

use super::HostedService;
use crate::settings::LimitsSection;

/// Memory that one operation may need at most.
const OPERATION_BYTES: ByteSize = ByteSize::mib(8);
/// Part of the limit that operations may need together, in percent; the rest is reserved for other uses.
const OPERATIONS_PERCENT: u64 = 60;
/// Files in which the kernel shows the limit: control groups version 2, then 1.
const MEMORY_LIMIT_FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// The memory limit of this process's container; `None` without a limit.
pub fn container_memory_limit() -> Option<ByteSize> {
    MEMORY_LIMIT_FILES
        .iter()
        .find_map(|path| read_limit(Path::new(path)))
}

fn read_limit(path: &Path) -> Option<ByteSize> {
    let text = std::fs::read_to_string(path).ok()?;
    // Version 2 writes `max` for no limit, which does not parse.
    let bytes: u64 = text.trim().parse().ok()?;
    // Version 1 writes a number near the top of the range for "no limit".
    (bytes < 1 << 62).then_some(ByteSize::bytes(bytes))
}

/// Most operations that these services handle at one time.
pub(super) fn max_operations(services: &[HostedService], limits: &LimitsSection) -> u64 {
    let of = |service: &HostedService| {
        let calls = if service.calls.is_empty() {
            0
        } else {
            limits.calls
        };
        let work = if service.work.is_empty() {
            0
        } else {
            limits.work
        };
        u64::from(calls) + u64::from(work)
    };
    services.iter().map(of).sum()
}

/// Checks whether `operations` fit under `limit`. The error says which values would fit.
pub(super) fn check_memory(limit: Option<ByteSize>, operations: u64) -> Result<(), String> {
    let Some(limit) = limit else {
        return Ok(());
    };
    let needed = operations.saturating_mul(OPERATION_BYTES.as_u64());
    // The division comes first, so that no limit overflows.
    let allowed = limit.as_u64() / 100 * OPERATIONS_PERCENT;
    if needed <= allowed {
        return Ok(());
    }
    let enough = ByteSize::mib(((needed / OPERATIONS_PERCENT * 100) >> 20) + 1);
    Err(format!(
        "the memory limit of {limit} is too small for {operations} operations of {OPERATION_BYTES} each; lower limits.calls and \
         limits.work, or allow at least {enough}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_may_need_six_tenths_of_the_limit() {
        assert_eq!(check_memory(None, u64::MAX), Ok(()));
        let gib = Some(ByteSize::mib(1024));
        assert_eq!(check_memory(gib, 76), Ok(()));
        let error = check_memory(gib, 77).unwrap_err();
        assert!(
            error.contains("1GiB") && error.contains("77 operations of 8MiB"),
            "{error}"
        );
        let enough: ByteSize = error.rsplit(' ').next().unwrap().parse().unwrap();
        assert_eq!(check_memory(Some(enough), 77), Ok(()));
    }

    #[test]
    fn the_defaults_fit_a_container_of_one_gibibyte() {
        let limits = LimitsSection::default();
        let operations = u64::from(limits.calls) + u64::from(limits.work);
        assert_eq!(check_memory(Some(ByteSize::mib(1024)), operations), Ok(()));
    }

    #[test]
    fn max_and_the_page_counter_limit_count_as_no_limit() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("limit");
        for (text, expected) in [
            ("max\n", None),
            ("9223372036854771712\n", None),
            ("536870912\n", Some(ByteSize::mib(512))),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read_limit(&file), expected, "{text}");
        }
        assert_eq!(read_limit(&directory.path().join("absent")), None);
    }
}
