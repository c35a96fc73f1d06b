//! The parts that a delivery passes through, each with the handles that it needs.

use std::sync::Arc;
use std::time::Duration;

use dray_delivery_rules::refusal::FIRST_RETRY_DELAY;
use dray_http_server::ByteLimit;
use dray_service::{ReplaceableValue, ServiceContext};
use tokio::sync::{Notify, Semaphore};

use crate::accept::RequestIntake;
use crate::account_checks::AccountChecker;
use crate::accounts::AccountRegistry;
use crate::answer::TextSender;
use crate::cache::{CacheSweeper, ClaimKeeper, GatheringNotes};
use crate::chat_order::ChatOrder;
use crate::chat_positions::ChatPositions;
use crate::config::Config;
use crate::deliver::{ChatTurns, SendContext, SendDelays, Sender};
use crate::delivery_log::DeliveryLog;
use crate::gather::{Gatherer, RequestContext};
use crate::inbound::{
    InboundService, MAX_BACKGROUND_PRESSES, MAX_WAITING_BODY_BYTES, MessageReceiver,
};
use crate::index::DeliveryIndex;
use crate::lease::LeaseStore;
use crate::metrics::DeliveryMetrics;
use crate::platform_cache::PlatformCache;
use crate::questions::QuestionService;
use crate::questions::open::OpenQuestionStore;
use crate::questions::watch::OutcomeWatch;
use crate::queue::ChatQueues;
use crate::rate_limit::RateLimiter;
use crate::receipts::ReceiptService;
use crate::reconciler::Reconciler;
use crate::records::RecordStore;
use crate::status::StatusUpdates;
use crate::uploads::UploadService;

/// All parts of one replica. They share records, places and caches.
#[derive(Debug)]
pub struct DeliveryService {
    /// Turns requests into work.
    pub(crate) intake: RequestIntake,
    /// Copies paths of a sandbox into the store.
    pub(crate) gatherer: Gatherer,
    /// Sends stored files until the platform confirms them.
    pub(crate) sender: Sender,
    /// Reports, lists and repetitions of deliveries.
    pub(crate) receipts: ReceiptService,
    /// Final texts of agents.
    pub(crate) texts: TextSender,
    /// Checks of accounts with their platforms.
    pub(crate) checker: AccountChecker,
    /// Messages and uploads of users.
    pub(crate) inbound: Arc<InboundService>,
    /// Continues deliveries whose wait is over, and ends those whose deadline has passed.
    pub(crate) reconciler: Arc<Reconciler>,
    /// Removes what the cache no longer needs.
    pub(crate) sweeper: Arc<CacheSweeper>,
}

impl DeliveryService {
    /// The parts over a host's bus and store.
    pub fn new(config: Config, accounts: AccountRegistry, cx: &ServiceContext) -> Self {
        Self::with_retry_unit(config, accounts, cx, FIRST_RETRY_DELAY)
    }

    /// Sets the upper bound of the delay before the first retry. Tests use less than a second.
    pub(crate) fn with_retry_unit(
        config: Config,
        accounts: AccountRegistry,
        cx: &ServiceContext,
        retry_unit: Duration,
    ) -> Self {
        let shared = ServiceParts::new(config, accounts, cx);
        let keys = shared.platform_cache.keys().clone();
        let leases = LeaseStore::new(keys.clone(), cx.clock.clone(), cx.instance.clone());
        let gatherings = GatheringNotes::new(keys, cx.clock.clone());
        let queue = ChatQueues::default();
        let positions = shared.places();
        let intake = shared.intake(positions.clone());
        let turns = ChatTurns {
            places: positions.clone(),
            index: Arc::clone(&shared.log.index),
            queue: queue.clone(),
            leases: leases.clone(),
            turn_wait: retry_unit,
        };
        Self {
            gatherer: Gatherer {
                context: intake.context.clone(),
                claims: intake.claims.clone(),
                log: shared.log.clone(),
                places: positions.clone(),
                gatherings: gatherings.clone(),
            },
            sender: shared.sender(turns, retry_unit),
            texts: shared.texts(intake.clone()),
            receipts: ReceiptService {
                bus: cx.bus.clone(),
                clock: cx.clock.clone(),
                log: shared.log.clone(),
                claims: intake.claims.clone(),
                intake: intake.clone(),
            },
            checker: AccountChecker {
                accounts: shared.accounts.clone(),
                clock: cx.clock.clone(),
            },
            inbound: Arc::new(shared.inbound()),
            reconciler: Arc::new(Reconciler {
                bus: cx.bus.clone(),
                clock: cx.clock.clone(),
                log: shared.log.clone(),
                places: positions,
                queue,
                metrics: shared.metrics.clone(),
            }),
            sweeper: Arc::new(CacheSweeper {
                store: cx.store.clone(),
                clock: cx.clock.clone(),
                index: Arc::clone(&shared.log.index),
                leases,
                gatherings,
                metrics: shared.metrics.cache,
            }),
            intake,
        }
    }
}

