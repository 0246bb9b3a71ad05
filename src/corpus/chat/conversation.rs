//! Conversations as people keep them: one JSON value a line.

use minijinja::Value;
use minijinja::value::ValueKind;

/// One conversation.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    /// Its messages, at least one.
    pub messages: Vec<Message>,
    /// The list of tools that came with it, or none.
    pub tools: Value,
}

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Who speaks, by the names that templates know: `user`, `assistant`, `system`, …
    pub role: String,
    /// The text; empty for a message that only calls tools.
    pub content: String,
    /// The message as a template sees it: `role`, `content` and whatever else came with it.
    pub value: Value,
}

/// The name under which generated tokens are counted, which no role may have.
pub(crate) const GENERATED: &str = "generated";

/// The names under which a message says who speaks, and those under which it says what.
const ROLE_KEYS: [&str; 2] = ["role", "from"];
const CONTENT_KEYS: [&str; 2] = ["content", "value"];

/// Reads one line: a list of messages, or an object that has it under `messages` or `conversations`.
///
/// # Errors
/// Says what of it is not as it should be.
pub(super) fn parse(line: &str) -> Result<Conversation, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let (list, tools) = match value.kind() {
        ValueKind::Seq => (value, Value::from(())),
        ValueKind::Map => {
            let list =
                [member(&value, "messages"), member(&value, "conversations")].into_iter().flatten().next();
            let list = list.ok_or("it has neither \"messages\" nor \"conversations\"")?;
            (list, member(&value, "tools").unwrap_or(Value::from(())))
        }
        _ => return Err("neither a list of messages nor an object that has one".into()),
    };
    if list.kind() != ValueKind::Seq {
        return Err("its messages are not a list".into());
    }
    let messages = items(&list)
        .enumerate()
        .map(|(at, message)| Message::read(&message).map_err(|what| format!("message {}: {what}", at + 1)))
        .collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err("it has no messages".into());
    }
    Ok(Conversation { messages, tools })
}

impl Message {
    fn read(message: &Value) -> Result<Message, String> {
        if message.kind() != ValueKind::Map {
            return Err("not an object".into());
        }
        let found = |keys: [&str; 2]| keys.into_iter().find_map(|key| member(message, key));
        let role =
            found(ROLE_KEYS).ok_or("it does not say whose it is: \"role\" (or \"from\") is missing")?;
        let role = role_name(role.as_str().ok_or("its role is not a string")?)?;
        let calls_tools = member(message, "tool_calls").is_some();
        let content = match found(CONTENT_KEYS) {
            Some(content) => Some(text(&content)?),
            None if calls_tools => None,
            None => return Err("it has no text: \"content\" (or \"value\") is missing".into()),
        };
        let rest = items(message).filter_map(|key| {
            let name = key.as_str()?.to_owned();
            let ours = ROLE_KEYS.contains(&name.as_str()) || CONTENT_KEYS.contains(&name.as_str());
            let value = if ours { None } else { member(message, &name) };
            value.map(|value| (name, value))
        });
        let head = [
            ("role".to_owned(), Value::from(role.as_str())),
            ("content".to_owned(), Value::from(content.as_deref())),
        ];
        let value = Value::from_pairs(head.into_iter().chain(rest));
        Ok(Message { role, content: content.unwrap_or_default(), value })
    }

    /// The message as a template would see it if its text were `content`.
    pub fn with_content(&self, content: &str) -> Value {
        let pairs = items(&self.value).map(|key| {
            let is_content = key.as_str() == Some("content");
            let value =
                if is_content { Value::from(content) } else { self.value.get_item(&key).unwrap_or_default() };
            (key, value)
        });
        Value::from_pairs(pairs)
    }
}

/// The name that templates know a role by.
fn role_name(role: &str) -> Result<String, String> {
    let name = match role {
        "human" | "user" => "user",
        "gpt" | "chatgpt" | "model" | "assistant" => "assistant",
        other => other,
    };
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        return Err(format!("its role {role:?} is no word of letters, digits, \"_\" and \"-\""));
    }
    if name == GENERATED {
        return Err(format!("its role {role:?} is the name that generated tokens are counted under"));
    }
    Ok(name.to_owned())
}

/// A text: a string, or the parts of one, joined as the templates that know parts join them.
fn text(content: &Value) -> Result<String, String> {
    if let Some(text) = content.as_str() {
        return Ok(text.to_owned());
    }
    if content.kind() != ValueKind::Seq {
        return Err("its content is neither a string nor a list of text parts".into());
    }
    let mut joined = String::new();
    for part in items(content) {
        let kind = member(&part, "type");
        let is_text = kind.as_ref().is_none_or(|kind| kind.as_str() == Some("text"));
        let text = if part.as_str().is_some() { Some(part) } else { member(&part, "text") };
        match text.as_ref().and_then(Value::as_str).filter(|_| is_text) {
            Some(text) => joined.push_str(text),
            None => {
                let what = kind.map_or("without text".into(), |kind| format!("of type {kind}"));
                return Err(format!("its content has a part {what}; only text can be read"));
            }
        }
    }
    Ok(joined)
}

/// What an object has under `key`; a null is nothing.
fn member(object: &Value, key: &str) -> Option<Value> {
    if object.kind() != ValueKind::Map {
        return None;
    }
    object.get_attr(key).ok().filter(|value| !value.is_undefined() && !value.is_none())
}

/// The items of a list, or the keys of an object.
fn items(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}
