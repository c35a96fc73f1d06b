//! The budgets that hold for one turn: its own, that of its conversation, and that of its caller.
//!
//! A call of a model is charged with an estimate before it begins, and settled when it ends, so that a client that
//! disconnects in the middle is charged. Where a model's service reports no tokens, four bytes count as one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_agent::budget::{BudgetLimits, BudgetUse, TokenPrice};
use dray_agent::event::{ModelUsage, TokenUsage};
use dray_agent::failure::RequestFailure;
use dray_agent::manifest::Manifest;
use tokio::time::Instant;

use super::SharedParts;
use crate::budgets::UsageLedger;
use crate::permissions::CallerIdentity;
use crate::records::digest_prefix;

/// Bytes of text that count as one token where no number is known.
const BYTES_PER_TOKEN: u64 = 4;
/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Code of a request for which no budget is left.
pub(super) const EXHAUSTED_CODE: &str = "budget_exhausted";
/// Scope of the budgets of one turn, for messages to people.
const THIS_TURN: &str = "this turn";

/// A budget and its usage.
#[derive(Clone, Debug)]
struct ScopedBudget {
    /// Whose budget it is, for messages to people.
    scope: &'static str,
    limits: BudgetLimits,
    used: BudgetUse,
    /// Record that other turns update as well.
    record: Option<String>,
    /// Whether the limits are those of the manifest. They do not apply to another agent that answers the rest of the
    /// turn.
    is_manifest: bool,
}

/// The time limits of a turn.
#[derive(Clone, Copy, Debug)]
struct TurnTime {
    /// When the turn began.
    started_at: Instant,
    /// The operator's limit, from the beginning of the turn.
    turn: Option<Duration>,
    /// The manifest's limit, from when its agent began to answer.
    manifest: Option<(Instant, Duration)>,
}

impl TurnTime {
    /// The limit that is reached first, and the time at which it is.
    fn limit(&self) -> Option<(Instant, Duration)> {
        let turn = self.turn.map(|limit| (self.started_at, limit));
        let limits = turn.into_iter().chain(self.manifest);
        limits
            .map(|(started_at, limit)| (started_at + limit, limit))
            .min_by_key(|(end, _)| *end)
    }
}

/// The budgets of a turn, its conversation and its caller, to which every call of a model is charged together.
#[derive(Debug)]
pub(super) struct TurnBudget {
    scopes: Mutex<Vec<ScopedBudget>>,
    prices: Arc<BTreeMap<String, TokenPrice>>,
    ledger: UsageLedger,
    principal: String,
    time: TurnTime,
    has_limits: bool,
    /// Budgets of the calling agent; `None` for an agent that no other agent called.
    parent: Option<Arc<TurnBudget>>,
}

/// A charge for a call that runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallCharge {
    estimate: TokenUsage,
    charged: BudgetUse,
}

impl TurnBudget {
    /// The budgets of a turn of `conversation` that began at this time.
    ///
    /// # Errors
    ///
    /// 429 when a budget is used up, 503 while the bus fails, 500 for a model without a price where cost is limited.
    pub(super) async fn open(
        parts: &SharedParts,
        identity: &CallerIdentity,
        (conversation, started_at): (&str, Instant),
        manifest: &Manifest,
        parent: Option<Arc<Self>>,
    ) -> Result<Self, RequestFailure> {
        let budgets = &parts.config.budgets;
        let caller = match identity {
            CallerIdentity::Client(name) => budgets.clients.get(name),
            CallerIdentity::Local | CallerIdentity::Dial(_) => None,
        };
        let caller = *caller.unwrap_or(&budgets.caller);
        let (ledger, principal) = (parts.records.usage.clone(), identity.key());
        let day = ledger.now_ms() / DAY_MS;
        let conversation_record = format!("conversation-{}", digest_prefix(conversation, 32));
        let mut scopes = vec![
            ScopedBudget::new(THIS_TURN, budgets.turn.limits, None),
            ScopedBudget::new(
                "this conversation",
                budgets.conversation,
                Some(conversation_record),
            ),
            ScopedBudget::new(
                "this client for today (UTC)",
                caller,
                Some(format!("day-{day}")),
            ),
        ];
        // A called agent uses the shared budgets of the agent that called it.
        scopes.retain(|scope| {
            !scope.limits.is_unlimited() && (parent.is_none() || scope.record.is_none())
        });
        for scope in &mut scopes {
            if let Some(record) = &scope.record {
                scope.used = ledger.used(&principal, record).await?;
            }
        }
        let budget = Self {
            has_limits: false,
            parent,
            scopes: Mutex::new(scopes),
            prices: Arc::clone(&parts.prices),
            ledger,
            principal,
            time: TurnTime {
                started_at,
                turn: budgets.turn.max_seconds.map(whole_seconds),
                manifest: None,
            },
        };
        budget.with_manifest(parts, manifest)
    }

