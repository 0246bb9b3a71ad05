//! Metadata, tensor tables, headers and sizes of files.

use std::collections::HashMap;

use super::RouterMatch;
use super::difference::{Collector, Where};
use crate::gguf::{
    ALIGNMENT_KEY, GgufError, Metadata, Model, ReadAt, SPLIT_COUNT_KEY, SPLIT_NO_KEY, SPLIT_TENSORS_KEY,
    Shard, Value,
};
use crate::moe::{IdMap, Identity, Provenance, PrunedShape};

/// Compares metadata, tensor tables, headers and sizes of files with what the base makes them.
pub(super) fn compare(base: &Model, shape: &PrunedShape, pruned: &Model, found: &mut Collector) {
    compare_metadata(&shape.metadata, pruned.metadata(), found);
    let mut expected = HashMap::with_capacity(shape.tensors.len());
    for info in &shape.tensors {
        expected.insert(info.name.as_str(), info);
        let place = Where::Tensor { tensor: info.name.clone() };
        match pruned.tensor(&info.name) {
            None => found.add(place, "is missing"),
            Some(tensor) if tensor.info.raw_name() != info.raw_name() => {
                found.add(place, "has a name of other bytes");
            }
            Some(tensor) if tensor.info.ty != info.ty => {
                found.add(place, format!("is of type {}, not {}", tensor.info.ty, info.ty));
            }
            Some(tensor) if tensor.info.dims != info.dims => {
                found.add(place, format!("has the shape {:?}, not {:?}", tensor.info.dims, info.dims));
            }
            Some(_) => {}
        }
    }
    let names = || pruned.tensors().iter().map(|tensor| tensor.info.name.as_str());
    let mut extra = 0;
    for name in names().filter(|name| !expected.contains_key(name)) {
        extra += 1;
        found.add(Where::Tensor { tensor: name.to_owned() }, "is not in the base");
    }
    if extra == 0
        && shape.tensors.len() == pruned.tensors().len()
        && let Some((name, info)) = names().zip(&shape.tensors).find(|(name, info)| *name != info.name)
    {
        found.add(Where::Tensor { tensor: name.to_owned() }, format!("stands where {} belongs", info.name));
    }
    for (index, shard) in pruned.shards().iter().enumerate() {
        compare_shard(base, shape, pruned, (index, shard), found);
    }
}

/// What a file holds beside the metadata of the model and the tensors.
fn compare_shard(
    base: &Model,
    shape: &PrunedShape,
    pruned: &Model,
    (index, shard): (usize, &Shard),
    found: &mut Collector,
) {
    let file = || Where::File { path: shard.path.clone() };
    let header = &shard.header;
    let count = pruned.shards().len();
    let like = match base.shards().get(index) {
        Some(like) if base.shards().len() == count => like,
        _ => &base.shards()[0],
    };
    if header.version != like.header.version {
        found.add(file(), format!("is of GGUF version {}, not {}", header.version, like.header.version));
    }
    if index > 0 {
        for (key, value) in header.metadata.iter() {
            // Some programs repeat the metadata in every shard. An alignment that is the usual one may also be stated.
            let usual = key == ALIGNMENT_KEY && value == Value::U32(base.alignment() as u32);
            let same = header.metadata.raw(key) == shape.metadata.raw(key) || usual;
            if !is_of_shards(key.as_bytes()) && !same {
                let place = Where::Metadata { key: key.to_owned() };
                found.add(place, format!("of {} is not that of the first shard", shard.path.display()));
            }
        }
    }
    for (key, value) in header.metadata.iter().filter(|(key, _)| is_of_shards(key.as_bytes())) {
        let tensors = pruned.tensors().len() as u64;
        let expected = match key {
            SPLIT_NO_KEY => Some(index as u64),
            SPLIT_COUNT_KEY => Some(count as u64),
            SPLIT_TENSORS_KEY => Some(tensors),
            _ => None,
        };
        // A merged file says that it has no shard, or what it said before.
        let before =
            like.header.metadata.raw(key) == header.metadata.raw(key) && base.shards().len() == count;
        let merged = count == 1 && key == SPLIT_COUNT_KEY && value.as_u64() == Some(0);
        if expected != value.as_u64() && !before && !merged {
            let place = Where::Metadata { key: key.to_owned() };
            found.add(place, format!("of {} has another value than it should", shard.path.display()));
        }
    }
    match header_padding_is_zero(shard) {
        Ok(true) => {}
        Ok(false) => found.add(file(), "has a header whose padding is not zero"),
        Err(error) => found.add(file(), error.to_string()),
    }
    // Without tensors, the header may be padded or not.
    let header_end = header.header_end.next_multiple_of(header.alignment);
    if header.tensors.is_empty() && [header.header_end, header_end].contains(&shard.size) {
        return;
    }
    let expected = header.data_offset.saturating_add(header.data_bytes);
    if shard.size != expected {
        found.add(file(), format!("has {} bytes, not {expected}", shard.size));
    }
}

/// Whether a key tells of the shards of a model: those differ between a split model and a single file. Any other
/// `split.*` is a key like all.
fn is_of_shards(key: &[u8]) -> bool {
    [SPLIT_NO_KEY, SPLIT_COUNT_KEY, SPLIT_TENSORS_KEY].iter().any(|known| known.as_bytes() == key)
}

fn header_padding_is_zero(shard: &Shard) -> Result<bool, GgufError> {
    let header = &shard.header;
    let end = header.header_end.next_multiple_of(header.alignment).min(shard.size);
    // Alignments are at most 16 MiB.
    let mut padding = vec![0; end.saturating_sub(header.header_end) as usize];
    let read = |error| GgufError::Read {
        path: shard.path.clone(),
        what: "the padding of the header".to_owned(),
        error,
    };
    let got = shard.file.read_full_at(&mut padding, header.header_end).map_err(read)?;
    Ok(padding[..got].iter().all(|&byte| byte == 0))
}

