//! The age at which connections of the gRPC endpoint end.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::grpc_auth::raw_connection;
use super::grpc_resumption::PREFACE;
use super::service::TestHost;

/// Type of the frame with which a server asks for another connection (RFC 9113 section 6.8).
const GOAWAY: u8 = 7;

#[tokio::test]
async fn a_client_is_asked_for_another_connection_when_the_first_has_reached_its_age() {
    let fixture = TestHost::new(&[("grpc.max_connection_age", "500ms")]).await;
    let mut stream = raw_connection(&fixture).await;
    stream.write_all(PREFACE).await.unwrap();
    loop {
        // Length, type, flags and stream of a frame (RFC 9113 section 4.1).
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        if header[3] == GOAWAY {
            break;
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
    }
}
