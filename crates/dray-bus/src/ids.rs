//! Message ids (messaging-reliability 4.2).

use dray_types::OperationId;

/// `<tenant>/<operation>:<step>:<redrives>`.
///
/// The server deduplicates across tenants (F-10), so the operation id is scoped by the tenant's token before it becomes
/// part of an id. Otherwise a tenant could suppress the message of another by using its operation id first.
pub(crate) fn message_id(
    tenant: &str,
    operation: &OperationId,
    step: &str,
    redrives: u32,
) -> String {
    format!("{tenant}/{operation}:{step}:{redrives}")
}

/// The count of deliberate restarts in an id; 0 for ids of any other form.
pub(crate) fn redrive_count(id: &str, operation: &OperationId, step: &str) -> u32 {
    // The id is split from the end, because an operation id of another publisher may contain `:` and `/`.
    id.rsplit_once(':')
        .and_then(|(head, count)| {
            let head = head.strip_suffix(step)?.strip_suffix(':')?;
            let known = head
                .split_once('/')
                // Other publishers may write ids without the tenant (docs/messaging.md), hence both readings.
                .map_or(head, |(_, operation)| operation);
            (known == operation.as_str() || head == operation.as_str())
                .then(|| count.parse().ok())
                .flatten()
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_our_own_ids_and_from_those_of_other_publishers() {
        let check = |id: &str, operation: &str, expected: u32| {
            let operation = OperationId::new(operation).unwrap();
            assert_eq!(
                redrive_count(id, &operation, "toolcall.resolve"),
                expected,
                "{id}"
            );
        };
        check("acme/op:toolcall.resolve:3", "op", 3);
        check("op:toolcall.resolve:3", "op", 3);
        check("a/b:toolcall.resolve:4", "a/b", 4);
        check("acme/a/b:toolcall.resolve:4", "b", 0);
        check("other:toolcall.resolve:3", "op", 0);
        check("op:toolcall.resolved:3", "op", 0);
        check("op:toolcall.resolve:-3", "op", 0);
        check("op:toolcall.resolve:99999999999", "op", 0);
        check("", "op", 0);
        let operation = OperationId::new("x/y:z").unwrap();
        let id = message_id("acme", &operation, "toolcall.resolve", 7);
        assert_eq!(redrive_count(&id, &operation, "toolcall.resolve"), 7);
    }
}
