use crate::moe::test_model::TestModel;
use crate::moe::{CountLimit, Experts};

fn experts(architecture: &'static str, n: u32, used: u32, groups: Option<(u32, u32)>) -> Experts {
    let mut model = TestModel::plain(architecture, 2, n, used);
    if let Some((count, used)) = groups {
        model.key("expert_group_count", count).key("expert_group_used_count", used);
    }
    model.read().expect("a model with experts")
}

fn limit(experts: &Experts, k: u32) -> CountLimit {
    experts.check_count(k).expect_err("not possible").limit
}

#[test]
fn possible_counts_reach_from_used_count_to_all() {
    let experts = experts("qwen3moe", 31, 3, None);
    assert_eq!(limit(&experts, 0), CountLimit::Zero);
    assert_eq!(limit(&experts, 2), CountLimit::BelowUsed { used: 3 });
    assert_eq!(limit(&experts, 32), CountLimit::TooMany);
    assert_eq!(limit(&experts, u32::MAX), CountLimit::TooMany);
    assert_eq!(experts.possible_counts(), (3..=31).collect::<Vec<_>>());
    assert_eq!(experts.next_count(0), Some(3));
    assert_eq!(experts.next_count(31), Some(31));
    assert_eq!(experts.next_count(32), None);
    assert_eq!(
        experts.check_count(2).expect_err("below used").to_string(),
        "cannot keep 2 of 31 experts: a token goes to 3 of them; the nearest possible is 3"
    );
    assert_eq!(
        experts.check_count(40).expect_err("too many").to_string(),
        "cannot keep 40 of 31 experts: there are not so many; the nearest possible is 31"
    );
}

#[test]
fn possible_counts_start_at_the_largest_used_count_of_a_layer() {
    let mut model = TestModel::plain("qwen3moe", 3, 8, 1);
    model.key("expert_used_count", vec![5_u32, 2, 2]);
    let experts = model.read().expect("a model with experts");
    assert_eq!(experts.n_expert_used, 5);
    assert_eq!(experts.possible_counts(), [5, 6, 7, 8]);
}

#[test]
fn possible_counts_split_evenly_over_groups() {
    let experts = experts("bailingmoe2", 32, 6, Some((8, 2)));
    assert_eq!(limit(&experts, 7), CountLimit::GroupCount { groups: 8 });
    assert_eq!(limit(&experts, 8), CountLimit::GroupCount { groups: 8 });
    assert_eq!(limit(&experts, 20), CountLimit::GroupRemainder { groups: 8 });
    assert_eq!(limit(&experts, 16), CountLimit::GroupReach { groups_used: 2, reach: 4, used: 6 });
    assert_eq!(experts.possible_counts(), [24, 32]);
    assert_eq!(
        experts.check_count(25).expect_err("no multiple").to_string(),
        "cannot keep 25 of 32 experts: the 8 groups have to keep the same number each; the nearest possible are 24 and 32"
    );
}

#[test]
fn group_keeps_at_least_two() {
    let experts = experts("deepseek2", 12, 1, Some((3, 2)));
    assert_eq!(limit(&experts, 3), CountLimit::GroupCount { groups: 3 });
    assert_eq!(experts.possible_counts(), [6, 9, 12]);
}

#[test]
fn single_group_only_wants_two_experts() {
    let experts = experts("deepseek2", 5, 1, Some((1, 1)));
    assert_eq!(limit(&experts, 1), CountLimit::GroupCount { groups: 1 });
    assert_eq!(experts.possible_counts(), [2, 3, 4, 5]);
}

#[test]
fn router_that_ignores_groups_allows_counts_beyond_their_reach() {
    let experts = experts("kolibri1", 32, 6, Some((8, 2)));
    assert_eq!(experts.possible_counts(), [16, 24, 32]);
}

#[test]
fn llama4_refuses_counts_from_or_to_128() {
    let from = experts("llama4", 128, 1, None);
    assert!(matches!(limit(&from, 64), CountLimit::SpecialCount { count: 128, .. }));
    assert_eq!(from.possible_counts(), [128]);
    let to = experts("llama4", 130, 1, None);
    assert!(matches!(limit(&to, 128), CountLimit::SpecialCount { count: 128, .. }));
    assert_eq!((to.next_count(128), to.check_count(127)), (Some(129), Ok(())));
    // The number is special to that architecture alone.
    assert_eq!(experts("qwen3moe", 128, 1, None).check_count(64), Ok(()));
}

#[test]
fn model_that_cannot_be_cut_allows_all_only() {
    let refact = experts("refact", 4, 2, None);
    assert!(matches!(limit(&refact, 3), CountLimit::Refused { .. }));
    assert_eq!(refact.possible_counts(), [4]);
    let mut grove = TestModel::plain("grovemoe", 1, 4, 2);
    grove.part(0, "ffn_gate_chexps.weight", &[6, 3, 2]);
    let grove = grove.read().expect("a model with experts");
    let message = grove.check_count(2).expect_err("refused").to_string();
    assert_eq!(
        message,
        "cannot keep 2 of 4 experts: a model of architecture grovemoe cannot be cut: its chunk experts each \
         serve a fixed run of experts, so that removing one renumbers the chunks; the nearest possible is 4"
    );
    let mut unknown = TestModel::plain("grove3", 1, 4, 2);
    unknown.part(0, "ffn_up_chexps.weight", &[6, 3, 2]);
    let unknown = unknown.read().expect("a model with experts");
    assert!(unknown.arch.is_none() && unknown.chunks);
    assert!(matches!(limit(&unknown, 3), CountLimit::Refused { .. }));
}
