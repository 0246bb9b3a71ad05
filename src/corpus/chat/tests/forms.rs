//! The forms in which conversations are kept, and what becomes of those that cannot be used.

use super::*;

/// A template that prints tools, and calls of tools with their arguments one by one.
const TOOLS: &str = "\
{%- if tools %}{{- '<|tools|>' + tools | tojson }}{%- endif %}
{%- for message in messages %}
    {{- '<|' + message.role + '|>' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {{- '<|call|>' + call.function.name }}
        {%- for name, value in call.function.arguments | items %}{{- ' ' + name + '=' + value | tojson }}{%- endfor %}
    {%- endfor %}
{%- endfor %}";

#[test]
fn tools_as_a_string_give_the_text_of_the_list() {
    let tools = r#"[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}]"#;
    let messages = r#""messages":[{"role":"user","content":"Hi"}]"#;
    let as_list = text(TOOLS, &format!("{{\"tools\":{tools},{messages}}}"));
    let quoted = serde_json::to_string(tools).unwrap();
    assert_eq!(text(TOOLS, &format!("{{\"tools\":{quoted},{messages}}}")), as_list);
    assert!(as_list.contains(r#""properties": {"a": {"type": "integer"}}"#), "{as_list}");
    for nothing in ["null", "[]", "\"\"", "\"null\""] {
        let found = text(TOOLS, &format!("{{\"tools\":{nothing},{messages}}}"));
        assert_eq!(found, "<|user|>Hi", "{nothing}");
    }
}

#[test]
fn arguments_as_a_string_give_the_text_of_the_object() {
    let call = |rest: &str| {
        text(TOOLS, &format!(r#"[{{"role":"user","content":"Hi"}},{{"role":"assistant",{rest}}}]"#))
    };
    let wanted = "<|user|>Hi<|assistant|><|call|>f a=3";
    for rest in [
        r#""tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"a":3}}}]"#,
        r#""tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":3}"}}]"#,
        r#""content":null,"tool_calls":[{"name":"f","arguments":{"a":3},"id":7}]"#,
        r#""content":"","tool_calls":"[{\"name\":\"f\",\"arguments\":{\"a\":3}}]""#,
        r#""content":null,"function_call":{"name":"f","arguments":"{\"a\":3}"}"#,
    ] {
        assert_eq!(call(rest), wanted, "{rest}");
    }
}

#[test]
fn half_a_character_and_no_number_are_read_with_a_remark() {
    let line = r#"{"score":NaN,"messages":[{"role":"user","content":"cut \ud83d"}]}"#;
    let read = reader(CHATML).read(Path::new("t.jsonl"), line).unwrap();
    assert_eq!(read.chats[0].text, "<|im_start|>user\ncut \u{FFFD}<|im_end|>\n");
    assert_eq!(read.remarks.len(), 2, "{:?}", read.remarks);
    // The same inside of JSON that a string holds.
    let call = r#"{"function":{"name":"f","arguments":"{\"a\":NaN,\"b\":\"\\ud83d\"}"}}"#;
    let line = format!(r#"[{{"role":"user","content":"Hi"}},{{"role":"assistant","tool_calls":[{call}]}}]"#);
    let read = reader(TOOLS).read(Path::new("t.jsonl"), &line).unwrap();
    assert_eq!(read.chats[0].text, "<|user|>Hi<|assistant|><|call|>f a=null b=\"\u{FFFD}\"");
    assert_eq!(read.remarks.len(), 2, "{:?}", read.remarks);
}

#[test]
fn messages_as_a_string_give_the_text_of_the_list() {
    let messages = r#"[{"role":"user","content":"Hi"}]"#;
    let line = format!("{{\"messages\":{}}}", serde_json::to_string(messages).unwrap());
    assert_eq!(text(CHATML, &line), text(CHATML, messages));
}

#[test]
fn content_is_a_string_or_parts_as_the_template_wants_it() {
    let typed = "{% for m in messages %}[{{ m['content'][0]['text'] }}]{% endfor %}";
    for line in [
        r#"[{"role":"user","content":"Hi"}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"Hi"}]}]"#,
    ] {
        assert_eq!(text(typed, line), "[Hi]", "{line}");
        assert_eq!(text(CHATML, line), "<|im_start|>user\nHi<|im_end|>\n", "{line}");
    }
}

#[test]
fn roles_with_blanks_reach_the_template_and_get_a_name_of_their_own() {
    let line = r#"[{"role":"user memory","content":"a"},{"role":"user","content":"b"}]"#;
    assert_eq!(text(CHATML, line), "<|im_start|>user memory\na<|im_end|>\n<|im_start|>user\nb<|im_end|>\n");
    let roles: Vec<String> = by_role(CHATML, line, false).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user_memory", "user"]);
    let generated = r#"[{"role":"generated","content":"a"}]"#;
    assert_eq!(text(CHATML, generated), "<|im_start|>generated\na<|im_end|>\n");
    let reader = ChatReader { by_role: true, ..reader(CHATML) };
    let message = reader.read(Path::new("t.jsonl"), generated).unwrap_err().to_string();
    assert!(message.contains("generated tokens"), "{message}");
}

#[test]
fn developer_is_the_system_where_a_template_knows_no_other() {
    let line = r#"[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]"#;
    let strict = "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}\
                  {{ raise_exception('unknown role') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    assert_eq!(text(strict, line), "<system>Be brief.<user>Hi");
}

#[test]
fn bad_conversations_are_counted_and_named_or_left_out() {
    let refusing = "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('never') }}{% endif %}\
                    <{{ m.role }}>{{ m.content }}{% endfor %}";
    let good = r#"[{"role":"user","content":"yes"}]"#;
    let mut lines = vec![good.to_owned(); 1000];
    lines[499] = good.replace("yes", "no");
    lines[999] = good[..20].to_owned();
    let content = lines.join("\n");
    let message = error(refusing, &content);
    assert!(message.starts_with("t.jsonl: 2 of 1000 conversations cannot be used: line 500: "), "{message}");
    assert!(message.contains("never") && message.contains("line 1000: not a conversation"), "{message}");
    let skipping = ChatReader { skip_bad: true, ..reader(refusing) };
    let read = skipping.read(Path::new("t.jsonl"), &content).unwrap();
    assert_eq!((read.chats.len(), read.left_out), (998, 2));
    assert!(read.remarks[0].starts_with("t.jsonl: 2 of 1000 conversations are left out: line 500"));
    assert!(skipping.read(Path::new("t.jsonl"), &lines[499]).is_err(), "nothing is left");
}

#[test]
fn special_tokens_in_a_conversation_are_its_own_text() {
    let line = r#"[{"role":"user","content":"a <|im_end|> b"}]"#;
    let chat = reader(CHATML).read(Path::new("t.jsonl"), line).unwrap().chats.remove(0);
    let inputs: Vec<&str> = chat.inputs.iter().map(|input| &chat.text[input.clone()]).collect();
    assert_eq!(inputs, ["user", "a <|im_end|> b"]);
}
