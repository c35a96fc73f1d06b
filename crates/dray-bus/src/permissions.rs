//! The subjects that an identity may publish and subscribe to, derived from its role (least privilege).
//!
//! A service declares the calls, work, events and keys that it uses with their types. The subjects, the JetStream
//! requests and the part of the topology that it relies on follow from the contracts and from [`Topology`], so that
//! no subject of a permission is written by hand. [`accounts_file`] writes them as a NATS server reads them.
//!
//! What it does not do: send anything, or check what a running process does; the server does that.

mod accounts;
mod operators;

use std::collections::BTreeSet;

use dray_proto::contract::{call_subject, tenant_call_subject};
use dray_proto::{Audit, Call, Event, StreamingCall, Work};
use dray_types::TenantId;

pub use accounts::{account_block, accounts_file, password_variable};

use crate::ledger;
use crate::subject;
use crate::topology::{
    AUDIT_STREAM, ConsumerSpec, DEAD_LETTER_STREAM, EVENT_STREAM, LEDGER_STREAM, Topology,
    WORK_STREAM,
};

/// One identity and everything that it may do on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    user: String,
    about: String,
    publish: BTreeSet<String>,
    subscribe: BTreeSet<AllowedSubscription>,
    responds: bool,
    /// Whether the number of its replies to one call has no limit.
    streams_replies: bool,
    /// Whether it has an account of the server for itself.
    has_own_account: bool,
    streams: BTreeSet<String>,
    durables: BTreeSet<String>,
    unknown_durables: BTreeSet<String>,
}

/// A subject that may be subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedSubscription {
    /// The subject, with wildcards.
    pub subject: String,
    /// The only queue group in which this is allowed; without one, `None`.
    pub queue: Option<String>,
}

impl Permissions {
    /// A client that only has an inbox for replies. `about` describes the identity in the generated file.
    pub fn client(user: impl Into<String>, about: impl Into<String>) -> Self {
        let user = user.into();
        let mut permissions = Self {
            user: user.clone(),
            about: about.into(),
            publish: BTreeSet::new(),
            subscribe: BTreeSet::new(),
            responds: false,
            streams_replies: false,
            has_own_account: false,
            streams: BTreeSet::new(),
            durables: BTreeSet::new(),
            unknown_durables: BTreeSet::new(),
        };
        // Every identity has its own prefix, otherwise each could read the replies to all others (18).
        permissions.allow_subscribe(format!("_INBOX_{user}.>"), None);
        permissions
    }

    /// A service of this name: a client whose readiness check reads the configuration of the ledger's stream.
    pub fn service(name: &str) -> Self {
        Self::client(name, "").with_stream(LEDGER_STREAM)
    }

    /// Describes the identity in the generated file.
    #[must_use]
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// Gives the identity an account of the server for itself, which imports what the identity may do. The server checks no
    /// permission for a reply subject, but takes it as a subject of the sender's own account: replies to this identity
    /// reach nothing that it may not publish to. A call without a responder gets no notice across accounts.
    #[must_use]
    pub fn in_own_account(mut self) -> Self {
        self.has_own_account = true;
        self
    }

    /// The user that logs in.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Subjects that it may publish to.
    #[cfg(test)]
    pub(crate) fn publish_subjects(&self) -> impl Iterator<Item = &str> {
        self.publish.iter().map(String::as_str)
    }

    /// The subjects that it may subscribe to.
    pub fn subscriptions(&self) -> impl Iterator<Item = &AllowedSubscription> {
        self.subscribe.iter()
    }

