//! Budgets: limits on a turn, a conversation or a client, and costs.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::TokenUsage;

/// Millionths of a unit of the currency.
const MICROS_PER_UNIT: u64 = 1_000_000;
/// Tokens to which prices refer.
const PRICED_TOKENS: u128 = 1_000_000;
/// The largest amount that is accepted, in units of the currency.
const MAX_UNITS: f64 = 1e12;

/// An amount of money in an unnamed currency, exact to a millionth. On the wire it is a number such as `2.5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoneyAmount {
    micros: u64,
}

impl MoneyAmount {
    /// An amount of millionths.
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    /// The amount in millionths.
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// The amount in units of the currency, exact up to 10^9 units.
    #[expect(
        clippy::cast_precision_loss,
        reason = "amounts up to 10^9 units are exact"
    )]
    pub fn as_units(self) -> f64 {
        self.micros as f64 / MICROS_PER_UNIT as f64
    }

    /// Adds two amounts; the sum is at most the largest possible amount.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self::from_micros(self.micros.saturating_add(more.micros))
    }
}

impl fmt::Display for MoneyAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!(
            "{}.{:06}",
            self.micros / MICROS_PER_UNIT,
            self.micros % MICROS_PER_UNIT
        );
        let short = text.trim_end_matches('0').trim_end_matches('.');
        f.write_str(short)
    }
}

impl Serialize for MoneyAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_units())
    }
}

impl<'de> Deserialize<'de> for MoneyAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let units = f64::deserialize(deserializer)?;
        if !(0.0..=MAX_UNITS).contains(&units) {
            return Err(serde::de::Error::custom("must be a number from 0 to 10^12"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "in the range that was checked"
        )]
        let micros = (units * MICROS_PER_UNIT as f64).round() as u64;
        Ok(Self { micros })
    }
}

impl JsonSchema for MoneyAmount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MoneyAmount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "minimum": 0, "maximum": MAX_UNITS})
    }
}

/// Prices of a million tokens of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TokenPrice {
    /// Price of tokens of prompts.
    pub input: MoneyAmount,
    /// Price of prompt tokens that the model's service had cached; the price of `input` if absent.
    pub cached_input: Option<MoneyAmount>,
    /// Price of tokens of answers, those of reasoning among them.
    pub output: MoneyAmount,
}

impl TokenPrice {
    /// The cost of tokens, rounded up to a millionth.
    pub fn cost(&self, tokens: TokenUsage) -> MoneyAmount {
        let cached = tokens.cached.min(tokens.prompt);
        let part = |count: u64, price: MoneyAmount| u128::from(count) * u128::from(price.micros);
        let total = part(tokens.prompt - cached, self.input)
            .saturating_add(part(cached, self.cached_input.unwrap_or(self.input)))
            .saturating_add(part(tokens.completion, self.output));
        let micros = total.div_ceil(PRICED_TOKENS);
        MoneyAmount::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// Limits of use. A field that is absent has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BudgetLimits {
    /// Most tokens of prompts and answers together. Unset: no limit.
    pub max_tokens: Option<u64>,
    /// Most cost, by the prices in the service's configuration. Unset: no limit.
    pub max_cost: Option<MoneyAmount>,
    /// Most calls of models. Unset: no limit.
    pub max_calls: Option<u64>,
}

/// Limits of one turn: tokens, cost, calls and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TurnLimits {
    /// Tokens, cost and calls.
    #[serde(flatten)]
    pub limits: BudgetLimits,
    /// Longest duration in seconds, tools included; 1 to 86400. Unset: no limit.
    #[schemars(range(min = 1, max = 86_400))]
    pub max_seconds: Option<u32>,
}

/// The amounts that were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUse {
    /// Tokens of prompts and answers together.
    pub tokens: u64,
    /// Cost, by the prices of the time.
    pub cost: MoneyAmount,
    /// Calls of models.
    pub calls: u64,
}

