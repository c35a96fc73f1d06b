//! Tests of the backend `exec`: names, incarnations and configuration.

use std::collections::BTreeMap;

use dray_sandbox::backend::{Backend as _, Follow};
use dray_sandbox::error::ErrorKind;
use dray_sandbox::handle::{Address, Handle};
use dray_sandbox_conformance::Fixture as _;

use super::fixture::{ChannelForm, ExecFixture, ToolSet};
use crate::{Arguments, Channel, ChannelConfig, CommandBackend, CommandConfig};

fn config(command: &[&str], incarnation: &[&str]) -> CommandConfig {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    CommandConfig {
        command: words(command),
        incarnation: words(incarnation),
        ..CommandConfig::default()
    }
}

fn backend(config: CommandConfig) -> CommandBackend {
    CommandBackend::new(BTreeMap::from([("box".to_owned(), config)])).unwrap()
}

fn address() -> Address {
    "exec:box".parse().unwrap()
}

#[test]
fn fields_that_an_entry_leaves_out_have_defaults() {
    let text = r#"{"command": ["ssh", "box"], "channel": {"shell": true, "longest_output": 100}}"#;
    let config: CommandConfig = serde_json::from_str(text).unwrap();
    let channel = Channel::from(config.channel);
    assert_eq!(channel.arguments, Arguments::Shell);
    assert_eq!(channel.longest_output, Some(100));
    assert!(channel.binary_output && channel.input);
    assert_eq!(
        Channel::from(ChannelConfig::default()),
        Channel::PIPE_CAPABILITIES
    );
    assert!(serde_json::from_str::<CommandConfig>(r#"{"command": ["a"], "comand": 1}"#).is_err());
}

#[test]
fn an_entry_without_a_command_is_refused() {
    let entries = BTreeMap::from([("box".to_owned(), CommandConfig::default())]);
    let error = CommandBackend::new(entries).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
}

#[tokio::test]
async fn r_1_only_the_same_incarnation_is_opened() {
    let fixture = ExecFixture::new(ToolSet::Dash, ChannelForm::Pipe);
    let backend = fixture.backend();
    let handle = backend.resolve(&address()).await.unwrap();
    assert_eq!(handle.incarnation, "first");
    let other = Handle {
        incarnation: "zeroth".to_owned(),
        ..handle.clone()
    };
    assert_eq!(
        backend.open(&other).await.unwrap_err().kind(),
        ErrorKind::SandboxGone
    );
    let sandbox = backend.open(&handle).await.unwrap();
    let path = fixture.file("f", b"x");
    sandbox.stat(&path, Follow::No).await.unwrap();
    std::fs::write(fixture.root.path().join("incarnation"), "second").unwrap();
    let error = sandbox.stat(&path, Follow::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn a_failing_incarnation_command_has_the_kind_of_its_failure() {
    for incarnation in [&["false"] as &[&str], &["true"]] {
        let error = backend(config(&["env"], incarnation))
            .resolve(&address())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SandboxGone);
    }
    let error = backend(config(&["env"], &["no-such-program"]))
        .resolve(&address())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let endless = backend(config(&["env"], &["yes"]))
        .resolve(&address())
        .await;
    assert_eq!(endless.unwrap_err().kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn without_an_incarnation_command_the_entry_itself_is_the_incarnation() {
    let one = backend(config(&["env"], &[]))
        .resolve(&address())
        .await
        .unwrap();
    let same = backend(config(&["env"], &[]))
        .resolve(&address())
        .await
        .unwrap();
    let other = backend(config(&["env", "-i"], &[]))
        .resolve(&address())
        .await
        .unwrap();
    assert_eq!(one, same);
    assert_ne!(one, other);
    let error = backend(config(&["env", "-i"], &[]))
        .open(&one)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn an_address_of_another_backend_is_gone() {
    let foreign: Address = "docker:box".parse().unwrap();
    let error = backend(config(&["env"], &[]))
        .resolve(&foreign)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone);
}
