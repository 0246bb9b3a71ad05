//! Versioned documents: JSON objects that name their schema.
//!
//! A file may have been written by a later moeslice. Within one version of a schema, a later moeslice adds optional
//! fields alone and leaves them out where they say nothing, so that files stay readable in both directions. A file that
//! has such a field is refused here, since what it says would be passed over in silence; the message then names the
//! moeslice that is needed, which the file states in `run.moeslice`. The fields that were added since 0.1.0 are listed in
//! `docs/usage-json.md`.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use thiserror::Error;

/// Some editors put it before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// This moeslice.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a document cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The file cannot be read.
    #[error("{}: cannot read the {document}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What it was taken for.
        document: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// Not JSON of this schema.
    #[error("{}: {fault}: {error}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What it is not.
        fault: &'static str,
        /// Where and what.
        error: serde_json::Error,
    },
    /// Another schema, or another version of it.
    #[error("{}: schema is {found:?}; a {document} of this moeslice has {wanted:?}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// What it was taken for.
        document: &'static str,
        /// The schema named in the file.
        found: String,
        /// The schema that was wanted.
        wanted: &'static str,
    },
    /// A later moeslice wrote it, with something in it that this one does not know.
    #[error("{}: it needs moeslice {version}, which wrote it; this is {VERSION}: {error}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The moeslice that wrote it.
        version: String,
        /// Where and what.
        error: serde_json::Error,
    },
}

/// A kind of document.
pub(crate) struct Format {
    /// What messages call it.
    pub name: &'static str,
    /// What messages say of a file that is none.
    pub fault: &'static str,
    /// The value of `schema`.
    pub schema: &'static str,
}

impl Format {
    /// Reads the bytes of the file at `path`, up to what a document can have.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, DocumentError> {
        crate::sys::read_bounded(path).map_err(|error| self.unreadable(path, error))
    }

    /// The error for a file that cannot be read.
    pub(crate) fn unreadable(&self, path: &Path, error: io::Error) -> DocumentError {
        DocumentError::Read { path: path.into(), document: self.name, error }
    }

    /// Parses the text of a document of this kind; `path` serves the messages alone.
    pub(crate) fn parse<T: DeserializeOwned>(&self, text: &[u8], path: &Path) -> Result<T, DocumentError> {
        self.parse_if_named(text, path)?
            .ok_or_else(|| self.malformed(path, serde_json::Error::missing_field("schema")))
    }

    /// Parses the text of a document of this kind; `None` when it names no schema at all.
    ///
    /// The schema is read first, so that another version is told from damage.
    pub(crate) fn parse_if_named<T: DeserializeOwned>(
        &self,
        text: &[u8],
        path: &Path,
    ) -> Result<Option<T>, DocumentError> {
        let text = without_mark(text);
        let head: Head = serde_json::from_slice(text).map_err(|error| self.malformed(path, error))?;
        match &head.schema {
            None => return Ok(None),
            Some(schema) if schema == self.schema => {}
            Some(found) => {
                let (path, found) = (path.into(), found.clone());
                let (document, wanted) = (self.name, self.schema);
                return Err(DocumentError::Schema { path, document, found, wanted });
            }
        }
        serde_json::from_slice(text).map(Some).map_err(|error| match head.later_version() {
            Some(version) if error.is_data() => {
                DocumentError::Newer { path: path.into(), version: version.into(), error }
            }
            _ => self.malformed(path, error),
        })
    }

    /// Parses the text of something that stands in for a document and names no schema.
    pub(crate) fn parse_bare<T: DeserializeOwned>(
        &self,
        text: &[u8],
        path: &Path,
    ) -> Result<T, DocumentError> {
        serde_json::from_slice(without_mark(text)).map_err(|error| self.malformed(path, error))
    }

    fn malformed(&self, path: &Path, error: serde_json::Error) -> DocumentError {
        DocumentError::Parse { path: path.into(), fault: self.fault, error }
    }
}

/// The text without a byte order mark.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// What every version of a document has.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Head {
    schema: Option<String>,
    /// Anything, since only the whole document says what is wrong with it.
    run: Option<serde_json::Value>,
}

impl Head {
    /// The moeslice that wrote the document, if it is later than this one.
    fn later_version(&self) -> Option<&str> {
        let version = self.run.as_ref()?.get("moeslice")?.as_str()?;
        (numbers(version)? > numbers(VERSION)?).then_some(version)
    }
}

/// The numbers of `1.2.3`, or of `1.2.3-rc.1`.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split(['-', '+']).next()?;
    let numbers: Option<Vec<u64>> = release.split('.').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Format = Format { name: "note", fault: "not a note of moeslice", schema: "note/1" };

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Note {
        #[serde(rename = "schema")]
        _schema: String,
        #[serde(default, rename = "run")]
        _run: serde_json::Value,
        text: String,
    }

    fn message(text: &str) -> String {
        FORMAT.parse::<Note>(text.as_bytes(), Path::new("n.json")).unwrap_err().to_string()
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        let text = "\u{feff}{\"schema\": \"note/1\", \"text\": \"a\"}";
        assert_eq!(FORMAT.parse::<Note>(text.as_bytes(), Path::new("n.json")).unwrap().text, "a");
    }

    #[test]
    fn a_field_of_a_later_moeslice_is_refused_with_the_version_that_is_needed() {
        let told = message(
            r#"{"schema": "note/1", "run": {"moeslice": "987.1.0-rc.1"}, "text": "a", "colour": "red"}"#,
        );
        for part in ["n.json", "moeslice 987.1.0-rc.1", VERSION, "`colour`"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn an_unknown_field_is_damage_unless_a_later_moeslice_wrote_it() {
        for version in ["0.0.1", VERSION, "soon", "987", ""] {
            let run = format!(r#"{{"moeslice": {version:?}}}"#);
            let told = message(&format!(r#"{{"schema": "note/1", "run": {run}, "text": "a", "x": 1}}"#));
            assert!(told.contains("not a note of moeslice: unknown field `x`"), "{told}");
        }
        for run in ["null", "1", "[]", "{}", r#"{"moeslice": 987}"#] {
            let told = message(&format!(r#"{{"schema": "note/1", "run": {run}, "text": "a", "x": 1}}"#));
            assert!(told.contains("not a note of moeslice"), "{told}");
        }
    }

    #[test]
    fn text_that_is_cut_short_is_damage_whoever_wrote_it() {
        let told = message(r#"{"schema": "note/1", "run": {"moeslice": "987.0.0"}, "text": "#);
        assert!(told.contains("not a note of moeslice: EOF"), "{told}");
    }

    #[test]
    fn another_schema_is_told_from_damage() {
        let told = message(r#"{"schema": "note/2", "pages": []}"#);
        assert_eq!(told, r#"n.json: schema is "note/2"; a note of this moeslice has "note/1""#);
        assert!(message(r#"{"text": "a"}"#).contains("missing field `schema`"));
        assert!(message("[]").contains("expected an object"));
    }
}
