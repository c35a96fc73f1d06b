//! Audit events of one proxied connection: one when it is refused; otherwise one before its first byte is relayed and
//! one at its end. A process that is killed leaves no open connection without an event.

use dray_bus::Meta;
use dray_guard::Code;
use dray_guard::ruleset::replay::METHOD_OVERRIDE_RULE;
use dray_proto::v1;
use dray_types::whole_millis;
use dray_types::{Deadline, OperationId};
use tokio::time::Instant;

use super::queue::QueueOutcome;
use super::{Auditor, PUBLISH_TIMEOUT, event, line};
use crate::metrics::ProxyMetrics;
use crate::proxy::meter::ByteCounts;
use crate::proxy::refusal::{ConnectionEnd, ProxyRefusal};
use crate::record::FetchRecord;
use crate::service::step_name;

/// How a client asked for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A tunnel of the method `CONNECT`.
    Connect,
    /// A request in absolute form.
    Http,
    /// A connection of SOCKS5 (RFC 1928).
    Socks5,
}

impl ProxyProtocol {
    /// Every protocol, for labels.
    pub const ALL_PROTOCOLS: [Self; 3] = [Self::Connect, Self::Http, Self::Socks5];

    /// The name in audit events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Http => "http",
            Self::Socks5 => "socks5",
        }
    }
}

/// The stage of the connection that an event reports.
#[derive(Clone, Copy, Debug)]
enum ConnectionStage {
    Refused(&'static str, &'static str, &'static str),
    Opened,
    Closed(ConnectionEnd),
}

/// One connection under audit. If it is dropped, it is recorded as cancelled, in the stage that it had reached.
#[derive(Debug)]
pub struct AuditedConnection {
    auditor: Auditor,
    metrics: ProxyMetrics,
    meta: Meta,
    protocol: ProxyProtocol,
    /// The facts about the target, kept up to date while the connection is opened.
    pub record: FetchRecord,
    /// Server name of the `ClientHello`.
    pub server_name: String,
    /// Name of the client's certificate; `None` without one.
    pub client_certificate: Option<String>,
    /// Whether the proxy looks into its tunnel.
    pub is_intercepted: bool,
    /// The bytes that passed.
    pub counts: ByteCounts,
    started: Instant,
    is_open: bool,
    is_recorded: bool,
}

impl Auditor {
    /// Begins the record of a connection of an identified client.
    pub fn begin_connection(
        &self,
        meta: Meta,
        protocol: ProxyProtocol,
        metrics: ProxyMetrics,
    ) -> AuditedConnection {
        AuditedConnection {
            auditor: self.clone(),
            metrics,
            meta,
            protocol,
            record: FetchRecord::default(),
            server_name: String::new(),
            client_certificate: None,
            is_intercepted: false,
            counts: ByteCounts::default(),
            started: Instant::now(),
            is_open: false,
            is_recorded: false,
        }
    }
}

/// Data that all requests of one intercepted tunnel share.
#[derive(Clone, Debug)]
pub struct TunnelAuditor {
    auditor: Auditor,
    metrics: ProxyMetrics,
    meta: Meta,
    protocol: ProxyProtocol,
    server_name: String,
    client_certificate: Option<String>,
}

impl TunnelAuditor {
    /// Begins the record of a further request, an operation of its own.
    pub fn begin_request(&self, deadline: Deadline) -> AuditedConnection {
        let meta = self.meta.clone().with_operation(OperationId::mint());
        let (protocol, metrics) = (self.protocol, self.metrics.clone());
        let mut audited =
            self.auditor
                .begin_connection(meta.with_deadline(deadline), protocol, metrics);
        audited.server_name.clone_from(&self.server_name);
        audited
            .client_certificate
            .clone_from(&self.client_certificate);
        audited.is_intercepted = true;
        audited
    }
}

impl AuditedConnection {
    /// Makes the auditor for further requests in the same tunnel.
    pub fn tunnel(&self) -> TunnelAuditor {
        TunnelAuditor {
            auditor: self.auditor.clone(),
            metrics: self.metrics.clone(),
            meta: self.meta.clone(),
            protocol: self.protocol,
            server_name: self.server_name.clone(),
            client_certificate: self.client_certificate.clone(),
        }
    }

    /// Records that the connection is open, before a byte is relayed. Writes the line, then waits for stream and file
    /// for at most [`PUBLISH_TIMEOUT`]. Returns whether the event is known to be published, and in the file if it
    /// belongs there.
    pub async fn opened(&mut self) -> bool {
        self.is_open = true;
        self.metrics.opened(self.protocol, self.started.elapsed());
        let (event, of_file) = self.write(ConnectionStage::Opened);
        let publishing = self.auditor.begin_publish(&self.meta, event);
        let published = publishing.wait(PUBLISH_TIMEOUT);
        // The file is flushed even if sampling leaves this event out: the earlier events are then in the file.
        let flushed = self.auditor.flush_file(PUBLISH_TIMEOUT);
        // Both run concurrently, so that two slow destinations take no more time than one.
        let (is_published, is_flushed) = tokio::join!(published, flushed);
        is_published && of_file.is_in_file(is_flushed)
    }

