//! Runs cases one after the other.

use std::time::Duration;

use crate::{CaseEnd, CaseFailures, ConformanceReport};

/// Time limit of one case: an implementation that hangs must fail its case, and not stop the suite.
const CASE_TIMEOUT: Duration = Duration::from_mins(2);

/// Lists functions by their own names, for [`run_cases`]: `case_list![module::function, …]` is a slice of pairs of the
/// name and a function that boxes the future of the case.
#[macro_export]
macro_rules! case_list {
    ($($module:ident :: $name:ident,)*) => {
        &[$((stringify!($name), |context| Box::pin($module::$name(context)))),*]
    };
}

/// Runs all cases, even after a failure, so that one report names every violation.
///
/// `run` creates the context of a case and runs the case; both count as part of the case.
///
/// # Errors
///
/// All cases that failed, by name, in the order in which they ran. A case that took longer than two minutes is one of
/// them.
pub async fn run_cases<C: Copy, R: Future<Output = Result<(), CaseEnd>>>(
    cases: &[(&'static str, C)],
    run: impl Fn(&'static str, C) -> R,
) -> Result<ConformanceReport, CaseFailures> {
    let mut report = ConformanceReport::default();
    let mut failures = CaseFailures::default();
    for (name, case) in cases {
        // Cases run one at a time, because they share a sandbox or an account, and some change what others check.
        match tokio::time::timeout(CASE_TIMEOUT, run(name, *case)).await {
            Ok(Ok(())) => report.passed.push(name),
            Ok(Err(CaseEnd::Skip(_))) => report.skipped.push(name),
            Ok(Err(CaseEnd::Fail(reason))) => failures.0.push((name, reason)),
            Err(_) => failures.0.push((name, "it did not end in time".to_owned())),
        }
    }
    if failures.0.is_empty() {
        Ok(report)
    } else {
        Err(failures)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;
    use crate::{expect_bytes, expect_equal, expect_true};

    type SampleCase =
        for<'a> fn(&'a str) -> Pin<Box<dyn Future<Output = Result<(), CaseEnd>> + 'a>>;

    mod sample {
        use super::*;

        pub(super) async fn passes(text: &str) -> Result<(), CaseEnd> {
            expect_true(text == "7", "another text")?;
            expect_bytes("bytes", text.as_bytes(), b"7")?;
            expect_equal("parsed", text.parse::<u32>()?, 7)
        }

        pub(super) async fn does_not_apply(_text: &str) -> Result<(), CaseEnd> {
            Err(CaseEnd::Skip("no such thing"))
        }

        pub(super) async fn finds_other_bytes(text: &str) -> Result<(), CaseEnd> {
            expect_bytes("bytes", text.as_bytes(), b"78")
        }

        pub(super) async fn meets_an_error(_text: &str) -> Result<(), CaseEnd> {
            "seven".parse::<u32>()?;
            Ok(())
        }

        pub(super) async fn never_ends(_text: &str) -> Result<(), CaseEnd> {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn passed_and_skipped_cases_are_reported_by_name() {
        let cases: &[(&str, SampleCase)] = case_list![sample::passes, sample::does_not_apply,];
        let report = run_cases(cases, |_, case| case("7")).await.unwrap();
        assert_eq!(report.passed, ["passes"]);
        assert_eq!(report.skipped, ["does_not_apply"]);
    }

    // The clock advances by itself when all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn every_failure_is_reported_with_its_line_and_reason() {
        let cases: &[(&str, SampleCase)] = case_list![
            sample::finds_other_bytes,
            sample::meets_an_error,
            sample::never_ends,
            sample::passes,
        ];
        let failures = run_cases(cases, |_, case| case("7")).await.unwrap_err();
        let names: Vec<_> = failures.0.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["finds_other_bytes", "meets_an_error", "never_ends"]);
        let failure_text = format!("{failures:?}");
        assert_eq!(failure_text.lines().count(), 4, "{failure_text}");
        assert!(failure_text.contains("run.rs:"), "{failure_text}");
        assert!(
            failure_text.contains("1 bytes found, 2 expected, different from byte 1 on"),
            "{failure_text}"
        );
        assert!(
            failure_text.contains("unexpected error: invalid digit found in string; ParseIntError"),
            "{failure_text}"
        );
    }
}