    /// The budgets of another agent that answers the rest of the turn. It has the limits of its own manifest, and
    /// continues all other budgets.
    ///
    /// # Errors
    ///
    /// 429 when a budget is used up, 500 for a model without a price where cost is limited.
    pub(super) fn succeed(
        &self,
        parts: &SharedParts,
        manifest: &Manifest,
    ) -> Result<Self, RequestFailure> {
        let scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = scopes.iter().filter(|scope| !scope.is_manifest);
        let budget = Self {
            scopes: Mutex::new(shared.cloned().collect()),
            prices: Arc::clone(&self.prices),
            ledger: self.ledger.clone(),
            principal: self.principal.clone(),
            time: self.time,
            has_limits: false,
            parent: self.parent.clone(),
        };
        budget.with_manifest(parts, manifest)
    }

    /// Adds the limits of a manifest, and checks what is left.
    fn with_manifest(
        mut self,
        parts: &SharedParts,
        manifest: &Manifest,
    ) -> Result<Self, RequestFailure> {
        let own = manifest.budget.unwrap_or_default();
        let limit = own.max_seconds.map(whole_seconds);
        self.time.manifest = limit.map(|limit| (Instant::now(), limit));
        let scopes = self
            .scopes
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if !own.limits.is_unlimited() {
            let mut scope = ScopedBudget::new(THIS_TURN, own.limits, None);
            scope.is_manifest = true;
            scopes.insert(0, scope);
        }
        let limits_cost = scopes.iter().any(|scope| scope.limits.max_cost.is_some());
        let prices = &parts.config.budgets.prices;
        let mut models = manifest.orchestrator.models().map(|one| &one.deployment_id);
        let unpriced = models.find(|model| !prices.contains_key(*model));
        if let Some(model) = unpriced.filter(|_| limits_cost) {
            tracing::error!(%model, "a budget limits cost, and the model has no price");
            let text = "A model of the agent has no price in the configuration, and a budget limits its cost.";
            return Err(RequestFailure::new(500, text).display(text));
        }
        for scope in scopes.iter() {
            if let Some(limit) = scope.limits.reached(scope.used) {
                return Err(exhausted_failure(scope.scope, &limit, self.ledger.now_ms()));
            }
        }
        let parent = self.parent.as_ref();
        self.has_limits = !scopes.is_empty() || parent.is_some_and(|parent| parent.has_limits);
        Ok(self)
    }

