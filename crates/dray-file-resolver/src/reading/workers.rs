//! How many conversions run concurrently when the configuration does not say it.

use dray_types::ByteSize;

/// Memory of the container that is kept for the service itself.
const SERVICE_MEMORY: ByteSize = ByteSize::mib(1024);

/// One conversion for each processor, but only as many as fit beside the service into the memory of its container. A
/// container often has the processors of its whole node, and the kernel ends all of its processes when its memory is
/// used up.
pub(super) fn default_workers(
    container: Option<ByteSize>,
    max_memory: ByteSize,
    processors: usize,
) -> usize {
    let Some(limit) = container else {
        return processors;
    };
    let free = limit.as_u64().saturating_sub(SERVICE_MEMORY.as_u64());
    let fitting = free / max_memory.as_u64().max(1);
    let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
    processors.min(fitting).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_fit_into_the_memory_of_the_container() {
        let gib = ByteSize::mib(1024);
        for (container, max_memory, processors, expected) in [
            (None, gib, 64, 64),
            (Some(ByteSize::mib(5 * 1024)), gib, 64, 4),
            (Some(ByteSize::mib(5 * 1024)), gib, 2, 2),
            (Some(ByteSize::mib(5 * 1024)), ByteSize::mib(128), 64, 32),
            (Some(ByteSize::mib(512)), gib, 64, 1),
        ] {
            let workers = default_workers(container, max_memory, processors);
            assert_eq!(workers, expected, "{container:?} {max_memory}");
        }
    }
}
