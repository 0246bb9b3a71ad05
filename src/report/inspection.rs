//! What a model file holds, before anything ran.

use super::{TextStyle, fitting, steps};
use crate::arch::Renormalise;
use crate::moe::{
    Experts, IdMap, IdMapError, LayerKind, MoeModel, Provenance, PrunedError, PrunedShape, Role, ShardPolicy,
};
use crate::units::ByteCount;
use serde::Serialize;
use thiserror::Error;

/// Why a model cannot be looked at.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InspectionError {
    /// Its id map is wrong.
    #[error(transparent)]
    IdMap(#[from] IdMapError),
    /// A size cannot be told.
    #[error(transparent)]
    Size(#[from] PrunedError),
}

/// One kind of expert tensor: the same name, type and size in the layers listed.
#[derive(Serialize)]
struct TensorRow {
    tensor: String,
    layers: String,
    #[serde(rename = "type")]
    kind: String,
    bytes_per_expert: u64,
    bytes: u64,
}

/// How large the model is with `k` experts a layer, but for the texts that a cut notes about its making.
#[derive(Serialize)]
struct SizeAt {
    k: u32,
    bytes: u64,
    /// The same without the blocks of multi-token prediction, where there are any that can be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_without_mtp: Option<u64>,
}

/// The experts of a model file: what they are, and what a cut may leave.
#[derive(Serialize)]
pub struct Inspection {
    file: String,
    files: usize,
    bytes: u64,
    architecture: String,
    known_architecture: bool,
    routing: String,
    n_layer: u32,
    expert_layers: String,
    n_expert: u32,
    n_expert_used: u32,
    n_expert_original: u32,
    groups: Option<u32>,
    groups_used: Option<u32>,
    shared_experts: bool,
    hash_layers: String,
    #[serde(rename = "nextn_layers")]
    mtp_layers: String,
    #[serde(rename = "nextn_profiled")]
    mtp_profiled: Option<bool>,
    #[serde(rename = "nextn_dropped")]
    mtp_dropped: bool,
    expert_bytes: u64,
    fingerprint: String,
    router_hash: String,
    possible_k: Vec<u32>,
    cannot_be_cut: Option<String>,
    sizes: Vec<SizeAt>,
    rows: Vec<TensorRow>,
}

impl Inspection {
    /// Looks at `model`.
    ///
    /// # Errors
    /// An id map that contradicts the model, or sizes that do not fit into 64 bits.
    pub fn of(model: &MoeModel) -> Result<Inspection, InspectionError> {
        let experts = &model.experts;
        let id_map = IdMap::read(&model.file, experts)?;
        let possible_k = experts.possible_counts();
        let fewer = experts.n_expert.saturating_sub(1);
        let cannot_be_cut = match possible_k.as_slice() {
            [_] => experts.check_count(fewer.max(1)).err().map(|error| error.limit.to_string()),
            _ => None,
        };
        let of_kind =
            |kind| ranges(experts.layers.iter().filter(|layer| layer.kind == kind).map(|layer| layer.layer));
        Ok(Inspection {
            file: model.file_name(),
            files: model.file.shards().len(),
            bytes: model.file.total_bytes(),
            architecture: experts.architecture.clone(),
            known_architecture: experts.arch.is_some(),
            routing: routing(experts),
            n_layer: experts.n_layer,
            expert_layers: ranges(experts.layers.iter().map(|layer| layer.layer)),
            n_expert: experts.n_expert,
            n_expert_used: experts.n_expert_used,
            n_expert_original: id_map.original_count(),
            groups: experts.groups.map(|groups| groups.count),
            groups_used: experts.groups.map(|groups| groups.used),
            shared_experts: experts.shared,
            hash_layers: of_kind(LayerKind::Hash),
            mtp_layers: ranges(experts.mtp_blocks()),
            mtp_profiled: (!of_kind(LayerKind::Mtp).is_empty()).then(|| experts.mtp_that_runs().is_some()),
            mtp_dropped: Provenance::says_mtp_dropped(model.file.metadata()),
            expert_bytes: experts.expert_bytes(),
            fingerprint: model.identity.fingerprint.clone(),
            router_hash: model.identity.router_hash.clone(),
            sizes: sizes(model)?,
            possible_k,
            cannot_be_cut,
            rows: tensor_rows(model),
        })
    }

    /// As people read it.
    pub fn text(&self, style: &TextStyle) -> String {
        let mut lines = Vec::new();
        let mut line = |name: &str, value: String| lines.push(format!("{name:<16}{value}\n"));
        let files = if self.files == 1 { String::new() } else { format!(" in {} files", self.files) };
        line("model", format!("{}, {}{files}", self.file, ByteCount(self.bytes)));
        let unknown = if self.known_architecture {
            ""
        } else {
            " (not in this moeslice's table: the general rules hold)"
        };
        line("architecture", format!("{}{unknown}", self.architecture));
        line("layers", format!("{}, with experts: {}", self.n_layer, self.expert_layers));
        line("experts", format!("{} a layer, {} used for a token", self.n_expert, self.n_expert_used));
        if self.n_expert_original != self.n_expert {
            line("", format!("cut from {}; their original ids are in the metadata", self.n_expert_original));
        }
        line("routing", self.routing.clone());
        if !self.hash_layers.is_empty() {
            line("hash layers", self.hash_layers.clone());
        }
        if !self.mtp_layers.is_empty() {
            let what = match self.mtp_profiled {
                Some(true) => "with experts, counted in a profile",
                Some(false) => "with experts that llama.cpp does not run: --mtp drop, or name them in a plan",
                None => "without experts",
            };
            line("MTP blocks", format!("{}, {what}", self.mtp_layers));
        } else if self.mtp_dropped {
            line("MTP blocks", "left out by --mtp drop".to_owned());
        }
        let share = self.expert_bytes as f64 / self.bytes.max(1) as f64 * 100.0;
        line("expert weights", format!("{}, {share:.0} % of the file", ByteCount(self.expert_bytes)));
        line(
            "possible K",
            match &self.cannot_be_cut {
                Some(reason) => format!("none but {}: {reason}", self.n_expert),
                None => ranges(self.possible_k.iter().copied()),
            },
        );
        if self.sizes.len() > 1 {
            let mut lines_of = |name: &str, bytes: &dyn Fn(&SizeAt) -> Option<u64>| {
                let shown = self.sizes.iter().filter_map(|at| Some((at.k, bytes(at)?)));
                let shown: Vec<String> =
                    shown.map(|(k, bytes)| format!("K={k} {}", ByteCount(bytes))).collect();
                for (index, part) in
                    shown.chunks(((style.width.saturating_sub(16)) / 16).clamp(1, 4)).enumerate()
                {
                    line(if index == 0 { name } else { "" }, part.join(", "));
                }
            };
            lines_of("size about", &|at| Some(at.bytes));
            lines_of("  --mtp drop", &|at| at.bytes_without_mtp);
        }
        line("fingerprint", self.fingerprint.clone());
        line("routers", self.router_hash.clone());
        let row = |row: &TensorRow| {
            let size = ByteCount(row.bytes).to_string();
            vec![
                row.tensor.clone(),
                row.layers.clone(),
                row.kind.clone(),
                row.bytes_per_expert.to_string(),
                size,
            ]
        };
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let header = ["expert tensor (blk.N.…)", "layers", "type", "bytes/expert", "size"];
        format!("{}\n{}", lines.concat(), fitting(style, &header, &rows, (1, 3)))
    }
}

/// Sizes at some of the possible numbers of experts.
fn sizes(model: &MoeModel) -> Result<Vec<SizeAt>, InspectionError> {
    let experts = &model.experts;
    let mut ks: Vec<u32> = steps(experts.n_expert, experts.n_expert_used)
        .into_iter()
        .filter_map(|k| experts.next_count(k))
        .collect();
    ks.dedup();
    let provenance = model.provenance("", "", Vec::new());
    // Blocks that cannot be left out have no such sizes.
    let without = experts.without_mtp(&model.file).ok().filter(|experts| experts.mtp_dropped > 0);
    let bytes = |experts: &Experts, k| {
        PrunedShape::bytes_of_count(&model.file, experts, k, &provenance, ShardPolicy::Keep)
    };
    ks.into_iter()
        .map(|k| {
            let bytes_without_mtp = without.as_ref().map(|experts| bytes(experts, k)).transpose()?;
            Ok(SizeAt { k, bytes: bytes(experts, k)?, bytes_without_mtp })
        })
        .collect()
}

fn routing(experts: &Experts) -> String {
    let mut parts = Vec::new();
    parts.push(experts.gate.map_or("gate not known", |gate| gate.name()).to_owned());
    match experts.arch.map(|arch| arch.renormalise) {
        Some(Renormalise::Always) => parts.push("weights of the selected made to add up to 1".into()),
        Some(Renormalise::Never) => parts.push("weights of the selected as they are".into()),
        Some(Renormalise::Key(_)) | None => {}
    }
    let has = |role| experts.layers.iter().any(|layer| layer.tensor(role).is_some());
    if has(Role::RouterBias) {
        parts.push("router bias".into());
    }
    if has(Role::SelectionBias) {
        parts.push("selection bias".into());
    }
    if let Some(groups) = experts.groups.filter(|groups| groups.count > 1) {
        parts.push(format!("{} of {} groups", groups.used, groups.count));
    }
    if experts.shared {
        parts.push("shared experts beside them, which stay".into());
    }
    parts.join("; ")
}

fn tensor_rows(model: &MoeModel) -> Vec<TensorRow> {
    // Equal rows of many layers become one; models are uniform but for a few layers.
    let mut rows: Vec<(TensorRow, Vec<u32>)> = Vec::new();
    for layer in &model.experts.layers {
        for tensor in &layer.tensors {
            let info = &model.file.tensors()[tensor.index].info;
            let name = info.name.strip_prefix(&format!("blk.{}.", layer.layer)).unwrap_or(&info.name);
            let kind = info.ty.name();
            let same = |row: &TensorRow| {
                row.tensor == name && row.kind == kind && row.bytes_per_expert == tensor.slab_bytes
            };
            match rows.iter_mut().find(|(row, _)| same(row)) {
                Some((row, layers)) => {
                    row.bytes += info.bytes();
                    layers.push(layer.layer);
                }
                None => {
                    let row = TensorRow {
                        tensor: name.to_owned(),
                        layers: String::new(),
                        kind: kind.to_owned(),
                        bytes_per_expert: tensor.slab_bytes,
                        bytes: info.bytes(),
                    };
                    rows.push((row, vec![layer.layer]));
                }
            }
        }
    }
    rows.into_iter().map(|(row, layers)| TensorRow { layers: ranges(layers), ..row }).collect()
}

/// Ascending numbers as people write them: `0-3, 7, 9-11`; several in even steps as `8-128 step 8`.
fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let numbers: Vec<u32> = numbers.into_iter().collect();
    let step = numbers.get(1).map_or(0, |second| second - numbers[0]);
    if numbers.len() > 3 && step > 1 && numbers.windows(2).all(|pair| pair[1] - pair[0] == step) {
        return format!("{}-{} step {step}", numbers[0], numbers[numbers.len() - 1]);
    }
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let shown = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn possible_counts_are_shown_as_ranges_or_steps() {
        assert_eq!(ranges([]), "");
        assert_eq!(ranges([0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9-10");
        assert_eq!(ranges([8, 16, 24, 32]), "8-32 step 8");
        assert_eq!(ranges([0, 2, 4]), "0, 2, 4");
    }
}
