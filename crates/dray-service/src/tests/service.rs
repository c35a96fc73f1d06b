//! A small service whose requests control its behaviour, and a host for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dray_bus::{Bus, Meta, WorkCompleted, WorkDelivery, WorkFailure};
use dray_proto::v1;
use dray_types::{Clock, Deadline, Fault, FaultCode, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use crate::{
    Host, ReplyChunks, Request, Router, RunningHost, Service, ServiceContext, Settings, StartError,
    config,
};

/// A test's access to the service: shows running handlers, and releases them.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandlerProbe {
    pub(crate) started: Arc<AtomicUsize>,
    pub(crate) stopped: Arc<AtomicUsize>,
    /// Number of running handlers.
    pub(crate) inside: Arc<watch::Sender<usize>>,
    pub(crate) entered: Arc<AtomicUsize>,
    pub(crate) release: Arc<Notify>,
    pub(crate) healthy: Arc<watch::Sender<bool>>,
}

impl HandlerProbe {
    pub(crate) async fn wait_inside(&self, count: usize) {
        self.inside
            .subscribe()
            .wait_for(|inside| *inside == count)
            .await
            .unwrap();
    }

    /// Counts a handler as running until the guard is dropped.
    fn enter(&self) -> InsideGuard {
        self.entered.fetch_add(1, Ordering::SeqCst);
        self.inside.send_modify(|inside| *inside += 1);
        InsideGuard(Arc::clone(&self.inside))
    }
}

struct InsideGuard(Arc<watch::Sender<usize>>);

