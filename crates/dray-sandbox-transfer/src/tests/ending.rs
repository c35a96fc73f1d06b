//! The stop of the service waits for the ends of programs whose calls were dropped.

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, Error, Handle, Sandbox};
use dray_sandbox_conformance::fake::{Fake, FakePrograms, ProgramPhase};
use dray_service::{Request, Service as _};
use futures_util::poll;

use super::*;
use crate::Config;
use crate::commands::{CommandRule, CommandsConfig};

/// One sandbox in memory.
#[derive(Debug)]
struct FakeBackend(Fake);

#[async_trait]
impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn resolve(&self, _address: &Address) -> Result<Handle, Error> {
        Ok(self.0.handle().clone())
    }

    async fn open(&self, _handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// A service with one sandbox, in which programs do not get beyond this phase.
fn service(fixture: &TransferFixture, phase: ProgramPhase) -> (Arc<SandboxTransfer>, FakePrograms) {
    let fake = Fake::new();
    let programs = fake.run_programs(phase);
    (service_with(fixture, fake), programs)
}

/// A service with this sandbox as `fake:box`.
pub(super) fn service_with(fixture: &TransferFixture, fake: Fake) -> Arc<SandboxTransfer> {
    let everyone = vec!["*".to_owned()];
    let config = Config {
        address_tenants: everyone.clone(),
        commands: CommandsConfig {
            allow: vec![CommandRule {
                tenants: everyone.clone(),
                sandboxes: everyone,
            }],
            ..CommandsConfig::default()
        },
        ..Config::default()
    };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(FakeBackend(fake))];
    let service = SandboxTransfer::with_backends(config, fixture.running.context(), backends);
    Arc::new(service)
}

fn request(fixture: &TransferFixture) -> Request<v1::ExecSandboxRequest> {
    let body = v1::ExecSandboxRequest {
        sandbox: Some(address("fake:box")),
        argv: vec![b"program".to_vec()],
        ..v1::ExecSandboxRequest::default()
    };
    Request::new(fixture.meta("acme"), body)
}

async fn stop_waits_for_a_program(phase: ProgramPhase) {
    let fixture = TransferFixture::new().await;
    let (service, programs) = service(&fixture, phase);
    let mut call = Box::pin(Arc::clone(&service).exec(request(&fixture)));
    tokio::select! {
        reply = &mut call => panic!("the program has ended: {reply:?}"),
        () = programs.wait_until_started() => {}
    }
    drop(call);
    programs.wait_until_dropped().await;
    let mut stop = Box::pin(service.stop());
    assert!(
        poll!(&mut stop).is_pending(),
        "the program is still being ended"
    );
    programs.end();
    stop.await;
    fixture.end().await;
}

#[tokio::test]
async fn a_stop_waits_for_the_end_of_a_program_that_was_being_started() {
    stop_waits_for_a_program(ProgramPhase::Starting).await;
}

#[tokio::test]
async fn a_stop_waits_for_the_end_of_a_program_that_was_running() {
    stop_waits_for_a_program(ProgramPhase::Running).await;
}

#[tokio::test]
async fn a_program_that_does_not_report_at_its_time_limit_is_ended_before_the_reply() {
    for phase in [ProgramPhase::Starting, ProgramPhase::Running] {
        let fixture = TransferFixture::new().await;
        let (service, programs) = service(&fixture, phase);
        let mut request = request(&fixture);
        request.body.timeout_ms = 1;
        request.meta.deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(2));
        let mut call = Box::pin(Arc::clone(&service).exec(request));
        tokio::select! {
            reply = &mut call => panic!("the program is still being ended: {reply:?}"),
            () = programs.wait_until_dropped() => {}
        }
        assert!(poll!(&mut call).is_pending());
        programs.end();
        let reply = call.await.unwrap();
        assert_eq!(reply.state(), v1::SandboxCommandState::TimedOut);
        let begun = phase == ProgramPhase::Running;
        let expected: &[u8] = if begun { b"begun\n" } else { b"" };
        assert_eq!(reply.stdout.unwrap().head, expected);
        fixture.end().await;
    }
}

#[tokio::test]
async fn a_program_that_does_not_end_at_its_time_limit_loses_no_output() {
    let fixture = TransferFixture::new().await;
    let (service, programs) = service(&fixture, ProgramPhase::Running);
    let mut request = request(&fixture);
    request.body.timeout_ms = 1;
    request.meta.deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(2));
    let call = Arc::clone(&service).exec(request);
    // The fake ends no program before the test allows it.
    let replied = tokio::time::timeout(Duration::from_secs(30), Box::pin(call)).await;
    let reply = replied.expect("the call waits for the program").unwrap();
    assert_eq!(reply.state(), v1::SandboxCommandState::TimedOut);
    assert_eq!(&reply.stdout.unwrap().head[..], b"begun\n");
    let mut stop = Box::pin(service.stop());
    assert!(
        poll!(&mut stop).is_pending(),
        "a task waits for the end of the program"
    );
    programs.end();
    stop.await;
    fixture.end().await;
}
