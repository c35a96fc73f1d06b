//! Pages and budgets.

use proptest::prelude::*;
use serde_json::json;

use super::super::page::{cut_page, share_budget};
use super::super::*;
use super::{catalog, plan};

#[test]
fn r_6_a_text_is_read_page_by_page_to_its_end() {
    let whole: String = "报告 line\n".repeat(30);
    let mut read = String::new();
    let mut offset = Some(0);
    while let Some(from) = offset {
        let arguments = json!({"ids": ["c-0"], "offset": from, "limit": 17});
        let answer = plan(READ_TOOL, &arguments).run(|_| Ok(ReadText::of(whole.clone())));
        let file = &answer.files[0];
        assert_eq!(file.length, Some(whole.chars().count()));
        assert_eq!(file.truncated, file.next_offset.is_some());
        read.push_str(&file.content);
        offset = file.next_offset;
    }
    assert_eq!(read, whole);
    let behind =
        plan(READ_TOOL, &json!({"ids": ["c-0"], "offset": 5000})).run(|_| Ok(ReadText::of("abc")));
    assert_eq!(behind.files[0].code, Some(FailureCode::OutOfRange));
    assert!(behind.files[0].content.contains("3 characters"));
}

#[test]
fn r_6_the_budget_of_a_call_is_shared_fairly() {
    assert_eq!(share_budget(100, &[10, 200, 200]), [10, 45, 45]);
    assert_eq!(share_budget(100, &[500, 0, 20]), [80, 0, 20]);
    assert_eq!(share_budget(0, &[5]), [0]);
    assert!(share_budget(7, &[]).is_empty());
    let arguments = ReadArguments::read(READ_TOOL, &json!({"ids": ["c-0", "h-0"]})).unwrap();
    let answer = ReadPlan::new(&arguments, &catalog(), 1000).assemble(vec![
        Ok(ReadText::of("x".repeat(5000))),
        Ok(ReadText::of("short")),
    ]);
    assert_eq!(
        (answer.files[0].content.len(), answer.files[0].next_offset),
        (995, Some(995))
    );
    assert!(answer.files[0].truncated && !answer.files[1].truncated);
}

#[test]
fn r_6_left_out_pages_are_reported_and_their_range_is_returned() {
    let plan = plan(READ_TOOL, &json!({"ids": ["c-0"], "range": " pages 3-5 "}));
    assert_eq!(
        plan.tasks().next().unwrap().range.as_deref(),
        Some("pages 3-5")
    );
    let found = ReadText {
        text: "a".into(),
        incomplete: true,
        warnings: vec!["remark".into()],
        ..ReadText::default()
    };
    let answer = plan.assemble(vec![Ok(found)]);
    assert!(answer.files[0].truncated && answer.files[0].next_offset.is_none());
    assert!(
        answer
            .json()
            .ends_with(r#""truncated":true,"warnings":["remark"]}]"#)
    );
}

proptest! {
    #[test]
    fn r_6_shares_are_bounded_and_fair_and_leave_no_unused_budget(budget in 0_usize..500, wanted in prop::collection::vec(0_usize..200, 0..12)) {
        let shares = share_budget(budget, &wanted);
        let total: usize = shares.iter().sum();
        let all: usize = wanted.iter().sum();
        prop_assert!(total <= budget);
        prop_assert!(shares.iter().zip(&wanted).all(|(share, want)| share <= want));
        prop_assert!(total == all.min(budget), "{} of {}", total, budget);
        let least_cut = shares.iter().zip(&wanted).filter(|(share, want)| share < want).map(|(share, _)| *share).min();
        if let Some(least) = least_cut {
            prop_assert!(shares.iter().all(|share| *share <= least + 1));
        }
    }

    #[test]
    fn r_6_pages_put_together_are_the_text(text in ".{0,60}", limit in 1_usize..9) {
        let mut read = String::new();
        let mut offset = Some(0);
        while let Some(page) = offset.and_then(|from| cut_page(&text, from, limit)) {
            read.push_str(page.text);
            offset = page.next_offset;
        }
        prop_assert_eq!(read, text);
    }

    #[test]
    fn no_arguments_whatsoever_break_the_parser(text in "[\\[\\]{}\",:ids \\\\a0]{0,40}") {
        if let Ok(arguments) = ReadArguments::parse(READ_TOOL, &text) {
            ReadPlan::new(&arguments, &catalog(), 300).run(|_| Ok(ReadText::of("x")));
        }
    }
}
