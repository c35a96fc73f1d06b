//! Counts the tokens that one turn used and collects the files that it showed.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use dray_agent::budget::TokenPrice;
use dray_agent::event::{ModelUsage, TokenUsage};
use dray_agent::message::Attachment;

/// Tokens by model, files already shown, and time.
#[derive(Debug, Default)]
pub(super) struct TurnTally {
    per_model: Vec<ModelUsage>,
    shown: HashSet<String>,
    files: Vec<Attachment>,
}

impl TurnTally {
    /// Adds a call of the model. Tokens without a model are the deployment's own.
    pub(super) fn model(&mut self, deployment: &str, usage: &[ModelUsage]) {
        for usage in usage {
            let model = if usage.model.is_empty() {
                deployment
            } else {
                &usage.model
            };
            self.add(model, usage.tokens);
        }
    }

    /// Adds what a tool used.
    pub(super) fn tool(&mut self, usage: &[ModelUsage]) {
        for usage in usage {
            self.add(&usage.model, usage.tokens);
        }
    }

    fn add(&mut self, model: &str, tokens: TokenUsage) {
        let entry = self.per_model.iter_mut().find(|entry| entry.model == model);
        if let Some(entry) = entry {
            entry.tokens = entry.tokens.plus(tokens);
        } else {
            self.per_model.push(ModelUsage {
                model: model.to_owned(),
                tokens,
            });
        }
    }

    /// Whether the user did not see this file yet: files with one URL are one file.
    pub(super) fn is_new(&mut self, attachment: &Attachment) -> bool {
        match &attachment.url {
            Some(url) => self.shown.insert(url.clone()),
            // Inline content has no address to compare.
            None => true,
        }
    }

    /// Records files that the user saw.
    pub(super) fn note_files(&mut self, files: &[Attachment]) {
        self.files.extend_from_slice(files);
    }

    /// The files that the user saw, in order.
    pub(super) fn files(&self) -> &[Attachment] {
        &self.files
    }

    /// Tokens by model, in order of first use.
    pub(super) fn per_model(&self) -> &[ModelUsage] {
        &self.per_model
    }

    /// All tokens; `None` when nothing was counted.
    pub(super) fn total(&self) -> Option<TokenUsage> {
        (!self.per_model.is_empty()).then(|| {
            self.per_model
                .iter()
                .fold(TokenUsage::default(), |total, usage| {
                    total.plus(usage.tokens)
                })
        })
    }

    /// The table of the stage `Usage Statistics`; with costs if the price of one of its models is known.
    pub(super) fn table(&self, prices: &BTreeMap<String, TokenPrice>) -> String {
        let mut models = self.per_model.iter();
        let is_priced = models.any(|usage| prices.contains_key(&usage.model));
        let (title, rule) = if is_priced {
            (" Cost |", "---|")
        } else {
            ("", "")
        };
        let mut table = format!(
            "| Model | Prompt tokens | Completion tokens | Total tokens |{title}\n|---|---|---|---|{rule}\n"
        );
        for usage in &self.per_model {
            let TokenUsage {
                prompt, completion, ..
            } = usage.tokens;
            let total = prompt.saturating_add(completion);
            // A vertical bar in a name would begin another column.
            let model = usage.model.replace('|', "\\|");
            let _ = write!(table, "| {model} | {prompt} | {completion} | {total} |");
            if is_priced {
                let cost = prices.get(&usage.model);
                let cost = cost.map(|price| price.cost(usage.tokens).to_string());
                let _ = write!(table, " {} |", cost.unwrap_or_default());
            }
            table.push('\n');
        }
        table
    }
}

/// The text of the stage `Execution time`.
pub(super) fn execution_time(elapsed: Duration) -> String {
    format!("{:.2}s\n", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use dray_agent::budget::MoneyAmount;

    use super::*;

    fn usage(model: &str, prompt: u64, completion: u64) -> ModelUsage {
        ModelUsage {
            model: model.to_owned(),
            tokens: TokenUsage {
                prompt,
                completion,
                ..TokenUsage::default()
            },
        }
    }

    #[test]
    fn tokens_add_up_by_model_in_order_of_first_use() {
        let mut tally = TurnTally::default();
        assert_eq!(tally.total(), None);
        tally.model("lead", &[usage("", 10, 1)]);
        tally.tool(&[usage("helper", 5, 5)]);
        tally.model("lead", &[usage("lead", 2, 2)]);
        assert_eq!(
            tally.per_model(),
            [usage("lead", 12, 3), usage("helper", 5, 5)]
        );
        let total = tally.total().unwrap();
        assert_eq!((total.prompt, total.completion), (17, 8));
        assert!(
            tally
                .table(&BTreeMap::new())
                .ends_with("| lead | 12 | 3 | 15 |\n| helper | 5 | 5 | 10 |\n")
        );
        let price = TokenPrice {
            input: MoneyAmount::from_micros(2_000_000),
            output: MoneyAmount::from_micros(10_000_000),
            ..TokenPrice::default()
        };
        assert_eq!(
            tally.table(&BTreeMap::from([("lead".to_owned(), price)])),
            "| Model | Prompt tokens | Completion tokens | Total tokens | Cost |\n|---|---|---|---|---|\n\
             | lead | 12 | 3 | 15 | 0.000054 |\n| helper | 5 | 5 | 10 |  |\n"
        );
    }

    #[test]
    fn a_file_is_shown_once_by_its_url() {
        let mut tally = TurnTally::default();
        let file = Attachment {
            url: Some("files/B/a".to_owned()),
            ..Attachment::default()
        };
        assert!(tally.is_new(&file));
        assert!(!tally.is_new(&file));
        let inline = Attachment {
            data: Some("x".to_owned()),
            ..Attachment::default()
        };
        assert!(tally.is_new(&inline) && tally.is_new(&inline));
    }

    #[test]
    fn time_has_two_decimals() {
        assert_eq!(execution_time(Duration::from_millis(1234)), "1.23s\n");
    }
}
