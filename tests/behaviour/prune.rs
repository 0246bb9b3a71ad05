//! Pruning by a usage file or a plan.

use crate::support::{demo, folder, json, moeslice, refuses, succeeds, variant, write_usage};
use moeslice::gguf::{Model, TensorType};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn prune(model: &Path, usage: &Path, keep: &str, output: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command
        .arg("prune")
        .arg("-m")
        .arg(model)
        .arg("--usage")
        .arg(usage)
        .args(["--keep", keep])
        .arg("-o")
        .arg(output);
    command
}

fn prune_by_plan(model: &Path, plan: &Path, output: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command.arg("prune").arg("-m").arg(model).arg("--plan").arg(plan).arg("-o").arg(output);
    command
}

fn tensor(model: &Model, name: &str) -> Vec<u8> {
    let tensor = model.tensor(name).expect("the tensor is there");
    let mut bytes = vec![0; usize::try_from(tensor.info.bytes()).unwrap()];
    model.read_exact_at(tensor, 0, &mut bytes).unwrap();
    bytes
}

/// The ids that a pruned file says its experts had in the beginning.
fn original_ids(path: &Path, layer: u32) -> Vec<u64> {
    let model = Model::open(path).unwrap();
    let value =
        model.metadata().get(&format!("moeslice.expert_ids.{layer}")).expect("the file has an id map");
    value.as_array().unwrap().to_u64s().unwrap()
}

#[test]
fn prune_keeps_the_most_frequent_experts_with_their_own_bytes() {
    let folder = folder();
    let (usage, out) = (folder.path().join("u.json"), folder.path().join("out.gguf"));
    // Layer l activates the experts whose number is l modulo 4 most.
    write_usage(&usage, &demo(), |layer, expert| if expert % 4 == layer { 1000 } else { 10 });
    succeeds(&mut prune(&demo(), &usage, "8", &out));
    let (base, pruned) = (Model::open(&demo()).unwrap(), Model::open(&out).unwrap());
    assert_eq!(pruned.arch_value("expert_count").unwrap().as_u64(), Some(8));
    for layer in 0..4 {
        let kept: Vec<usize> = original_ids(&out, layer).iter().map(|&id| id as usize).collect();
        assert_eq!(kept, (0..32).filter(|id| id % 4 == layer as usize).collect::<Vec<_>>());
        for name in
            ["ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"]
        {
            let name = format!("blk.{layer}.{name}");
            let (before, after) = (tensor(&base, &name), tensor(&pruned, &name));
            let slab = before.len() / 32;
            let expected: Vec<u8> = kept.iter().flat_map(|id| before[id * slab..][..slab].to_vec()).collect();
            assert!(after == expected, "{name} does not hold the slabs of {kept:?}");
        }
        let name = format!("blk.{layer}.attn_q_norm.weight");
        assert_eq!(
            tensor(&base, &name),
            tensor(&pruned, &name),
            "32 long, as there are experts, yet no expert tensor"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn keep_all_changes_provenance_only() {
    let folder = folder();
    let (usage, out) = (folder.path().join("u.json"), folder.path().join("out.gguf"));
    write_usage(&usage, &demo(), |_, expert| u64::from(expert) + 1);
    succeeds(&mut prune(&demo(), &usage, "100%", &out));
    let (base, same) = (Model::open(&demo()).unwrap(), Model::open(&out).unwrap());
    for key in same.metadata().keys() {
        if !key.starts_with("moeslice.") {
            assert_eq!(base.metadata().raw(key), same.metadata().raw(key), "{key}");
        }
    }
    assert!(base.metadata().keys().all(|key| same.metadata().contains(key)));
    assert_eq!(base.tensors().len(), same.tensors().len());
    for (a, b) in base.tensors().iter().zip(same.tensors()) {
        assert_eq!((&a.info.name, &a.info.dims, a.info.ty), (&b.info.name, &b.info.dims, b.info.ty));
        assert!(tensor(&base, &a.info.name) == tensor(&same, &a.info.name), "{}", a.info.name);
    }
}

#[test]
fn original_ids_survive_two_cuts() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u1.json"), &demo(), |_, expert| if expert >= 16 { 500 } else { 10 });
    succeeds(&mut prune(&demo(), &at("u1.json"), "16", &at("one.gguf")));
    let first = original_ids(&at("one.gguf"), 2);
    // In the cut file, the last eight are the busy ones.
    write_usage(&at("u2.json"), &at("one.gguf"), |_, expert| if expert >= 8 { 500 } else { 10 });
    succeeds(&mut prune(&at("one.gguf"), &at("u2.json"), "4", &at("two.gguf")));
    let second = original_ids(&at("two.gguf"), 2);
    assert_eq!(second.len(), 4);
    assert!(second.iter().all(|id| first.contains(id)), "{second:?} of {first:?}");
    let (base, two) = (Model::open(&demo()).unwrap(), Model::open(&at("two.gguf")).unwrap());
    let name = "blk.2.ffn_down_exps.weight";
    let before = tensor(&base, name);
    let slab = before.len() / 32;
    let expected: Vec<u8> =
        second.iter().flat_map(|&id| before[id as usize * slab..][..slab].to_vec()).collect();
    assert!(tensor(&two, name) == expected);
    succeeds(moeslice().arg("verify").arg(demo()).arg(at("two.gguf")));
    succeeds(moeslice().arg("verify").arg(at("one.gguf")).arg(at("two.gguf")));
}

#[test]
fn k_that_the_model_cannot_keep_is_refused() {
    let folder = folder();
    let (usage, out) = (folder.path().join("u.json"), folder.path().join("out.gguf"));
    write_usage(&usage, &demo(), |_, expert| u64::from(expert) + 1);
    refuses(&mut prune(&demo(), &usage, "3", &out), 3, &["cannot keep 3 of 32", "a token goes to 4"]);
    refuses(&mut prune(&demo(), &usage, "33", &out), 3, &["cannot keep 33 of 32"]);
    refuses(&mut prune(&demo(), &usage, "0", &out), 3, &["cannot keep 0 of 32"]);
    assert!(!out.exists());
}

#[test]
fn groups_keep_the_same_number_each() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("grouped.gguf"), |metadata, _| {
        metadata.set("qwen3moe.expert_group_count", 4_u32);
        metadata.set("qwen3moe.expert_group_used_count", 2_u32);
    });
    write_usage(&at("u.json"), &at("grouped.gguf"), |_, expert| u64::from(expert) + 1);
    let try_keep = |keep: &str| prune(&at("grouped.gguf"), &at("u.json"), keep, &at("out.gguf"));
    refuses(&mut try_keep("18"), 3, &["cannot keep 18 of 32", "4 groups"]);
    refuses(&mut try_keep("4"), 3, &["cannot keep 4 of 32", "than groups"]);
    succeeds(&mut try_keep("16"));
    for layer in 0..4 {
        let kept = original_ids(&at("out.gguf"), layer);
        for group in 0..4 {
            assert_eq!(kept.iter().filter(|&&id| id / 8 == group).count(), 4, "{kept:?}");
        }
    }
}

