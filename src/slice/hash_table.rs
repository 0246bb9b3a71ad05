//! Tables that send each token to experts by their ids.
//!
//! Layers without a router of their own look a token's experts up in a table of type I32 and shape
//! [experts used, vocabulary]. Its values are ids, so a cut rewrites them: a kept expert gets its new id, and a removed
//! one is replaced by the next kept expert above it in the old numbering, beginning again at the lowest after the
//! highest, that the token does not go to yet. So the replacements of a token depend on nothing but its own row, they
//! are distinct, and the tokens of the removed experts spread over the kept ones.

/// Rewrites the ids of one layer's table.
#[derive(Clone, Debug)]
pub struct Remap {
    /// For each old id, the new one of the expert itself or of the next kept one above it.
    next: Vec<u32>,
    /// For each old id, whether it stays.
    stays: Vec<bool>,
    /// Experts that stay.
    k: u32,
}

/// An id in a table that no expert has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadId {
    /// Row within the rows that were given.
    pub(super) row: usize,
    pub(super) id: i32,
}

impl Remap {
    /// The rewriting that belongs to the kept ids of a layer with `n_expert` experts; at least one stays.
    pub fn new(kept: &[u32], n_expert: u32) -> Self {
        let k = kept.len() as u32;
        let mut next = Vec::with_capacity(n_expert as usize);
        let mut stays = Vec::with_capacity(n_expert as usize);
        let mut new = 0;
        for old in 0..n_expert {
            let stay = kept.get(new as usize) == Some(&old);
            next.push(if new == k { 0 } else { new });
            stays.push(stay);
            new += u32::from(stay);
        }
        Self { next, stays, k }
    }

    /// The new ids of a token's experts.
    ///
    /// # Errors
    /// The first id that no expert has.
    pub fn row(&self, ids: &[i32]) -> Result<Vec<u32>, i32> {
        let mut bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.rewrite_row(&mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|&entry| u32::from_le_bytes(entry)).collect())
    }

    /// Rewrites whole rows of `n_expert_used` little-endian i32 in place. `n_expert_used` is at most the number of kept experts.
    pub(super) fn rewrite(&self, rows: &mut [u8], n_expert_used: usize) -> Result<(), BadId> {
        for (row, bytes) in rows.chunks_exact_mut(4 * n_expert_used).enumerate() {
            self.rewrite_row(bytes).map_err(|id| BadId { row, id })?;
        }
        Ok(())
    }

    /// Whether the row `after` is what the cut makes of the row `before`, whose bytes are used up.
    ///
    /// When the cut is not `direct`, others lie between: then experts that stay must have their new ids, the rest ids of
    /// experts, and a token that went to distinct experts must still do so.
    pub(super) fn is_true(&self, before: &mut [u8], after: &[u8], direct: bool) -> bool {
        if direct {
            return self.rewrite_row(before).is_ok() && before == after;
        }
        let ids = |row: &[u8]| -> Vec<i32> {
            row.as_chunks::<4>().0.iter().map(|&entry| i32::from_le_bytes(entry)).collect()
        };
        let (before, after) = (ids(before), ids(after));
        if is_distinct(&before) && !is_distinct(&after) {
            return false;
        }
        before.into_iter().zip(after).all(|(before, after)| {
            let Some(old) = usize::try_from(before).ok().filter(|&old| old < self.next.len()) else {
                return false;
            };
            let in_range = u32::try_from(after).is_ok_and(|after| after < self.k);
            in_range && (!self.stays[old] || self.next[old] as i32 == after)
        })
    }

    fn rewrite_row(&self, bytes: &mut [u8]) -> Result<(), i32> {
        let mut free = FreeIds::below(self.k);
        let mut removed = Vec::new();
        for (at, entry) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let id = i32::from_le_bytes(*entry);
            let old = usize::try_from(id).ok().filter(|&old| old < self.next.len()).ok_or(id)?;
            if self.stays[old] {
                *entry = (self.next[old] as i32).to_le_bytes();
                free.take(self.next[old]);
            } else {
                removed.push((at, old));
            }
        }
        for (at, old) in removed {
            let start = self.next[old];
            let new = free.first_from(start).or_else(|| free.first_from(0)).unwrap_or(start);
            free.take(new);
            bytes[4 * at..4 * at + 4].copy_from_slice(&(new as i32).to_le_bytes());
        }
        Ok(())
    }
}

/// The ids that a token does not go to yet. Each knows one at or above it that may be free, so that finding the first
/// takes next to no time, however many are taken.
struct FreeIds(Vec<u32>);

impl FreeIds {
    fn below(k: u32) -> Self {
        Self((0..=k).collect())
    }

    fn take(&mut self, id: u32) {
        self.0[id as usize] = id + 1;
    }

    /// The first free id from `start` on.
    fn first_from(&mut self, start: u32) -> Option<u32> {
        let end = self.0.len() as u32 - 1;
        let mut at = start;
        while at < end && self.0[at as usize] != at {
            let above = self.0[at as usize];
            // What was passed points to where it leads.
            self.0[at as usize] = self.0[above as usize];
            at = above;
        }
        (at < end).then_some(at)
    }
}

fn is_distinct(ids: &[i32]) -> bool {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(kept: &[u32], n_expert: u32, rows: &[i32], n_expert_used: usize) -> Result<Vec<i32>, BadId> {
        let mut bytes: Vec<u8> = rows.iter().flat_map(|id| id.to_le_bytes()).collect();
        Remap::new(kept, n_expert).rewrite(&mut bytes, n_expert_used)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|&entry| i32::from_le_bytes(entry)).collect())
    }

    #[test]
    fn kept_experts_get_their_new_ids() {
        assert_eq!(rewrite(&[1, 3, 4], 6, &[4, 1, 3, 3, 4, 1], 3).unwrap(), [2, 0, 1, 1, 2, 0]);
    }

    #[test]
    fn removed_experts_go_to_the_next_free_one() {
        // 0 → 1 is taken by the second entry, so 3; 5 → back to the lowest.
        assert_eq!(rewrite(&[1, 3, 4], 6, &[0, 1], 2).unwrap(), [1, 0]);
        assert_eq!(rewrite(&[1, 3, 4], 6, &[5, 4], 2).unwrap(), [0, 2]);
        assert_eq!(rewrite(&[1, 3, 4], 6, &[0, 2, 5], 3).unwrap(), [0, 1, 2]);
        assert_eq!(rewrite(&[1, 3, 4], 6, &[2, 2, 2], 3).unwrap(), [1, 2, 0]);
    }

    #[test]
    fn entries_of_a_token_stay_distinct() {
        let (n_expert, n_expert_used, kept) = (12, 4, [0, 2, 3, 7, 9]);
        for seed in 0..500_i32 {
            let row: Vec<i32> = (0..4).map(|i| (seed * 7 + i * 5) % 12).collect();
            let mut out = rewrite(&kept, n_expert, &row, n_expert_used).unwrap();
            out.sort_unstable();
            out.dedup();
            assert_eq!(out.len(), 4, "{row:?}");
            assert!(out.iter().all(|&id| (0..5).contains(&id)));
        }
    }

    #[test]
    fn id_of_no_expert_is_refused_with_token() {
        assert_eq!(rewrite(&[0, 1], 4, &[0, 1, 2, 4], 2), Err(BadId { row: 1, id: 4 }));
        assert_eq!(rewrite(&[0, 1], 4, &[-1, 1], 2), Err(BadId { row: 0, id: -1 }));
    }
}
