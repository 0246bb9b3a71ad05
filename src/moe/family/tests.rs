use super::*;

#[test]
fn the_table_is_sorted_and_searched() {
    assert!(families().is_sorted_by(|a, b| a.architecture < b.architecture));
    for row in families() {
        assert_eq!(family(row.architecture), Some(row));
    }
    for absent in ["", "llama3", "Llama", "gemma3", "zzz"] {
        assert_eq!(family(absent), None);
    }
}

#[test]
fn rows_do_not_contradict_themselves() {
    for row in families() {
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
fn a_gate_comes_from_the_code_or_from_the_key() {
    let gate = |architecture: &str, key| family(architecture).expect("a row").selection.gate(key);
    assert_eq!(gate("mimo2", Some(1)), Some(Gate::Sigmoid));
    assert_eq!(gate("glm4moe", None), Some(Gate::Sigmoid));
    assert_eq!(gate("glm4moe", Some(0)), Some(Gate::Sigmoid));
    assert_eq!(gate("glm4moe", Some(1)), Some(Gate::Softmax));
    assert_eq!(gate("dots1", None), None);
    assert_eq!(gate("dots1", Some(2)), Some(Gate::Sigmoid));
    assert_eq!(gate("dots1", Some(9)), None);
    assert_eq!(Gate::from_key(3).map(Gate::name), Some("softmax of the selected"));
    assert_eq!(Gate::from_key(4), Some(Gate::SqrtSoftplus));
}
