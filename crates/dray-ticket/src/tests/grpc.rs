//! The calls over gRPC, for the identities that an operator lists.

use dray_proto::{Call, v1};
use dray_service::{Host, RunningHost, Settings, fault_of};
use dray_testkit::tls::Authority;
use dray_types::Sha256Digest;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::TicketServer;

/// The service with two tenants and three callers, one of which may only list.
struct GrpcFixture {
    channel: Channel,
    _running: RunningHost,
    _directory: tempfile::TempDir,
}

impl GrpcFixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let server = authority.issue(&["localhost"], false).unwrap();
        let identity = |name: &str, tenant: &str, scopes: &str| {
            format!(
                "[[identity]]\nname = \"{name}\"\ntenant = \"{tenant}\"\ntoken_sha256 = [\"{}\"]\nscopes = [\"{scopes}\"]\n",
                Sha256Digest::of(name.as_bytes()).to_hex()
            )
        };
        let identities = [
            identity("maker", "acme", "dray.v1.Tickets"),
            identity("reader", "acme", "dray.v1.Tickets/List"),
            identity("stranger", "other", "*"),
        ]
        .concat();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for (name, text) in [
            ("tls.crt", &server.certificate),
            ("tls.key", &server.private_key),
            ("identities.toml", &identities),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        let settings = Settings::embedded(directory.path())
            .set("limits.free_disk_percent", "0")
            .set("grpc.certificate", path("tls.crt"))
            .set("grpc.private_key", path("tls.key"))
            .set("grpc.identities", path("identities.toml"))
            .set("tickets.url", "https://files.example")
            .set("tickets.records", path("tickets"));
        let running = Host::new(settings)
            .with::<TicketServer>()
            .start()
            .await
            .unwrap();
        let address = running.addresses().grpc.unwrap();
        let trust = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority.pem()))
            .domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
        let channel = endpoint.tls_config(trust).unwrap().connect().await.unwrap();
        Self {
            channel,
            _running: running,
            _directory: directory,
        }
    }

    async fn call<C: Call>(&self, caller: &str, request: C) -> Result<C::Reply, Status> {
        let mut request = Request::new(request);
        let token = MetadataValue::try_from(format!("Bearer {caller}")).unwrap();
        request.metadata_mut().insert("authorization", token);
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<C, C::Reply>::default();
        let path = PathAndQuery::from_static(C::GRPC_PATH);
        let reply = client.unary(request, path, codec).await;
        reply.map(tonic::Response::into_inner)
    }
}

fn upload() -> v1::IssueTicketRequest {
    v1::IssueTicketRequest {
        session: "s1".to_owned(),
        direction: v1::TicketDirection::Upload.into(),
        max_bytes: 100,
        ..v1::IssueTicketRequest::default()
    }
}

#[tokio::test]
async fn a_ticket_belongs_to_the_tenant_of_its_caller() {
    let fixture = GrpcFixture::new().await;
    let issued = fixture.call("maker", upload()).await.unwrap();
    assert!(issued.url.starts_with("https://files.example/t/"));
    let ticket_id = issued.ticket.unwrap().ticket_id;
    let list = v1::ListTicketsRequest {
        session: "s1".to_owned(),
        limit: 0,
    };
    let listed = fixture.call("reader", list.clone()).await.unwrap();
    assert_eq!(listed.tickets.len(), 1);
    assert!(
        fixture
            .call("stranger", list)
            .await
            .unwrap()
            .tickets
            .is_empty()
    );
    let inspect = v1::InspectTicketRequest {
        ticket_id: ticket_id.clone(),
    };
    let revoke = v1::RevokeTicketRequest { ticket_id };
    for refused in [
        fixture.call("stranger", inspect.clone()).await.unwrap_err(),
        fixture.call("stranger", revoke.clone()).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::NotFound);
        assert_eq!(fault_of(&refused).unwrap().detail, "ticket_unknown");
    }
    let inspected = fixture.call("maker", inspect).await.unwrap();
    assert_eq!(inspected.state(), v1::TicketState::Open);
    let ended = fixture.call("maker", revoke).await.unwrap();
    assert_eq!(ended.state(), v1::TicketState::Revoked);
}

#[tokio::test]
async fn a_caller_without_the_scope_or_without_credentials_makes_no_ticket() {
    let fixture = GrpcFixture::new().await;
    let refused = fixture.call("reader", upload()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(fault_of(&refused).unwrap().detail, "missing_scope");
    let revoke = v1::RevokeTicketRequest {
        ticket_id: "0".repeat(64),
    };
    let refused = fixture.call("reader", revoke).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let unknown = fixture.call("nobody", upload()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unauthenticated);
}
