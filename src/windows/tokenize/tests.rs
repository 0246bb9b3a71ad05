use super::*;

fn special(token: Token, text: &str) -> SpecialToken {
    SpecialToken { token, text: text.into(), anywhere: false, strips_left: false, strips_right: false }
}

/// The segments, text as it stands and tokens as numbers.
fn cut(special: &[SpecialToken], text: &str, inputs: &[Range<usize>]) -> Vec<String> {
    let segments = segments(special, text, inputs, 0..text.len());
    let shown = segments.into_iter().map(|segment| match segment {
        Segment::Text(range) => text[range].to_owned(),
        Segment::Token(token) => token.to_string(),
    });
    shown.collect()
}

#[test]
fn special_tokens_are_cut_out_of_the_template_alone() {
    let tokens = [special(1, "<s>"), special(2, "</s>")];
    assert_eq!(cut(&tokens, "<s>hi</s> there", &[]), ["1", "hi", "2", " there"]);
    assert_eq!(cut(&tokens, "<s>h<s>i</s>", std::slice::from_ref(&(3..8))), ["1", "h<s>i", "2"]);
    assert_eq!(
        cut(&tokens, "<s>h<s>i</s>", std::slice::from_ref(&(5..6))),
        ["1", "h<s>i", "2"],
        "a token that reaches into an input"
    );
    assert_eq!(cut(&tokens, "<s></s>", std::slice::from_ref(&(3..3))), ["1", "2"]);
    let anywhere = [SpecialToken { anywhere: true, ..special(3, "<s>") }];
    assert_eq!(cut(&anywhere, "a<s>", std::slice::from_ref(&(0..4))), ["a", "3"]);
}

#[test]
fn longer_tokens_come_first_and_take_blanks_along() {
    let tokens = [special(7, "<end><end>"), special(8, "<end>")];
    assert_eq!(cut(&tokens, "a<end><end><end>b", &[]), ["a", "7", "8", "b"]);
    let strips = [SpecialToken { strips_left: true, strips_right: true, ..special(4, "<m>") }];
    assert_eq!(cut(&strips, "a \n<m>\t b<m>", &[]), ["a", "4", "b", "4"]);
}