/// Keys whose values are compared apart, by what they mean.
fn is_id_map(key: &str) -> bool {
    key.starts_with("moeslice.expert_ids.") || key == "moeslice.expert_count_original"
}

fn compare_metadata(expected: &Metadata, found_in: &Metadata, found: &mut Collector) {
    let lossy = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    fn by_key(metadata: &Metadata) -> HashMap<&[u8], &[u8]> {
        metadata.raw_entries().filter(|(key, _)| !is_of_shards(key)).collect()
    }
    let (of_expected, of_found) = (by_key(expected), by_key(found_in));
    let keys = |metadata: &Metadata, other: &HashMap<&[u8], &[u8]>| -> Vec<Vec<u8>> {
        metadata
            .raw_entries()
            .map(|(key, _)| key.to_vec())
            .filter(|key| other.contains_key(key.as_slice()))
            .collect()
    };
    for (key, value) in expected.raw_entries().filter(|(key, _)| !is_of_shards(key)) {
        let place = Where::Metadata { key: lossy(key) };
        match of_found.get(key) {
            None => found.add(place, "is missing"),
            Some(other) if *other != value && !is_id_map(&lossy(key)) => {
                found.add(place, "has another value than it should");
            }
            Some(_) => {}
        }
    }
    for (key, _) in found_in.raw_entries().filter(|(key, _)| of_found.contains_key(key)) {
        if of_expected.contains_key(key) {
            continue;
        }
        let key = lossy(key);
        let what = match key.starts_with("moeslice.") {
            true => format!("is not a key that moeslice {} writes", env!("CARGO_PKG_VERSION")),
            false => "is not in the base".to_owned(),
        };
        found.add(Where::Metadata { key }, what);
    }
    // What moeslice says of itself stands in the order in which it was added, which is of no account.
    let ours = |key: &Vec<u8>| !key.starts_with(b"moeslice.");
    let expected_keys = keys(expected, &of_found).into_iter().filter(ours);
    let found_keys = keys(found_in, &of_expected).into_iter().filter(ours);
    if let Some((key, other)) = found_keys.zip(expected_keys).find(|(a, b)| a != b) {
        found.add(Where::Metadata { key: lossy(&key) }, format!("stands where {} belongs", lossy(&other)));
    }
}

/// Compares what the file says of its origin with the base.
pub(super) fn compare_origin(
    base: &Model,
    identity: &Identity,
    provenance: &Provenance,
    found: &mut Collector,
) {
    let key = |key: &str| Where::Metadata { key: key.to_owned() };
    let fingerprint = &identity.fingerprint;
    let sources = [&provenance.source_fingerprint, &provenance.original_fingerprint];
    if !sources.into_iter().any(|source| source == fingerprint) {
        let named = &provenance.source_fingerprint;
        let routers = provenance.source_router_hash.as_deref().and_then(|hash| {
            let of_source = (hash, provenance.router_sketch.as_ref());
            RouterMatch::of(of_source, (&identity.router_hash, identity.router_sketch.as_ref()))
        });
        let hint = match routers {
            Some(RouterMatch::Same) => {
                ", another quantisation of the same model or a variant with the same routers"
            }
            Some(RouterMatch::Converted) => ", another quantisation of the same model, its routers included",
            None => "",
        };
        found.add(
            key("moeslice.source_fingerprint"),
            format!("is {named}, but the base is {fingerprint}{hint}"),
        );
    }
    let origin = Provenance::origin(base.metadata()).unwrap_or_else(|| fingerprint.to_owned());
    if provenance.original_fingerprint != origin {
        let named = &provenance.original_fingerprint;
        found.add(
            key("moeslice.original_fingerprint"),
            format!("is {named}, but the base comes from {origin}"),
        );
    }
    if provenance.source_fingerprint != *fingerprint {
        return;
    }
    if provenance.source_router_hash.as_ref().is_some_and(|hash| *hash != identity.router_hash) {
        found.add(key("moeslice.source_router_hash"), "is not that of the routers of the base");
    }
    if provenance.source_router_hash.is_none() && provenance.router_sketch.is_some() {
        found.add(key("moeslice.source_router_hash"), "is missing");
    }
    // Version 0.1.0 wrote neither; whoever writes the hash writes the sketch, where there is one.
    let sketched = provenance.source_router_hash.is_some() || provenance.router_sketch.is_some();
    if sketched && provenance.router_sketch != identity.router_sketch {
        found.add(key("moeslice.router_sketch.values"), "and the routers of the base do not agree");
    }
}

/// Compares the id map with the experts that are there.
pub(super) fn compare_ids(expected: &IdMap, found_map: &IdMap, pruned: &Model, found: &mut Collector) {
    if expected.original_count() != found_map.original_count() {
        let (a, b) = (found_map.original_count(), expected.original_count());
        let place = Where::Metadata { key: "moeslice.expert_count_original".to_owned() };
        found.add(place, format!("is {a}, not {b}"));
    }
    for (layer, ids) in expected.layers() {
        let other = found_map.layer(layer).unwrap_or_default();
        let key = format!("moeslice.expert_ids.{layer}");
        // A key that is not there was told of before.
        if ids == other || !pruned.metadata().contains(&key) {
            continue;
        }
        let place = Where::Metadata { key };
        match ids.iter().zip(other).position(|(a, b)| a != b) {
            Some(at) => found.add(place, format!("says {} for expert {at}, not {}", other[at], ids[at])),
            None => found.add(place, format!("has {} ids, not {}", other.len(), ids.len())),
        }
    }
}
