//! What fuzzing and property tests do with arbitrary bytes.

use std::io;
use std::path::Path;

use crate::gguf::Model;
use crate::moe::{Experts, Identity, KeptExperts, Provenance, ShardPolicy};
use crate::progress::{Interrupt, Silent};
use crate::slice::{Cut, Options, SliceError, prune, verify};

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
    let Some(&k) = experts.possible_counts().first() else { return Ok(false) };
    let keep = KeptExperts::any(&experts, k);
    let cut = Cut { model: &model, experts: &experts, keep: &keep, provenance };
    let limit = bytes.len() as u64 / 2;
    Ok(cut_into(&cut, &keep, folder.path(), ShardPolicy::Single)?
        && cut_into(&cut, &keep, folder.path(), ShardPolicy::Size(limit))?)
}

fn cut_into(cut: &Cut<'_>, keep: &KeptExperts, folder: &Path, shards: ShardPolicy) -> io::Result<bool> {
    let output = folder.join("cut.gguf");
    let options = Options { shards, force: true, ..Options::default() };
    let before = std::fs::read_dir(folder)?.count();
    let written = match prune(cut, &output, &options, &mut Silent) {
        Ok(written) => written,
        Err(SliceError::Shape { .. } | SliceError::HashTable { .. } | SliceError::Alignment { .. }) => {
            assert_eq!(std::fs::read_dir(folder)?.count(), before, "nothing is left behind");
            return Ok(false);
        }
        Err(error) => panic!("{error}"),
    };
    let pruned = Model::open(&written.files[0].0).expect("what was written opens");
    let verified = verify(cut.model, &pruned, Some(keep), &mut Silent, Interrupt::NEVER)
        .expect("what was written is true");
    assert_eq!(verified.tensors, cut.model.tensors().len() as u64);
    // By its own id map, too.
    let verified =
        verify(cut.model, &pruned, None, &mut Silent, Interrupt::NEVER).expect("the id map is true");
    assert_eq!(&verified.kept, keep);
    Ok(true)
}
