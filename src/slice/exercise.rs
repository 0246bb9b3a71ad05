//! What fuzzing and property tests do with arbitrary bytes.

use std::io;
use std::path::Path;

use super::{Cut, Options, SliceError, prune, verify};
use crate::gguf::Model;
use crate::moe::{Experts, Identity, Kept, Provenance, ShardPolicy, any_experts};

/// Takes `bytes` for a model, cuts it to the fewest experts that it can keep, and compares the cut with it; once as a
/// single file and once in shards. Returns whether it was a model that could be cut.
///
/// # Panics
/// When what was written does not verify, or something is left behind: that is what the callers look for.
pub fn cut(bytes: &[u8]) -> io::Result<bool> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("base.gguf");
    std::fs::write(&path, bytes)?;
    let Ok(model) = Model::open(&path) else { return Ok(false) };
    let Ok(experts) = Experts::read(&model) else { return Ok(false) };
    let Ok(identity) = Identity::of(&model, &experts) else { return Ok(false) };
    let provenance = Provenance::new(&model, &identity, "frequency", "fuzz", Vec::new());
    let Some(&k) = experts.possible_keeps().first() else { return Ok(false) };
    let keep = any_experts(&experts, k);
    let cut = Cut { model: &model, experts: &experts, keep: &keep, provenance };
    let limit = bytes.len() as u64 / 2;
    Ok(cut_into(&cut, &keep, folder.path(), ShardPolicy::Single)?
        && cut_into(&cut, &keep, folder.path(), ShardPolicy::Size(limit))?)
}

fn cut_into(cut: &Cut<'_>, keep: &Kept, folder: &Path, shards: ShardPolicy) -> io::Result<bool> {
    let output = folder.join("cut.gguf");
    let options = Options { shards, force: true, ..Options::default() };
    let before = std::fs::read_dir(folder)?.count();
    let written = match prune(cut, &output, &options, &mut |_, _| {}) {
        Ok(written) => written,
        Err(SliceError::Shape { .. } | SliceError::HashTable { .. }) => {
            assert_eq!(std::fs::read_dir(folder)?.count(), before, "nothing is left behind");
            return Ok(false);
        }
        Err(error) => panic!("{error}"),
    };
    let pruned = Model::open(&written.files[0].0).expect("what was written opens");
    let verified = verify(cut.model, &pruned, Some(keep), &mut |_, _| {}).expect("what was written is true");
    assert_eq!(verified.tensors, cut.model.tensors().len() as u64);
    // By its own id map, too.
    let verified = verify(cut.model, &pruned, None, &mut |_, _| {}).expect("the id map is true");
    assert_eq!(&verified.kept, keep);
    Ok(true)
}
