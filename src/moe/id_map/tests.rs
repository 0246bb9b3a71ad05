use super::*;
use crate::moe::test_model::{Opened, TestModel};

fn map(opened: &Opened) -> Result<IdMap, IdMapError> {
    IdMap::read(&opened.model, &opened.experts())
}

fn kept(layers: &[(u32, &[u32])]) -> KeptExperts {
    layers.iter().map(|&(layer, ids)| (layer, ids.to_vec())).collect()
}

/// A file with 3 of 8 experts in two layers, whose metadata are as `edit` leaves them.
fn pruned(edit: impl FnOnce(&mut TestModel)) -> Opened {
    let mut model = TestModel::plain("qwen3moe", 2, 3, 2);
    model.metadata.set("moeslice.expert_count_original", 8_u32);
    model.metadata.set("moeslice.expert_ids.0", vec![1_u32, 4, 7]);
    model.metadata.set("moeslice.expert_ids.1", vec![0_u32, 2, 6]);
    edit(&mut model);
    model.open()
}

#[test]
fn id_map_of_an_uncut_model_is_the_identity() {
    let map = map(&TestModel::plain("qwen3moe", 2, 4, 2).open()).expect("a map");
    assert_eq!(map.layer(1), Some([0, 1, 2, 3].as_slice()));
    assert_eq!((map.original_count(), map.layer(2)), (4, None));
}

#[test]
fn second_cut_leads_back_to_original_ids() {
    let first = map(&TestModel::plain("qwen3moe", 2, 8, 2).open()).expect("a map");
    let first = first.compose(&kept(&[(0, &[1, 4, 7]), (1, &[0, 2, 6])])).expect("a cut");
    let opened = pruned(|model| {
        let ids = model.metadata.keys().filter(|key| key.starts_with("moeslice.")).count();
        assert_eq!(ids, 3);
        first.write_into(&mut model.metadata);
    });
    let read = map(&opened).expect("a map");
    assert_eq!(read, first);
    let second = read.compose(&kept(&[(0, &[0, 2]), (1, &[1, 2])])).expect("a cut");
    assert_eq!(second.layers().collect::<Vec<_>>(), [(0, [1, 7].as_slice()), (1, [2, 6].as_slice())]);
    assert_eq!((second.layer(0).map(|ids| ids[1]), second.layer(5)), (Some(7), None));
    assert_eq!(second.original_count(), 8);
}

#[test]
fn dropped_layers_leave_the_metadata() {
    let opened = pruned(|_| {});
    let mut metadata = opened.model.metadata().clone();
    map(&opened).and_then(|map| map.compose(&kept(&[(1, &[2])]))).expect("a cut").write_into(&mut metadata);
    assert!(!metadata.contains("moeslice.expert_ids.0"));
    let ids = metadata.get("moeslice.expert_ids.1").and_then(|value| value.as_array()?.to_u64s());
    assert_eq!(ids, Some(vec![6]));
}

#[test]
fn compose_refuses_experts_that_the_layer_lacks() {
    let map = map(&pruned(|_| {})).expect("a map");
    let cut = |layers: &[(u32, &[u32])]| map.compose(&kept(layers)).expect_err("no choice of this file");
    assert_eq!(cut(&[(0, &[0, 3])]), IdMapError::Range { layer: 0, id: 3, count: 3 });
    assert_eq!(cut(&[(1, &[2, 0, 2])]), IdMapError::Double { layer: 1, id: 2 });
    assert_eq!(cut(&[(2, &[0])]), IdMapError::Layer { layer: 2 });
    assert_eq!(cut(&[(0, &[9])]).to_string(), "layer 0 has no expert 9: ids end at 2");
}

#[test]
fn edited_map_is_refused() {
    let refused = |edit: fn(&mut Metadata)| {
        let opened = pruned(|model| edit(&mut model.metadata));
        map(&opened).expect_err("the map is refused")
    };
    let no_count = refused(|m| assert!(m.remove("moeslice.expert_count_original")));
    assert!(matches!(no_count, IdMapError::NoCount { key, .. } if key == "moeslice.expert_ids.0"));
    for edit in [
        |m: &mut Metadata| m.set("moeslice.expert_count_original", 2_u32),
        |m: &mut Metadata| m.set("moeslice.expert_count_original", u32::MAX),
        |m: &mut Metadata| m.set("moeslice.expert_count_original", "8"),
    ] {
        assert!(matches!(refused(edit), IdMapError::Count { n_expert: 3, .. }));
    }
    let stray = refused(|m| m.set("moeslice.expert_ids.2", vec![0_u32, 1, 2]));
    assert!(matches!(stray, IdMapError::Stray { key, .. } if key == "moeslice.expert_ids.2"));
    let stray = refused(|m| m.set("moeslice.expert_ids.00", vec![0_u32, 1, 2]));
    assert!(matches!(stray, IdMapError::Stray { .. }));
    let missing = refused(|m| assert!(m.remove("moeslice.expert_ids.1")));
    assert!(matches!(missing, IdMapError::NoIds { layer: 1, n_expert: 3, original: 8, .. }));
    for edit in [
        |m: &mut Metadata| m.set("moeslice.expert_ids.1", vec![0_u32, 1]),
        |m: &mut Metadata| m.set("moeslice.expert_ids.1", vec![0_i32, 1, 2]),
        |m: &mut Metadata| m.set("moeslice.expert_ids.1", 3_u32),
    ] {
        assert!(matches!(refused(edit), IdMapError::Ids { n_expert: 3, .. }));
    }
    let range = refused(|m| m.set("moeslice.expert_ids.1", vec![0_u32, 1, 8]));
    assert_eq!(range, IdMapError::Range { layer: 1, id: 8, count: 8 });
    let double = refused(|m| m.set("moeslice.expert_ids.0", vec![5_u32, 1, 5]));
    assert_eq!(double, IdMapError::Double { layer: 0, id: 5 });
}
