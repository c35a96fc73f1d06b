//! The graceful shutdown (messaging-reliability 15), step by step.

use std::time::Duration;

use super::running::{LifecycleStage, RunningHost, StopReport};
use super::start::stop_all;

/// Longest time that cancelled handlers may take to send their replies.
const LAST_REPLIES_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) async fn stop_host(mut running: RunningHost) -> StopReport {
    tracing::info!("stopping");
    // Step 1 of section 15: callers and the platform see first that this process is no longer ready.
    running.stop_readiness().await;
    if let Some(linger) = running.linger() {
        tokio::time::sleep(linger).await;
    }
    let now = tokio::time::Instant::now();
    let grace = running.shutdown.grace.as_duration();
    // The last eighth of the grace remains for handlers that these requests have called.
    let served = running.close_service_listeners(now + grace / 8 * 7).await;
    let end = now + grace;
    let drained = running.drain(end).await;
    let finished = running.finish_handlers(end).await;
    running.stop_services().await;
    running.close_bus().await;
    running.flush_telemetry().await;
    running.close_listeners().await;
    StopReport {
        stages: running.stages,
        cut_short: !(served && drained && finished),
    }
}

impl RunningHost {
    async fn stop_readiness(&mut self) {
        self.health.set_stopping();
        self.tasks.pull.cancel();
        if let Some(grpc) = &self.grpc {
            // The state is set here too, because the task that watches readiness may run only after the drain.
            grpc.set_serving(false).await;
        }
        self.stages.push(LifecycleStage::NotReady);
    }

    /// How long connections are still accepted. Endpoints of Kubernetes, proxies and load balancers send them until they
    /// know that this process is not ready; a closed listener would refuse them.
    fn linger(&self) -> Option<Duration> {
        let has_listeners = self.grpc.is_some() || !self.context.listeners.tasks.is_empty();
        let linger = self.shutdown.linger.as_duration();
        (has_listeners && !linger.is_zero()).then_some(linger)
    }

    /// Closes the listeners of the services and waits for the requests that they have accepted. Calls are still
    /// handled, because these requests make them.
    async fn close_service_listeners(&mut self, end: tokio::time::Instant) -> bool {
        let listeners = &self.context.listeners;
        listeners.stop.cancel();
        // `wait` returns only after the tracker is closed.
        listeners.tasks.close();
        let served = tokio::time::timeout_at(end, listeners.tasks.wait())
            .await
            .is_ok();
        if !served {
            let tasks = listeners.tasks.len();
            tracing::warn!(tasks, "requests did not end in time and are cut off");
        }
        listeners.kill.cancel();
        self.stages.push(LifecycleStage::ListenersClosed);
        served
    }

    /// Drains subscriptions, and stops new requests on gRPC connections. Requests that were sent earlier are still
    /// handled.
    async fn drain(&mut self, end: tokio::time::Instant) -> bool {
        // Only subscriptions are drained, not the connection, because replies must still be sent.
        self.tasks.drain.cancel();
        let drained = join_until(&mut self.tasks.readers, end).await;
        // Requests that the server sent before the drain have been admitted; later ones are refused.
        for service in &self.services {
            service.shared.stop_admitting();
        }
        self.stages.push(LifecycleStage::Drained);
        drained
    }

    /// Waits for handlers and work until `end`, then cancels the rest.
    async fn finish_handlers(&mut self, end: tokio::time::Instant) -> bool {
        // `wait` returns only after the tracker is closed.
        self.tasks.handlers.close();
        let handlers = tokio::time::timeout_at(end, self.tasks.handlers.wait())
            .await
            .is_ok();
        let pullers = join_until(&mut self.tasks.pullers, end).await;
        if !handlers || !pullers {
            tracing::warn!(
                calls = self.tasks.handlers.len(),
                "the grace period is over; cancelling the remaining work"
            );
        }
        self.tasks.kill.cancel();
        if !handlers {
            // Handlers that were cancelled still reply that the service is stopping (C-4).
            let _ = tokio::time::timeout(LAST_REPLIES_TIMEOUT, self.tasks.handlers.wait()).await;
        }
        // Replies have a short time to be sent; then all connections are closed.
        join_until(
            &mut self.tasks.grpc,
            tokio::time::Instant::now() + LAST_REPLIES_TIMEOUT,
        )
        .await;
        self.tasks.grpc.shutdown().await;
        self.tasks.readers.shutdown().await;
        self.tasks.pullers.shutdown().await;
        self.stages.push(LifecycleStage::Finished);
        handlers && pullers
    }

    /// Stops the services in reverse order of their start, and the tasks with the shared token.
    async fn stop_services(&mut self) {
        stop_all(std::mem::take(&mut self.services)).await;
        self.context.stop.cancel();
        self.stages.push(LifecycleStage::Stopped);
    }

    async fn close_bus(&mut self) {
        // A readiness check on a closed bus would only log failures.
        self.tasks.checks.shutdown().await;
        if self.owns_bus {
            let limit = self.shutdown.flush.as_duration();
            if tokio::time::timeout(limit, self.context.bus.drain())
                .await
                .is_err()
            {
                tracing::warn!("could not flush the bus in time");
            }
        }
        if let Some(store) = self.store.take() {
            store.stop().await;
        }
        self.stages.push(LifecycleStage::BusClosed);
    }

    async fn flush_telemetry(&mut self) {
        tracing::info!("stopped");
        self.telemetry.shutdown().await;
        self.stages.push(LifecycleStage::TelemetryFlushed);
    }

    async fn close_listeners(&mut self) {
        // The HTTP server closes last: `/metrics` and `/live` are available during the complete stop (section 15).
        self.tasks.http.close().await;
        self.stages.push(LifecycleStage::Closed);
    }
}

/// Waits until all tasks have ended or `end` is reached; returns whether all ended.
async fn join_until(tasks: &mut tokio::task::JoinSet<()>, end: tokio::time::Instant) -> bool {
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::time::timeout_at(end, all).await.is_ok()
}
