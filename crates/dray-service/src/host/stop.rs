//! The orderly stop (messaging-reliability 15), step by step.

use std::time::Duration;

use super::running::{LifecycleStage, RunningHost, StopReport};
use super::start::stop_all;

/// How long cancelled handlers may take to send their answers.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(super) async fn stop_host(mut running: RunningHost) -> StopReport {
    tracing::info!("stopping");
    running.stop_readiness().await;
    let grace = tokio::time::Instant::now() + running.shutdown.grace.as_duration();
    let drained = running.drain(grace).await;
    let finished = running.finish_handlers(grace).await;
    running.stop_services().await;
    running.close_bus().await;
    running.flush_telemetry().await;
    running.close_listeners().await;
    StopReport {
        stages: running.stages,
        cut_short: !(drained && finished),
    }
}

impl RunningHost {
    async fn stop_readiness(&mut self) {
        self.health.set_stopping();
        self.tasks.pull.cancel();
        if let Some(grpc) = &self.grpc {
            grpc.set_serving(false).await;
        }
        self.stages.push(LifecycleStage::NotReady);
    }

    /// Drains subscriptions, and lets gRPC connections open no new requests. What was sent before is still
    /// handled.
    async fn drain(&mut self, grace: tokio::time::Instant) -> bool {
        self.tasks.drain.cancel();
        let drained = join_until(&mut self.tasks.readers, grace).await;
        for service in &self.services {
            service.shared.stop_admitting();
        }
        self.stages.push(LifecycleStage::Drained);
        drained
    }

    async fn finish_handlers(&mut self, grace: tokio::time::Instant) -> bool {
        self.tasks.handlers.close();
        let handlers = tokio::time::timeout_at(grace, self.tasks.handlers.wait())
            .await
            .is_ok();
        let pullers = join_until(&mut self.tasks.pullers, grace).await;
        if !handlers || !pullers {
            tracing::warn!(
                calls = self.tasks.handlers.len(),
                "the grace ran out; cancelling what still runs"
            );
        }
        self.tasks.kill.cancel();
        if !handlers {
            let _ = tokio::time::timeout(LAST_WORDS, self.tasks.handlers.wait()).await;
        }
        // Answers are on their way; connections that stay open for other reasons are cut.
        join_until(
            &mut self.tasks.grpc,
            tokio::time::Instant::now() + LAST_WORDS,
        )
        .await;
        self.tasks.grpc.shutdown().await;
        self.tasks.readers.shutdown().await;
        self.tasks.pullers.shutdown().await;
        self.stages.push(LifecycleStage::Finished);
        handlers && pullers
    }

    async fn stop_services(&mut self) {
        stop_all(std::mem::take(&mut self.services)).await;
        self.context.stop.cancel();
        self.stages.push(LifecycleStage::Stopped);
    }

    async fn close_bus(&mut self) {
        self.tasks.checks.shutdown().await;
        if self.owns_bus {
            let limit = self.shutdown.flush.as_duration();
            if tokio::time::timeout(limit, self.context.bus.drain())
                .await
                .is_err()
            {
                tracing::warn!("the bus was not flushed in time");
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
        self.tasks.http.close().await;
        self.stages.push(LifecycleStage::Closed);
    }
}

/// Waits until all tasks have ended or `end` is reached; returns which.
async fn join_until(tasks: &mut tokio::task::JoinSet<()>, end: tokio::time::Instant) -> bool {
    let all = async { while tasks.join_next().await.is_some() {} };
    tokio::time::timeout_at(end, all).await.is_ok()
}
