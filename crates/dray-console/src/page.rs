//! The frame of every page: head, navigation, the line about the system's health, and assets.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use dray_types::{Fault, Sha256Digest};
use http::{StatusCode, header};
use maud::{DOCTYPE, Markup, html};

use crate::calls::{fault_notice, fault_status};
use crate::form::TOKEN_FIELD;
use crate::login::LOGIN_PATH;
use crate::respond::{set_header, with_type};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::shown;

/// A file that pages load.
#[derive(Clone, Copy)]
pub(crate) struct PageAsset {
    pub(crate) path: &'static str,
    media_type: &'static str,
    content: &'static str,
}

const STYLE_SHEET: PageAsset = PageAsset {
    path: "/assets/console.css",
    media_type: "text/css; charset=utf-8",
    content: include_str!("../assets/console.css"),
};
const LIVE_SCRIPT: PageAsset = PageAsset {
    path: "/assets/console.js",
    media_type: "text/javascript; charset=utf-8",
    content: include_str!("../assets/console.js"),
};
const ICON_ASSET: PageAsset = PageAsset {
    path: "/assets/icon.svg",
    media_type: "image/svg+xml",
    content: include_str!("../assets/icon.svg"),
};

/// Every asset that pages load.
pub(crate) const PAGE_ASSETS: [PageAsset; 3] = [STYLE_SHEET, LIVE_SCRIPT, ICON_ASSET];

impl PageAsset {
    /// A URL that contains a digest of the content, so that a browser may cache the asset.
    fn url(&self) -> String {
        let digest = Sha256Digest::of(self.content.as_bytes()).to_hex();
        let (version, _) = digest.split_at(12);
        format!("{}?v={version}", self.path)
    }

    /// The file, which browsers may cache for a day.
    pub(crate) fn response(&self) -> Response {
        let mut response = with_type(StatusCode::OK, self.media_type, Body::from(self.content));
        set_header(
            &mut response,
            header::CACHE_CONTROL,
            "public, max-age=86400",
        );
        response
    }
}

/// Text of `<meta name="description">`, the same on every page.
const PAGE_DESCRIPTION: &str =
    "The journey of every file: tool calls, fetches, deliveries, dead letters and policies.";

/// The pages of the navigation: path and name.
const NAVIGATION_LINKS: [(&str, &str); 9] = [
    ("/live", "Live"),
    ("/deliveries", "Deliveries"),
    ("/letters", "Dead letters"),
    ("/policy", "Policy tester"),
    ("/questions", "Questions"),
    ("/files", "Files"),
    ("/sandboxes", "Sandboxes"),
    ("/playground", "Playground"),
    ("/setup", "Set-up"),
];

/// The parts of a page around its content.
pub(crate) struct PageFrame<'a> {
    pub(crate) state: &'a ConsoleState,
    pub(crate) session: &'a ConsoleSession,
    /// Path of its entry in the navigation.
    pub(crate) section: &'static str,
    pub(crate) title: &'a str,
}

impl PageFrame<'_> {
    /// The page with this content.
    pub(crate) fn render(&self, content: &Markup) -> Response {
        self.render_as(StatusCode::OK, content)
    }

    /// The page with this content and status.
    pub(crate) fn render_as(&self, status: StatusCode, content: &Markup) -> Response {
        let Self {
            state,
            session,
            section,
            title,
        } = self;
        let health = state.health.borrow().clone();
        let body = html! {
            a.skip href="#content" { "Skip to the content" }
            header {
                p.brand { "Drayage " span.muted { (state.tenant) } }
                nav aria-label="Pages" {
                    ul {
                        @for (path, name) in NAVIGATION_LINKS {
                            li { a href=(path) aria-current=[(path == *section).then_some("page")] { (name) } }
                        }
                    }
                }
                form.logout method="post" action="/logout" {
                    (token_field(session))
                    span.muted {
                        @if let Some(person) = &session.person {
                            span title=(person.subject) { (person.name) } " "
                        }
                        "may " (session.role)
                    }
                    button { "Log out" }
                }
            }
            // With the role `status`, a screen reader announces a change without moving the focus.
            p #health role="status" data-working[health.is_working()] { (health.sentence()) }
            main #content tabindex="-1" {
                h1 { (title) }
                (content)
            }
            footer { p.muted { "All times are in UTC." } }
        };
        document(status, title, &body)
    }

    /// The page after a request that failed: what did not happen, why, and a link back to a page by its path and name.
    pub(crate) fn render_failure(
        &self,
        description: &str,
        fault: &Fault,
        (path, name): (&str, &str),
    ) -> Response {
        self.render_as(
            fault_status(fault),
            &html! {
                (fault_notice(description, fault))
                p { a href=(path) { "Back to " (name) } }
            },
        )
    }
}

