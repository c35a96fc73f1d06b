//! Against the double.

mod conformance;

use std::sync::Arc;

use dray_platform::Target;
use dray_types::Secret;

use crate::double::Double;
use crate::{Options, Telegram};

/// What a bot at the double needs.
fn options(double: &Double) -> Options {
    Options {
        token: double.token(),
        base_url: double.url(),
        webhook_secret: Secret::new("hook-secret"),
        ..Options::default()
    }
}

fn target(chat: i64) -> Target {
    Target {
        platform: "telegram".to_owned(),
        account: String::new(),
        chat: chat.to_string(),
        thread: String::new(),
        reply_to: String::new(),
    }
}
