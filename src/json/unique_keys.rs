//! JSON objects whose keys are data: a key that occurs twice is an error, not a silent overwrite.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// For `#[serde(deserialize_with)]`: reads an object into a map. A key must be written as it would be printed
/// (`"7"`, not `"07"`).
pub(crate) fn deserialize<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Ord + FromStr + fmt::Display,
    V: Deserialize<'de>,
{
    struct Unique<K, V>(PhantomData<(K, V)>);
    impl<'de, K: Ord + FromStr + fmt::Display, V: Deserialize<'de>> Visitor<'de> for Unique<K, V> {
        type Value = BTreeMap<K, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some(text) = access.next_key::<String>()? {
                let key = text.parse().ok().filter(|key: &K| key.to_string() == text);
                let key =
                    key.ok_or_else(|| A::Error::custom(format!("{text:?} is not a key of this object")))?;
                if map.insert(key, access.next_value()?).is_some() {
                    return Err(A::Error::custom(format!("key {text:?} occurs twice")));
                }
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(Unique(PhantomData))
}

/// As [`deserialize`], for a field that may be absent.
pub(crate) fn deserialize_some<'de, D, K, V>(deserializer: D) -> Result<Option<BTreeMap<K, V>>, D::Error>
where
    D: Deserializer<'de>,
    K: Ord + FromStr + fmt::Display,
    V: Deserialize<'de>,
{
    deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<u32, u8>, serde_json::Error> {
        deserialize(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn keys_are_read_and_sorted() {
        assert_eq!(read(r#"{"10": 1, "2": 3}"#).unwrap(), [(2, 3), (10, 1)].into());
    }

    #[test]
    fn repeated_or_non_numeric_key_is_refused() {
        for (text, part) in [
            (r#"{"1": 1, "1": 1}"#, "\"1\" occurs twice"),
            (r#"{"1": 1, "01": 2}"#, "\"01\" is not a key"),
            (r#"{"+1": 1}"#, "\"+1\" is not a key"),
            (r#"{"4294967296": 1}"#, "is not a key"),
            (r#"{"": 1}"#, "\"\" is not a key"),
            (r#"{"total": 1}"#, "\"total\" is not a key"),
            (r#"[1]"#, "expected an object"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