#[test]
fn usage_of_another_model_is_refused_and_quantisation_accepted() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), |_, expert| u64::from(expert) + 1);
    // Other routers: another model.
    variant(&at("other.gguf"), |_, tensors| {
        let (_, bytes) =
            tensors.iter_mut().find(|(info, _)| info.name == "blk.0.ffn_gate_inp.weight").unwrap();
        bytes[5] ^= 1;
    });
    refuses(
        &mut prune(&at("other.gguf"), &at("u.json"), "16", &at("o.gguf")),
        3,
        &["another model", "other.gguf"],
    );
    // The same routers, the embedding in another type: another quantisation.
    variant(&at("requantised.gguf"), |_, tensors| {
        let (info, bytes) = tensors.iter_mut().find(|(info, _)| info.name == "token_embd.weight").unwrap();
        *info =
            moeslice::gguf::TensorInfo::new("token_embd.weight", info.dims.clone(), TensorType::F16).unwrap();
        bytes.resize(usize::try_from(info.bytes()).unwrap(), 0);
    });
    let output = prune(&at("requantised.gguf"), &at("u.json"), "16", &at("o.gguf")).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("quantisation"), "{output:?}");
}

#[test]
fn edited_usage_is_refused() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), |_, expert| u64::from(expert) + 1);
    let mut edited = json(&at("u.json"));
    edited["layers"][2]["total"]["count"][7] = json!(999_999);
    fs::write(at("edited.json"), edited.to_string()).unwrap();
    refuses(&mut prune(&demo(), &at("edited.json"), "16", &at("o.gguf")), 3, &["edited.json", "layer 2"]);
    let mut extended = json(&at("u.json"));
    extended["surprise"] = json!(1);
    fs::write(at("extended.json"), extended.to_string()).unwrap();
    refuses(&mut prune(&demo(), &at("extended.json"), "16", &at("o.gguf")), 3, &["surprise"]);
    fs::write(at("not.json"), "{").unwrap();
    refuses(&mut prune(&demo(), &at("not.json"), "16", &at("o.gguf")), 3, &["not.json"]);
}