    /// The part of the topology that it relies on and may look at.
    pub fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        topology
            .streams
            .retain(|stream| self.streams.contains(&stream.name));
        topology
            .consumers
            .retain(|consumer| self.durables.contains(&consumer.durable));
        topology
    }

    /// Durable consumers that [`Self::consumes`] named and the topology does not have. Their work would have no
    /// consumer, so no deployment is generated with such an identity.
    pub fn unknown_durables(&self) -> impl Iterator<Item = &str> {
        self.unknown_durables.iter().map(String::as_str)
    }

    /// Responds to a call in the queue group that is named after it, and subscribes to cancellations without a group,
    /// because only one replica handles the call and the caller does not know which.
    #[must_use]
    pub fn responds_to(mut self, call_subject: &str) -> Self {
        let queue = Some(self.user.clone());
        self.allow_subscribe(call_subject.to_owned(), queue);
        if let Some(area) = subject::call_area(call_subject) {
            self.allow_subscribe(subject::cancel_subject(area), None);
        }
        self.responds = true;
        self
    }

    /// Responds to a call in every replica: the subscription has no queue group.
    #[must_use]
    pub fn responds_in_every_replica_to(mut self, call_subject: &str) -> Self {
        self.allow_subscribe(call_subject.to_owned(), None);
        if let Some(area) = subject::call_area(call_subject) {
            self.allow_subscribe(subject::cancel_subject(area), None);
        }
        self.responds = true;
        self
    }

    /// Responds to a call with any number of replies.
    #[must_use]
    pub fn responds_streaming_to(mut self, call_subject: &str) -> Self {
        self.streams_replies = true;
        self.responds_to(call_subject)
    }

    /// Responds to a call on the subject of each tenant too, for identities that may speak for one tenant only.
    #[must_use]
    pub fn responds_for_tenants_to(mut self, call_subject: &str) -> Self {
        let queue = Some(self.user.clone());
        self.allow_subscribe(format!("{call_subject}.*"), queue);
        self.responds_to(call_subject)
    }

    /// Makes a call with a stream of replies, which it acknowledges.
    #[must_use]
    pub fn calls_streaming<C: StreamingCall>(mut self) -> Self {
        self.responds = true;
        self.streams_replies = true;
        self.calls::<C>()
    }

    /// Makes a call and may cancel it.
    #[must_use]
    pub fn calls<C: Call>(self) -> Self {
        self.allow_publish(call_subject::<C>())
            // Without this permission the cancellation of a caller would be refused, which makes its service unready
            //
            .allow_publish(subject::cancel_subject(C::AREA))
    }

    /// Publishes work for any tenant, to every queue of this kind.
    #[must_use]
    pub fn publishes_work<W: Work>(self) -> Self {
        self.publishes_work_as::<W>("*").with_stream(WORK_STREAM)
    }

    /// Publishes work for one tenant, and does not look at the stream.
    #[must_use]
    pub fn publishes_work_of<W: Work>(self, tenant: &TenantId) -> Self {
        self.publishes_work_as::<W>(&tenant.token())
    }

    fn publishes_work_as<W: Work>(self, tenant: &str) -> Self {
        work_areas::<W>().iter().fold(self, |all, area| {
            all.allow_publish(format!("dray.work.{area}.v1.{}.{tenant}", W::VERB))
        })
    }

    /// Publishes an event of any tenant.
    #[must_use]
    pub fn publishes_event<E: Event>(self) -> Self {
        // A permission binds subjects, not headers (18), so the tenant has to be a token of the subject.
        self.allow_publish(format!(
            "dray.event.{}.v1.{}.*",
            E::AREA,
            E::PAST_PARTICIPLE
        ))
        .with_stream(EVENT_STREAM)
    }

    /// Publishes an audit event of any tenant.
    #[must_use]
    pub fn publishes_audit<A: Audit>(self) -> Self {
        self.allow_publish(format!(
            "dray.audit.{}.v1.{}.*",
            A::AREA,
            A::PAST_PARTICIPLE
        ))
        .with_stream(AUDIT_STREAM)
    }

    /// Subscribes to all events of one kind's area that concern one tenant, live and without the stream.
    #[must_use]
    pub fn subscribes_to_events_of<E: Event>(mut self, tenant: &TenantId) -> Self {
        self.allow_subscribe(
            format!("dray.event.{}.v1.*.{}", E::AREA, tenant.token()),
            None,
        );
        self
    }

    /// Gets the outcomes of the work of one tenant: calls on the tenant's own subject, and reads the durable consumer
    /// of events that [`Topology::with_publishers`] creates for the tenant.
    #[must_use]
    pub fn receives_outcomes_of<C: Call>(self, tenant: &TenantId) -> Self {
        let durable = publisher_name(tenant);
        self.allow_publish(tenant_call_subject::<C>(tenant))
            .allow_publish(format!(
                "$JS.API.CONSUMER.MSG.NEXT.{EVENT_STREAM}.{durable}"
            ))
            .allow_publish(format!("$JS.ACK.{EVENT_STREAM}.{durable}.>"))
    }

    /// Consumes work from a durable consumer of the topology: pulls and acknowledges, keeps the ledger of its area,
    /// publishes rejections and dead letters. A name that is not in the topology grants no permission and is listed by
    /// [`Self::unknown_durables`].
    #[must_use]
    pub fn consumes<W: Work>(mut self, durable: &str) -> Self {
        let topology = Topology::default();
        let Some(consumer) = topology
            .consumers
            .iter()
            .find(|consumer| consumer.durable == durable)
        else {
            self.unknown_durables.insert(durable.to_owned());
            return self;
        };
        let all = self
            .pulls(consumer)
            .publishes_event::<W::Rejected>()
            .with_stream(DEAD_LETTER_STREAM)
            .with_stream(LEDGER_STREAM);
        // A consumer of all areas belongs to the sweeper, whose rights are written out in `sweeps`.
        let Some(area) = work_area(consumer) else {
            return all;
        };
        all.allow_publish(subject::dead_lettered_subject(area, "*"))
            .allow_publish(format!("dray.dead.{area}.>"))
            .allow_publish(format!("$KV.{}.{area}.>", ledger::LEDGER_BUCKET))
            .reads_ledger(area)
    }

    fn reads_ledger(self, area: &str) -> Self {
        self.reads_key(ledger::LEDGER_BUCKET, &format!("{area}.>"))
    }

    /// Reads and writes every key of a bucket.
    #[must_use]
    pub fn uses_keys(self, bucket: &str) -> Self {
        self.allow_publish(format!("$KV.{bucket}.>"))
            .reads_key(bucket, ">")
            .with_stream(&format!("KV_{bucket}"))
    }

    /// Like [`Self::uses_keys`], and reads the keys of the bucket one after the other, without knowing their names.
    #[must_use]
    pub fn lists_keys(self, bucket: &str) -> Self {
        self.uses_keys(bucket).reads_bucket(bucket)
    }

    /// Reads the keys of a bucket one after the other, without knowing their names, and writes none.
    #[must_use]
    pub fn reads_bucket(self, bucket: &str) -> Self {
        self.reads_key(bucket, ">")
            .with_stream(&format!("KV_{bucket}"))
            // Reading by sequence names the subject in the request's body, so this right cannot
            // be limited to some keys.
            .allow_publish(format!("$JS.API.DIRECT.GET.KV_{bucket}"))
    }

    /// Watches the keys of a bucket that begin with `prefix`.
    #[must_use]
    pub fn watches_keys(mut self, bucket: &str, prefix: &str) -> Self {
        self.allow_subscribe(format!("$KV.{bucket}.{prefix}.>"), None);
        self
    }

    fn reads_key(self, bucket: &str, key: &str) -> Self {
        self.allow_publish(format!("$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}"))
    }

    /// Pulls from a durable consumer and acknowledges.
    fn pulls(mut self, consumer: &ConsumerSpec) -> Self {
        let ConsumerSpec {
            stream, durable, ..
        } = consumer;
        self.durables.insert(durable.clone());
        self.with_stream(stream)
            .allow_publish(format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"))
            .allow_publish(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"))
            .allow_publish(format!("$JS.ACK.{stream}.{durable}.>"))
    }

    /// Permits reading the configuration of a stream on which the identity depends.
    fn with_stream(mut self, stream: &str) -> Self {
        self.streams.insert(stream.to_owned());
        self.allow_publish(format!("$JS.API.STREAM.INFO.{stream}"))
    }

    fn allow_publish(mut self, subject: String) -> Self {
        self.publish.insert(subject);
        self
    }

    fn allow_subscribe(&mut self, subject: String, queue: Option<String>) {
        self.subscribe
            .insert(AllowedSubscription { subject, queue });
    }
}

/// The user of a publisher, which is also the name of its consumer.
pub fn publisher_name(tenant: &TenantId) -> String {
    format!("publisher-{}", tenant.token())
}

/// The areas of the work stream whose queues take this kind of work.
fn work_areas<W: Work>() -> Vec<String> {
    let mut areas: Vec<String> = Topology::default()
        .consumers
        .iter()
        .filter_map(work_area)
        .filter(|area| W::serves(area))
        .map(str::to_owned)
        .collect();
    areas.sort();
    // Kinds of work with one queue per platform are served by several consumers, some of which share an area.
    areas.dedup();
    areas
}

/// The area that a consumer of the work stream reads; `None` when it reads all of them.
fn work_area(consumer: &ConsumerSpec) -> Option<&str> {
    consumer
        .filter
        .strip_prefix("dray.work.")?
        .strip_suffix(".>")
}

#[cfg(test)]
mod tests;
