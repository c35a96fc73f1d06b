//! The end of an answer of the model: which finish reasons end a turn, and which are failures.

use super::*;

#[test]
fn reasons_of_services_have_a_meaning_and_some_of_them_are_failures() {
    let cases: [(&[&str], Option<FinishReason>); 5] = [
        (
            &["stop", "eos", "end_turn", "stop_sequence", "STOP", "new"],
            Some(FinishReason::Stop),
        ),
        (
            &["tool_calls", "function_call"],
            Some(FinishReason::ToolCalls),
        ),
        (
            &["length", "max_tokens", "MAX_TOKENS", "model_length"],
            Some(FinishReason::Length),
        ),
        (
            &["content_filter", "SAFETY", "sensitive"],
            Some(FinishReason::ContentFilter),
        ),
        (&["error", "abort", "insufficient_system_resource"], None),
    ];
    for (reasons, meaning) in cases {
        for reason in reasons {
            assert_eq!(finish_reason(reason), meaning, "{reason}");
        }
    }
}

#[test]
fn only_the_last_call_of_an_answer_that_a_limit_ended_may_miss_its_arguments() {
    let calls = || vec![(0, empty_call()), (1, empty_call())];
    let arguments = |is_cut_off| -> Vec<String> {
        let calls = with_call_ids(calls(), is_cut_off, &[]);
        calls
            .into_iter()
            .map(|call| call.function.arguments)
            .collect()
    };
    assert_eq!(arguments(false), ["{}", "{}"]);
    assert_eq!(arguments(true), ["{}", ""]);
}
