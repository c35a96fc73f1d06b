//! What identities could do with the subjects that they name for replies, and with consumers. The server checks neither
//! the subject of a reply nor most of a request's body.

use serde_json::{Value, json};

use super::server::AccountsServer;
use super::{ask, consumer, provision};

/// A key of a service.
const KEY: &str = "$KV.dray_ledger.toolcall.resolve.other.one";

#[test]
fn no_person_changes_or_drains_a_durable_consumer() {
    let server = AccountsServer::start();
    let mut provisioner = provision(&server);
    let info = |client: &mut super::WireClient| {
        let subject = "$JS.API.CONSUMER.INFO.DRAY_WORK.file-resolver";
        let info = ask(client, subject, "", &Value::Null);
        (info["config"].clone(), info["num_ack_pending"].clone())
    };
    let before = info(&mut provisioner);
    let mut publisher = server.client("publisher-acme");
    let work = "dray.work.toolcall.v1.resolve.acme";
    ask(&mut publisher, work, "", &json!("work"));
    let mut changed = consumer("DRAY_WORK", "file-resolver", "dray.work.nothing.>");
    let config = changed["config"].as_object_mut().unwrap();
    let name = config.remove("durable_name").unwrap();
    config.insert("name".to_owned(), name);
    let changed = changed.to_string();
    for user in ["console", "console-operator", "operator", "mcp"] {
        let mut person = server.client(user);
        let inbox = format!("_INBOX_{user}.1");
        for (subject, payload) in [
            ("$JS.API.CONSUMER.CREATE.DRAY_WORK", changed.as_str()),
            ("$JS.API.CONSUMER.MSG.NEXT.DRAY_WORK.file-resolver", "1"),
        ] {
            let refused = person.publish_for_reply(subject, &inbox, payload.as_bytes());
            assert!(refused.is_err(), "{user}: {subject}");
        }
    }
    assert_eq!(info(&mut provisioner), before);
}

#[test]
fn the_provisioner_makes_the_consumers_of_the_topology_alone() {
    let server = AccountsServer::start();
    let mut provisioner = provision(&server);
    let mut sweeper = server.client("sweeper");
    ask(&mut sweeper, KEY, "", &json!("secret"));
    for stream in ["DRAY_WORK", "DRAY_EVENT", "KV_dray_ledger"] {
        let mut spy = consumer(stream, "spy", "");
        spy["config"]["deliver_subject"] = json!("_INBOX_provisioner.spy");
        let spy = spy.to_string();
        for subject in [
            format!("$JS.API.CONSUMER.CREATE.{stream}"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.spy"),
            format!("$JS.API.CONSUMER.CREATE.{stream}.spy.>"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.spy"),
        ] {
            let refused =
                provisioner.publish_for_reply(&subject, "_INBOX_provisioner.1", spy.as_bytes());
            assert!(refused.is_err(), "{subject}");
        }
    }
    // Under a subject of the topology, the server compares the name and the filter.
    let subject = "$JS.API.CONSUMER.CREATE.DRAY_WORK.file-resolver.dray.work.toolcall.>";
    for (name, filter) in [
        ("spy", "dray.work.toolcall.>"),
        ("file-resolver", "dray.work.>"),
    ] {
        let request = consumer("DRAY_WORK", name, filter);
        let reply = ask(&mut provisioner, subject, "", &request);
        assert!(!reply["error"].is_null(), "{name} {filter}: {reply}");
    }
}