impl BudgetUse {
    /// The usage of one call of a model.
    pub fn of_call(tokens: TokenUsage, price: Option<&TokenPrice>) -> Self {
        Self {
            tokens: tokens.prompt.saturating_add(tokens.completion),
            cost: price.map(|price| price.cost(tokens)).unwrap_or_default(),
            calls: 1,
        }
    }

    /// The rest after a part is subtracted; never negative.
    #[must_use]
    pub const fn minus(self, part: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(part.tokens),
            cost: MoneyAmount::from_micros(self.cost.micros.saturating_sub(part.cost.micros)),
            calls: self.calls.saturating_sub(part.calls),
        }
    }

    /// Adds two usages.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(more.tokens),
            cost: self.cost.plus(more.cost),
            calls: self.calls.saturating_add(more.calls),
        }
    }
}

impl BudgetLimits {
    /// Whether no value is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// The limit that was reached, as text for people; `None` if none was reached.
    pub fn reached(&self, used: BudgetUse) -> Option<String> {
        let tokens = self.max_tokens.filter(|limit| used.tokens >= *limit);
        let cost = self.max_cost.filter(|limit| used.cost >= *limit);
        let calls = self.max_calls.filter(|limit| used.calls >= *limit);
        tokens
            .map(|limit| format!("{limit} tokens"))
            .or_else(|| cost.map(|limit| format!("a cost of {limit}")))
            .or_else(|| calls.map(|limit| format!("{limit} calls of models")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokens(prompt: u64, cached: u64, completion: u64) -> TokenUsage {
        TokenUsage {
            prompt,
            completion,
            cached,
            ..TokenUsage::default()
        }
    }

    #[test]
    fn cost_is_exact_and_rounded_up() {
        let price: TokenPrice =
            serde_json::from_value(json!({"input": 2.5, "cached_input": 0.25, "output": 10}))
                .unwrap();
        let cost = price.cost(tokens(1_000_000, 400_000, 100_000));
        assert_eq!(cost.to_string(), "2.6");
        assert_eq!(price.cost(tokens(1, 0, 0)).as_micros(), 3);
        // If a service reports more cached tokens than prompt tokens, the price is not negative.
        assert_eq!(price.cost(tokens(4, 9, 0)).as_micros(), 1);
        assert_eq!(
            price.cost(tokens(u64::MAX, 0, u64::MAX)).as_micros(),
            u64::MAX
        );
    }

    #[test]
    fn amounts_are_numbers_on_the_wire() {
        for (units, text) in [
            (json!(2.5), "2.5"),
            (json!(0), "0"),
            (json!(0.000_001), "0.000001"),
            (json!(30), "30"),
        ] {
            let amount: MoneyAmount = serde_json::from_value(units.clone()).unwrap();
            assert_eq!(amount.to_string(), text);
            assert_eq!(
                serde_json::to_value(amount).unwrap().as_f64(),
                units.as_f64()
            );
        }
        for invalid in [json!(-1), json!("1"), json!(1e13)] {
            assert!(serde_json::from_value::<MoneyAmount>(invalid).is_err());
        }
    }

    #[test]
    fn the_reached_limit_is_named() {
        let limits = json!({"max_tokens": 50, "max_cost": 1, "max_calls": 5});
        let limits: BudgetLimits = serde_json::from_value(limits).unwrap();
        let price = TokenPrice {
            output: MoneyAmount::from_micros(MICROS_PER_UNIT),
            ..TokenPrice::default()
        };
        let used = BudgetUse::of_call(tokens(40, 0, 9), Some(&price));
        assert_eq!(limits.reached(used), None);
        let more = BudgetUse::of_call(tokens(1, 0, 0), None);
        assert_eq!(
            limits.reached(used.plus(more)).as_deref(),
            Some("50 tokens")
        );
        let expensive = BudgetUse {
            cost: MoneyAmount::from_micros(MICROS_PER_UNIT),
            ..used
        };
        assert_eq!(limits.reached(expensive).as_deref(), Some("a cost of 1"));
        assert!(BudgetLimits::default().is_unlimited());
    }
}