/// The response to every other path: a person finds the intended page in its navigation.
pub(crate) async fn missing_page(State(state): State<ConsoleState>, request: Request) -> Response {
    // Without a login, only assets are served.
    let Some(session) = request.extensions().get::<ConsoleSession>() else {
        let sentence = "This console has no such file.";
        return refusal(StatusCode::NOT_FOUND, "File not found", sentence);
    };
    let path = shown(request.uri().path());
    let content = html! { p { "This console has no page " code { (path) } "." } };
    let frame = frame_without_section(&state, session, "Page not found");
    frame.render_as(StatusCode::NOT_FOUND, &content)
}

/// The response to a method that a path does not support, such as the `GET` of a browser whose user opens the address
/// of an action again.
pub(crate) async fn refused_method(
    State(state): State<ConsoleState>,
    request: Request,
) -> Response {
    let Some(session) = request.extensions().get::<ConsoleSession>() else {
        let sentence = "This address cannot be used with this method.";
        return refusal(StatusCode::METHOD_NOT_ALLOWED, "Not a page", sentence);
    };
    let path = shown(request.uri().path());
    let method = shown(request.method().as_str());
    let content = html! {
        p { "The address " code { (path) } " cannot be used with " code { (method) } ". Addresses of actions work only from "
            "the forms of their pages." }
    };
    let frame = frame_without_section(&state, session, "Not a page");
    frame.render_as(StatusCode::METHOD_NOT_ALLOWED, &content)
}

fn frame_without_section<'a>(
    state: &'a ConsoleState,
    session: &'a ConsoleSession,
    title: &'a str,
) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "",
        title,
    }
}

/// A page without navigation, for people who are not logged in.
pub(crate) fn bare(status: StatusCode, title: &str, content: &Markup) -> Response {
    let body = html! { main #content { h1 { (title) } (content) } };
    document(status, title, &body)
}

/// The page of a request that is refused before any page of the navigation: a browser shows this response to a person.
pub(crate) fn refusal(status: StatusCode, title: &str, sentence: &str) -> Response {
    bare(
        status,
        title,
        &html! {
            p.notice.problem role="alert" { (sentence) }
            p { a href="/" { "Open the console" } }
        },
    )
}

fn document(status: StatusCode, title: &str, body: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="description" content=(PAGE_DESCRIPTION);
                title { (title) " – Drayage" }
                link rel="stylesheet" href=(STYLE_SHEET.url());
                link rel="icon" href=(ICON_ASSET.url());
                script src=(LIVE_SCRIPT.url()) defer {}
            }
            body data-login-path=(LOGIN_PATH) { (body) }
        }
    };
    with_type(
        status,
        "text/html; charset=utf-8",
        Body::from(page.into_string()),
    )
}

/// The hidden field that ties a form to its session.
pub(crate) fn token_field(session: &ConsoleSession) -> Markup {
    html! { input type="hidden" name=(TOKEN_FIELD) value=(session.form_token()); }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most bytes of all assets together.
    const MAX_ASSET_BYTES: usize = 150 * 1024;

    #[test]
    fn assets_are_small_and_load_nothing_from_other_hosts() {
        let bytes: usize = PAGE_ASSETS.iter().map(|asset| asset.content.len()).sum();
        assert!(bytes <= MAX_ASSET_BYTES, "{bytes}");
        for asset in PAGE_ASSETS {
            let outside = asset
                .content
                .replace("http://www.w3.org/2000/svg", "")
                .contains("://");
            assert!(!outside, "{} names another server", asset.path);
        }
    }

    #[test]
    fn the_documentation_has_a_row_for_every_page_of_the_navigation() {
        let text = include_str!("../../../docs/console.md");
        let (_, section) = text.split_once("\n## Pages\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        for (_, name) in NAVIGATION_LINKS {
            assert!(section.contains(&format!("\n| {name} | ")), "{name}");
        }
    }
}
