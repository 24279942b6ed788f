//! The files of the page, which are a part of the binary.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use frond_http::{Reply, bytes};

/// The page loads nothing from elsewhere, and runs no script but its own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Paths, content types and texts.
pub static FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../page/index.html")),
    ("/page/style.css", CSS, include_str!("../page/style.css")),
    ("/page/icon.svg", SVG, include_str!("../page/icon.svg")),
    ("/page/main.js", JS, include_str!("../page/main.js")),
    ("/page/api.js", JS, include_str!("../page/api.js")),
    ("/page/dom.js", JS, include_str!("../page/dom.js")),
    ("/page/format.js", JS, include_str!("../page/format.js")),
    ("/page/shell.js", JS, include_str!("../page/shell.js")),
    ("/page/chart.js", JS, include_str!("../page/chart.js")),
    ("/page/overview.js", JS, include_str!("../page/overview.js")),
    (
        "/page/collections.js",
        JS,
        include_str!("../page/collections.js"),
    ),
    ("/page/query.js", JS, include_str!("../page/query.js")),
    ("/page/plan.js", JS, include_str!("../page/plan.js")),
    (
        "/page/operations.js",
        JS,
        include_str!("../page/operations.js"),
    ),
    ("/page/slow.js", JS, include_str!("../page/slow.js")),
    ("/page/users.js", JS, include_str!("../page/users.js")),
    ("/page/changes.js", JS, include_str!("../page/changes.js")),
    ("/page/backups.js", JS, include_str!("../page/backups.js")),
    ("/page/set.js", JS, include_str!("../page/set.js")),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the page.
pub fn file(content_type: &'static str, text: &'static str) -> Reply {
    let mut reply = bytes(
        StatusCode::OK,
        content_type,
        Bytes::from_static(text.as_bytes()),
    );
    let policy = HeaderValue::from_static(POLICY);
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    reply
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_is_served_and_names_only_files_that_are() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let served = FILES.iter().map(|(path, ..)| match *path {
            "/" => "index.html".to_owned(),
            path => path.trim_start_matches("/page/").to_owned(),
        });
        assert_eq!(served.collect::<BTreeSet<_>>(), there);
        for (path, _, text) in FILES {
            // No request leaves the server. Names of XML namespaces are no addresses.
            for (at, _) in text.match_indices("://") {
                let before = &text[at.saturating_sub(5)..at];
                let rest = &text[at..];
                assert!(
                    rest.starts_with("://www.w3.org/"),
                    "{path} names another server: {before}{}",
                    &rest[..rest.len().min(40)]
                );
            }
            for name in text.split("from \"./").skip(1) {
                let name = name.split('"').next().unwrap();
                assert!(there.contains(name), "{path} imports {name}");
            }
        }
    }

    #[test]
    fn the_page_has_no_inline_script_or_style() {
        let (_, _, html) = FILES[0];
        assert!(!html.contains("<style") && !html.contains("style="));
        assert!(!html.contains(" onclick=") && !html.contains("javascript:"));
        for script in html.split("<script").skip(1) {
            assert!(script.contains("></script>"), "{script}");
        }
    }
}
