//! What watches a profile pass.

use super::mtp_pass::MtpPass;
use super::norms::NormsObserver;
use super::routing::RoutingObserver;
use super::tally::TallyError;
use crate::llama::{LlamaError, Node, ObserveError, Observer};
use crate::windows::{Computed, WindowObserver};

/// What is wrong with the counts so far.
#[derive(Debug)]
pub(super) enum CheckError {
    /// A reading.
    Llama(LlamaError),
    /// The sums.
    Tally(TallyError),
}

impl From<LlamaError> for CheckError {
    fn from(error: LlamaError) -> Self {
        CheckError::Llama(error)
    }
}

impl From<TallyError> for CheckError {
    fn from(error: TallyError) -> Self {
        CheckError::Tally(error)
    }
}

/// What watches the pass: the counts of the trunk, and the block of multi-token prediction behind it.
pub(super) struct Counting<'p> {
    pub(super) routing: RoutingObserver<'p>,
    pub(super) norms: Option<NormsObserver>,
    pub(super) mtp: Option<MtpPass<'p, 'p>>,
}

impl Counting<'_> {
    /// What cannot be right is said after the first corpus, not after the last.
    pub(super) fn check(&mut self) -> Result<(), CheckError> {
        self.routing.tally().map_err(LlamaError::from)?.check()?;
        if let Some(mtp) = &mut self.mtp {
            mtp.observer.tally().map_err(LlamaError::from)?.check()?;
        }
        Ok(())
    }
}

impl Observer for Counting<'_> {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        let norms = self.norms.as_mut().is_some_and(|norms| norms.wants(node));
        self.routing.wants(node) || norms
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        if self.routing.wants(node) {
            self.routing.observe(node)?;
        }
        if let Some(norms) = &mut self.norms
            && norms.wants(node)
        {
            norms.observe(node)?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.routing.is_done()
    }
}

impl WindowObserver for Counting<'_> {
    fn begin_batch(&mut self, parts: &[u32]) -> Result<(), ObserveError> {
        if let Some(norms) = &mut self.norms {
            norms.begin_batch(parts)?;
        }
        self.routing.begin_batch(parts)
    }

    fn end_batch(&mut self, computed: &Computed<'_>) -> Result<(), LlamaError> {
        self.mtp.as_mut().map_or(Ok(()), |mtp| mtp.follow(computed))
    }
}
