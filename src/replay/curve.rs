//! The exact miss-ratio curve of LRU, from one pass (Mattson et al., 1970).
//!
//! The experts of a layer stand in the order of their last requests. A cache of `c` experts holds the first `c` of them, so a
//! request hits in all caches that are larger than the place where its expert stood, and counting the places gives the
//! misses of every capacity. How the members of one request are ordered is defined with [`crate::cache::PolicyKind::Lru`].

use super::steps::Chunk;
use crate::trace::TraceMeta;
use serde::Serialize;

/// A capacity of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Experts of each layer.
    pub capacity: u32,
    /// Misses of all layers.
    pub misses: u64,
    /// Hits a request.
    pub hit_rate: f64,
}

/// A miss-ratio curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurveResult {
    /// Requests in all.
    pub requests: u64,
    /// First requests of an expert since the cache was empty, which no capacity turns into hits.
    pub cold_misses: u64,
    /// By capacity, ascending.
    pub points: Vec<CurvePoint>,
}

/// Distances of a trace so far.
pub struct LruCurve {
    carry: bool,
    session: Option<u32>,
    stacks: Vec<Stack>,
    /// Requests by the place of their expert, from 0.
    places: Vec<u64>,
    cold: u64,
    least: u32,
    largest: u32,
}

/// The experts of a layer, last requested first.
struct Stack {
    order: Vec<u16>,
    member: Vec<bool>,
    found: Vec<(usize, u16)>,
}

impl LruCurve {
    /// For a trace of `meta`.
    pub fn new(meta: &TraceMeta, carry: bool) -> LruCurve {
        let stack = |n: u32| Stack {
            order: Vec::with_capacity(n as usize),
            member: vec![false; n as usize],
            found: Vec::new(),
        };
        let largest = meta.layers.iter().map(|layer| layer.n_expert).max().unwrap_or(0);
        LruCurve {
            carry,
            session: None,
            stacks: meta.layers.iter().map(|layer| stack(layer.n_expert)).collect(),
            places: vec![0; largest as usize],
            cold: 0,
            least: meta.layers.iter().map(|layer| layer.n_expert_used).max().unwrap_or(0),
            largest,
        }
    }

    /// Takes a part of the trace.
    pub fn feed(&mut self, chunk: &Chunk) {
        let n_layers = self.stacks.len();
        for (at, group) in chunk.groups.iter().enumerate() {
            let other = self.session.replace(group.session).is_some_and(|before| before != group.session);
            if other && !self.carry {
                self.stacks.iter_mut().for_each(|stack| stack.order.clear());
            }
            let single = group.rows.len() == 1;
            for (layer, stack) in self.stacks.iter_mut().enumerate() {
                self.cold += stack.request(chunk.experts_of(at, layer, n_layers), single, &mut self.places);
            }
        }
    }

    /// The curve, from the experts that a token uses up to all of a layer.
    pub fn finish(&self) -> CurveResult {
        let requests = self.cold + self.places.iter().sum::<u64>();
        let mut misses = requests;
        let mut points = Vec::new();
        for (at, places) in (1..).zip(&self.places) {
            misses -= places;
            if at >= self.least && at <= self.largest {
                let hit_rate = 1.0 - misses as f64 / requests.max(1) as f64;
                points.push(CurvePoint { capacity: at, misses, hit_rate });
            }
        }
        CurveResult { requests, cold_misses: self.cold, points }
    }
}

impl Stack {
    /// Counts the places of `experts`, and moves them to the top; gives how many never were there.
    fn request(&mut self, experts: &[u16], single: bool, places: &mut [u64]) -> u64 {
        self.found.clear();
        let mut cold = 0;
        let mut deepest = 0;
        for &expert in experts {
            self.member[usize::from(expert)] = true;
            match self.order.iter().position(|other| *other == expert) {
                Some(place) => {
                    places[place] += 1;
                    deepest = deepest.max(place + 1);
                    self.found.push((place, expert));
                }
                None => {
                    cold += 1;
                    self.found.push((usize::MAX, expert));
                }
            }
        }
        if cold > 0 {
            deepest = self.order.len();
        }
        // The others move down, from the deepest member up, into the places that members leave.
        let n = experts.len();
        self.order.resize(self.order.len() + cold as usize, 0);
        let mut to = deepest + cold as usize;
        for from in (0..deepest).rev() {
            let expert = self.order[from];
            if !self.member[usize::from(expert)] {
                to -= 1;
                self.order[to] = expert;
            }
        }
        debug_assert_eq!(to, n);
        if single {
            self.order[..n].iter_mut().rev().zip(experts).for_each(|(to, expert)| *to = *expert);
        } else {
            self.found.sort_unstable();
            self.order[..n].iter_mut().zip(&self.found).for_each(|(to, (_, expert))| *to = *expert);
        }
        experts.iter().for_each(|expert| self.member[usize::from(*expert)] = false);
        cold
    }
}
