//! The explanation of every URL that a scenario fetched (`dray policy explain --resolve`), in a new network of the same
//! setup: it has the verdict and the code of the fetch. It does not follow redirects, so what a later hop refuses is
//! allowed here.

use serde_json::Value;

use crate::fetch::{FetchCommand, FetchOutcome};

/// Codes of failures after the judgement: of the connection, of the response, and of too many redirects.
const LATER_CODES: [&str; 7] = [
    "connect_failed",
    "tls_error",
    "timeout",
    "http_status",
    "too_large",
    "redirect_limit",
    "redirect_downgrade",
];

/// A fetch, and the line that it printed.
#[derive(Clone, Debug)]
pub(crate) struct CheckedFetch {
    pub(crate) fetch: FetchCommand,
    pub(crate) line: Value,
}

impl CheckedFetch {
    /// A fetch that was judged: not a reference in arguments, and not one whose configuration is refused.
    pub(crate) fn of(fetch: &FetchCommand, outcome: &FetchOutcome) -> Option<Self> {
        let line: Value = serde_json::from_str(&outcome.stdout).ok()?;
        let is_judged = !fetch.is_reference() && line["verdict"].is_string();
        is_judged.then(|| Self {
            fetch: fetch.clone(),
            line,
        })
    }

    /// The difference between the explanation and the fetch, if any.
    pub(crate) fn compare(&self, explained: &FetchOutcome) -> Result<(), String> {
        let printed: Value = serde_json::from_str(&explained.stdout).map_err(|error| {
            format!("the explanation is not JSON: {error}: {}", explained.stderr)
        })?;
        let steps = printed["steps"]
            .as_array()
            .ok_or("the explanation has no steps")?;
        let refusal = steps.iter().find(|step| step["verdict"] == "refused");
        let fetched = self.line["code"].as_str().unwrap_or_default();
        match refusal {
            Some(step) if step["code"] == fetched && self.line["verdict"] == "deny" => Ok(()),
            Some(step) => Err(format!("the explanation refuses it with {}", step["code"])),
            None if printed["verdict"] != "allowed" => {
                Err(format!("the explanation is {}", printed["verdict"]))
            }
            None if self.line["verdict"] == "allow" || self.may_fail_later(fetched) => Ok(()),
            None => Err("the explanation allows it".to_owned()),
        }
    }

    /// Whether a failure with this code may come after the judgement of the first URL.
    fn may_fail_later(&self, code: &str) -> bool {
        let redirects = ["/to/", "/raw/"]
            .iter()
            .any(|path| self.fetch.url.contains(path));
        redirects || self.fetch.has_changing_answer() || LATER_CODES.contains(&code)
    }
}
