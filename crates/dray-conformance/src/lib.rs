//! Runs a conformance suite: cases by name, one after the other, with one report.
//!
//! A suite is a list of cases that every implementation of an interface passes, such as every sandbox backend and
//! every chat platform. [`run_cases`] runs them and returns a [`ConformanceReport`], or the [`CaseFailures`] of all
//! cases that failed. A case ends early with a [`CaseEnd`]: skipped, because it does not apply, or failed, with the
//! line of the check. `?` turns every error into a failure; [`expect_true`], [`expect_equal`] and [`expect_bytes`] are
//! the checks that suites share.
//!
//! ```
//! use dray_conformance::{CaseEnd, case_list, expect_equal, run_cases};
//!
//! mod numbers {
//!     use super::*;
//!
//!     pub async fn a_number_is_parsed(text: &str) -> Result<(), CaseEnd> {
//!         expect_equal("parsed", text.parse::<u32>()?, 7)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! type NumberCase = for<'a> fn(&'a str) -> std::pin::Pin<Box<dyn Future<Output = Result<(), CaseEnd>> + 'a>>;
//! let cases: &[(&str, NumberCase)] = case_list![numbers::a_number_is_parsed,];
//! let report = run_cases(cases, |_name, case| case("7")).await.unwrap();
//! assert_eq!(report.passed, ["a_number_is_parsed"]);
//! # }
//! ```
//!
//! This crate knows no interface, starts no program, and is not a part of the product.

mod check;
mod report;
mod run;

pub use check::{expect_bytes, expect_equal, expect_true};
pub use report::{CaseEnd, CaseFailures, ConformanceReport};
pub use run::run_cases;
