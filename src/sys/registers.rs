//! Arithmetic compiled for wider registers than all processors of a kind have.

/// Work that is worth the widest registers of the processor. Its `run`, and what that calls in loops, must be
/// `#[inline(always)]`: what is not inlined stays compiled for all processors.
pub trait Wide {
    /// What it gives.
    type Output;

    /// Does the work.
    fn run(self) -> Self::Output;
}

/// Does the work with the widest registers that the processor has. The numbers are those of any other processor, since no
/// operation is replaced by another.
pub fn with_wide_registers<W: Wide>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide<W: Wide>(work: W) -> W::Output {
            work.run()
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { wide(work) };
        }
    }
    work.run()
}