#[test]
fn bare_map_is_a_plan_and_each_fault_is_named() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    type KeepTarget = BTreeMap<String, Vec<u32>>;
    let good: KeepTarget = (0..4).map(|layer| (layer.to_string(), (layer..layer + 8).collect())).collect();
    let try_plan = |change: fn(&mut KeepTarget)| {
        let mut plan = good.clone();
        change(&mut plan);
        fs::write(at("plan.json"), json!(plan).to_string()).unwrap();
        prune_by_plan(&demo(), &at("plan.json"), &at("out.gguf"))
    };
    refuses(&mut try_plan(|plan| drop(plan.remove("2"))), 3, &["layer 2"]);
    refuses(&mut try_plan(|plan| plan.get_mut("1").unwrap()[3] = 1), 3, &["layer 1"]);
    refuses(&mut try_plan(|plan| plan.get_mut("1").unwrap()[3] = 32), 3, &["layer 1", "32"]);
    refuses(&mut try_plan(|plan| plan.get_mut("3").unwrap().truncate(7)), 3, &["layer 3", "7", "8"]);
    refuses(&mut try_plan(|plan| drop(plan.insert("4".into(), vec![0]))), 3, &["layer 4"]);
    refuses(&mut try_plan(|plan| drop(plan.insert("x".into(), vec![0]))), 3, &["plan.json", "x"]);
    refuses(&mut try_plan(|plan| plan.values_mut().for_each(|ids| ids.truncate(3))), 3, &["cannot keep 3"]);
    assert!(!at("out.gguf").exists());
    succeeds(&mut try_plan(|_| ()));
    assert_eq!(original_ids(&at("out.gguf"), 3), (3..11).collect::<Vec<u64>>());
}

#[test]
fn usage_with_equal_experts_is_refused_as_misread() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), |_, _| 1000);
    refuses(&mut prune(&demo(), &at("u.json"), "16", &at("o.gguf")), 3, &["u.json", "exactly 1000 times"]);
    refuses(moeslice().arg("report").arg(at("u.json")), 3, &["exactly 1000 times"]);
}

#[test]
fn plan_with_selection_flags_is_refused() {
    let folder = folder();
    let mut command = prune_by_plan(&demo(), Path::new("p.json"), &folder.path().join("o.gguf"));
    refuses(command.args(["--score", "weight"]), 2, &["--score", "plan"]);
}

#[test]
fn alignment_that_llama_cpp_cannot_load_is_refused_before_the_cut() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("m.gguf"), |metadata, _| metadata.set("general.alignment", 16_u32));
    write_usage(&at("u.json"), &at("m.gguf"), |_, expert| u64::from(expert) + 1);
    refuses(&mut prune(&at("m.gguf"), &at("u.json"), "16", &at("o.gguf")), 3, &["general.alignment is 16"]);
}

#[test]
fn size_target_is_met_to_the_byte() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), |_, expert| u64::from(expert) + 1);
    let bytes_at = |keep: &str| {
        succeeds(prune(&demo(), &at("u.json"), keep, &at("o.gguf")).arg("--force"));
        let k = Model::open(&at("o.gguf")).unwrap().arch_value("expert_count").unwrap().as_u64().unwrap();
        (k, fs::metadata(at("o.gguf")).unwrap().len())
    };
    // The target is noted in the file, so it is asked for with a text of the same length.
    let (k, bytes) = bytes_at("size:2500000");
    assert!(bytes <= 2_500_000);
    assert_eq!(bytes_at(&format!("size:{bytes}")), (k, bytes));
    assert_eq!(bytes_at(&format!("size:{}", bytes - 1)).0, k - 1);
}

#[test]
fn coverage_target_is_reached_by_the_smallest_k() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), |layer, expert| u64::from(expert * (2 * layer + 1) % 32) + 8);
    let share = |k: u64| {
        // Independent of moeslice: the share of the largest counts in the worst layer.
        (0..4_u64)
            .map(|layer| {
                let mut counts: Vec<u64> = (0..32).map(|expert| expert * (2 * layer + 1) % 32 + 8).collect();
                counts.sort_unstable_by(|a, b| b.cmp(a));
                counts[..k as usize].iter().sum::<u64>() as f64 / counts.iter().sum::<u64>() as f64
            })
            .fold(1.0, f64::min)
    };
    succeeds(&mut prune(&demo(), &at("u.json"), "coverage:0.9", &at("o.gguf")));
    let k = original_ids(&at("o.gguf"), 0).len() as u64;
    assert!(share(k) >= 0.9 && share(k - 1) < 0.9, "K = {k}: {} and {}", share(k), share(k - 1));
}
