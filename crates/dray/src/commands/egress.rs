//! `dray egress`: tokens of the forward proxy, stored responses of fetches, and a report from the audit stream.

use std::time::Duration;

use dray_proto::v1;
use serde_json::json;

use super::{egress_report, egress_token};
use crate::cli::{EgressCommand, EgressPurgeArgs, GlobalOptions};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Timeout of the call.
const PURGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the command, which may connect.
pub(crate) async fn run(
    global: &GlobalOptions,
    command: &EgressCommand,
) -> Result<(), CommandFailure> {
    match command {
        EgressCommand::Token(token) => egress_token::print_token(global, token),
        EgressCommand::Purge(purge) => purge_response(global, purge).await,
        EgressCommand::Report(report) => egress_report::run(global, report).await,
    }
}

async fn purge_response(
    global: &GlobalOptions,
    purge: &EgressPurgeArgs,
) -> Result<(), CommandFailure> {
    let request = v1::PurgeFetchRequest {
        url: purge.url.clone(),
    };
    let system = SystemConnection::open_bus(global).await?;
    let reply = system.call(&system.meta(PURGE_TIMEOUT), &request).await;
    system.close().await;
    let removed = reply?.removed;
    if global.json {
        print_line(&json!({ "removed": removed }).to_string());
    } else if removed {
        print_note("the stored response is forgotten");
    } else {
        print_note("no response of this URL is stored");
    }
    Ok(())
}
