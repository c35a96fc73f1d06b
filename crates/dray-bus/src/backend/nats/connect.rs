//! Opens the connection and handles its events.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerError};
use tokio::sync::watch;

use super::identity::{SharedIdentity, UnusableIdentity};
use super::inbox::WeakMux;
use crate::backoff::random_between;
use crate::error::ConnectError;
use crate::health::{ConnectionHealth, MAX_RECONNECT_DELAY};
use crate::metrics::BusMetrics;
use crate::options::NatsOptions;

/// The receiver of the connection's events.
#[derive(Clone, Debug)]
pub(super) struct ConnectionWatcher {
    pub(super) metrics: BusMetrics,
    pub(super) health: ConnectionHealth,
    pub(super) mux: WeakMux,
    pub(super) closing: watch::Sender<bool>,
}

impl ConnectionWatcher {
    fn handle_event(&self, event: &Event) {
        match event {
            Event::Connected => {
                tracing::info!("connected to the bus");
                self.health.record_connected();
            }
            Event::Disconnected => {
                self.health.record_disconnected();
                tracing::warn!("the connection to the bus is lost");
                self.metrics.disconnects_total.add(1, &[]);
                self.mux.connection_lost();
            }
            Event::LameDuckMode => tracing::info!("the server will stop soon"),
            Event::Draining => tracing::debug!("the connection drains"),
            Event::Closed => {
                tracing::debug!("the connection is closed");
                self.closing.send_replace(true);
            }
            // No subscription of this crate may fill (C-5), so this is a bug and not a load problem.
            Event::SlowConsumer(_) | Event::ServerError(ServerError::SlowConsumer(_)) => {
                tracing::error!("a subscription is too slow and loses messages");
                self.metrics.slow_consumer_total.add(1, &[]);
            }
            Event::ServerError(ServerError::AuthorizationViolation) => {
                tracing::error!("the server refuses this identity");
                self.metrics.permission_violation_total.add(1, &[]);
                self.health.record_refused_identity();
            }
            Event::ServerError(ServerError::Other(words)) => {
                tracing::error!(words, "the server reports an error");
                // The client has no separate event for violations; it passes on the text of the server's `-ERR` line.
                if words.to_ascii_lowercase().contains("permissions violation") {
                    self.violation(refused_subject(words));
                }
            }
            Event::ClientError(error) => {
                tracing::error!(%error, "the client reports an error");
            }
        }
    }

    fn violation(&self, subject: String) {
        self.metrics.permission_violation_total.add(1, &[]);
        self.health.record_refusal(subject);
    }
}

/// The subject in `Permissions Violation for Publish to "subject"`.
fn refused_subject(words: &str) -> String {
    words
        .split('"')
        .nth(1)
        .map_or_else(|| words.to_owned(), str::to_owned)
}

pub(super) async fn connect_client(
    options: &NatsOptions,
    identity: SharedIdentity,
    watcher: ConnectionWatcher,
) -> Result<Client, ConnectError> {
    let servers = options
        .servers
        .iter()
        .map(|server| server.parse())
        .collect::<Result<Vec<async_nats::ServerAddr>, _>>()
        .map_err(|error| unusable_option("servers", &error))?;
    if servers.is_empty() {
        return Err(unusable_option("servers", &"at least one server is needed"));
    }
    // The client would ignore a user and a password in a URL, and the server would refuse it. URLs also appear in logs.
    if servers
        .iter()
        .any(|server| server.username().is_some() || server.password().is_some())
    {
        let reason = "a URL contains a user or a password, which are not read from it; set `bus.nats.user` and \
                      `bus.nats.password`";
        return Err(unusable_option("servers", &reason));
    }
    // The name becomes a part of the inbox subjects below.
    if !dray_types::id::is_subject_token(&options.name) {
        let reason = "1 to 64 of a-z, 0-9, `_` and `-` are needed";
        return Err(unusable_option("name", &reason));
    }
    // The identity is checked here, because the client would report an unusable one as refused by the server.
    identity
        .authenticate(b"")
        .await
        .map_err(|UnusableIdentity { option, reason }| unusable_option(option, &reason))?;
    identity_options(options, identity)?
        .name(&options.name)
        // With the common `_INBOX.` prefix each service would need the right to read every other one's replies (18).
        .custom_inbox_prefix(format!("_INBOX_{}", options.name))
        .connection_timeout(options.connect_timeout.as_duration())
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            watcher.handle_event(&event);
            std::future::ready(())
        })
        .connect(servers)
        .await
        .map_err(ConnectError::Connect)
}

/// The delay before the next attempt: a random time up to a bound that doubles with each attempt, so that many clients
/// do not reconnect simultaneously.
fn reconnect_delay(attempts: usize) -> Duration {
    // More doublings than these pass the ceiling anyway, and the shift below must not overflow.
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).min(6);
    let bound = Duration::from_millis(100)
        .saturating_mul(1 << doublings)
        .min(MAX_RECONNECT_DELAY);
    // The lower bound is not zero, because a large part of the fleet would then reconnect in the first milliseconds.
    random_between(bound / 4, bound)
}

/// The options of the client for TLS and for its identity. The client reads both certificates and identity for each
/// connection.
fn identity_options(
    options: &NatsOptions,
    identity: SharedIdentity,
) -> Result<ConnectOptions, ConnectError> {
    let mut connect = ConnectOptions::with_auth_callback(move |nonce| {
        let identity = identity.clone();
        async move { Ok(identity.authenticate(&nonce).await?) }
    })
    .require_tls(options.require_tls);
    if let Some(path) = &options.ca_file {
        connect = connect.add_root_certificates(path.clone());
    }
    match (&options.client_certificate_file, &options.client_key_file) {
        (Some(certificate), Some(key)) => {
            connect = connect.add_client_certificate(certificate.clone(), key.clone());
        }
        (None, None) => {}
        _ => {
            let reason = "certificate and key are needed together";
            return Err(unusable_option("client_certificate_file", &reason));
        }
    }
    Ok(connect)
}

fn unusable_option(option: &'static str, reason: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Option {
        option,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_subjects_are_read_from_the_servers_message() {
        for (words, subject) in [
            (
                "Permissions Violation for Publish to \"dray.event.x\"",
                "dray.event.x",
            ),
            (
                "Permissions Violation for Subscription to \"a.b\" using queue \"q\"",
                "a.b",
            ),
            ("Permissions Violation", "Permissions Violation"),
        ] {
            assert_eq!(refused_subject(words), subject);
        }
    }

    #[test]
    fn reconnects_are_spread_and_bounded() {
        for attempts in [0, 1, 5, 1_000_000] {
            assert!(reconnect_delay(attempts) <= MAX_RECONNECT_DELAY);
        }
        let delays: std::collections::BTreeSet<_> = (0..20).map(|_| reconnect_delay(10)).collect();
        assert!(delays.len() > 1);
    }
}
