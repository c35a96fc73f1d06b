//! Resolves the links and pictures of a Markdown file within its preview.

use crate::location::Location;
use crate::markdown::{LinkTarget, MarkdownLinks};
use crate::view::SandboxView;

/// Schemes of addresses outside to which a link may lead.
const OUTSIDE_SCHEMES: [&str; 3] = ["http", "https", "mailto"];

/// Links of one document of a preview: relative ones stay in it.
#[derive(Clone, Debug)]
pub(crate) struct PreviewLinks {
    /// Path of URLs of viewer pages, up to the directory of the preview.
    viewer_base: String,
    /// Path of URLs of unchanged files, up to the directory of the preview.
    content_base: String,
    /// Names from the directory of the preview to that of the document, encoded.
    directory: Vec<String>,
}

impl PreviewLinks {
    pub(crate) fn of(view: &SandboxView) -> Self {
        let top = Location::of_name(b"");
        let directory = view.location.parent().unwrap_or_default().url_part();
        Self {
            viewer_base: view.url_path("v", &top),
            content_base: view.url_path("p", &top),
            directory: directory
                .split('/')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        }
    }

    /// The part of a URL after the token for a relative address; `None` for an address outside the preview.
    fn resolve(&self, target: &str) -> Option<String> {
        let path = target.split(['?', '#']).next().unwrap_or_default();
        // A slash at the start means the directory of the preview, as code hosts do for a repository.
        let mut names = if path.starts_with('/') {
            Vec::new()
        } else {
            self.directory.clone()
        };
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    names.pop()?;
                }
                name => names.push(name.to_owned()),
            }
        }
        let is_directory = path.ends_with('/') && !names.is_empty();
        let joined = names.join("/") + if is_directory { "/" } else { "" };
        // The link is parsed like the path of a request, so that an encoded `..` does not become a link.
        Some(Location::parse(&joined)?.url_part())
    }
}

impl MarkdownLinks for PreviewLinks {
    fn link(&self, target: &str) -> Option<LinkTarget> {
        if target.starts_with('#') {
            return Some(LinkTarget::Heading(target.to_owned()));
        }
        if let Some(scheme) = scheme_of(target) {
            let admitted = OUTSIDE_SCHEMES
                .iter()
                .any(|known| scheme.eq_ignore_ascii_case(known));
            return admitted.then(|| LinkTarget::Outside(target.to_owned()));
        }
        if target.starts_with("//") {
            return Some(LinkTarget::Outside(format!("https:{target}")));
        }
        let path = self.resolve(target)?;
        Some(LinkTarget::Preview(format!("{}{path}", self.viewer_base)))
    }

    fn picture(&self, target: &str) -> Option<String> {
        if target.starts_with("//") || scheme_of(target).is_some() {
            return None;
        }
        let path = self.resolve(target)?;
        Some(format!("{}{path}", self.content_base))
    }
}

/// The scheme of an absolute URL (RFC 3986, section 3.1). Browsers drop tabs and line ends within one, so a text with
/// any before its colon counts as having one too.
fn scheme_of(target: &str) -> Option<&str> {
    let target = target
        .trim_start_matches(|character: char| character.is_ascii_control() || character == ' ');
    let (scheme, _) = target.split_once(':')?;
    let is_path = scheme.contains(['/', '?', '#']);
    (!is_path).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> PreviewLinks {
        PreviewLinks {
            viewer_base: "/v/T/".to_owned(),
            content_base: "/p/T/".to_owned(),
            directory: vec!["docs".to_owned(), "a%20b".to_owned()],
        }
    }

    #[test]
    fn relative_targets_stay_within_the_preview() {
        for (target, path) in [
            ("x.md", "docs/a%20b/x.md"),
            ("./x%20y.md#part", "docs/a%20b/x%20y.md"),
            ("../x y.md?raw=1", "docs/x%20y.md"),
            ("/x.md", "x.md"),
            ("../../sub/", "sub/"),
            ("../..", ""),
            ("a:b/../c.md", ""),
        ] {
            let link = links().link(target);
            if path.is_empty() && target.contains(':') {
                assert_eq!(link, None, "{target}");
                continue;
            }
            assert_eq!(
                link,
                Some(LinkTarget::Preview(format!("/v/T/{path}"))),
                "{target}"
            );
            assert_eq!(
                links().picture(target),
                Some(format!("/p/T/{path}")),
                "{target}"
            );
        }
        assert_eq!(
            links().link("#part"),
            Some(LinkTarget::Heading("#part".to_owned()))
        );
    }

    #[test]
    fn targets_outside_the_preview_and_scripts_are_neither_links_nor_pictures() {
        for target in [
            "../../../x",
            "/../x",
            "%2e%2e/%2e%2e/%2e%2e/x",
            "a%2f..%2fb",
            "a%00",
            "javascript:alert(1)",
            "JaVaScRiPt:alert(1)",
            " javascript:alert(1)",
            "java\tscript:alert(1)",
            "\u{1}javascript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "vbscript:x",
        ] {
            assert_eq!(links().link(target), None, "{target}");
            assert_eq!(links().picture(target), None, "{target}");
        }
        for target in ["https://example.org/", "HTTP://a", "mailto:a@b.c"] {
            assert_eq!(
                links().link(target),
                Some(LinkTarget::Outside(target.to_owned()))
            );
            assert_eq!(links().picture(target), None, "{target}");
        }
        let outside = Some(LinkTarget::Outside("https://a/b".to_owned()));
        assert_eq!(links().link("//a/b"), outside);
        assert_eq!(links().picture("//a/b"), None);
    }
}
