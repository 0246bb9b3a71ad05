//! Metadata and tensor tables.

use super::difference::{Collector, Where};
use crate::gguf::{Metadata, Model};
use crate::moe::{IdMap, Provenance, PrunedShape};

/// Compares metadata, tensor tables and sizes of files with what the base makes them.
pub(super) fn compare(shape: &PrunedShape, pruned: &Model, found: &mut Collector) {
    compare_metadata(&shape.metadata, pruned.metadata(), found);
    let names = || pruned.tensors().iter().map(|tensor| tensor.info.name.as_str());
    for expected in &shape.tensors {
        let place = Where::Tensor { tensor: expected.name.clone() };
        match pruned.tensor(&expected.name) {
            None => found.add(place, "is missing"),
            Some(tensor) if tensor.info.ty != expected.ty => {
                found.add(place, format!("is of type {}, not {}", tensor.info.ty, expected.ty));
            }
            Some(tensor) if tensor.info.dims != expected.dims => {
                found.add(place, format!("has the shape {:?}, not {:?}", tensor.info.dims, expected.dims));
            }
            Some(_) => {}
        }
    }
    let expected = |name: &str| shape.tensors.iter().any(|info| info.name == name);
    let mut extra = 0;
    for name in names().filter(|name| !expected(name)) {
        extra += 1;
        found.add(Where::Tensor { tensor: name.to_owned() }, "is not in the base");
    }
    if extra == 0
        && shape.tensors.len() == pruned.tensors().len()
        && let Some((name, info)) = names().zip(&shape.tensors).find(|(name, info)| *name != info.name)
    {
        found.add(Where::Tensor { tensor: name.to_owned() }, format!("stands where {} belongs", info.name));
    }
    for shard in pruned.shards() {
        let header = &shard.header;
        // Without tensors, the header may be padded or not.
        let header_end = header.header_end.next_multiple_of(header.alignment);
        if header.tensors.is_empty() && [header.header_end, header_end].contains(&shard.size) {
            continue;
        }
        let expected = header.data_offset.saturating_add(header.data_bytes);
        if shard.size != expected {
            let place = Where::File { path: shard.path.clone() };
            found.add(place, format!("has {} bytes, not {expected}", shard.size));
        }
    }
}

/// Keys that a cut adds, and those that differ between a split model and a single file.
fn is_own(key: &str) -> bool {
    key.starts_with("moeslice.") || key.starts_with("split.")
}

fn compare_metadata(expected: &Metadata, found_in: &Metadata, found: &mut Collector) {
    for key in expected.keys().filter(|key| !is_own(key)) {
        let place = || Where::Metadata { key: key.to_owned() };
        match (expected.raw(key), found_in.raw(key)) {
            (_, None) => found.add(place(), "is missing"),
            (Some(a), Some(b)) if a != b => found.add(place(), "has another value than it should"),
            _ => {}
        }
    }
    for key in found_in.keys().filter(|key| !is_own(key) && !expected.contains(key)) {
        found.add(Where::Metadata { key: key.to_owned() }, "is not in the base");
    }
    let both = |a: &Metadata, b: &Metadata| -> Vec<String> {
        a.keys().filter(|key| !is_own(key) && b.contains(key)).map(str::to_owned).collect()
    };
    let orders = both(found_in, expected).into_iter().zip(both(expected, found_in));
    if let Some((key, other)) = orders.into_iter().find(|(a, b)| a != b) {
        found.add(Where::Metadata { key }, format!("stands where {other} belongs"));
    }
}

/// Compares what the file says of its origin with the base.
pub(super) fn compare_origin(
    base: &Model,
    fingerprint: &str,
    provenance: Option<&Provenance>,
    found: &mut Collector,
) {
    let Some(provenance) = provenance else { return };
    let key = |key: &str| Where::Metadata { key: key.to_owned() };
    let sources = [&provenance.source_fingerprint, &provenance.original_fingerprint];
    if !sources.into_iter().any(|source| source == fingerprint) {
        let named = &provenance.source_fingerprint;
        found.add(key("moeslice.source_fingerprint"), format!("is {named}, but the base is {fingerprint}"));
    }
    let origin = Provenance::origin(base.metadata()).unwrap_or_else(|| fingerprint.to_owned());
    if provenance.original_fingerprint != origin {
        let named = &provenance.original_fingerprint;
        found.add(
            key("moeslice.original_fingerprint"),
            format!("is {named}, but the base comes from {origin}"),
        );
    }
}

/// Compares the id map with the experts that are there.
pub(super) fn compare_ids(expected: &IdMap, found_map: &IdMap, found: &mut Collector) {
    if expected.original_count() != found_map.original_count() {
        let (a, b) = (found_map.original_count(), expected.original_count());
        let place = Where::Metadata { key: "moeslice.expert_count_original".to_owned() };
        found.add(place, format!("is {a}, not {b}"));
    }
    for (layer, ids) in expected.layers() {
        let other = found_map.layer(layer).unwrap_or_default();
        if ids == other {
            continue;
        }
        let place = Where::Metadata { key: format!("moeslice.expert_ids.{layer}") };
        match ids.iter().zip(other).position(|(a, b)| a != b) {
            Some(at) => found.add(place, format!("says {} for expert {at}, not {}", other[at], ids[at])),
            None => found.add(place, format!("has {} ids, not {}", other.len(), ids.len())),
        }
    }
}