impl Drop for InsideGuard {
    fn drop(&mut self) {
        self.0.send_modify(|inside| *inside -= 1);
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct EchoConfig {
    /// Put before every answer.
    pub(crate) greeting: String,
    /// Lets the start fail.
    pub(crate) fail: bool,
}

impl config::Section for EchoConfig {}

#[derive(Debug)]
pub(crate) struct EchoService {
    config: EchoConfig,
    probe: HandlerProbe,
    bus: Bus,
}

impl EchoService {
    pub(crate) fn open(
        config: EchoConfig,
        cx: ServiceContext,
        probe: HandlerProbe,
    ) -> Result<Self, StartError> {
        if config.fail {
            return Err(StartError::new("configured to fail"));
        }
        probe.started.fetch_add(1, Ordering::SeqCst);
        probe.healthy.send_replace(true);
        let stop = cx.stop.clone();
        cx.tasks.spawn(async move { stop.cancelled().await });
        Ok(Self {
            config,
            probe,
            bus: cx.bus,
        })
    }

    async fn fetch(
        self: Arc<Self>,
        request: Request<v1::FetchRequest>,
    ) -> Result<v1::FetchReply, Fault> {
        let _inside = self.probe.enter();
        let (verb, rest) = request
            .body
            .url
            .split_once(':')
            .unwrap_or((&request.body.url, ""));
        match verb {
            "echo" => Ok(reply(&format!("{}{rest}", self.config.greeting))),
            "tenant" => Ok(reply(request.meta.tenant.as_str())),
            "trace" => Ok(reply(&request.meta.trace.traceparent)),
            "hold" => {
                self.probe.release.notified().await;
                Ok(reply("released"))
            }
            "wait" => {
                let released = self.probe.release.notified();
                crate::release_permit_while(async { tokio::join!(released, async {}) }).await;
                Ok(reply("waited"))
            }
            "forever" => std::future::pending().await,
            "panic" => panic!("secret of the handler"),
            "large" => Ok(reply(&"x".repeat(rest.parse().unwrap()))),
            "fault" => Err(Fault::new(FaultCode::Denied, "No.")
                .detail("because")
                .advice("Do not.")),
            "forward" => {
                let next = v1::FetchRequest {
                    url: rest.to_owned(),
                    ..v1::FetchRequest::default()
                };
                let meta = Meta::new(request.meta.tenant, request.meta.deadline)
                    .with_trace(request.meta.trace);
                Ok(self.bus.call(&meta, &next).await?)
            }
            other => Err(Fault::new(
                FaultCode::InvalidArgument,
                format!("What is {other}?"),
            )),
        }
    }

    /// Waits for the release without a limit on concurrent calls.
    async fn list(
        self: Arc<Self>,
        _request: Request<v1::ListSandboxRequest>,
    ) -> Result<v1::ListSandboxReply, Fault> {
        let _inside = self.probe.enter();
        self.probe.release.notified().await;
        Ok(v1::ListSandboxReply::default())
    }

    /// Sends each argument as output, and then ends as a fetch does whose URL is the working directory.
    async fn count(
        self: Arc<Self>,
        request: Request<v1::ExecSandboxStreamRequest>,
        chunks: ReplyChunks<v1::ExecSandboxEvent>,
    ) -> Result<v1::ExecSandboxEvent, Fault> {
        let command = request.body.command.unwrap_or_default();
        for word in command.argv {
            let _inside = self.probe.enter();
            // This handler is dropped when its caller has disconnected.
            let _ = chunks.send(&stdout(word)).await;
        }
        let url = String::from_utf8(command.working_directory).unwrap();
        let last = v1::FetchRequest {
            url,
            ..v1::FetchRequest::default()
        };
        let last = self.fetch(Request::new(request.meta, last)).await?;
        Ok(stdout(last.name.into_bytes()))
    }

    async fn resolve(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let _inside = self.probe.enter();
        if delivery.work.tool == "hold" {
            self.probe.release.notified().await;
        }
        Ok(WorkCompleted::event(&v1::ToolCallResolved {
            operation_id: delivery.meta.operation.to_string(),
            tool_call_id: delivery.work.tool_call_id,
            tool: delivery.work.tool,
            resolved: None,
        }))
    }
}

pub(crate) fn stdout(bytes: Vec<u8>) -> v1::ExecSandboxEvent {
    v1::ExecSandboxEvent {
        event: Some(v1::exec_sandbox_event::Event::Stdout(bytes)),
    }
}

fn reply(text: &str) -> v1::FetchReply {
    v1::FetchReply {
        name: text.to_owned(),
        ..v1::FetchReply::default()
    }
}

impl Service for EchoService {
    // A name in the topology, so that a consumer exists for its work.
    const NAME: &'static str = "file-resolver";
    type Config = EchoConfig;

    async fn start(config: EchoConfig, cx: &ServiceContext) -> Result<Self, StartError> {
        Self::open(config, cx.clone(), HandlerProbe::default())
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
            .answer(Self::fetch)
            .answer_self_admitted(Self::list)
            .answer_streaming(Self::count)
            .consume(Self::resolve)
            .ready("mood", |echo| async move {
                if *echo.probe.healthy.borrow() {
                    Ok(())
                } else {
                    Err("in a bad mood".to_owned())
                }
            })
    }

    async fn stop(&self) {
        self.probe.stopped.fetch_add(1, Ordering::SeqCst);
    }
}

/// A host with one [`EchoService`], its probe, and its directory.
pub(crate) struct TestHost {
    pub(crate) running: RunningHost,
    pub(crate) probe: HandlerProbe,
    pub(crate) directory: tempfile::TempDir,
}

/// Settings for a host in `directory` that checks readiness quickly.
pub(crate) fn settings(directory: &tempfile::TempDir) -> Settings {
    Settings::embedded(directory.path())
        .set("http.check_interval", "20ms")
        .set("limits.free_disk_percent", "0")
}

pub(crate) fn host(settings: Settings, probe: &HandlerProbe) -> Host {
    let probe = probe.clone();
    Host::new(settings).with_start::<EchoService, _, _>(move |config, cx| async move {
        EchoService::open(config, cx, probe)
    })
}

impl TestHost {
    pub(crate) async fn new(extra: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(&directory);
        for (key, value) in extra {
            settings = settings.set(*key, *value);
        }
        let probe = HandlerProbe::default();
        let running = host(settings, &probe).start().await.unwrap();
        Self {
            running,
            probe,
            directory,
        }
    }

    pub(crate) fn bus(&self) -> Bus {
        self.running.context().bus.clone()
    }

    /// The value of the first sample with this prefix and this label.
    pub(crate) fn counter(&self, begin: &str, label: &str) -> Option<f64> {
        let metrics = self.running.metrics().unwrap();
        metrics
            .lines()
            .find(|line| line.starts_with(begin) && line.contains(label))
            .and_then(|line| line.rsplit(' ').next()?.parse().ok())
    }

    /// Calls over the bus.
    pub(crate) async fn call(&self, url: &str) -> Result<String, Fault> {
        call(&self.bus(), &meta("acme"), url).await
    }
}

pub(crate) async fn call(bus: &Bus, meta: &Meta, url: &str) -> Result<String, Fault> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    };
    bus.call(meta, &request)
        .await
        .map(|reply| reply.name)
        .map_err(Fault::from)
}

/// A new operation of `tenant` whose deadline is in half a minute.
pub(crate) fn meta(tenant: &str) -> Meta {
    meta_for(tenant, Duration::from_secs(30))
}

pub(crate) fn meta_for(tenant: &str, time: Duration) -> Meta {
    Meta::new(
        TenantId::new(tenant).unwrap(),
        Deadline::after(Clock::system().now_ms(), time),
    )
}
