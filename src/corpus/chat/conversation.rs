//! Conversations as people keep them: one JSON value a line. They are read into the form of the OpenAI API, which
//! llama.cpp takes.

use crate::json::Json;
use crate::json::lenient::{Repairs, from_text};

/// One conversation.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    /// Its messages, at least one.
    pub messages: Vec<Message>,
    /// The tools that came with it.
    pub tools: Option<Json>,
}

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Who speaks, by the names that templates know: `user`, `assistant`, `system`, …
    pub role: String,
    /// The text; empty for a message that only calls tools.
    pub content: String,
    /// The message as llama.cpp takes it: `role`, `content` and whatever else came with it.
    pub value: Json,
}

/// The name under which generated tokens are counted, which no role may have when roles are counted apart.
pub(crate) const GENERATED: &str = "generated";

/// The names under which a message says who speaks, and those under which it says what.
const ROLE_KEYS: [&str; 2] = ["role", "from"];
const CONTENT_KEYS: [&str; 2] = ["content", "value"];

/// Reads one line: a list of messages, or an object that has it under `messages` or `conversations`.
///
/// # Errors
/// Says what of it is not as it should be.
pub(super) fn parse(line: &str, repairs: &mut Repairs) -> Result<Conversation, String> {
    let value: Json = from_text(line, repairs).map_err(|error| format!("not JSON: {error}"))?;
    let (list, tools) = match &value {
        Json::Array(_) => (&value, None),
        Json::Object(_) => {
            let list = value.get("messages").or_else(|| value.get("conversations"));
            let list = list.ok_or("it has neither \"messages\" nor \"conversations\"")?;
            (list, value.get("tools").map(|tools| self::tools(tools, repairs)).transpose()?.flatten())
        }
        _ => return Err("neither a list of messages nor an object that has one".into()),
    };
    let messages = self::list(list, "messages", repairs)?
        .unwrap_or_default()
        .iter()
        .enumerate()
        .map(|(at, message)| {
            Message::read(message, repairs).map_err(|what| format!("message {}: {what}", at + 1))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err("it has no messages".into());
    }
    Ok(Conversation { messages, tools })
}

/// A list, or the JSON text of one, as data sets store it; none for the text of nothing.
fn list(value: &Json, what: &str, repairs: &mut Repairs) -> Result<Option<Vec<Json>>, String> {
    let parsed = match value {
        Json::String(text) if text.trim().is_empty() => return Ok(None),
        Json::String(text) => {
            let failed = |error| format!("its {what} are a string that is not JSON: {error}");
            from_text(text, repairs).map_err(failed)?
        }
        other => other.clone(),
    };
    match parsed {
        Json::Array(items) => Ok(Some(items)),
        Json::Null => Ok(None),
        _ => Err(format!("its {what} are not a list")),
    }
}

/// The tools, each in the form `{"type":"function","function":{…}}`.
fn tools(value: &Json, repairs: &mut Repairs) -> Result<Option<Json>, String> {
    let Some(items) = list(value, "tools", repairs)? else { return Ok(None) };
    if items.is_empty() {
        return Ok(None);
    }
    let tools = items.into_iter().enumerate().map(|(at, tool)| {
        let function = match tool.get("function") {
            Some(function) => function.clone(),
            None => tool.clone(),
        };
        if function.get("name").and_then(Json::as_str).is_none() {
            return Err(format!("tool {} has no name", at + 1));
        }
        let mut members = vec![
            ("type".to_owned(), tool.get("type").cloned().unwrap_or(Json::text("function"))),
            ("function".to_owned(), without_nulls(function)),
        ];
        if let Some(deferred) = tool.get("defer_loading").filter(|_| tool.get("function").is_some()) {
            members.push(("defer_loading".to_owned(), deferred.clone()));
        }
        Ok(Json::Object(members))
    });
    Ok(Some(Json::Array(tools.collect::<Result<_, _>>()?)))
}

/// The calls of tools, each in the form `{"type":"function","id":…,"function":{"name":…,"arguments":…}}`.
fn tool_calls(message: &Json, repairs: &mut Repairs) -> Result<Option<Json>, String> {
    let calls = match (message.get("tool_calls"), message.get("function_call")) {
        (Some(calls), _) => list(calls, "tool calls", repairs)?,
        // The form before there could be several.
        (None, Some(call)) => Some(vec![call.clone()]),
        (None, None) => None,
    };
    let Some(calls) = calls else { return Ok(None) };
    let calls = calls.into_iter().enumerate().map(|(at, call)| {
        let (outer, function) = match (call.get("function"), &call) {
            (Some(function), Json::Object(members)) => (members.clone(), function.clone()),
            _ => (Vec::new(), call.clone()),
        };
        let Json::Object(mut function) = without_nulls(function) else {
            return Err(format!("tool call {} is not an object", at + 1));
        };
        if !function.iter().any(|(key, value)| key == "name" && value.as_str().is_some()) {
            return Err(format!("tool call {} has no name", at + 1));
        }
        match function.iter_mut().find(|(key, _)| key == "arguments") {
            Some((_, Json::String(text))) => mend(text, repairs),
            Some(_) => {}
            None => function.push(("arguments".to_owned(), Json::text("{}"))),
        }
        let id = call.get("id").map(|id| match id {
            Json::String(_) => id.clone(),
            other => Json::String(other.to_text()),
        });
        let mut members = vec![("type".to_owned(), Json::text("function"))];
        members.extend(id.map(|id| ("id".to_owned(), id)));
        members.push(("function".to_owned(), Json::Object(function)));
        let known = ["type", "id", "function"];
        members.extend(
            outer.into_iter().filter(|(key, value)| !known.contains(&key.as_str()) && *value != Json::Null),
        );
        Ok(Json::Object(members))
    });
    Ok(Some(Json::Array(calls.collect::<Result<_, _>>()?)))
}

/// Puts right what llama.cpp would not read of the JSON in `text`; what is right stays as it is, to the byte.
fn mend(text: &mut String, repairs: &mut Repairs) {
    let before = *repairs;
    if let Ok(value) = from_text::<Json>(text, repairs)
        && *repairs != before
    {
        *text = value.to_text();
    }
}

fn without_nulls(value: Json) -> Json {
    match value {
        Json::Object(members) => {
            Json::Object(members.into_iter().filter(|(_, value)| *value != Json::Null).collect())
        }
        other => other,
    }
}

impl Message {
    fn read(message: &Json, repairs: &mut Repairs) -> Result<Message, String> {
        let Json::Object(members) = message else { return Err("not an object".into()) };
        let found = |keys: [&str; 2]| keys.into_iter().find_map(|key| message.get(key));
        let role =
            found(ROLE_KEYS).ok_or("it does not say whose it is: \"role\" (or \"from\") is missing")?;
        let role = role_name(role.as_str().ok_or("its role is not a string")?)?;
        let calls = tool_calls(message, repairs)?;
        let (text, content) = match found(CONTENT_KEYS) {
            Some(content) => content_parts(content)?,
            None if calls.is_some() => (String::new(), Json::Null),
            None => return Err("it has no text: \"content\" (or \"value\") is missing".into()),
        };
        let ours = ["tool_calls", "function_call"];
        let ours = || ROLE_KEYS.iter().chain(&CONTENT_KEYS).chain(&ours);
        let rest =
            members.iter().filter(|(key, value)| *value != Json::Null && !ours().any(|name| name == key));
        let mut value = vec![("role".to_owned(), Json::text(&role)), ("content".to_owned(), content)];
        value.extend(calls.map(|calls| ("tool_calls".to_owned(), calls)));
        value.extend(rest.cloned());
        Ok(Message { role, content: text, value: Json::Object(value) })
    }

    /// The message as it would be if its text were `content`.
    pub fn with_content(&self, content: &str) -> Json {
        let mut value = self.value.clone();
        if let Json::Object(members) = &mut value {
            for (key, value) in members {
                if key == "content" {
                    *value = Json::text(content);
                }
            }
        }
        value
    }
}

/// The name that templates know a role by.
fn role_name(role: &str) -> Result<String, String> {
    match role {
        "" => Err("its role is empty".into()),
        "human" => Ok("user".into()),
        "gpt" | "chatgpt" | "model" => Ok("assistant".into()),
        other => Ok(other.to_owned()),
    }
}

/// The name under which the tokens of a role are counted.
///
/// # Errors
/// When it is the name that generated tokens are counted under.
pub(super) fn part_name(role: &str) -> Result<String, String> {
    if role == GENERATED {
        return Err(format!("its role {role:?} is the name that generated tokens are counted under"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    Ok(role.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}

/// A text, whole and as llama.cpp takes it: a string, or a list of text parts.
fn content_parts(content: &Json) -> Result<(String, Json), String> {
    if let Json::String(text) = content {
        return Ok((text.clone(), content.clone()));
    }
    let Json::Array(parts) = content else {
        return Err("its content is neither a string nor a list of text parts".into());
    };
    let mut texts: Vec<&str> = Vec::with_capacity(parts.len());
    for part in parts {
        let kind = part.get("type");
        let is_text = kind.is_none_or(|kind| kind.as_str() == Some("text"));
        let text = part.as_str().or_else(|| part.get("text").and_then(Json::as_str));
        match text.filter(|_| is_text) {
            Some(text) => texts.push(text),
            None => {
                let what = kind.map_or("without text".into(), |kind| {
                    let kind = kind.as_str().map_or_else(|| kind.to_text(), str::to_owned);
                    format!("of type {kind}")
                });
                return Err(format!("its content has a part {what}; only text can be read"));
            }
        }
    }
    let part = |text: &&str| Json::object([("type", Json::text("text")), ("text", Json::text(text))]);
    Ok((texts.join("\n"), Json::Array(texts.iter().map(part).collect())))
}
