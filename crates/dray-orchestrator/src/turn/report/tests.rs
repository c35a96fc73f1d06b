//! Names, codes and sums of the events of a turn.

use super::*;

#[test]
fn a_list_names_a_limited_number_of_models_and_counts_the_others_together() {
    let mut models: Vec<v1::TurnModel> = Vec::new();
    let mut count = |name: &str| {
        let new = |model| v1::TurnModel {
            model,
            ..v1::TurnModel::default()
        };
        let entry = named_entry(&mut models, name, MAX_MODELS, |entry| &entry.model, new);
        entry.calls += 1;
    };
    for number in 0..30 {
        count(&format!("m{number}"));
    }
    count("m3");
    count(&"x".repeat(1_000));
    assert_eq!(models.len(), MAX_MODELS);
    let calls = |name: &str| {
        let found = models.iter().find(|entry| entry.model == name);
        found.map(|entry| entry.calls)
    };
    assert_eq!((calls("m3"), calls("m14")), (Some(2), Some(1)));
    assert_eq!((calls("m15"), calls(OTHER_NAMES)), (None, Some(16)));
}

#[test]
fn long_names_are_cut() {
    assert_eq!(cut_name(&"é".repeat(500)).chars().count(), 128);
}

#[test]
fn a_failure_has_the_outcome_of_its_cause() {
    let mut exhausted = RequestFailure::new(429, "used up");
    assert_eq!(failure_outcome(&exhausted), TurnOutcome::Failed);
    exhausted.code = Some(EXHAUSTED_CODE.to_owned());
    assert_eq!(failure_outcome(&exhausted), TurnOutcome::BudgetReached);
    assert_eq!(
        failure_outcome(&client_gone_failure()),
        TurnOutcome::Cancelled
    );
}

#[test]
fn every_status_has_a_code_of_the_contracts() {
    for (status, code) in [
        (400, v1::FaultCode::InvalidArgument),
        (403, v1::FaultCode::Denied),
        (404, v1::FaultCode::NotFound),
        (413, v1::FaultCode::TooLarge),
        (422, v1::FaultCode::InvalidArgument),
        (429, v1::FaultCode::RateLimited),
        (500, v1::FaultCode::Internal),
        (502, v1::FaultCode::Unavailable),
        (504, v1::FaultCode::Timeout),
    ] {
        assert_eq!(fault_code(status), code, "{status}");
    }
}

#[test]
fn a_cost_is_known_if_one_of_its_parts_is() {
    assert_eq!(add_cost(None, None), None);
    assert_eq!(add_cost(Some(2), None), Some(2));
    assert_eq!(add_cost(None, Some(3)), Some(3));
    assert_eq!(add_cost(Some(u64::MAX), Some(3)), Some(u64::MAX));
}
