//! How long work tells how far it has come, and how it hears that it should end.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a stage of long work counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes of files.
    Bytes,
    /// Tokens through the model.
    Tokens,
    /// Hundredths of a whole.
    Percent,
}

/// Is told how far long work has come. The work has one stage at a time.
pub trait Progress {
    /// A stage begins: its name, and what it counts.
    fn begin(&mut self, stage: &str, unit: Unit);

    /// So much of the stage is done, of so much in all; the total may change while the stage runs.
    fn update(&mut self, done: u64, total: u64);

    /// What the stage is working on now, such as a corpus.
    fn name(&mut self, what: &str);

    /// The stage is over, well or badly.
    fn end(&mut self);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _: &str, _: Unit) {}
    fn update(&mut self, _: u64, _: u64) {}
    fn name(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// Calls a function with what is done and what there is in all, whatever the stage.
#[derive(Clone, Copy, Debug)]
pub struct OnUpdate<F>(pub F);

impl<F: FnMut(u64, u64)> Progress for OnUpdate<F> {
    fn begin(&mut self, _: &str, _: Unit) {}
    fn update(&mut self, done: u64, total: u64) {
        (self.0)(done, total);
    }
    fn name(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// Runs one stage, and ends it however the work ends.
pub fn stage<T>(
    progress: &mut dyn Progress,
    name: &str,
    unit: Unit,
    work: impl FnOnce(&mut dyn Progress) -> T,
) -> T {
    progress.begin(name, unit);
    let result = work(progress);
    progress.end();
    result
}

/// A request to end long work early, which may come at any time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupt(Option<&'static AtomicBool>);

/// The work ended early, as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

impl Interrupt {
    /// One that never comes.
    pub const NEVER: Interrupt = Interrupt(None);

    /// One that comes when `flag` becomes true.
    pub const fn when(flag: &'static AtomicBool) -> Self {
        Interrupt(Some(flag))
    }

    /// Whether it has come.
    pub fn is_set(self) -> bool {
        self.0.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Ends the work when it has come.
    ///
    /// # Errors
    /// When it has.
    pub fn check(self) -> Result<(), Interrupted> {
        if self.is_set() { Err(Interrupted) } else { Ok(()) }
    }

    /// The flag behind it, for callbacks of llama.cpp.
    #[cfg(feature = "llama")]
    pub(crate) fn flag(self) -> Option<&'static AtomicBool> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_is_set_when_its_flag_is() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        let interrupt = Interrupt::when(&FLAG);
        assert_eq!(interrupt.check(), Ok(()));
        FLAG.store(true, Ordering::Relaxed);
        assert_eq!(interrupt.check(), Err(Interrupted));
        assert!(!Interrupt::NEVER.is_set());
    }
}