    /// The time at which the turn is stopped.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.time.limit().map(|(end, _)| end)
    }

    /// When the turn began, with the agents that answered before.
    pub(super) const fn started_at(&self) -> Instant {
        self.time.started_at
    }

    /// Text for the user when the time of the turn is over.
    pub(super) fn timeout_text(&self) -> String {
        let limit = self.time.limit().map(|(_, limit)| limit);
        let seconds = limit.unwrap_or_default().as_secs();
        stop_text(THIS_TURN, &format!("{seconds} seconds"))
    }

    /// Text for the user when a budget is used up; `None` if every budget has some left.
    pub(super) fn exhausted(&self) -> Option<String> {
        let scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reached = scopes
            .iter()
            .filter_map(|scope| Some((scope.scope, scope.limits.reached(scope.used)?)));
        let own = reached
            .next()
            .map(|(scope, limit)| stop_text(scope, &limit));
        own.or_else(|| self.parent.as_ref()?.exhausted())
    }

    /// Charges a call of a model that begins, by the bytes of its request.
    pub(super) async fn begin_call(&self, model: &str, request_bytes: usize) -> CallCharge {
        if !self.has_limits {
            return CallCharge::default();
        }
        let estimate = TokenUsage {
            prompt: estimated_tokens(request_bytes),
            ..TokenUsage::default()
        };
        let charged = BudgetUse::of_call(estimate, self.prices.get(model));
        self.replace(BudgetUse::default(), charged).await;
        CallCharge { estimate, charged }
    }

    /// Settles a call that ended: with the tokens that its service reported, else with an estimate from the received
    /// bytes.
    pub(super) async fn end_call(
        &self,
        charge: CallCharge,
        model: &str,
        usage: &[ModelUsage],
        response_bytes: usize,
    ) {
        if !self.has_limits {
            return;
        }
        let estimated = [ModelUsage {
            model: model.to_owned(),
            tokens: TokenUsage {
                completion: estimated_tokens(response_bytes),
                ..charge.estimate
            },
        }];
        let usage = if usage.is_empty() { &estimated } else { usage };
        let used = BudgetUse {
            calls: 1,
            ..self.sum(model, usage)
        };
        self.replace(charge.charged, used).await;
    }

    /// Takes back the charge of a call that never began.
    pub(super) async fn cancel_call(&self, charge: CallCharge) {
        if self.has_limits {
            self.replace(charge.charged, BudgetUse::default()).await;
        }
    }

    /// Charges what a tool used.
    pub(super) async fn charge_tool(&self, usage: &[ModelUsage]) {
        if self.has_limits && !usage.is_empty() {
            self.replace(BudgetUse::default(), self.sum("", usage))
                .await;
        }
    }

    fn sum(&self, model: &str, usage: &[ModelUsage]) -> BudgetUse {
        usage.iter().fold(BudgetUse::default(), |sum, usage| {
            sum.plus(self.use_of_call(model, usage))
        })
    }

    /// The use of one call. Tokens of a model without a name or a price cost as much as those of the model that was
    /// called. If that has no price either, as a tool, they cost as much as those of the most expensive model, so that
    /// a limit of cost holds for them.
    fn use_of_call(&self, model: &str, usage: &ModelUsage) -> BudgetUse {
        let price = self.prices.get(&usage.model);
        let price = price.or_else(|| self.prices.get(model));
        let by_price = |price: &TokenPrice| price.cost(usage.tokens);
        let most_expensive = || self.prices.values().map(by_price).max();
        BudgetUse {
            cost: price
                .map(by_price)
                .or_else(most_expensive)
                .unwrap_or_default(),
            ..BudgetUse::of_call(usage.tokens, None)
        }
    }

    /// Replaces one usage by another, here and in the budgets of the calling agents.
    async fn replace(&self, before: BudgetUse, after: BudgetUse) {
        let mut next = Some(self);
        while let Some(budget) = next {
            budget.replace_own(before, after).await;
            next = budget.parent.as_deref();
        }
    }

    async fn replace_own(&self, before: BudgetUse, after: BudgetUse) {
        let records: Vec<_> = {
            let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
            for scope in scopes.iter_mut() {
                scope.used = scope.used.minus(before).plus(after);
            }
            scopes.iter().map(|scope| scope.record.clone()).collect()
        };
        for (number, record) in records.into_iter().enumerate() {
            let Some(record) = record else { continue };
            let replaced = self
                .ledger
                .replace(&self.principal, &record, before, after)
                .await;
            match replaced {
                Ok(used) => {
                    // From now on, the usage of concurrent turns of the same caller counts too.
                    let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(scope) = scopes.get_mut(number) {
                        scope.used = used;
                    }
                }
                Err(failure) => {
                    tracing::warn!(%failure, record, "what a turn used was not recorded");
                }
            }
        }
    }
}

impl ScopedBudget {
    fn new(scope: &'static str, limits: BudgetLimits, record: Option<String>) -> Self {
        Self {
            scope,
            limits,
            used: BudgetUse::default(),
            record,
            is_manifest: false,
        }
    }
}

fn whole_seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

fn stop_text(scope: &str, limit: &str) -> String {
    format!("The agent stopped: the budget of {scope} is used up ({limit}).")
}

fn estimated_tokens(bytes: usize) -> u64 {
    u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .div_ceil(BYTES_PER_TOKEN)
}

fn exhausted_failure(scope: &str, limit: &str, now_ms: u64) -> RequestFailure {
    let text = format!("The budget of {scope} is used up ({limit}).");
    let mut failure = RequestFailure::new(429, text.clone()).display(text);
    failure.code = Some(EXHAUSTED_CODE.to_owned());
    // The request may be repeated on the next day; for a conversation no better time is known.
    let seconds = (DAY_MS - now_ms % DAY_MS).div_ceil(1000);
    failure.retry_after_seconds = Some(u16::try_from(seconds).unwrap_or(u16::MAX));
    failure
}