/// Handles that several parts share, only for their construction.
struct ServiceParts<'a> {
    cx: &'a ServiceContext,
    config: ReplaceableValue<Config>,
    accounts: AccountRegistry,
    log: DeliveryLog,
    platform_cache: PlatformCache,
    limiter: Arc<RateLimiter>,
    metrics: DeliveryMetrics,
}

impl<'a> ServiceParts<'a> {
    fn new(config: Config, accounts: AccountRegistry, cx: &'a ServiceContext) -> Self {
        let records = RecordStore::new(&cx.bus);
        let index = Arc::new(DeliveryIndex::new(records.clone()));
        Self {
            cx,
            config: ReplaceableValue::new(config),
            accounts,
            log: DeliveryLog { records, index },
            platform_cache: PlatformCache::new(&cx.bus, cx.clock.clone()),
            limiter: Arc::new(RateLimiter::new(cx.clock.clone())),
            metrics: DeliveryMetrics::new(&cx.meter),
        }
    }

    fn places(&self) -> ChatPositions {
        let keys = self.platform_cache.keys().clone();
        let clock = self.cx.clock.clone();
        ChatPositions {
            accounts: self.accounts.clone(),
            platform_cache: self.platform_cache.clone(),
            order: ChatOrder::new(
                keys,
                clock.clone(),
                self.config.get().order_timeout.as_duration(),
            ),
            index: Arc::clone(&self.log.index),
            clock,
            wake_reconciler: Arc::new(Notify::new()),
        }
    }

    fn intake(&self, positions: ChatPositions) -> RequestIntake {
        RequestIntake {
            context: RequestContext {
                bus: self.cx.bus.clone(),
                clock: self.cx.clock.clone(),
                config: self.config.clone(),
            },
            claims: ClaimKeeper {
                store: self.cx.store.clone(),
                clock: self.cx.clock.clone(),
            },
            places: positions,
        }
    }

    fn sender(&self, turns: ChatTurns, retry_unit: Duration) -> Sender {
        let context = SendContext {
            bus: self.cx.bus.clone(),
            store: self.cx.store.clone(),
            clock: self.cx.clock.clone(),
            config: self.config.clone(),
            log: self.log.clone(),
            platform_cache: self.platform_cache.clone(),
            send_delays: SendDelays {
                limiter: Arc::clone(&self.limiter),
                retry_unit,
            },
            metrics: self.metrics.clone(),
        };
        Sender { turns, context }
    }

    fn texts(&self, intake: RequestIntake) -> TextSender {
        TextSender {
            bus: self.cx.bus.clone(),
            store: self.cx.store.clone(),
            config: self.config.clone(),
            records: self.log.records.clone(),
            platform_cache: self.platform_cache.clone(),
            intake,
        }
    }

    fn inbound(&self) -> InboundService {
        let (bus, store, clock) = (&self.cx.bus, &self.cx.store, &self.cx.clock);
        InboundService {
            bus: bus.clone(),
            clock: clock.clone(),
            config: self.config.clone(),
            accounts: self.accounts.clone(),
            platform_cache: self.platform_cache.clone(),
            statuses: StatusUpdates {
                bus: bus.clone(),
                clock: clock.clone(),
                config: self.config.clone(),
                log: self.log.clone(),
                platform_cache: self.platform_cache.clone(),
            },
            uploads: UploadService {
                bus: bus.clone(),
                store: store.clone(),
                clock: clock.clone(),
                config: self.config.clone(),
                platform_cache: self.platform_cache.clone(),
            },
            questions: QuestionService {
                bus: bus.clone(),
                clock: clock.clone(),
                config: self.config.clone(),
                accounts: self.accounts.clone(),
                limiter: Arc::clone(&self.limiter),
                open: OpenQuestionStore::new(self.platform_cache.keys().clone()),
                watch: OutcomeWatch::default(),
            },
            tasks: self.cx.tasks.clone(),
            press_permits: Arc::new(Semaphore::new(MAX_BACKGROUND_PRESSES)),
            body_memory: ByteLimit::new(MAX_WAITING_BODY_BYTES),
            receiver: MessageReceiver {
                bus: bus.clone(),
                store: store.clone(),
                clock: clock.clone(),
                config: self.config.clone(),
                accounts: self.accounts.clone(),
                platform_cache: self.platform_cache.clone(),
                metrics: self.metrics.clone(),
            },
        }
    }
}
