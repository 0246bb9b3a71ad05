//! The templates here are our own, in the manner of those that models bring.

use super::*;

mod forms;

/// Special tokens around every message.
const CHATML: &str = "\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}";

/// BOS, headers, a date, and tools that are mostly absent.
const HEADERS: &str = "\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now('%d %b %Y') %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|header|>system<|end|>\n\nToday: ' + date_string + '\n' }}
{%- if tools %}
    {{- 'Tools: ' + tools | tojson + '\n' }}
{%- endif %}
{{- system + '<|eot|>' }}
{%- for message in messages %}
    {{- '<|header|>' + message['role'] + '<|end|>\n\n' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|header|>assistant<|end|>\n\n' }}
{%- endif %}";

/// Roles must alternate, the system's text goes into the first turn of the user, and the assistant has another name.
const TURNS: &str = "\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set prefix = '' -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must alternate user/assistant/…') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\n' + (prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '</turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\n' }}{%- endif -%}";

/// Only the last answer keeps its thoughts; the last question is found backwards; the system alone is refused.
const THINKING: &str = "\
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.last < 0 and message.role == 'user' %}{%- set ns.last = index %}{%- endif %}
{%- endfor %}
{%- if ns.last < 0 %}{{- raise_exception('No question found') }}{%- endif %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' %}
        {%- set thoughts = '' %}
        {%- if '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last %}
            {{- '<|s|>assistant\n<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' + content + '<|e|>\n' }}
        {%- else %}
            {{- '<|s|>assistant\n' + content + '<|e|>\n' }}
        {%- endif %}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}{{- '<|s|>user' }}{%- endif %}
        {{- '\n<reply>' + content + '</reply>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|e|>\n' }}{%- endif %}
    {%- else %}
        {{- '<|s|>' + message.role + '\n' + content + '<|e|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|s|>assistant\n' }}{%- endif %}";

const TALK: &str = r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi there"},{"role":"assistant","content":"Hello."},{"role":"user","content":" Who? "}]}"#;

/// The same without the system message, which llama.cpp joins with the next where a template knows none.
const TWO: &str = r#"{"messages":[{"role":"user","content":"Hi there"},{"role":"assistant","content":"Hello."},{"role":"user","content":" Who? "}]}"#;

fn reader(template: &str) -> ChatReader {
    ChatReader {
        template: Some(ChatTemplate { text: template.into(), origin: "the test's template".into() }),
        bos: "<s>".into(),
        eos: "</s>".into(),
        ..ChatReader::default()
    }
}

fn text(template: &str, line: &str) -> String {
    let chats = reader(template).read(Path::new("t.jsonl"), line).unwrap().chats;
    assert_eq!(chats.len(), 1);
    chats.into_iter().next().unwrap().text
}

#[track_caller]
fn error(template: &str, content: &str) -> String {
    reader(template).read(Path::new("t.jsonl"), content).unwrap_err().to_string()
}

/// The text of each span, with its role.
fn by_role(template: &str, line: &str, answer: bool) -> Vec<(String, String)> {
    let reader = ChatReader { by_role: true, answer, ..reader(template) };
    let chat = reader.read(Path::new("t.jsonl"), line).unwrap().chats.remove(0);
    assert_eq!(chat.spans.last().unwrap().end, chat.text.len());
    let mut begin = 0;
    let cut = chat.spans.iter().map(|span| {
        let text = chat.text[begin..span.end].to_owned();
        begin = span.end;
        (span.role.clone(), text)
    });
    cut.collect()
}

#[track_caller]
fn assert_spans(found: &[(String, String)], wanted: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = found.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
    assert_eq!(found, wanted);
}

#[test]
fn usual_shapes_of_a_conversation_render_alike() {
    let wanted = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n";
    for line in [
        r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}"#,
        r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]"#,
        r#"{"id":7,"conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Ho"}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},{"role":"assistant","content":["Ho"]}]}"#,
    ] {
        assert_eq!(text(CHATML, line), wanted, "{line}");
    }
}

#[test]
fn lines_are_conversations_and_empty_lines_are_skipped() {
    let content = "\r\n[{\"role\":\"user\",\"content\":\"a\"}]\r\n \n[{\"role\":\"user\",\"content\":\"b\"}]";
    let chats = reader(CHATML).read(Path::new("t.jsonl"), content).unwrap().chats;
    let texts: Vec<&str> = chats.iter().map(|chat| chat.text.as_str()).collect();
    assert_eq!(texts, ["<|im_start|>user\na<|im_end|>\n", "<|im_start|>user\nb<|im_end|>\n"]);
    assert_eq!(ChatReader::default().read(Path::new("t.jsonl"), "\n\n").unwrap(), ReadChats::default());
}

#[test]
fn invalid_conversation_is_refused_with_file_and_line() {
    let good = r#"[{"role":"user","content":"a"}]"#;
    for (line, what) in [
        ("{", "not JSON"),
        ("7", "neither a list of messages nor an object"),
        (r#"{"text":"a"}"#, "neither \"messages\" nor \"conversations\""),
        (r#"{"messages":"a"}"#, "messages are a string that is not JSON"),
        (r#"{"messages":7}"#, "not a list"),
        (r#"{"messages":""}"#, "no messages"),
        ("[]", "no messages"),
        ("[7]", "message 1: not an object"),
        (r#"[{"content":"a"}]"#, "message 1: it does not say whose it is"),
        (r#"[{"role":7,"content":"a"}]"#, "role is not a string"),
        (r#"[{"role":"","content":"a"}]"#, "role is empty"),
        (r#"{"messages":[{"role":"user","content":"a"}],"tools":"x"}"#, "not JSON"),
        (r#"{"messages":[{"role":"user","content":"a"}],"tools":[{}]}"#, "tool 1 has no name"),
        (r#"[{"role":"assistant","tool_calls":[{"function":{}}]}]"#, "tool call 1 has no name"),
        (r#"[{"role":"user"}]"#, "message 1: it has no text"),
        (r#"[{"role":"user","content":null}]"#, "message 1: it has no text"),
        (r#"[{"role":"user","content":{"text":"a"}}]"#, "neither a string nor a list"),
        (r#"[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]"#, "of type image_url"),
        (
            r#"[{"role":"user","content":"a"},{"role":"user","content":[7]}]"#,
            "message 2: its content has a part",
        ),
    ] {
        let message = error(CHATML, &format!("{good}\n\n{line}\n"));
        assert!(message.starts_with("t.jsonl, line 3: not a conversation: "), "{message}");
        assert!(message.contains(what), "{what:?} is missing in: {message}");
    }
}

#[test]
fn model_without_template_renders_nothing() {
    let found = ChatReader::default().read(Path::new("t.jsonl"), TALK);
    assert!(matches!(found, Err(ChatError::NoTemplate { .. })), "{found:?}");
}

#[test]
fn unreadable_template_is_refused_with_its_name() {
    let message = error("{% for %}", TALK);
    assert!(message.starts_with("the test's template cannot be read: "), "{message}");
}

#[test]
fn template_exception_is_reported_in_its_own_words() {
    let message = error(TURNS, r#"[{"role":"user","content":"a"},{"role":"user","content":"b"}]"#);
    assert!(message.starts_with("t.jsonl, line 1: the test's template does not render"), "{message}");
    assert!(message.contains("Roles must alternate"), "{message}");
}

#[test]
fn template_of_headers_and_date_renders_without_tools() {
    assert_eq!(
        text(HEADERS, TALK),
        "<s><|header|>system<|end|>\n\nToday: 01 Jan 2026\nBe brief.<|eot|><|header|>user<|end|>\n\nHi there<|eot|>\
         <|header|>assistant<|end|>\n\nHello.<|eot|><|header|>user<|end|>\n\nWho?<|eot|>"
    );
}

#[test]
fn tools_and_calls_render_as_python_json() {
    let line = r#"{"tools":[{"name":"f","description":"it's <b> & ü","parameters":{"z":[],"a":1}}],"messages":[{"role":"user","content":"Hi"}]}"#;
    let wanted = r#"Tools: [{"type": "function", "function": {"name": "f", "description": "it's <b> & ü", "parameters": {"z": [], "a": 1}}}]"#;
    assert!(text(HEADERS, line).contains(wanted), "{}", text(HEADERS, line));
    let line = line.replace(r#"{"z":[],"a":1}"#, r#"{"z":1,"a":[1.5,true,null]}"#);
    let dump = |options: &str| {
        let template = "{{ tools[0].function.parameters | tojson(OPTIONS) }}{% for m in messages %}{{ m.content[:0] }}{% endfor %}";
        text(&template.replace("OPTIONS", options), &line)
    };
    assert_eq!(dump(""), r#"{"z": 1, "a": [1.5, true, null]}"#);
    assert_eq!(dump("separators=(',', ':')"), r#"{"z":1,"a":[1.5,true,null]}"#);
    assert_eq!(dump("ensure_ascii=false"), r#"{"z": 1, "a": [1.5, true, null]}"#);
    let sorted = "{{ tools | tojson(sort_keys=true) }}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert!(error(sorted, &line).contains("not implemented"), "llama.cpp knows no order of keys");
    assert_eq!(dump("indent=1"), "{\n \"z\": 1,\n \"a\": [\n  1.5,\n  true,\n  null\n ]\n}");
}

#[test]
fn blocks_are_trimmed_as_in_transformers() {
    let template = "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n";
    assert_eq!(text(template, TWO), "Hi there\n Who? \n");
}

#[test]
fn template_with_crlf_renders_plain_newlines() {
    assert_eq!(
        text("{% for m in messages %}\r\n{{ m.content }}\r\n{% endfor %}\r\n", TALK),
        text("{% for m in messages %}\n{{ m.content }}\n{% endfor %}\n", TALK)
    );
    assert_eq!(text("a\r\nb\rc", TALK), "a\nb\nc");
}

#[test]
fn generation_marks_and_loop_controls_are_accepted() {
    let template = "{% for m in messages %}{%- if m.role == 'system' -%}{% continue %}{% endif %}\
                    {%- generation -%}[{{ m.content }}]{%- endgeneration -%}{% endfor %}";
    assert_eq!(text(template, TWO), "[Hi there][Hello.][ Who? ]");
}

#[test]
fn date_in_template_is_the_same_every_day() {
    let date = |format: &str| text(&format!("{{{{ strftime_now('{format}') }}}}"), TALK);
    assert_eq!(date("%A, %-d %B %Y %H:%M:%S %p %%"), "Thursday, 1 January 2026 00:00:00 AM %");
}

#[test]
fn message_span_is_what_it_adds_to_the_conversation() {
    assert_spans(
        &by_role(CHATML, TALK, false),
        &[
            ("system", "<|im_start|>system\nBe brief.<|im_end|>\n"),
            ("user", "<|im_start|>user\nHi there<|im_end|>\n"),
            ("assistant", "<|im_start|>assistant\nHello.<|im_end|>\n"),
            ("user", "<|im_start|>user\n Who? <|im_end|>\n"),
        ],
    );
    assert_spans(
        &by_role(HEADERS, TALK, false)[..2],
        &[
            ("system", "<s><|header|>system<|end|>\n\nToday: 01 Jan 2026\nBe brief.<|eot|>"),
            ("user", "<|header|>user<|end|>\n\nHi there<|eot|>"),
        ],
    );
}

#[test]
fn system_message_inside_a_turn_ends_after_its_text() {
    assert_spans(
        &by_role(TURNS, TALK, false),
        &[
            ("system", "<s><turn>user\nBe brief."),
            ("user", "\n\nHi there</turn>\n"),
            ("assistant", "<turn>model\nHello.</turn>\n"),
            ("user", "<turn>user\nWho?</turn>\n"),
        ],
    );
}

#[test]
fn message_rendered_differently_as_last_keeps_its_closing() {
    let line = r#"[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"assistant","content":"<think>\nhm\n</think>\n\nHello."},{"role":"tool","content":"one"},{"role":"tool","content":"two"},{"role":"user","content":"So?"},{"role":"assistant","content":"<think>\nah\n</think>\n\nYes."}]"#;
    assert_spans(
        &by_role(THINKING, line, false),
        &[
            ("system", "<|s|>system\nBe brief."),
            ("user", "<|e|>\n<|s|>user\nHi<|e|>\n"),
            ("assistant", "<|s|>assistant\nHello.<|e|>\n"),
            ("tool", "<|s|>user\n<reply>one"),
            ("tool", "</reply>\n<reply>two</reply><|e|>\n"),
            ("user", "<|s|>user\nSo?<|e|>\n"),
            ("assistant", "<|s|>assistant\n<think>\nah\n</think>\n\nYes.<|e|>\n"),
        ],
    );
}

#[test]
fn answer_replaces_the_last_answer() {
    let line = r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]"#;
    let reader = ChatReader { answer: true, ..reader(CHATML) };
    let chat = reader.read(Path::new("t.jsonl"), line).unwrap().chats.remove(0);
    assert_eq!(chat.text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    assert_spans(
        &by_role(CHATML, line, true),
        &[("user", "<|im_start|>user\nHi<|im_end|>\n"), ("assistant", "<|im_start|>assistant\n")],
    );
    let nothing = reader.read(Path::new("t.jsonl"), r#"[{"role":"assistant","content":"Ho"}]"#);
    let Err(ChatError::Bad { bad, total: 1, .. }) = nothing else { panic!("{nothing:?}") };
    assert_eq!(bad, [(1, BadChat::NothingToAnswer)]);
}