    /// Records a refusal, even of a connection that was recorded as open and could not be audited. It waits for stream
    /// and file, so that both have it when the client learns it.
    pub async fn refused(mut self, refusal: ProxyRefusal) {
        let rule = match refusal {
            ProxyRefusal::Guard(Code::PolicyDenied, _) if self.record.is_override_refused => {
                METHOD_OVERRIDE_RULE
            }
            ProxyRefusal::Guard(..) => self.refusing_step(),
            other => other.rule(),
        };
        let stage = ConnectionStage::Refused(refusal.code(), refusal.phase(), rule);
        let flushing = self.auditor.clone();
        tokio::join!(
            self.publish_last(stage),
            flushing.flush_file(PUBLISH_TIMEOUT)
        );
    }

    /// Records the end of an open connection.
    pub async fn closed(mut self, end: ConnectionEnd) {
        self.publish_last(ConnectionStage::Closed(end)).await;
    }

    /// Records the end without a wait: the next request of the tunnel waits for its own event.
    pub fn close_early(mut self, end: ConnectionEnd) {
        let event = self.finish(ConnectionStage::Closed(end));
        drop(self.auditor.begin_publish(&self.meta, event));
    }

    /// Records the last event, and waits for the stream for at most [`PUBLISH_TIMEOUT`].
    async fn publish_last(&mut self, stage: ConnectionStage) {
        let event = self.finish(stage);
        let publishing = self.auditor.begin_publish(&self.meta, event);
        publishing.wait(PUBLISH_TIMEOUT).await;
    }

    /// The step of the policy that refused, by name; empty when none did.
    fn refusing_step(&self) -> &'static str {
        let steps = self.record.steps.steps().iter().rev();
        let mut refusing = steps.filter(|judged| judged.refusal.is_some());
        let is_port = self.record.hops.last().is_some_and(|hop| {
            // The ports of the proxy are checked after those of the policy, which allowed this one.
            hop.code == Some(Code::PortNotAllowed)
        });
        match refusing.next() {
            Some(judged) => step_name(judged.step),
            None if is_port => step_name(dray_guard::PolicyStep::Port),
            None => "",
        }
    }

    /// The last event: counts the connection once.
    fn finish(&mut self, stage: ConnectionStage) -> v1::EgressAudit {
        self.is_recorded = true;
        let label = match stage {
            ConnectionStage::Refused(code, ..) => code,
            ConnectionStage::Closed(end) => end.label(),
            ConnectionStage::Opened => "ok",
        };
        self.auditor.inner.metrics.judged(&self.record);
        if self.is_open {
            self.metrics
                .closed(self.protocol, label, &self.counts, self.started.elapsed());
        } else {
            self.metrics.refused(self.protocol.as_str(), label);
        }
        self.write(stage).0
    }

    /// Writes the line, in the log and the places beside the stream. Returns the result for the file too.
    fn write(&self, stage: ConnectionStage) -> (v1::EgressAudit, QueueOutcome) {
        let event = self.event(stage);
        let audit = line::event_text(&event);
        tracing::info!(target: "dray_egress_fetcher::audit", audit, "proxied");
        let of_file = self.auditor.record_in_destinations(&event, &audit);
        (event, of_file)
    }

    fn event(&self, stage: ConnectionStage) -> v1::EgressAudit {
        let inner = &self.auditor.inner;
        let now = inner.clock.now_ms();
        let ranges = &inner.private_cidrs;
        let mut event = event::audit_event(&self.meta, &self.record, now, &inner.key, ranges);
        let (name, verdict, code, phase, rule) = match stage {
            ConnectionStage::Refused(code, phase, rule) => ("refused", "deny", code, phase, rule),
            ConnectionStage::Opened => ("opened", "allow", "", "", ""),
            ConnectionStage::Closed(end) => ("closed", "allow", end.code(), "", ""),
        };
        verdict.clone_into(&mut event.verdict);
        code.clone_into(&mut event.code);
        phase.clone_into(&mut event.phase);
        rule.clone_into(&mut event.rule);
        name.clone_into(&mut event.proxy_stage);
        self.protocol.as_str().clone_into(&mut event.proxy_protocol);
        event.server_name.clone_from(&self.server_name);
        event.client_certificate = self.client_certificate.clone().unwrap_or_default();
        event.intercepted = self.is_intercepted;
        event.up_bytes = self.counts.up();
        event.down_bytes = self.counts.down();
        event.duration_ms = whole_millis(self.started.elapsed());
        event
    }
}

impl Drop for AuditedConnection {
    fn drop(&mut self) {
        if self.is_recorded {
            return;
        }
        let cancelled = ConnectionEnd::Cancelled;
        let event = if self.is_open {
            self.finish(ConnectionStage::Closed(cancelled))
        } else {
            self.finish(ConnectionStage::Refused(cancelled.code(), "", ""))
        };
        drop(self.auditor.spawn_publish(&self.meta, event));
    }
}
