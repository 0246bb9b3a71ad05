//! The file around the sections of a page: its policy, style, data and script.

use super::escape::{base64, escape, json_for_script};
use sha2::{Digest, Sha256};

/// The element that holds the data, by its id.
pub const DATA_ID: &str = "moeslice-data";

/// The schema of the data.
pub(super) const SCHEMA: &str = "moeslice.page/1";

pub(super) const STYLE: &str = include_str!("look/page.css");

/// The script of a page: what all have in common, and the figures of this one.
macro_rules! script {
    ($($file:literal),*) => {
        concat!(
            "(() => {\n'use strict';\n",
            include_str!("look/common.js"),
            $(include_str!(concat!("look/", $file)),)*
            include_str!("look/start.js"),
            "})();\n"
        )
    };
}

/// The scripts by page.
pub(super) mod scripts {
    pub(in crate::page) const USAGE: &str =
        script!("chart.js", "usage.js", "cost.js", "measured.js", "heat.js", "layer.js");
    pub(in crate::page) const EVALUATION: &str = script!("chart.js", "measured.js", "corpora.js");
    pub(in crate::page) const REPLAY: &str = script!("chart.js", "caches.js");
}

/// What goes into the file.
pub(super) struct Frame<'a> {
    /// The title, plain text.
    pub(super) title: &'a str,
    /// The sections, markup.
    pub(super) body: &'a str,
    /// The document that programs read.
    pub(super) data: &'a serde_json::Value,
    /// One of [`scripts`].
    pub(super) script: &'static str,
}

impl Frame<'_> {
    /// The file's text.
    pub(super) fn html(&self) -> String {
        let Frame { title, body, data, script } = self;
        let hash = |text: &str| base64(&Sha256::digest(text.as_bytes()));
        let (style_hash, script_hash) = (hash(STYLE), hash(script));
        let data = json_for_script(&data.to_string());
        let title = escape(title);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{script_hash}'; \
             style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta name=\"generator\" content=\"moeslice {version}\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
             <footer>Made by moeslice {version}. This page loads nothing and sends nothing. Its data are JSON, in the element \
             <code>{DATA_ID}</code>.</footer>\n</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n\
             <script type=\"application/json\" id=\"{DATA_ID}\">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

#[cfg(test)]
pub(super) mod test_frame {
    use super::*;

    /// What a page embeds.
    pub(in crate::page) fn data(html: &str) -> serde_json::Value {
        let (_, rest) = html.split_once(&format!("id=\"{DATA_ID}\">")).unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    /// Tags of a page outside of its data, style and script.
    pub(in crate::page) fn markup(html: &str) -> String {
        let html = [scripts::USAGE, scripts::EVALUATION, scripts::REPLAY]
            .iter()
            .fold(html.replace(STYLE, ""), |html, script| html.replace(script, ""));
        html.split("<script type=").next().unwrap().to_owned()
    }

    /// Checks that a page with this script loads nothing and runs nothing else.
    #[track_caller]
    pub(in crate::page) fn check_policy(html: &str, script: &str) {
        for part in [STYLE, script] {
            let hash = base64(&Sha256::digest(part.as_bytes()));
            assert!(html.contains(&format!("'sha256-{hash}'")) && html.contains(part));
        }
        assert!(html.contains("default-src 'none'"));
        assert_eq!((html.matches("<script").count(), html.matches("</script>").count()), (2, 2));
        let markup = markup(html);
        for forbidden in [" style=", " src=", " href=", "http:", "https:", " onclick", "@import", "url("] {
            assert!(!markup.contains(forbidden), "{forbidden} in {markup}");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}
