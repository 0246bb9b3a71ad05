use super::*;

#[test]
fn table_is_sorted_and_finds_only_its_rows() {
    assert!(architectures().is_sorted_by(|a, b| a.architecture < b.architecture));
    for row in architectures() {
        assert_eq!(architecture(row.architecture), Some(row));
    }
    for absent in ["", "llama3", "Llama", "gemma3", "zzz"] {
        assert_eq!(architecture(absent), None);
    }
}

#[test]
fn rows_never_contradict_themselves() {
    for row in architectures() {
        let name = row.architecture;
        assert!(!(row.no_gate && row.fused_gate_up), "{name}: a fused tensor without a gate");
        assert!(!row.per_layer_experts || row.per_layer_used, "{name}: counts differ, used counts do not");
        assert_eq!(row.mask.nodes().is_empty(), row.refuse.is_some(), "{name}: a mask stands for a cut");
        if row.routing_node == RoutingNode::TopkOnly {
            assert!(!row.groups, "{name}: without build_moe_ffn's selection nothing honours groups");
        }
        for text in [row.refuse, row.note].into_iter().flatten() {
            assert!(!text.ends_with('.') && !text.contains('\n'), "{name}: {text}");
        }
    }
}

#[test]
fn gate_comes_from_code_or_key() {
    let gate = |name: &str, key| architecture(name).expect("a row").selection.gate(key);
    assert_eq!(gate("mimo2", Some(1)), Some(GatingFunction::Sigmoid));
    assert_eq!(gate("glm4moe", None), Some(GatingFunction::Sigmoid));
    assert_eq!(gate("glm4moe", Some(0)), Some(GatingFunction::Sigmoid));
    assert_eq!(gate("glm4moe", Some(1)), Some(GatingFunction::Softmax));
    assert_eq!(gate("dots1", None), None);
    assert_eq!(gate("dots1", Some(2)), Some(GatingFunction::Sigmoid));
    assert_eq!(gate("dots1", Some(9)), None);
    assert_eq!(GatingFunction::from_key(3).map(GatingFunction::name), Some("softmax of the selected"));
    assert_eq!(GatingFunction::from_key(4), Some(GatingFunction::SqrtSoftplus));
}
