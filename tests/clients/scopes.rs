//! Every method of the contracts is served only to callers that have its scope. The methods come from the descriptors,
//! so a new one is tested without a change here.

use prost::Message as _;
use serde_json::{Value, json};

use super::fixture::{ClientFixture, identity};
use super::python::client_python_with;
use crate::support;

/// A method as the endpoint and its scopes name it.
struct ContractMethod {
    /// Scope of this method alone, such as `dray.v1.Files/Resolve`.
    scope: String,
    streams: bool,
}

fn contract_methods() -> Vec<ContractMethod> {
    let described =
        prost_types::FileDescriptorSet::decode(dray_proto::FILE_DESCRIPTOR_SET).unwrap();
    let mut methods = Vec::new();
    for file in &described.file {
        for service in &file.service {
            methods.extend(service.method.iter().map(|method| ContractMethod {
                scope: format!("{}.{}/{}", file.package(), service.name(), method.name()),
                streams: method.server_streaming(),
            }));
        }
    }
    methods
}

/// The scopes of one identity for each method, and a call of every method with each of three credentials.
#[test]
fn every_method_of_the_contracts_is_refused_without_its_own_scope() {
    let methods = contract_methods();
    let names: Vec<String> = (0..methods.len()).map(|n| format!("caller-{n}")).collect();
    let identities: Vec<String> = methods
        .iter()
        .zip(&names)
        .map(|(method, name)| identity(name, "default", &format!("\"{}\"", method.scope)))
        .collect();
    let fixture = ClientFixture::new();
    let (server, mut scenario) = fixture.start_secured_for(&identities);
    let described = methods.iter().zip(&names).map(|(method, name)| {
        json!({
            "path": format!("/{}", method.scope),
            "token": format!("token-of-{name}"),
            "streams": method.streams,
        })
    });
    scenario["methods"] = Value::Array(described.collect());
    let printed = support::stdout(
        client_python_with("grpc")
            .arg(support::root().join("tests/clients/scopes.py"))
            .env("DRAYAGE_SCENARIO", scenario.to_string()),
    );
    assert_eq!(printed.trim(), methods.len().to_string());
    server.end();
}
