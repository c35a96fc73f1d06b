//! `files/authorizeUpload` and `files/authorizeDownload`, with the endpoint that their descriptors lead to.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_ticket::{TicketEndpoint, TicketLimits, TicketRecords, TicketService};
use dray_types::Sha256Digest;
use rmcp::model::{CustomRequest, ServerResult};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::TicketAccess;

/// A server with an endpoint of tickets, and a client of it.
struct TransferFixture {
    client: RunningService<RoleClient, ()>,
    base_url: String,
    _serving: RunningService<RoleServer, McpServer>,
    _endpoint: JoinSet<()>,
    _directory: tempfile::TempDir,
    _s3: EmbeddedS3,
}

impl TransferFixture {
    async fn new(tools: Option<Vec<ToolName>>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let (s3, options) = EmbeddedS3::start(&directory.path().join("s3"))
            .await
            .unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let services = ServiceClient {
            bus: test_bus::without_streams(&clock),
            store: store.clone(),
            clock: clock.clone(),
            tenant: TenantId::default(),
            session: SessionId::new("s1").unwrap(),
        };
        let records = TicketRecords::directory(&directory.path().join("tickets")).unwrap();
        let service = TicketService::new(records, store, clock, TicketLimits::default());
        let endpoint = TicketEndpoint::bind(([127, 0, 0, 1], 0).into(), None)
            .await
            .unwrap();
        let base_url = endpoint.base_url().to_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(endpoint.serve(service.clone(), None, CancellationToken::new()));
        let options = ServerOptions {
            tools,
            tickets: Some(TicketAccess {
                service,
                base_url: base_url.clone(),
            }),
            ..ServerOptions::default()
        };
        let server = McpServer::new(services, None, options);
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (serving, client) = tokio::join!(server.serve(near), ().serve(far));
        Self {
            client: client.unwrap(),
            base_url,
            _serving: serving.unwrap(),
            _endpoint: tasks,
            _directory: directory,
            _s3: s3,
        }
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, ErrorData> {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
        match self.client.send_request(request).await {
            Ok(ServerResult::CustomResult(result)) => Ok(result.0),
            Ok(other) => panic!("{other:?}"),
            Err(rmcp::ServiceError::McpError(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a request to the endpoint of a descriptor; status and body of the response.
    async fn transfer(&self, descriptor: &Value, fields: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let url = descriptor["url"].as_str().unwrap();
        let path = url.strip_prefix(&self.base_url).unwrap();
        let address = self.base_url.strip_prefix("http://").unwrap();
        let method = descriptor["method"].as_str().unwrap();
        #[expect(clippy::disallowed_methods, reason = "the endpoint of the test")]
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        let mut response = Vec::new();
        let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut response));
        read.await.unwrap().unwrap();
        let end = response.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, body) = response.split_at(end.unwrap() + 4);
        let status = str::from_utf8(head).unwrap().split(' ').nth(1).unwrap();
        (status.parse().unwrap(), body.to_vec())
    }

    /// Sends a file in the form that the descriptor requires.
    async fn upload(&self, descriptor: &Value, content: &[u8]) -> u16 {
        let field = descriptor["multipart"]["fileField"].as_str().unwrap();
        let mut body = format!(
            "--limit\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"f\"\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n--limit--\r\n");
        let fields = "content-type: multipart/form-data; boundary=limit\r\n";
        self.transfer(descriptor, fields, &body).await.0
    }
}

fn digest(content: &[u8]) -> Value {
    let value = URL_SAFE_NO_PAD.encode(Sha256Digest::of(content).as_bytes());
    json!({"algorithm": "sha-256", "value": value})
}

#[tokio::test]
async fn a_file_is_uploaded_named_by_its_uri_and_downloaded() {
    let fixture = Box::pin(TransferFixture::new(None)).await;
    let files = &fixture
        .client
        .peer_info()
        .unwrap()
        .capabilities
        .experimental;
    let files = Value::Object(files.as_ref().unwrap()["files"].clone());
    assert_eq!(
        files,
        json!({"upload": true, "download": true, "transports": ["http"]})
    );
    let content = b"some text of a file";
    let announced = json!({
        "name": "notes.txt",
        "mimeType": "text/plain",
        "size": content.len(),
        "digest": digest(content),
    });
    let prepared = fixture
        .request("files/authorizeUpload", announced.clone())
        .await
        .unwrap();
    for member in ["name", "mimeType", "size", "digest"] {
        assert_eq!(prepared["file"][member], announced[member], "{prepared}");
    }
    let upload = &prepared["upload"];
    assert!(upload["expiresAt"].as_str().unwrap().ends_with('Z'));
    let uri = prepared["file"]["uri"].clone();
    let refused = fixture
        .request("files/authorizeDownload", json!({"uri": uri}))
        .await
        .unwrap_err();
    assert_eq!(refused.data.unwrap()["reason"], "unknownFile");
    assert_eq!(fixture.upload(upload, content).await, 201);
    assert_eq!(fixture.upload(upload, content).await, 410);

    let resolved = fixture
        .request("files/authorizeDownload", json!({"uri": uri}))
        .await
        .unwrap();
    assert_eq!(resolved["file"]["uri"], uri);
    assert_eq!(resolved["file"]["digest"], digest(content));
    assert_eq!(resolved["file"]["name"], "notes.txt");
    let download = &resolved["download"];
    let (status, body) = fixture.transfer(download, "", b"").await;
    assert_eq!((status, body.as_slice()), (200, content.as_slice()));
    // Every tool takes the URI.
    let params = CallToolRequestParams::new("get").with_arguments(object(&json!({"from": uri})));
    let result = fixture.client.call_tool(params).await.unwrap();
    let sha256 = Sha256Digest::of(content).to_hex();
    assert_eq!(result.structured_content.unwrap()["sha256"], sha256);
}

#[tokio::test]
async fn an_upload_that_differs_from_its_announcement_makes_no_file() {
    let fixture = Box::pin(TransferFixture::new(None)).await;
    let announced = json!({"digest": digest(b"other")});
    let prepared = fixture
        .request("files/authorizeUpload", announced)
        .await
        .unwrap();
    assert_eq!(fixture.upload(&prepared["upload"], b"content").await, 422);
    let uri = prepared["file"]["uri"].clone();
    let refused = fixture
        .request("files/authorizeDownload", json!({"uri": uri}))
        .await
        .unwrap_err();
    assert_eq!(refused.data.unwrap()["reason"], "unknownFile");
}

#[tokio::test]
async fn wrong_parameters_and_methods_that_are_off_are_refused() {
    let fixture = Box::pin(TransferFixture::new(Some(vec![ToolName::UploadTicket]))).await;
    let short_digest = json!({"digest": {"algorithm": "sha-256", "value": "AAAA"}});
    let md5_digest = json!({"digest": {"algorithm": "md5", "value": "AAAA"}});
    for (method, params, code, reason) in [
        (
            "files/authorizeUpload",
            json!({"size": u64::MAX}),
            -32602,
            "maxSizeExceeded",
        ),
        (
            "files/authorizeUpload",
            short_digest,
            -32602,
            "invalidDigest",
        ),
        (
            "files/authorizeUpload",
            md5_digest,
            -32602,
            "unsupportedDigest",
        ),
        ("files/authorizeUpload", json!({"size": -1}), -32602, ""),
        (
            "files/authorizeDownload",
            json!({"uri": "dray://artifact/x"}),
            -32601,
            "",
        ),
        ("files/other", json!({}), -32601, ""),
    ] {
        let error = fixture.request(method, params.clone()).await.unwrap_err();
        assert_eq!(error.code.0, code, "{method} {params}: {error:?}");
        if !reason.is_empty() {
            assert_eq!(error.data.unwrap()["reason"], reason, "{params}");
        }
    }
}
