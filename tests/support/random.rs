//! Numbers that look random and are the same in every run.

use moeslice::random::SplitMix;

/// A stream of numbers, by its seed.
pub struct Random(pub u64);

impl Random {
    /// The stream that belongs to `seed` and `name`.
    pub fn of(seed: u64, name: &str) -> Self {
        // FNV-1a: names that differ get streams that have nothing in common.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Random(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let mut stream = SplitMix(self.0);
        let bits = stream.bits();
        self.0 = stream.0;
        bits
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A number between 0 and 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// A number around 0 with a standard deviation of 1.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.unit()).cos()
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
    }

    /// `count` of the numbers `0..n`, each at most once, in random order.
    pub fn some_of(&mut self, n: usize, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n as u32).collect();
        for at in 0..count {
            let other = at + self.below(n - at);
            all.swap(at, other);
        }
        all.truncate(count);
        all
    }

    /// `k` of the numbers `0..n`, ascending.
    pub fn choose(&mut self, k: u32, n: u32) -> Vec<u32> {
        let mut chosen = self.some_of(n as usize, k as usize);
        chosen.sort_unstable();
        chosen
    }
}
